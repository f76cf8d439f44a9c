"""Import of ONNX models: one row of `rows.ROWS` for each node; what is known before run time is folded in numpy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TypeProto,
    ValueInfoProto,
    defs,
    helper,
)
from onnx.reference import ReferenceEvaluator

from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import EmptyError, FrittataError, ModelError, UnsupportedOpError
from frittata.egraph.model import Array, Function, Model, note_origin
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import TensorType, Term
from frittata.frontends import idioms, narrow
from frittata.frontends.calls import STATELESS, Call, Empties, State
from frittata.frontends.onnx import control, sequences
from frittata.frontends.onnx.definitions import Definition, specialized
from frittata.frontends.onnx.files import loaded
from frittata.frontends.onnx.rows import LAYERS, ROWS, ROWS_BY_DOMAIN
from frittata.frontends.onnx.tables import DTYPE_BY_ONNX, NAME_BY_DOMAIN, Row, dtype_of
from frittata.frontends.onnx.values import (
    LateError,
    Value,
    held,
    initial,
    is_foldable,
    is_known,
    is_same,
    is_short,
    is_uniform,
    late,
    of_result,
)


@dataclass(frozen=True, eq=False)
class ImportedOnnx:
    """A model and how to call it: arrays by position or by the names of the graph's inputs."""

    model: Model
    outputs: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    state: State = STATELESS
    empties: Empties = field(default_factory=dict[int, TensorType])

    @property
    def is_flat(self) -> bool:
        """Calls have no structure."""
        return True

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the arrays of a call in the order of the graph's inputs.

        Raises: ModelError if one is missing or not known.
        """
        return arguments_of([term.attrs[0] for term in self.model.main.inputs], args, kwargs)

    def unflatten(self, outputs: Iterable[Any]) -> Any:
        """Return one output as it is, several as a tuple."""
        found = tuple(outputs)
        return found[0] if len(found) == 1 else found

    def call(self) -> Call:
        """Return how the model is called, as plain data."""
        return Call.of(self.model, empties=self.empties)


def arguments_of(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the arrays of a call in the order of the inputs of these names.

    Raises: ModelError if one is missing or not known.
    """
    if not kwargs and len(args) == len(names):
        return list(args)
    named = dict(kwargs or {})
    given = [*args, *(named.pop(name) for name in names[len(args) :] if name in named)]
    if named or len(given) != len(names):
        got = f"{len(args)} by position and {', '.join(kwargs or {}) or 'none'} by name"
        raise ModelError(f"the model takes {', '.join(names)}; got {got}")
    return given


def from_onnx(
    source: Any,
    args: Sequence[Any] = (),
    dims: Mapping[str, int] | None = None,
    known: Mapping[str, Any] | None = None,
) -> ImportedOnnx:
    """Import a ModelProto, or the model at a path or of the bytes of a file.

    Symbolic dims are bound by the shapes of example arguments, or by name: `dims={"batch": 8}`. Inputs in `known` have
    these values for good, as an input that is a shape must; they are no inputs of the result.

    Raises: UnsupportedOpError that lists all operators without a row, with counts; ModelError.
    """
    model = loaded(source)
    return _Importer(model, _checked_dims(dims or {}, model)).run(args, known or {})


def _checked_dims(dims: Mapping[str, Any], model: ModelProto) -> dict[str, int]:
    """Return the extents by name, if the inputs have symbolic dims of these names."""
    axes = (dim for given in declared_inputs(model.graph) for dim in given.type.tensor_type.shape.dim)
    named = dict.fromkeys(dim.dim_param for dim in axes if dim.dim_param)
    unknown = sorted(str(name) for name in dims if name not in named)
    if unknown:
        known = f"its symbolic dims are {', '.join(named)}: bind only those" if named else "it has no symbolic dims"
        raise ModelError(f"dims={{...}}: no input has a dim {', '.join(unknown)}", do=known)
    return {name: _checked_extent(extent, f"dims={{{name!r}: ...}}") for name, extent in dims.items()}


def _checked_extent(extent: Any, where: str) -> int:
    if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or extent < 0:
        raise ModelError(f"{extent!r} is no extent", where=where, do="give an integer, at least 0")
    return int(extent)


def _shape_of(arg: Any, name: str) -> tuple[int, ...]:
    """Return the shape of an example, which a tuple gives itself."""
    if not isinstance(arg, tuple):
        return tuple(np.shape(arg))
    return tuple(_checked_extent(extent, f"axis {at} of input {name}") for at, extent in enumerate(arg))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _known(declared: ValueInfoProto, value: Any) -> Array:
    """Return a value that an input has for good, in the dtype of the input."""
    array, kind = np.asarray(value), helper.tensor_dtype_to_np_dtype(declared.type.tensor_type.elem_type)
    what, do = f"known={{{declared.name!r}: ...}} is of {array.dtype}", f"input {declared.name} takes {kind}"
    if not np.can_cast(array.dtype, kind, "same_kind"):
        raise ModelError(what, do=do)
    found = array.astype(kind)
    if array.dtype.kind in "iu" and found.dtype.kind in "iu" and (found != array).any():
        raise ModelError(f"{what}, with numbers beyond {kind}", do=do)
    return found


def declared_inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """Return the inputs that a caller gives: those that are no weights."""
    weights = {initializer.name for initializer in graph.initializer}
    return [given for given in graph.input if given.name not in weights]


_Scope = dict[str, Value | None]
"""Values by name; None is lost, because it depends on an operator without a row."""


class _Importer:
    def __init__(self, model: ModelProto, dims: dict[str, int]) -> None:
        self._model = model
        self._dims = dims
        self._opset_by_domain = _opsets(model.opset_import)
        self._function_by_name = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._params: dict[str, Array] = {}
        self._origin_by_term: dict[Term, str] = {}
        self._places_by_operator: dict[str, list[str]] = {}
        self._late: dict[str, None] = {}

    def run(self, args: Sequence[Any], known: Mapping[str, Any]) -> ImportedOnnx:
        graph = self._model.graph
        scope: _Scope = {"": Value()}
        for initializer in graph.initializer:
            scope[initializer.name] = initial(initializer)
        for sparse in graph.sparse_initializer:
            raise ModelError(f"initializer {sparse.values.name} is sparse", do="store it dense")
        declared = {given.name: given for given in graph.input}
        unknown = sorted(known.keys() - declared.keys())
        if unknown:
            raise ModelError(f"the model has no input {', '.join(unknown)}", do="give known= by the names of inputs")
        scope |= {name: Value(_known(declared[name], array)) for name, array in known.items()}
        inputs = self._inputs([given for given in declared_inputs(graph) if given.name not in known], args)
        scope |= {term.attrs[0]: _given(term) for term in inputs}
        self._nodes(graph.node, scope, "")
        found = [(self._operand(output.name, scope), output.name) for output in graph.output]
        self._refuse_unsupported()
        results = [(value, name) for value, name in found if value is not None]  # as all are by now
        empties = {at: _type_of(value.array, name) for at, (value, name) in enumerate(results) if value.is_empty}
        outputs = [self._term(value, name) for value, name in results if not value.is_empty]
        function = Function(tuple(inputs), tuple(outputs))
        used = {term.attrs[0] for term in function.walk() if term.op == "param"}
        params = {name: value for name, value in self._params.items() if name in used}
        model = Model({"main": function}, params, self._origin_by_term)
        return ImportedOnnx(model, tuple(output.name for output in graph.output), empties=empties)

    def _inputs(self, declared: Sequence[ValueInfoProto], args: Sequence[Any]) -> list[Term]:
        if args and len(args) != len(declared):
            names = ", ".join(value.name for value in declared)
            raise ModelError(f"the model takes {len(declared)} arguments ({names}), got {len(args)}")
        names = [value.name for value in declared]
        given = [_shape_of(arg, name) for arg, name in zip(args, names, strict=False)] or [None] * len(declared)
        return [self._input(value, shape) for value, shape in zip(declared, given, strict=True)]

    def _input(self, declared: ValueInfoProto, given: tuple[int, ...] | None) -> Term:
        kind = declared.type.tensor_type
        what = f"input {declared.name}"
        if declared.type.WhichOneof("value") != "tensor_type":
            raise ModelError(f"{what} is no tensor", do="write the model with tensors only")
        if not kind.HasField("shape"):
            shape = given
        elif given is not None and len(given) != len(kind.shape.dim):
            raise ModelError(f"{what} has {len(kind.shape.dim)} axes, not {len(given)}", do="give arguments that fit")
        else:
            axes = enumerate(kind.shape.dim)
            shape = tuple(
                self._extent(dim, None if given is None else given[i], f"axis {i} of {what}") for i, dim in axes
            )
        if shape is None:
            raise ModelError(f"{what} has no shape", do="give example arguments")
        return tensor("input", name=declared.name, shape=shape, dtype=dtype_of(kind.elem_type, what))

    def _extent(self, dim: Any, given: int | None, what: str) -> int:
        """Return the extent of an axis; a symbolic one is the same wherever its name stands."""
        extent = dim.dim_value if dim.HasField("dim_value") else self._dims.get(dim.dim_param, given)
        if extent is None:
            raise ModelError(
                f"{what} has the symbolic extent {dim.dim_param or '?'}",
                do="give example arguments, or from_onnx(..., dims={name: extent}); on the command line --dim NAME=N",
            )
        if given is not None and given != extent:
            raise ModelError(f"{what} is {extent}, not {given}", do="give arguments that fit")
        if dim.dim_param:
            self._dims[dim.dim_param] = extent
        return extent

    def _nodes(self, nodes: Iterable[NodeProto], scope: _Scope, prefix: str) -> None:
        for node in nodes:
            place = prefix + (node.name or next(filter(None, node.output), node.op_type))
            results: Sequence[Value | None] = ()
            try:
                results = self._node(node, scope, place)
            except UnsupportedOpError as error:
                if isinstance(error, LateError):
                    self._late.update(dict.fromkeys(error.inputs))
                detail = "" if error.what == node.op_type else f" ({error.what})"
                self._note(f"{node.domain and node.domain + '::'}{node.op_type}{detail}", place)
            except ModelError as error:
                error.where = f"{node.op_type} {place!r}" + (f", {error.where}" if error.where else "")
                raise
            for at, name in enumerate(node.output):
                value = results[at] if at < len(results) else None
                if name:
                    scope[name] = value
                if value is not None and value.term is not None:
                    note_origin(self._origin_by_term, value.term, place)

    def _node(self, node: NodeProto, scope: _Scope, place: str) -> Sequence[Value | None]:
        """Return the results of a node; none if an operand is lost."""
        row = self._row(node)
        function = None if row else self._function(node)
        operands = [self._operand(name, scope) for name in node.input]
        values = [value for value in operands if value is not None]
        is_lost = len(values) < len(operands)
        kind = "" if _domain(node) else node.op_type
        if kind in control.OPERATORS:
            return () if is_lost else self._with_graphs(node, values, scope, place)
        if kind in sequences.OPERATORS:
            return () if is_lost else [sequences.OPERATORS[kind](node, values, self._term)]
        if kind == "Identity" and values and values[0].items is not None:
            return values
        if kind == "CastLike":  # of its second operand only the dtype counts
            return () if is_lost else self._node(self._cast(node, values[1]), scope, place)
        if kind in ("Shape", "Size"):  # these ask about shapes, not about terms
            return () if is_lost else self._shape(node, values)
        if not is_lost and all(map(is_foldable, values)) and self._has_reference(node, row, _NOT_FOLDED):
            arrays = self._fold(node, row, values)
            if arrays is not None and (row is None or all(map(is_short, arrays))):
                return [Value(array) for array in arrays]
        if not is_lost and all(map(is_known, values)) and any(value.is_empty for value in values):
            arrays = self._fold(node, row, values) if self._has_reference(node, row, _NOT_FOLDED - LAYERS) else None
            if arrays is not None:
                return [Value(array) for array in arrays]
        if row is None and function is None:
            raise UnsupportedOpError(node.op_type)
        if is_lost:
            return ()
        if row is not None:
            return self._apply(row, node, values, place)
        assert function is not None
        return self._call(function, node, values, place)

    def _operand(self, name: str, scope: _Scope) -> Value | None:
        """Return what a name holds; None, and a note, if that has no definition."""
        if name not in scope:
            raise ModelError(f"{name!r} is used before it is computed", do="check the model with onnx.checker")
        value = scope[name]
        if value is not None and value.lacking:
            self._note(*value.lacking)
            return None
        return value

    def _row(self, node: NodeProto) -> Row | None:
        """Return the newest row that is not newer than the model's opset."""
        rows = ROWS_BY_DOMAIN.get(_domain(node), {}).get(node.op_type, ())
        fitting = [row for row in rows if row.since <= self._opset(node)]
        return max(fitting, key=lambda row: row.since) if fitting else None

    def _has_reference(self, node: NodeProto, row: Row | None, but: Collection[str]) -> bool:
        """Whether ONNX's reference computes what a node means; of operators with several rows it knows the newest."""
        if node.domain or node.op_type in but:
            return False
        return row is None or row is ROWS[node.op_type][-1]

    def _function(self, node: NodeProto) -> Definition | None:
        """Return what defines an operator by others: a function of the model, or ONNX itself."""
        own = self._function_by_name.get((node.domain, node.op_type, node.overload))
        return Definition.of_function(own) if own else Definition.of_schema(node, self._opset(node))

    def _opset(self, node: NodeProto) -> int:
        return self._opset_by_domain.get(_domain(node), 1)

    def _apply(self, row: Row, node: NodeProto, values: Sequence[Value], place: str) -> list[Value]:
        operands: list[Any] = []
        for at, (name, value) in enumerate(zip(node.input, values, strict=True)):
            if value.is_absent:
                operands.append(None)
            elif row.joins and value.is_empty:
                continue
            elif at in row.known:
                if value.array is None:
                    raise late(f"operand {at} is computed at run time", value)
                operands.append(value.array)
            elif at in row.numbers and value.array is not None and not value.array.shape:
                operands.append(value.array.item())
            else:
                operands.append(self._term(held(value) if row.by_value else value, name))
        usual = _defaults(node, self._opset(node))  # a row need not know what it is to leave as it is
        attributes = {k: v for k, v in _attributes(node).items() if row.takes(k) or k not in usual or v != usual[k]}
        given = operands, attributes, len(node.output)
        try:
            results = narrow.applied(row, given, {}, lambda: self._dtypes(node, operands))
        except FrittataError:
            raise
        except Exception as error:  # rows take operands and attributes as they come
            what = f"operands or attributes that do not fit: {error}"
            raise ModelError(what, do="check the model with onnx.checker") from error
        every = (*results, *(None,) * (len(node.output) - len(results)))
        return [
            Value(lacking=(f"{node.op_type} (result {at})", place)) if result is None else of_result(result)
            for at, result in enumerate(every)
        ]

    def _dtypes(self, node: NodeProto, operands: Sequence[Any]) -> list[dtypes.DType | None]:
        """Return the dtypes of results that are, as ONNX says, those of operands; None for others."""
        domain = _domain(node)
        opset = max(self._opset(node), defs.get_schema(node.op_type, domain=domain).since_version)
        schema: Any = defs.get_schema(node.op_type, opset, domain)
        last = len(schema.inputs) - 1
        named = {schema.inputs[min(at, last)].type_str: x for at, x in enumerate(operands) if isinstance(x, Term)}
        found = [named.get(result.type_str) for result in schema.outputs]
        return [None if x is None else x.dtype for x in found]

    def _call(self, found: Definition, node: NodeProto, values: Sequence[Value], place: str) -> list[Value | None]:
        """Import the nodes of a definition."""
        types = [self._type(value, name) for name, value in zip(node.input, values, strict=True)]
        body = found.body(node, types)
        scope: _Scope = {"": Value(), **{name: Value() for name in body.input}}
        scope |= dict(zip(body.input, values, strict=False))
        outer = self._opset_by_domain
        self._opset_by_domain = {**outer, **_opsets(body.opset_import)}
        self._nodes(specialized(body, node, found.defaults), scope, f"{place}/")
        self._opset_by_domain = outer
        asked = zip(body.output, node.output, strict=False)
        return [self._operand(inner, scope) if outer and inner in scope else None for inner, outer in asked]

    def _type(self, value: Value, name: str) -> TypeProto:
        if value.is_absent:
            return TypeProto()
        if value.array is not None and value.is_empty:
            kind = helper.np_dtype_to_tensor_dtype(value.array.dtype)
            return helper.make_tensor_type_proto(kind, value.array.shape)
        term = self._term(value, name)
        return helper.make_tensor_type_proto(_ONNX_BY_DTYPE[term.dtype], shapes.concrete(term.shape))

    def _fold(self, node: NodeProto, row: Row | None, values: Sequence[Value]) -> list[Array] | None:
        """Compute a node with the law of its row, or with ONNX's reference; None if that refuses."""
        try:
            with np.errstate(all="ignore"):  # what overflows is infinite, as it is at run time
                if row is not None and row.law is not None:
                    return [row.law(*(value.array for value in values), **_attributes(node))]
                return self._by_reference(node, values)
        except Exception:  # they check little, and fail in whatever way numpy does; rows say what is wrong
            return None

    def _by_reference(self, node: NodeProto, values: Sequence[Value]) -> list[Array]:
        copy = NodeProto()
        copy.CopyFrom(node)
        feeds: dict[str, Array] = {}
        for at, value in enumerate(values):
            copy.input[at] = "" if value.array is None else f"operand_{at}"
            if value.array is not None:
                feeds[f"operand_{at}"] = value.array
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([copy], "known", given, results)  # of a node alone it would take the newest opset
        found = iter(ReferenceEvaluator(graph, opsets={"": 1, **self._opset_by_domain}).run(None, feeds))
        return [np.asarray(next(found) if name else ()) for name in node.output]

    def _with_graphs(self, node: NodeProto, values: Sequence[Value], scope: _Scope, place: str) -> list[Value | None]:
        """Import a node that has graphs, which see the values around them."""
        own: dict[int, _Scope] = {}

        def run(graph: GraphProto, given: Sequence[Value | None], at: str) -> list[Value | None]:
            if id(graph) not in own:  # once for all iterations
                own[id(graph)] = {stored.name: initial(stored) for stored in graph.initializer}
            names = (declared.name for declared in graph.input)
            inner: _Scope = {**scope, **own[id(graph)], **dict(zip(names, given, strict=False))}
            self._nodes(graph.node, inner, f"{place}/{at}")
            return [self._operand(output.name, inner) for output in graph.output]

        return control.OPERATORS[node.op_type](node, values, run, self._term)

    def _cast(self, node: NodeProto, like: Value) -> NodeProto:
        """Return a cast to the dtype of a value."""
        if like.array is not None:
            to = helper.np_dtype_to_tensor_dtype(like.array.dtype)
        else:
            to = _ONNX_BY_DTYPE[self._term(like, "").dtype]
        cast = helper.make_node("Cast", node.input[:1], node.output, node.name, to=to)
        cast.attribute.extend(node.attribute)
        return cast

    def _shape(self, node: NodeProto, values: Sequence[Value]) -> list[Value | None]:
        """Every shape is known."""
        (value,) = values
        shape = shapes.concrete(value.array.shape if value.array is not None else self._term(value, "").shape)
        given = {attribute.name: attribute.i for attribute in node.attribute}
        if node.op_type == "Size":
            return [Value(np.array(shapes.size(shape), np.int64))]
        return [Value(np.array(shape[given.get("start", 0) : given.get("end", len(shape))], np.int64))]

    def _term(self, value: Value | None, name: str) -> Term:
        assert value is not None
        if value.items is not None:
            do = "join its tensors, ConcatFromSequence, or take one, SequenceAt"
            raise ModelError(f"{name} is a sequence of tensors", do=do)
        if value.term is None:
            assert value.array is not None
            value.term = self._constant(value.array, value.weight, name)
        return value.term

    def _constant(self, array: Array, weight: bool, name: str) -> Term:
        """Return one value everywhere as a number, else a param; a weight is a param whatever it holds."""
        kind = dtype_of(helper.np_dtype_to_tensor_dtype(array.dtype), f"constant {name}")
        if not array.size:
            what = f"{name} is empty: shape {shapes.fmt(array.shape)}"
            raise EmptyError(what, do="compute what takes empty tensors beside others outside of the model")
        if not weight and is_uniform(array):
            return idioms.filled(array.flat[0].item(), array.shape, kind)
        while name in self._params and not is_same(self._params[name], array):
            name += "'"
        self._params[name] = array
        return tensor("param", name=name, shape=array.shape, dtype=kind)

    def _note(self, operator: str, place: str) -> None:
        places = self._places_by_operator.setdefault(operator, [])
        if place not in places:
            places.append(place)

    def _refuse_unsupported(self) -> None:
        lines = [
            f"  {operator} x{len(places)} at {', '.join(places[:4])}"
            for operator, places in sorted(self._places_by_operator.items())
        ]
        if lines:
            do = "add a row to frontends/onnx/rows.py, or export the model without them"
            if self._late:
                values = ", ".join(f"{name!r}: array" for name in self._late)
                do = f"fix the inputs on which it depends, from_onnx(..., known={{{values}}}); {do}"
            raise LateError("operators without a definition:\n" + "\n".join(lines), do=do, inputs=tuple(self._late))


_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
_NOT_FOLDED = _RANDOM | LAYERS | {"QuantizeLinear", "ReduceLogSumExp", "Unique"}
"""Operators that give another result each time, and those that ONNX's reference computes otherwise than it says."""

_ONNX_BY_DTYPE = {name: kind for kind, name in DTYPE_BY_ONNX.items()}


def _domain(node: NodeProto) -> str:
    return NAME_BY_DOMAIN.get(node.domain, node.domain)


def _given(term: Term) -> Value:
    """Return the value of an input; of an empty one all is known."""
    if 0 not in term.shape:
        return Value(term=term)
    return Value(np.empty(shapes.concrete(term.shape), dtypes.to_numpy(term.dtype)))


def _type_of(array: Any, name: str) -> TensorType:
    return TensorType(array.shape, dtype_of(helper.np_dtype_to_tensor_dtype(array.dtype), name))


def _opsets(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    return {NAME_BY_DOMAIN.get(opset.domain, opset.domain): opset.version for opset in imports}


def _attributes(node: NodeProto) -> dict[str, Any]:
    every = {attribute.name: _attribute(attribute) for attribute in node.attribute}
    every.pop("consumed_inputs", None)  # before opset 6 it said whose memory may be written to
    return every


def _defaults(node: NodeProto, opset: int) -> dict[str, Any]:
    """Return what ONNX says of the attributes of an operator that are left out."""
    domain = _domain(node)
    if not defs.has(node.op_type, opset, domain):
        return {}
    given = defs.get_schema(node.op_type, opset, domain).attributes
    return {name: _attribute(each.default_value) for name, each in given.items() if each.default_value.name}


def _attribute(attribute: AttributeProto) -> Any:
    """Return the value; of a float, which is single precision, the shortest decimal that stands for it."""
    value: Any = helper.get_attribute_value(attribute)
    if isinstance(value, float):
        return float(str(np.float32(value)))
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode() for text in value]
    return value.decode() if isinstance(value, bytes) else value
