"""Operators that others define: the functions of a model, and those for which ONNX itself has a body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto, defs


@dataclass(frozen=True)
class Definition:
    """A body by other operators, which may depend on the types of the operands, and defaults of its attributes."""

    body: Callable[[NodeProto, Sequence[TypeProto]], FunctionProto]
    defaults: Mapping[str, AttributeProto]

    @classmethod
    def of_function(cls, function: FunctionProto) -> Definition:
        """Take a function of the model."""
        return cls(lambda node, types: function, {given.name: given for given in function.attribute_proto})

    @classmethod
    def of_schema(cls, node: NodeProto, opset: int) -> Definition | None:
        """Take ONNX's own definition; None if there is none."""
        if not defs.has(node.op_type, node.domain):
            return None
        schema: Any = defs.get_schema(node.op_type, opset, node.domain)
        defaults = {name: given.default_value for name, given in schema.attributes.items() if given.default_value.name}
        if schema.has_function:
            return cls(lambda node, types: schema.function_body, defaults)
        if not schema.has_context_dependent_function:
            return None

        def body(node: NodeProto, types: Sequence[TypeProto]) -> FunctionProto:
            texts = [type_.SerializeToString() for type_ in types]
            return FunctionProto.FromString(schema.get_context_dependent_function(node.SerializeToString(), texts))

        return cls(body, defaults)


def specialized(body: FunctionProto, call: NodeProto, defaults: Mapping[str, AttributeProto]) -> Iterator[NodeProto]:
    """Return the nodes of a body with the attributes that they take from the call filled in."""
    given = {**defaults, **{attribute.name: attribute for attribute in call.attribute}}
    return (_filled(node, given) for node in body.node)


def _filled(node: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
    """Return a node with attributes in the place of references, in its graphs as well."""
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        name = attribute.ref_attr_name
        if name and name not in given:
            continue
        found = copy.attribute.add()
        found.CopyFrom(given[name] if name else attribute)
        found.name = attribute.name
        if not name and attribute.HasField("g"):
            del found.g.node[:]
            found.g.node.extend(_filled(inner, given) for inner in attribute.g.node)
    return copy
