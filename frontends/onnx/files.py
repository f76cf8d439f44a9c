"""Reading ONNX models."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

import onnx
from onnx import ModelProto
from onnx.checker import ValidationError

from frittata.egraph.errors import ModelError


def loaded(source: Any) -> ModelProto:
    """Return a ModelProto as it is, and read the one at a path, or of the bytes of such a file.

    Raises: ModelError if there is none.
    """
    if isinstance(source, ModelProto):
        return source
    if not isinstance(source, str | PathLike | bytes):
        do = "give a ModelProto, the path of a file, or its bytes"
        raise ModelError(f"a {type(source).__name__} is no ONNX model", do=do)
    path = f"what these {len(source)} bytes hold" if isinstance(source, bytes) else str(fspath(source))
    try:
        model = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}", do="check the path") from error
    except ValidationError as error:  # weights beside the model
        what = f"{path} has weights that cannot be read: {_first_line(error)}"
        raise ModelError(what, do="keep the files that the model names beside it") from error
    except Exception as error:  # of each format in its own way
        raise ModelError(f"{path} is no ONNX model: {_first_line(error)}", do=_ASK) from error
    if not model.HasField("graph"):
        raise ModelError(f"{path} is no ONNX model: it has no graph", do=_ASK)
    return model


_ASK = "give a file that onnx.load can read"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
