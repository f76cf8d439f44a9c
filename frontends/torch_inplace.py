"""In-place calls in an exported graph, read as what they are where nothing else sees the memory: renaming.

`y = relu_(x)` means `y = relu(x)`, and from there on `x` means `y`, as long as `x` was freshly made by the call before
and nobody looks at its memory through a view. Where that is not so, torch has to make the graph functional, which
traces the model again and takes seconds. One kind of change it gets wrong, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from frittata.egraph.errors import ModelError

_FRESH = frozenset(
    f"aten.{name}"
    for name in (
        *(f"conv{rank}d.default" for rank in (1, 2, 3)),
        *(f"conv_transpose{rank}d.{kind}" for rank in (1, 2, 3) for kind in ("default", "input")),
        "linear.default",
        "matmul.default",
        "batch_norm.default",
        "layer_norm.default",
        "group_norm.default",
    )
)
"""Composites of torch that always allocate. Others without alias annotations, as dropout, may return an operand."""


def in_place_calls(nodes: Iterable[torch.fx.Node]) -> dict[torch.fx.Node, tuple[Any, list[torch.fx.Node]]]:
    """Return for each in-place call its functional operator and the earlier names of the value that it changes.

    Calls that more than renaming is needed for are left out.
    """
    found: dict[torch.fx.Node, tuple[Any, list[torch.fx.Node]]] = {}
    seen: set[torch.fx.Node] = set()
    for node in nodes:
        seen.add(node)
        if drops_nothing(node, "aten.dropout_.default"):
            found[node] = torch.ops.aten.dropout.default, []
            continue
        counterpart = _counterpart(node)
        if counterpart is None:
            continue
        changed = node.args[0]
        if not isinstance(changed, torch.fx.Node):
            continue
        names = [*(found[changed][1] if changed in found else []), changed]
        others = (user for name in names for user in name.users if user in seen and user not in (*names, node))
        if is_fresh(names[0]) and _keeps_dtype(node) and not any(map(_may_be_a_view, others)):
            found[node] = counterpart, names
    return found


def drops_nothing(node: torch.fx.Node, name: str) -> bool:
    """Whether a call is of that dropout, and leaves its operand as it is."""
    return str(node.target) == name and not (node.args[1] and node.args[2])


def _counterpart(node: torch.fx.Node) -> Any:
    """Return the overload without the underscore that has the same operands, mostly the one of the same name."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable or node.kwargs.get("out") is not None:
        return None
    name, overload = schema.name.partition("::")[2], schema.overload_name or "default"
    packet = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else None
    if packet is None:
        return None
    candidates = (getattr(packet, kind) for kind in sorted(packet.overloads(), key=lambda kind: kind != overload))
    return next((found for found in candidates if _operands(found._schema) == _operands(schema)), None)


def _operands(schema: Any) -> list[tuple[str, str]]:
    """`pow.Scalar` is a number to the power of a tensor, `pow_.Scalar` a tensor to the power of a number."""
    return [(argument.name, str(argument.type)) for argument in schema.arguments]


def is_fresh(node: torch.fx.Node) -> bool:
    """Whether a call allocates its result."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or any(r.alias_info is not None for r in schema.returns):
        return False
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(  # pyright: ignore[reportPrivateUsage]
        f"{schema.name}.{schema.overload_name}".rstrip("."), "CompositeImplicitAutograd"
    )
    return not composite or str(node.target) in _FRESH


def _may_be_a_view(user: torch.fx.Node) -> bool:
    return not is_fresh(user)


def _keeps_dtype(node: torch.fx.Node) -> bool:
    """Whether all tensors have one dtype: in place, the result is cast to that of the first."""
    values = (used.meta.get("val") for used in node.all_input_nodes)
    return len({value.dtype for value in values if isinstance(value, torch.Tensor)}) == 1


def check_windows(nodes: Iterable[torch.fx.Node]) -> None:
    """Refuse writes through `unfold` where it leaves values out: torch's functional form makes zeros of them.

    Raises: ModelError.
    """
    views = set[torch.fx.Node]()
    for node in nodes:
        source = node.args[0] if node.args else None
        is_of_view = isinstance(source, torch.fx.Node) and source in views and _memory(source) == _memory(node)
        if is_of_view or (str(node.target) == "aten.unfold.default" and _leaves_values(*node.args)):
            views.add(node)
        if not views.isdisjoint(written(node)):
            raise ModelError(
                "a tensor is changed through windows of unfold that leave some of it out, which torch cannot export",
                do="change slices of the tensor, or unfold as much of it as the windows cover",
            )


def written(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Yield the operands that a call writes to."""
    schema = getattr(node.target, "_schema", None)
    for at, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name)
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.fx.Node))


def _memory(node: torch.fx.Node) -> Any:
    """Return what tells the memory of a call's first tensor from others."""
    tensors = (leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor))
    return next((StorageWeakRef(tensor.untyped_storage()) for tensor in tensors), None)


def _leaves_values(x: Any, axis: Any, size: Any, step: Any) -> bool:
    """Whether windows leave values between them or at the end."""
    shape = x.meta["val"].shape
    return len(shape) > 0 and (step > size or not statically_known_true((shape[axis] - size) % step == 0))


def check_memory(node: torch.fx.Node) -> None:
    """Raise ModelError if the first operand's memory is not its values in order, as it is to the terms."""
    memory: Any = node.args[0].meta["val"]  # type: ignore[union-attr]
    offset = memory.storage_offset()
    if free_unbacked_symbols(offset) or not memory.is_contiguous() or offset:
        shape = list(memory.shape)
        raise ModelError(
            f"strides lead through the memory of a view of shape {shape}",
            do="call .contiguous().clone() on the view, or write it by slices and permute",
        )
