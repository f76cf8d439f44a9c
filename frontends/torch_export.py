"""Import of torch modules: torch.export, then one row of `aten.ROWS` for each call in the exported graph."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec
from torch.utils import _pytree as pytree

from frittata.egraph import shapes
from frittata.egraph.errors import EmptyError, FrittataError, ModelError, UnsupportedOpError
from frittata.egraph.model import Function, Model, note_origin
from frittata.egraph.ops.registry import tensor
from frittata.egraph.shapes import Shape
from frittata.egraph.terms import TensorType, Term
from frittata.egraph.torch_arrays import array_of
from frittata.frontends import (
    aten,
    aten_complex,
    idioms,
    narrow,
    torch_closures,
    torch_control,
    torch_dims,
    torch_empty,
    torch_modes,
    torch_numbers,
    torch_running,
    torch_selected,
    torch_traced,
)
from frittata.frontends.calls import COMPLEX_TENSOR, TENSOR, State, axis_of_parts, real_of
from frittata.frontends.idioms_complex import Complex, as_complex, each, parts, stored
from frittata.frontends.torch_captured import Captured
from frittata.frontends.torch_decomposed import prepared
from frittata.frontends.torch_dtypes import COMPLEX, dtype_of, dtypes_of, is_complex
from frittata.frontends.torch_empty import EMPTY
from frittata.frontends.torch_extern import extern
from frittata.frontends.torch_imported import Imported
from frittata.frontends.torch_inplace import check_memory, in_place_calls
from frittata.frontends.torch_known import Known, sizes
from frittata.frontends.torch_origins import innermost, origin, source_of

_OWN = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_CHANGES_OWN = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)

_LOST = object()
"""Stands for a value that depends on an operator without a definition, and whose type we cannot say."""

_OUTSIDE = "compute what takes or gives empty tensors beside others outside of the model"


def from_module(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    place: Callable[[torch.fx.Node], str] | None = None,
    fallback: str = "error",
) -> Imported:
    """Export a module and import it; `place` says where a node of the export comes from, for errors.

    With `fallback="extern"` operators without a row become calls into torch, those that are pure functions.

    >>> imported = from_module(torch.nn.Linear(3, 2).eval(), (torch.zeros(5, 3),))
    >>> imported.model.main.outputs[0].op
    'linear'

    Raises: UnsupportedOpError that lists all operators without a row; ModelError for what cannot be imported.
    """
    program, names = exported(module, args, kwargs, dynamic_shapes)
    found = from_exported_program(program, names, place, fallback)
    return replace(found, signature=inspect.signature(module.forward))


def exported(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None
) -> tuple[torch.export.ExportedProgram, torch_dims.Places]:
    """Export a module; return the names of its dims too.

    Raises: ModelError.
    """
    check_call(module, args, kwargs)
    given, named = _apart((tuple(args), dict(kwargs or {})))
    captured = Captured((*module.parameters(), *module.buffers(), *pytree.tree_leaves((given, named))))
    try:
        with torch_running.alone():
            export = partial(torch_traced.followed, module, given, named, dynamic_shapes, captured)
            program = torch_running.steady(module, given, named, export)
    except FrittataError:  # of a converter, which says more
        raise
    except Exception as error:  # it runs the model, which may raise anything
        raise ModelError(
            f"torch.export cannot follow {type(module).__name__}: {torch_running.words(error)}",
            innermost(str(error)),
            torch_running.advice(error),
        ) from error
    fixed = captured.fixed(program.constants, module)
    program.constants.update({**torch_closures.with_parameters(program.constants, module), **fixed})
    dims = torch_dims.dims_by_place(module, given, named, dynamic_shapes)
    return program, {place: torch_dims.root(dim).__name__ for place, dim in dims.items()}


def check_call(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Raise ModelError if a module cannot be exported as it is now, or does not take the arguments."""
    torch_modes.check(module)
    if torch.is_autocast_enabled("cpu"):
        do = "write `with torch.autocast(...)` inside of the model's forward: there it is part of the model"
        raise ModelError("autocast is on around the import: kernels have the dtypes of the model itself", do=do)
    try:
        inspect.signature(module.forward).bind(*args, **(kwargs or {}))
    except TypeError as error:
        what = f"the example arguments do not fit {type(module).__name__}.forward: {error}"
        raise ModelError(what, do="give args=(...), all that forward takes") from error


def _apart(tree: Any) -> Any:
    """Make a tensor of each leaf: what is one tensor twice, or a parameter too, torch.export takes to be so always."""
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, tree)


def from_exported_program(
    program: torch.export.ExportedProgram,
    name_by_place: torch_dims.Places | None = None,
    place: Callable[[torch.fx.Node], str] | None = None,
    fallback: str = "error",
    sizes: Mapping[str, int] | None = None,
) -> Imported:
    """Import an exported program.

    `name_by_place` names symbolic dims: {(leaf of the arguments, axis): name} where torch's names are not wanted;
    `sizes` binds them; `place` says in errors where a node comes from, the user's source line unless given; `fallback`
    as in `from_module`.

    Raises: as `from_module`.
    """
    taken: Sequence[str] = getattr(program, "_guards_code", ())
    if taken and sizes is None:
        raise ModelError(
            f"the export holds only where {' and '.join(taken)}",
            do="optimize(..., dynamic_shapes=...) looks at it for each size; or write the module without such branches",
        )
    dims = torch_dims.Dims.of(program, name_by_place or {}).at(sizes or {}, program)
    with idioms.default_float("f64" if torch.get_default_dtype() is torch.float64 else "f32"):
        return _Importer(prepared(program), dims, place or origin, fallback).run()


@dataclass
class _Importer:
    program: torch.export.ExportedProgram
    dims: torch_dims.Dims
    place: Callable[[torch.fx.Node], str]
    fallback: str
    value_by_node: dict[torch.fx.Node, Any] = field(default_factory=dict)
    tensor_by_name: dict[str, torch.Tensor] = field(default_factory=dict)
    origin_by_term: dict[Term, str] = field(default_factory=dict)
    unsupported: dict[str, dict[str, str]] = field(default_factory=dict)
    ways: dict[str, None] = field(default_factory=dict)
    in_place: Mapping[torch.fx.Node, tuple[Any, list[torch.fx.Node]]] = field(default_factory=dict)
    selected: Mapping[torch.fx.Node, torch_selected.Selected] = field(default_factory=dict)
    known: Known = field(default_factory=lambda: Known({}, {}))
    masks: dict[torch_selected.Selected, Term] = field(default_factory=dict)
    """The masks as they were when something was selected: they may change in place."""
    inputs: list[Term] = field(default_factory=list)
    leaves: list[Any] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    own: dict[str, Term] = field(default_factory=dict)
    """Inputs that are the module's own tensors, by their names: those that it changes."""
    leaf_by_node: dict[torch.fx.Node, Term] = field(default_factory=dict)
    placeholders: dict[tuple[bool, str], torch.fx.Node] = field(default_factory=dict)
    """By whether it is an argument, and its name."""
    reads_memory: bool = False

    def run(self) -> Imported:
        signature = self.program.graph_signature
        changed = {str(spec.target) for spec in signature.output_specs if spec.kind in _CHANGES_OWN}
        nodes = list(self.program.graph.nodes)
        self.in_place = in_place_calls(nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        pairs = list(zip(placeholders, signature.input_specs, strict=True))
        taken = {node.name for node, spec in pairs if spec.kind is InputKind.USER_INPUT}
        needed = self._needed(nodes)
        read = [(node, spec) for node, spec in pairs if spec.kind in _OWN and spec.target not in changed and node.users]
        known = {node: self._constant(spec) for node, spec in read}
        known |= torch_empty.values(placeholders, self.dims.read)
        self._select([node for node in nodes if node in needed], known)
        for node, spec in pairs:
            self.placeholders[spec.kind is InputKind.USER_INPUT, spec.target or node.name] = node
            self._placeholder(node, spec, taken, changed)
        self.inputs.extend(self.own.values())
        for node in nodes:
            if node in needed and node.op != "output":
                self._step(node)
        self._refuse_unsupported()
        return self._imported(nodes[-1], signature.output_specs)

    def _needed(self, nodes: Sequence[torch.fx.Node]) -> set[torch.fx.Node]:
        """Return what the results are computed from; what nothing reads may be anything, even empty."""
        needed: set[torch.fx.Node] = set()
        for node in reversed(nodes):
            if node in needed or node in self.in_place or node.op == "output":
                needed.update((node, *node.all_input_nodes))
        return needed

    def _select(self, nodes: Sequence[torch.fx.Node], own: Mapping[torch.fx.Node, torch.Tensor]) -> None:
        self.known = Known.of(nodes, own, self.in_place)
        known, decided = {**self.dims.extent_by_symbol, **self.known.extents}, self.known.extents.keys()
        others = [n for n in nodes if not decided or decided.isdisjoint(sizes(n).union(*map(sizes, n.all_input_nodes)))]
        self.selected = torch_selected.selections(others, lambda node: self.in_place.get(node, (node.target,))[0])
        self.dims = replace(self.dims, extent_by_symbol=torch_selected.extents(self.selected.values(), known))

    def _known(self, name: str, value: Any) -> Any:
        """Return what is known at import as params."""
        if isinstance(value, list | tuple):
            return tuple(self._known(name, part) for part in value)
        if not isinstance(value, torch.Tensor):
            return value
        while name in self.tensor_by_name:
            name += "'"
        self.tensor_by_name[name] = value
        type_ = self._stored_type(value, name)
        return _value(tensor("param", name=name, shape=type_.shape, dtype=type_.dtype), value)

    def _imported(self, output: torch.fx.Node, specs: Sequence[OutputSpec]) -> Imported:
        results: list[Any] = []
        empties: dict[int, TensorType] = {}
        outputs: list[Term] = []
        changes: list[int] = []
        for value, spec in zip(output.args[0], specs, strict=True):  # type: ignore[arg-type]
            if isinstance(spec.arg, ConstantArgument):
                results.append(spec.arg.value)
                continue
            changed = self._changed(spec, value)
            if self.value_by_node[value] is EMPTY:
                if changed is None:
                    empties[len(outputs) + len(empties)] = self._stored_type(value.meta["val"], f"result {value}")
                    results.append(COMPLEX_TENSOR if value.meta["val"].is_complex() else TENSOR)
                continue
            term = self._read(value, output)
            if isinstance(term, int | float):  # computed of dims that are known
                results.append(term)
                continue
            if not isinstance(term, Term | Complex):
                if isinstance(term, torch_numbers.Number):
                    raise torch_dims.made_of_values()
                raise ModelError(f"the module returns the dim {value}", do="return tensors only")
            outputs.append(stored(term))
            if changed is None:
                results.append(TENSOR if isinstance(term, Term) else COMPLEX_TENSOR)
            else:
                changes.append(self.inputs.index(self.leaf_by_node[changed]))
        function = Function(tuple(self.inputs), tuple(outputs))
        used = {term.attrs[0] for term in function.walk() if term.op == "param"}
        parameters = {name: value for name, value in self.tensor_by_name.items() if name in used}
        values = {name: array_of(real_of(value.cpu())) for name, value in parameters.items()}
        model = Model({"main": function}, values, self.origin_by_term)
        kinds = {spec.target: spec.kind for spec in self.program.graph_signature.input_specs}
        parameters |= {
            name: value
            for name, value in self.program.constants.items()
            if isinstance(value, torch.Tensor)
            and (name not in kinds or (kinds[name] is InputKind.CONSTANT_TENSOR and name not in used))
        }
        params = {node: leaf for node, leaf in self.leaf_by_node.items() if leaf.op == "param"}
        decide = {leaf.attrs[0] for node, leaf in params.items() if node in self.known.sources or 0 in leaf.shape}
        parameters |= {name + " (of a size)" * (name in used): self.tensor_by_name[name] for name in decide}
        call = self.program.call_spec
        assert call.in_spec is not None and call.out_spec is not None
        specs_of_call = (call.in_spec, call.out_spec)
        taken = tuple(self.leaves), tuple(self.names)
        ranges = self.dims.ranges(self.program)
        state = State(tuple(changes), {name: self.tensor_by_name[name] for name in self.own})
        kept = None, self.reads_memory, state, empties
        return Imported(model, parameters, *specs_of_call, ranges, *taken, tuple(results), *kept)

    def _stored_type(self, value: torch.Tensor, what: str) -> TensorType:
        """Return the type in which a tensor, an empty or a complex one too, is taken and given."""
        type_ = self._type(value, what, may_be_empty=True, of_parts=True)
        return TensorType((*type_.shape, *axis_of_parts(value)), type_.dtype)

    def _changed(self, spec: OutputSpec, value: torch.fx.Node) -> torch.fx.Node | None:
        """Return the tensor that becomes a value, None of a result.

        Raises: ModelError if it becomes another in shape, as `out=` is resized: its memory stays.
        """
        if spec.kind is OutputKind.USER_OUTPUT:
            return None
        changed = self.placeholders[spec.kind is OutputKind.USER_INPUT_MUTATION, str(spec.target)]
        before, after = ([*map(self.dims.read, node.meta["val"].shape)] for node in (changed, value))
        if before != after:
            what = f"the model changes the shape of {changed.name} from {before} to {after}"
            raise ModelError(what, do="give out= a tensor of the shape of the result, or return the result")
        return changed

    def _placeholder(self, node: torch.fx.Node, spec: InputSpec, taken: set[str], changed: set[str]) -> None:
        value = node.meta.get("val")
        if spec.kind is InputKind.USER_INPUT:
            self.names.append(spec.arg.name)
            if isinstance(spec.arg, ConstantArgument):
                self.leaves.append(spec.arg.value)
                self.value_by_node[node] = spec.arg.value
                return
            if not isinstance(value, torch.Tensor):
                raise ModelError(
                    f"input {node.name} is a dynamic {type(value).__name__}", do="pass tensors or constants"
                )
            type_ = self._stored_type(value, f"input {node.name}")
            leaf = tensor("input", name=node.name, shape=type_.shape, dtype=type_.dtype)
            self.inputs.append(leaf)
            self.leaves.append(COMPLEX_TENSOR if value.is_complex() else TENSOR)
        elif spec.kind in _OWN:
            is_changed = spec.target in changed
            if not node.users and not is_changed:
                return
            found = self._constant(spec)
            name = f"self.{spec.target}" if spec.target in taken else str(spec.target)
            type_ = self._stored_type(found, f"{spec.kind.name.lower()} {spec.target}")
            self.tensor_by_name[name] = found
            if is_changed and 0 not in type_.shape:
                leaf = self._own(name, type_, taken)
            else:
                leaf = tensor("param", name=name, shape=type_.shape, dtype=type_.dtype)
        else:
            raise ModelError(f"the module takes {spec.target or node.name}, a {spec.kind.name}", do="pass tensors")
        self.leaf_by_node[node] = leaf
        self.value_by_node[node] = _value(leaf, node.meta["val"])

    def _own(self, name: str, type_: TensorType, taken: set[str]) -> Term:
        """Return the input that stands for a tensor of the module that calls change."""
        free = name.replace(".", "_")
        while free in taken:
            free += "_"
        taken.add(free)
        self.own[name] = tensor("input", name=free, shape=type_.shape, dtype=type_.dtype)
        return self.own[name]

    def _constant(self, spec: InputSpec) -> torch.Tensor:
        stored = self.program.state_dict.get(spec.target or "")
        found = stored if stored is not None else self.program.constants[spec.target or ""]
        if not isinstance(found, torch.Tensor):
            raise ModelError(f"constant {spec.target} is a {type(found).__name__}", do="register a tensor")
        if found.is_meta:
            raise ModelError(f"{spec.target} is on the meta device: it has no values", do="load the weights first")
        return found

    def _step(self, node: torch.fx.Node) -> None:
        if node.op == "call_function":
            self._call(node)
        elif node.op == "get_attr":
            self.value_by_node[node] = attrgetter(str(node.target))(node.graph.owning_module)

    def _call(self, node: torch.fx.Node) -> None:
        target, names = self.in_place.get(node, (node.target, []))
        name = str(target)
        if name in aten.SAYS_NOTHING:
            return
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
            known = self.known.results
            found = known[node] if node in known else torch_numbers.computed(node, partial(self._read, user=node))
            self.value_by_node[node] = found
            return
        empties = torch_empty.Call(node, target, self.value_by_node, partial(self._read, user=node), self._is_empty)
        remains = empties.remains(self.known.indices.get(node, ()))
        if remains is not None:
            self._set(node, remains, name)
            self.value_by_node.update(dict.fromkeys(names, remains))
            return
        if node.target is operator.getitem:
            source, key = node.args
            assert isinstance(source, torch.fx.Node)
            whole = self.value_by_node[source]
            self._set(node, whole if whole is _LOST else whole[key], f"{source.target} (result {key})")
            return
        if any(self.value_by_node[used] is _LOST for used in node.all_input_nodes):
            if name not in aten.ROWS and self.fallback == "error":
                self._unsupported(node, name)
            self.value_by_node[node] = _LOST
            return
        if node in self.known.results:
            self._set(node, self._known(f"known.{node.name}", self.known.results[node]), name)
            self.value_by_node.update(dict.fromkeys(names, self.value_by_node[node]))
            return
        takes_numbers = False
        try:
            takes_numbers = torch_numbers.are_taken(node, self.value_by_node)
            if name in torch_control.OPERATORS:
                given = [self._read(value, node) for value in node.args]
                self._set(node, torch_control.OPERATORS[name](self._graph, *given), name)
                return
            found = empties.result(partial(self._known, f"known.{node.name}"), self._steps)
            if found is not None:
                self._check(node, found, value)
                self._set(node, found, name)
                self.value_by_node.update(dict.fromkeys(names, found))
                return
            if any(empties.takes) and name not in torch_empty.PASSES:
                raise self._empty(node)
            if name not in aten.ROWS:
                raise UnsupportedOpError(name)
            if sizes(node) and self.dims.asks_values(node):
                raise torch_dims.made_of_values()
            if name in aten.READS_MEMORY:
                check_memory(node)
                self.reads_memory = True
            row, arguments, keywords = aten.ROWS[name], self._arguments(node), self._keywords(node)
            if node in self.known.indices:
                given, places = self.known.indices[node], partial(self._known, f"known.{node.name}")
                arguments[1] = [places(i) if isinstance(i, torch.Tensor) else self._read(i, node) for i in given]
            aten.check_numbers(name, (*arguments, *keywords.values()), dtypes_of(value)[0])
            if takes_numbers:
                row, arguments = torch_numbers.meaning(node, row, arguments, partial(self._type, what=name))
            if node in self.selected:
                mask = self._read(torch_selected.mask_of(node) or self.selected[node].mask, node)
                row = torch_selected.meaning(node, row, self.selected[node], mask, self.masks)
            is_rounded = aten.rounds(name)
            if is_rounded is not None and len(arguments) > 1:
                arguments[:2] = narrow.promoted(arguments[0], arguments[1], is_rounded)
            gives_complex = is_complex(value)
            if gives_complex or aten_complex.takes((*arguments, *keywords.values())):
                row = aten_complex.meaning(name, row, gives_complex)
            result = narrow.applied(row, arguments, keywords, lambda: dtypes_of(value))
            if gives_complex and isinstance(result, Term):
                result = Complex(*parts(result))
            is_compared = node in self.in_place and any(term.dtype == "bool" for term in _terms(result))
            if isinstance(value, torch.Tensor) and (name in aten.JOINS or is_compared):
                # empty parts of what is joined count for the dtype; what is compared in place keeps its own
                result = each(partial(idioms.cast, dtype=self._type(value, name, of_parts=True).dtype), result)
            self._check(node, result, value)
        except UnsupportedOpError as error:
            result = self._unsupported(node, name if error.what == name else f"{name} ({error.what})")
        except ModelError as error:
            self._refuse_unsupported()  # of which this may come: their results are unknown
            told = torch_dims.made_of_values() if self.dims.asks_values(node) and not takes_numbers else error
            told.where = f"{name} at {self.place(node) or node.name}" + (f", {error.where}" if error.where else "")
            raise told from error.__cause__
        self._set(node, result, name)
        self.value_by_node.update(dict.fromkeys(names, result))

    def _graph(self, graph: torch.fx.GraphModule, values: Sequence[Any]) -> list[Any]:
        """Import a graph within the graph and return its results."""
        output = graph.graph.output_node()
        self._steps(graph, values)
        return [self._read(value, output) for value in output.args[0]]  # type: ignore[union-attr]

    def _steps(self, graph: torch.fx.GraphModule, values: Sequence[Any]) -> None:
        """Import a graph within the graph."""
        given = iter(values)
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                self.value_by_node[node] = next(given)
            elif node.op != "output":
                self._step(node)

    def _set(self, node: torch.fx.Node, value: Any, name: str) -> None:
        """Remember a result; one that has no definition is an error only if it is used."""
        if value is None and node.users:
            value = self._unsupported(node, name)
        self.value_by_node[node] = value
        place = origin(node)
        for term in _terms(value):
            if isinstance(term, Term) and place:
                note_origin(self.origin_by_term, term, place)

    def _unsupported(self, node: torch.fx.Node, name: str) -> Any:
        """Call torch; or note the operator and go on with an unknown of its type, so that one error lists all."""
        takes_complex = any(isinstance(self.value_by_node[used], Complex) for used in node.all_input_nodes)
        if self.fallback == "extern" and not takes_complex:
            try:
                return self._extern(node)
            except UnsupportedOpError as error:
                name = f"{name} ({error.what})"
                self.ways.update(dict.fromkeys(filter(None, [error.do])))
        call, whole = source_of(node)
        self.unsupported.setdefault(name if name.startswith(whole) else f"{whole}: {name}", {})[call] = self.place(node)
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return _LOST
        try:
            type_ = self._type(value, node.name)
        except ModelError:
            return _LOST
        return tensor("input", name=f"?{node.name}", shape=type_.shape, dtype=type_.dtype)

    def _extern(self, node: torch.fx.Node) -> Any:
        """Return a call into torch, or the result of one that a row left out."""
        if node.target is not operator.getitem:
            target, _ = self.in_place.get(node, (node.target, []))
            return extern(node, target, lambda used: self._read(used, node), self._type)
        source, key = node.args
        assert isinstance(source, torch.fx.Node)
        found = self._extern(source)[key]
        if found is None:
            raise UnsupportedOpError(f"its result {key} has no element type here")
        return found

    def _refuse_unsupported(self) -> None:
        lines: list[str] = []
        for name, origin_by_call in sorted(self.unsupported.items()):
            known = list(dict.fromkeys(filter(None, origin_by_call.values())))
            lines.append(f"  {name} x{len(origin_by_call)}" + (f" at {', '.join(known[:4])}" if known else ""))
        if lines:
            what = "operators without a definition:\n" + "\n".join(lines)
            calls = "" if self.fallback == "extern" else ', or let torch run them with fallback="extern"'
            do = f"add a row to frontends/aten.py{calls}, or write the model without them"
            raise UnsupportedOpError(what, do="; ".join([do, *self.ways]))

    def _arguments(self, node: torch.fx.Node) -> list[Any]:
        """Positional arguments, those given by name among them, up to the last one given."""
        given = list(node.args)
        positional = [a for a in node.target._schema.arguments if not a.kwarg_only]  # type: ignore[union-attr]
        named = [i for i, a in enumerate(positional) if a.name in node.kwargs]
        for argument in positional[len(given) : max(named, default=-1) + 1]:
            given.append(node.kwargs.get(argument.name, argument.default_value))
        return [self._read(value, node) for value in given]

    def _keywords(self, node: torch.fx.Node) -> dict[str, Any]:
        only = {a.name for a in node.target._schema.arguments if a.kwarg_only} - aten.MAY_DROP  # type: ignore[union-attr]
        return {name: self._read(value, node) for name, value in node.kwargs.items() if name in only}

    def _read(self, value: Any, user: torch.fx.Node) -> Any:
        match value:
            case torch.fx.Node() if self.value_by_node[value] is EMPTY:
                if str(user.target) not in torch_empty.ONLY_DTYPES:
                    raise self._empty(value)
                zero = idioms.typed(0, self._stored_type(value.meta["val"], value.name).dtype)
                return Complex(zero, zero) if value.meta["val"].is_complex() else zero
            case torch.fx.Node():
                return self.dims.read(self.value_by_node[value])
            case list() | tuple() if str(user.target) in aten.JOINS:
                return [self._read(item, user) for item in value if self.value_by_node[item] is not EMPTY]
            case list() | tuple():
                return [self._read(item, user) for item in value]
            case torch.dtype() if value in COMPLEX:
                return COMPLEX[value]
            case torch.dtype():
                return dtype_of(value, str(user.target))
            case _:
                return self.dims.read(value)

    def _is_empty(self, value: torch.Tensor) -> bool:
        try:
            return 0 in map(self.dims.read, value.shape)
        except ModelError:  # of a size that has no number
            return False

    def _empty(self, node: torch.fx.Node) -> EmptyError:
        """Return the error that names the first empty tensor of those that made one empty."""
        while before := [used for used in node.all_input_nodes if self.value_by_node[used] is EMPTY]:
            node = before[0]
        shape = shapes.fmt(tuple(map(self.dims.read, node.meta["val"].shape)))
        what = f"{'input ' * (node.op == 'placeholder')}{node.name} is empty: shape {shape}"
        return EmptyError(what, self.place(node), do=_OUTSIDE)

    def _type(self, value: torch.Tensor, what: str, may_be_empty: bool = False, of_parts: bool = False) -> TensorType:
        """Return the type of a tensor; `of_parts`: of the parts of a complex one."""
        if value.layout != torch.strided:
            raise ModelError(f"{what} has layout {value.layout}", do="convert with .to_dense()")
        shape: Shape = tuple(self.dims.read(dim) for dim in value.shape)
        if 0 in shape and not may_be_empty:
            raise EmptyError(f"{what} is empty: shape {shapes.fmt(shape)}", do=_OUTSIDE)
        is_pair = of_parts and value.dtype in COMPLEX
        return TensorType(shape, dtype_of(value.dtype.to_real() if is_pair else value.dtype, what))

    def _check(self, node: torch.fx.Node, result: Any, value: Any) -> None:
        """Hold the type of each result to the one that torch computed."""
        pairs = zip(result, value, strict=True) if isinstance(result, tuple) else [(result, value)]
        for terms, expected in pairs:
            if isinstance(expected, torch.Tensor) and terms is not None and not self._is_empty(expected):
                type_ = self._type(expected, f"the result of {node.target}", of_parts=True)
                found = list(_terms(terms))
                if any(term.type != type_ for term in found) or len(found) != 1 + expected.is_complex():
                    became = ", ".join(str(term.type) for term in found)
                    what = f"{node.target} became {became}, torch says {type_}"
                    raise ModelError(what, do="call the model on these arguments; if torch does it, report this")


def _value(leaf: Term, tensor: torch.Tensor) -> Any:
    """Return what stands for a tensor that is taken or known."""
    return EMPTY if 0 in leaf.shape else as_complex(leaf) if tensor.is_complex() else leaf


def _terms(value: Any) -> Iterator[Any]:
    """Visit the terms of a result: parts, and parts of parts."""
    match value:
        case tuple():
            for part in value:
                yield from _terms(part)
        case Complex():
            yield from (value.real, value.imag)
        case _:
            yield value
