"""Values of params in a script, on request: a line for each after the functions, its bytes in base64.

    data "fc.weight" = "AACAPwAAAEA="
"""

from __future__ import annotations

import ast
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.model import Array
from frittata.egraph.terms import Term

_BEGIN = re.compile(r"data\s*[\"']")
_LINE = re.compile(r"data\s*(?P<name>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')\s*=\s*\"(?P<bytes>[^\"]*)\"\s*")


@dataclass(frozen=True)
class Data:
    """What a line says: the name of a param, and its bytes as text."""

    name: str
    text: str

    def value(self, param: Term) -> Array:
        """Return the values of a param.

        Raises: ModelError if these are not as many bytes.
        """
        try:
            found = b64decode(self.text, validate=True)
        except ValueError as error:
            raise ModelError(f"the data of {self.name!r} is no base64: {error}") from error
        kind, shape = dtypes.to_numpy(param.dtype), shapes.concrete(param.shape)
        wanted = shapes.size(shape) * kind.itemsize
        if len(found) != wanted:
            raise ModelError(f"the data of {self.name!r} has {len(found)} bytes, and {param.type} has {wanted}")
        return np.frombuffer(found, kind).reshape(shape).copy()


def lines(quoted: Mapping[str, Array]) -> str:
    """Write values by the quoted names of their params."""
    return "".join(f'data {name} = "{b64encode(value.tobytes()).decode()}"\n' for name, value in quoted.items())


def parted(text: str) -> tuple[str, dict[int, Data | None]]:
    """Return the text with blank lines in place of those of data, and these by number; None for what says nothing."""
    found: dict[int, Data | None] = {}
    kept = text.split("\n")
    for i, line in enumerate(kept):
        if _BEGIN.match(line):
            read = _LINE.fullmatch(line)
            name = read and unquoted(read["name"])
            found[i + 1] = Data(name, read["bytes"]) if read and name is not None else None
            kept[i] = ""
    return "\n".join(kept), found


def unquoted(literal: str) -> str | None:
    """Return the text that a literal of Python's stands for, None if it stands for something else."""
    try:
        value = ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return None
    return value if isinstance(value, str) else None
