"""Functions of the caller's own in rules: what the syntax of conditions and attributes cannot say, Python says."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from frittata.egraph.errors import ModelError, RuleError
from frittata.egraph.ops import registry
from frittata.rules import elaborate
from frittata.rules.facts import FUNCTIONS
from frittata.rules.pattern import Expression, Rule, nodes

_BUILT_IN = frozenset(FUNCTIONS).union(keyword.kwlist)
_CALLED = re.compile(r"([^\W\d]\w*)\s*\(")

_Function = TypeVar("_Function", bound=Callable[..., Any])


def rule_function(function: _Function) -> _Function:
    """Let conditions and attributes of rules call a function by its name.

    It is given what they hold: a tensor's type, which has a shape and a dtype, numbers, strings, tuples. It returns a
    truth value, or an attribute made of such, and must depend on its arguments alone. Where it raises a ModelError,
    ValueError, LookupError or ArithmeticError, it has no value, and the rule does not match. A later function of a name
    takes its place.

    >>> @rule_function
    ... def halved(shape, axis):
    ...     return (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])

    Raises: RuleError if rules know the name already, or if nothing can be called by it.
    """
    name = getattr(function, "__name__", "")
    is_operator = any(registry.find(name, sort) for sort in ("tensor", "element"))
    if not name.isidentifier() or is_operator or name in (*_BUILT_IN, *elaborate.KINDS):
        raise RuleError(f"a function of rules cannot be named {name!r}", do="define it by a name of its own")

    @wraps(function)
    def called(*args: Any) -> Any:
        try:
            return _attribute(function(*args))
        except (ModelError, ValueError, LookupError, ArithmeticError):
            raise
        except Exception as error:
            call = f"{name}({', '.join(map(str, args))})"
            what = f"the function {name} of a rule raised {type(error).__name__}: {error}"
            raise RuleError(what, call, "raise ValueError where it has no value") from error

    FUNCTIONS[name] = called
    return function


def is_of_package(rule: Rule) -> bool:
    """Whether all that a rule mentions, operators and functions, is of this package, so that it never changes."""
    every = [node for one in (*rule.left, *rule.right) for node in nodes(one.pattern)]
    parts = (*(attr for node in every for attr in node.attrs), *(one.expression for one in rule.conditions))
    called = {name for part in parts if isinstance(part, Expression) for name in _CALLED.findall(part.text)}
    return called <= _BUILT_IN and all(registry.is_built_in(node.op, node.sort) for node in every)


def _attribute(found: Any) -> Any:
    """Return a value as attributes have it.

    Raises: TypeError if none can be compared with others.
    """
    if isinstance(found, list | tuple):
        return tuple(map(_attribute, found))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    value = found.item() if isinstance(found, np.generic) else found
    hash(value)
    return value
