"""How the command line names a model: `file.py:function`, `package.module:function`, a script in `.txt`, or `.onnx`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frittata.egraph.errors import FrittataError, ModelError
from frittata.egraph.script import parse

_HOW = "give file.py:function, package.module:function, model.txt or model.onnx"


def load(spec: str, dims: Mapping[str, int] | None = None) -> tuple[Any, tuple[Any, ...]]:
    """Return the model of a spec and the example arguments of a call.

    The function takes nothing and returns a module and its arguments. Params of a script that have no data there are
    drawn, like the arguments that it is measured on. `dims` are extents for symbolic dims of a script, an ONNX model.

    Raises: ModelError if there is no such model, or its file or its function raises.
    """
    if spec.endswith(".onnx"):
        if not Path(spec).is_file():
            raise ModelError("there is no such file", spec, _HOW)
        from frittata.frontends.onnx.importer import from_onnx

        return from_onnx(spec, dims=dims), ()
    if spec.endswith(".txt"):
        return _script(Path(spec), dims or {}), ()
    if dims:
        do = "leave --dim out: it is for a model.onnx or model.txt; the arguments of others have their sizes"
        raise ModelError(f"{spec} has no symbolic dims", do=do)
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise ModelError(f"{spec!r} does not name a model", do=_HOW)
    module = _file(Path(where)) if where.endswith(".py") else _module(where)
    factory = getattr(module, name, None)
    if not callable(factory):
        known = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise ModelError(f"{where} has no function {name!r}", do=f"it has {', '.join(known) or 'none'}")
    try:
        made = factory()
    except FrittataError:
        raise
    except Exception as error:  # the caller's code
        raise ModelError(f"{name}() raised {type(error).__name__}: {error}", _place(error) or spec) from error
    if not isinstance(made, tuple) or len(made) != 2:
        raise ModelError(f"{name}() returned {type(made).__name__}", spec, "return (module, args)")
    model, args = made
    return model, tuple(args) if isinstance(args, (tuple, list)) else (args,)


def _script(path: Path, dims: Mapping[str, int]) -> Any:
    import numpy as np

    from frittata.egraph import dtypes, shapes
    from frittata.egraph.model import Model

    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ModelError(f"cannot open the script: {error.strerror}", str(path)) from error
    except UnicodeDecodeError as error:
        raise ModelError("the script is not text in UTF-8", str(path), "save it as UTF-8") from error
    model = parse(text, str(path)).bind_dims(dims)
    rng = np.random.default_rng(0)
    values = {
        term.attrs[0]: rng.standard_normal(shapes.concrete(term.shape)).astype(dtypes.to_numpy(term.dtype))
        for function in model.functions.values()
        for term in function.walk()
        if term.op == "param" and term.attrs[0] not in model.params
    }
    return Model(model.functions, {**model.params, **values}, model.origin_by_term)


def _file(path: Path) -> Any:
    if not path.is_file():
        raise ModelError("there is no such file", str(path), _HOW)
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        found.loader.exec_module(module)
    except FrittataError:
        raise
    except Exception as error:  # the caller's code
        what = f"the file cannot be loaded: {type(error).__name__}: {error}"
        raise ModelError(what, _place(error) or str(path)) from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def _place(error: Exception) -> str:
    """Return where the caller's code raised an error, or cannot be read, as `file:line`."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return "" if frame.filename == __file__ else f"{frame.filename}:{frame.lineno}"


def _module(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"cannot import {name}: {error}", do=_HOW) from error
