"""Compiled models in files: the model, the chosen program and the params, and how the model is called.

A file is a zip of data and no code: arrays, JSON, and terms as `egraph.archive` writes them, whose reader makes nothing
but terms and programs. Kernels are compiled again where it is loaded, for the processor there, or come from the cache.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from frittata import cache
from frittata.egraph import archive, dtypes
from frittata.egraph.errors import ModelError, UnsupportedOpError
from frittata.egraph.machine import Machine
from frittata.egraph.model import Array, Function, Model
from frittata.extract.prices import Prices
from frittata.extract.recall import Choice
from frittata.frontends.calls import Call
from frittata.kernels import targets
from frittata.options import Options
from frittata.passes import Pipeline
from frittata.pipeline import Compilation
from frittata.rules import library
from frittata.rules.parse import parse_family
from frittata.rules.pattern import Family

_FORMAT = 2
_KEPT = ("numerics", "library", "target", "form", "freeze", "time_limit_s", "opt_level")
"""The options that go into a file; those that name files and machines do not."""
_HEADER, _TERMS = "frittata.json", "terms"
_NOT_OURS = (
    *(zipfile.BadZipFile, zlib.error, RuntimeError, EOFError),  # of an archive that is damaged, or has a password
    *(ValueError, KeyError, TypeError, AttributeError),
)


def save(path: Path, done: Compilation, read: Callable[[], list[Array]]) -> None:
    """Write a compiled model; `read` returns the parameters that are read at every call.

    Raises: ModelError if the model is called, or returns, what cannot be written as plain data; as `opened`.
    """
    main, choice, live = done.model.main, done.choice, read()
    header = {
        "format": _FORMAT,
        "call": done.imported.call().to_dict(),
        "options": {name: getattr(done.options, name) for name in _KEPT},
        "machine": done.machine.to_dict(),
        "rules": done.own_rules,
        "families": [phase.families for phase in done.options.pipeline.phases(f.name for f in done.families)],
        "admitted": [rule.full_name for family in done.families for rule in family.rules],
        "params": list(done.model.params),
    }
    chosen = (choice.program, dict(choice.bodies), choice.greedy_cost_s)
    terms = (main.inputs, main.outputs, dict(done.model.origin_by_term), chosen)
    with opened(path) as out, zipfile.ZipFile(out, "w") as file:
        file.writestr(_HEADER, json.dumps(header, indent=1))
        file.writestr(_TERMS, archive.to_bytes(terms))
        for kind, arrays in (("param", done.model.params.values()), ("read", live)):
            for number, array in enumerate(arrays):
                with file.open(f"{kind}/{number}.npy", "w", force_zip64=True) as part:
                    np.lib.format.write_array(part, np.asarray(array, order="C"), allow_pickle=False)


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """Open a file to write to.

    Raises: ModelError that names the path if that cannot be, or there is no room.
    """
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        do = "give the path of a file, in a folder that is there, with room for it"
        raise ModelError(f"cannot write {path}: {error.strerror}", do=do) from error


def load(path: Path, folder: Path | None) -> tuple[Compilation, tuple[Array, ...]]:
    """Read a compiled model and compile its kernels; return it, and the parameters that it is given at every call.

    Raises: ModelError if the file is none of ours, or has operators that are not registered.
    """
    start = time.perf_counter()
    try:
        with zipfile.ZipFile(path) as file:
            header = json.loads(file.read(_HEADER))
            if header["format"] != _FORMAT:
                raise ModelError(f"{path} has format {header['format']}", do=f"save it again: this reads {_FORMAT}")
            inputs, outputs, origins, chosen = archive.from_bytes(file.read(_TERMS))
            params, read = (_arrays(file, kind) for kind in ("param", "read"))
            values = dict(zip(header["params"], params, strict=True))
        model = Model({"main": Function(inputs, outputs)}, values, origins)
        machine = Machine(**header["machine"])
        pipeline = Pipeline("saved", tuple(map(tuple, header["families"])))
        options = Options(**header["options"], machine=machine, cache=folder, pipeline=pipeline)
        own = tuple((name, text) for name, text in header["rules"])
        own_families = [parse_family(text, f"{path}/{name}") for name, text in own]
        read_rules = partial(_kept, set(header["admitted"]), own_families)
        choice = Choice(*chosen)
        call = Call.from_dict(model, header["call"])
    except OSError as error:
        raise ModelError(f"cannot open {path}: {error.strerror}") from error
    except _NOT_OURS as error:
        if isinstance(error.__cause__, UnsupportedOpError):
            do = "register it before: frittata.ops.register, or frittata.extern of the function"
            raise ModelError(f"{path} cannot be loaded: {error.__cause__.what}", do=do) from error
        raise ModelError(f"{path} is no saved model: {error}", do="give a file that Optimized.save wrote") from error
    kernels = cache.kernels_in(cache.folder_of(folder))
    read_s = time.perf_counter() - start
    executable = targets.by_name(options.target).built(choice.program, model.params, kernels)
    seconds = {"load": read_s, "compile": time.perf_counter() - start - read_s}
    done = Compilation(options, call, model, read_rules, machine, choice, executable, True, Prices(), own, seconds)
    return done, tuple(read)


def _kept(admitted: set[str], own: Sequence[Family]) -> tuple[Family, ...]:
    """Return the rules that took part, as far as there are such today."""
    every = (*library.builtin_families(), *own)
    found = (replace(f, rules=tuple(r for r in f.rules if r.full_name in admitted)) for f in every)
    return tuple(family for family in found if family.rules)


def _arrays(file: zipfile.ZipFile, kind: str) -> list[Array]:
    names = sorted((n for n in file.namelist() if n.startswith(f"{kind}/")), key=lambda n: int(Path(n).stem))
    arrays = (np.lib.format.read_array(io.BytesIO(file.read(name)), allow_pickle=False) for name in names)
    # numpy's format has no name for bfloat16, and says that it is two bytes
    return [array.view(dtypes.to_numpy("bf16")) if array.dtype.kind == "V" else array for array in arrays]
