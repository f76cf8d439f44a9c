"""How the command line names a model: `file.py:function`, `package.module:function`, or a script in a `.txt` file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from frittata.egraph.errors import ModelError
from frittata.egraph.script import parse

_HOW = "give file.py:function, package.module:function or model.txt"


def load(spec: str) -> tuple[Any, tuple[Any, ...]]:
    """Return the model of a spec and the example arguments of a call.

    The function takes nothing and returns a module and its arguments. A script has no values for its params: they are
    drawn, like the arguments that it is measured on.

    Raises: ModelError if there is no such model.
    """
    if spec.endswith(".txt"):
        return _script(Path(spec)), ()
    where, separator, name = spec.rpartition(":")
    if not separator or not where:
        raise ModelError(f"{spec!r} does not name a model", do=_HOW)
    module = _file(Path(where)) if where.endswith(".py") else _module(where)
    factory = getattr(module, name, None)
    if not callable(factory):
        known = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise ModelError(f"{where} has no function {name!r}", do=f"it has {', '.join(known) or 'none'}")
    made = factory()
    if not isinstance(made, tuple) or len(made) != 2:
        raise ModelError(f"{name}() returned a {type(made).__name__}", spec, "return (module, args)")
    model, args = made
    return model, tuple(args) if isinstance(args, (tuple, list)) else (args,)


def _script(path: Path) -> Any:
    import numpy as np

    from frittata.egraph import dtypes, shapes
    from frittata.egraph.model import Model

    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"cannot open the script: {error.strerror}", str(path)) from error
    model = parse(text)
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
    except (ImportError, SyntaxError) as error:
        raise ModelError(f"the file cannot be loaded: {error}", str(path)) from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def _module(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"cannot import {name}: {error}", do=_HOW) from error
