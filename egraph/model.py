"""A model: named functions over tensor terms, and the values of its params."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np

from frittata.egraph import dtypes, interpret, terms
from frittata.egraph.errors import ModelError
from frittata.egraph.indexing import Affine, IndexMap, Quot, Rem, Var
from frittata.egraph.ops import registry
from frittata.egraph.shapes import Sym
from frittata.egraph.terms import TensorType, Term

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Function:
    """A function: its inputs, which are `input` terms, and what it returns."""

    inputs: tuple[Term, ...]
    outputs: tuple[Term, ...]

    def __post_init__(self) -> None:
        known = set(self.inputs)
        for term in terms.walk(*self.outputs):
            if term.op == "input" and term not in known:
                raise ModelError(f"input {term.attrs[0]!r} is used but not declared")
        names = [term.attrs[0] for term in self.inputs]
        if len(set(names)) != len(names):
            raise ModelError(f"inputs have equal names: {', '.join(names)}")

    def walk(self) -> Iterator[Term]:
        """Visit every term of the outputs once, arguments first."""
        return terms.walk(*self.outputs)


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Functions by name and the values of the params by name; two models are equal if their functions are."""

    functions: Mapping[str, Function]
    params: Mapping[str, Array] = field(default_factory=dict[str, Array])
    origin_by_term: Mapping[Term, str] = field(default_factory=dict[Term, str])

    def __getitem__(self, name: str) -> Function:
        return self.functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and dict(self.functions) == dict(other.functions)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.functions.items())))

    def __repr__(self) -> str:
        return f"Model({'; '.join(map(_signature, self.functions, self.functions.values()))})"

    def __str__(self) -> str:
        return self.script()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.script())}</pre>"

    @property
    def main(self) -> Function:
        """The function named main.

        Raises: ModelError if there is none.
        """
        if "main" not in self.functions:
            has = ", ".join(self.functions) or "none"
            raise ModelError(f"the model has no function 'main': it has {has}", do="name the one to be compiled main")
        return self.functions["main"]

    def interpret(self, *args: Array, precision: interpret.Precision = "f64") -> tuple[Array, ...]:
        """Run `main` in numpy.

        Raises: ModelError if the arguments do not fit.
        """
        inputs = self.main.inputs
        if len(args) != len(inputs):
            raise ModelError(f"main takes {len(inputs)} arguments, got {len(args)}")
        named = {term.attrs[0]: np.asarray(arg) for term, arg in zip(inputs, args, strict=True)}
        return interpret.evaluate(self.main.outputs, {**self.params, **named}, precision)

    def detach(self) -> tuple[Model, dict[str, Array]]:
        """Return the model with its params as inputs of each function, after its own, and their values by name.

        A name that no input can have, or that one has already, is spelled otherwise: 0.weight -> 0_weight.
        """
        params = dict.fromkeys(term for f in self.functions.values() for term in f.walk() if term.op == "param")
        taken = {term.attrs[0] for function in self.functions.values() for term in function.inputs}
        leaves: dict[Term, Term] = {}
        for param in params:
            name = _spelled(param.attrs[0])
            while name in taken:
                name += "_"
            taken.add(name)
            leaves[param] = registry.make("input", "tensor", (), (name, *param.attrs[1:]))
        values = {leaf.attrs[0]: self.params[p.attrs[0]] for p, leaf in leaves.items() if p.attrs[0] in self.params}
        return replace(self._with_leaves(leaves), params={}), values

    def bind(self, params: Mapping[str, Any]) -> Model:
        """Return the model with the inputs of these names as params, and copies of these values for all of these names.

        Values are arrays, or torch tensors.

        Raises: ModelError if there is no such input or param, or a value has another shape or dtype.
        """
        every = [term for function in self.functions.values() for term in (*function.walk(), *function.inputs)]
        kinds = ("param", "input")
        leaf_by_name = {term.attrs[0]: term for kind in kinds for term in every if term.op == kind}
        values = {name: np.array(_array(value)) for name, value in params.items()}
        for name, value in values.items():
            if name not in leaf_by_name:
                spelled = _spelled(name)
                do = f"detach() spelled it {spelled!r}" if spelled in leaf_by_name else ""
                raise ModelError(f"no input or param {name!r} to bind", do=do or f"there are {', '.join(leaf_by_name)}")
            leaf, given = leaf_by_name[name], TensorType(value.shape, dtypes.from_numpy(value.dtype))
            if given != leaf.type:
                raise ModelError(f"{leaf.op} {name!r} is {leaf.type}, and the value {given}")
        inputs = [leaf_by_name[name] for name in values if leaf_by_name[name].op == "input"]
        leaves = {leaf: registry.make("param", "tensor", (), leaf.attrs) for leaf in inputs}
        return replace(self._with_leaves(leaves), params={**self.params, **values})

    def _with_leaves(self, leaves: Mapping[Term, Term]) -> Model:
        """Put other leaves in the place of some; a function has those of its new ones that are inputs after its own."""

        def replaced(term: Term, args: tuple[Term, ...]) -> Term:
            return leaves[term] if term in leaves else registry.make(term.op, term.sort, args, term.attrs)

        def inputs_of(function: Function) -> tuple[Term, ...]:
            used = dict.fromkeys(term for term in function.walk() if term in leaves)
            kept = tuple(term for term in function.inputs if term not in leaves)
            return (*kept, *(leaves[term] for term in used if leaves[term].op == "input"))

        return self._rebuilt(replaced, inputs_of)

    def script(self, data: bool = False) -> str:
        """Return the model as script, which `parse` reads; with the values of its params, if their `data` is wanted."""
        from frittata.egraph.script import show

        return show(self, data)

    def table(self) -> str:
        """Return the terms of every function as a table: names, operators, operands and attributes, types, origins."""
        from frittata.egraph.script import table

        return table(self)

    def print_table(self) -> None:
        """Print the table."""
        print(self.table())

    def bind_dims(self, extent_by_name: Mapping[str, int]) -> Model:
        """Replace symbolic dims by numbers.

        Raises: ModelError if no input or param has a dim of a name.
        """
        every = [term for function in self.functions.values() for term in (*function.walk(), *function.inputs)]
        names = dict.fromkeys(dim.name for term in every if not term.args for dim in term.shape if isinstance(dim, Sym))
        unknown = [name for name in extent_by_name if name not in names]
        if unknown:
            what = f"no input has a dim {', '.join(unknown)}"
            known = f"its symbolic dims are {', '.join(names)}: bind only those" if names else "it has no symbolic dims"
            raise ModelError(what, do=known)
        return replace(self, functions={n: _bind_function(f, extent_by_name) for n, f in self.functions.items()})

    def rewritten(self, new_term: Callable[[Term, tuple[Term, ...]], Term]) -> Model:
        """Rebuild every function bottom-up: `new_term` gets each node and its new arguments; inputs stay as they are.

        What stands in the place of a term has its origin.
        """
        return self._rebuilt(new_term, lambda function: function.inputs)

    def _rebuilt(
        self, new_term: Callable[[Term, tuple[Term, ...]], Term], inputs_of: Callable[[Function], tuple[Term, ...]]
    ) -> Model:
        origins: dict[Term, str] = {}

        def rebuilt(term: Term, args: tuple[Term, ...]) -> Term:
            new = new_term(term, args)
            if term in self.origin_by_term:
                origins.setdefault(new, self.origin_by_term[term])
            return new

        functions = {
            name: Function(inputs_of(function), terms.rebuild_all(function.outputs, rebuilt))
            for name, function in self.functions.items()
        }
        return Model(functions, self.params, origins)


def _spelled(name: str) -> str:
    """Return the name of a param as that of an input."""
    return name.replace(".", "_")


def _array(value: Any) -> Any:
    if not hasattr(value, "detach"):
        return value
    from frittata.egraph.torch_arrays import array_of

    return array_of(value)


def _signature(name: str, function: Function) -> str:
    given = (f"{term.attrs[0]}: {term.type}" for term in function.inputs)
    return f"{name}({', '.join(given)}) -> {', '.join(str(term.type) for term in function.outputs)}"


def note_origin(origin_by_term: dict[Term, str], result: Term, place: str) -> None:
    """Say where an operator of the source stands, for its result and all terms under it that have no origin yet."""
    waiting = [result]
    while waiting:
        term = waiting.pop()
        if term.op not in ("input", "param") and term not in origin_by_term:
            origin_by_term[term] = place
            waiting.extend(term.args)


def short_origin(origin: str) -> str:
    """Keep the last two parts of a path: .../torch/nn/modules/activation.py:12 -> modules/activation.py:12."""
    return "/".join(origin.replace("\\", "/").split("/")[-2:])


def _bind_function(function: Function, extent_by_name: Mapping[str, int]) -> Function:
    def bind(term: Term, args: tuple[Term, ...]) -> Term:
        return registry.make(term.op, term.sort, args, tuple(bind_attr(a, extent_by_name) for a in term.attrs))

    bound = terms.rebuild_all((*function.inputs, *function.outputs), bind)
    return Function(bound[: len(function.inputs)], bound[len(function.inputs) :])


def bind_attr(value: Any, extent_by_name: Mapping[str, int]) -> Any:
    """Replace symbols inside an attribute."""

    def bind(part: Any) -> Any:
        match part:
            case Sym(name=name):
                return extent_by_name.get(name, part)
            case tuple():
                return tuple(map(bind, part))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            case IndexMap():
                return IndexMap(bind(part.source), bind(part.result), bind(part.sources))
            case Affine():
                return Affine(part.constant, bind(part.terms))
            case Var():
                return Var(part.key, bind(part.extent))
            case Quot() | Rem():
                return type(part)(bind(part.of), part.by)
            case _:
                return part

    return bind(value)
