"""What a chosen program has to do at least: the flops of its products, and each byte that comes in or goes out once.

What a program keeps between its kernels may stay in a cache, and what is not a product needs few flops: neither counts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.ops.winograd import KERNEL
from frittata.egraph.program import Kernel, Program, View, operands_of
from frittata.egraph.terms import TensorType, Term
from frittata.kernels.traffic import read_bytes


@dataclass(frozen=True)
class Work:
    """Units: floating-point operations, bytes."""

    flops: float
    read_bytes: float
    written_bytes: float


def work_of(program: Program) -> Work:
    """Return the work of a program: arguments and weights are read once, only where they are looked up at all."""
    types = program.types()
    sources = {step.name: step.source for step in program.steps if isinstance(step, View)}
    read: defaultdict[str, float] = defaultdict(float)
    for kernel in program.kernels:
        for name, size in _reads(kernel).items():
            read[_root(name, sources)] += size
    given = program.inputs.keys() | program.constants.keys()
    return Work(
        sum(map(product_flops, program.kernels)),
        sum(min(size, _bytes(types[name])) for name, size in read.items() if name in given),
        sum(_bytes(types[name]) for name in set(program.outputs)),
    )


def product_flops(kernel: Kernel) -> float:
    """Return the operations of a kernel's products; of one computed by fewer than its definition has, those."""
    every = list(terms.walk(*(output.body for output in kernel.outputs)))
    within = {e.args[0] for e in every if _is_sum(e)}
    defined = sum(_flops(e) for e in every if e not in within)
    return min(defined, kernel.estimate.flops) if any(e.op == "winograd_dot" for e in every) else defined


def _flops(term: Term) -> float:
    """Return the operations of a product by its definition, sums of products being one; 0 for other terms."""
    if term.sort == "element" and term.op in CONTRACTIONS:
        return 2.0 * shapes.size(term.shape) * _depth(term)
    summed, depth = term, 1
    while _is_sum(summed):
        depth *= summed.attrs[2]
        summed = summed.args[0]
    is_product = summed is not term and summed.op == "mul" and summed.args[0] != summed.args[1]
    return 2.0 * shapes.size(term.shape) * depth if is_product else 0.0


def _is_sum(term: Term) -> bool:
    return term.op == "fold" and term.attrs[0] == "sum"


def _depth(term: Term) -> int:
    """Return how many products each of its values is the sum of."""
    match term.op:
        case "window_dot":
            source, _, kernel, *_, groups = term.attrs
            return source[0] // groups * shapes.size(kernel)
        case "winograd_dot":
            return term.attrs[0][-1] * KERNEL**2
        case _:
            return term.attrs[0]


def _reads(kernel: Kernel) -> dict[str, float]:
    bodies = tuple(output.body for output in kernel.outputs)
    if kernel.is_opaque:
        return {leaf.attrs[0]: _bytes(TensorType(leaf.shape, leaf.dtype)) for leaf in operands_of(*bodies)}
    return {leaf.attrs[0]: size for leaf, size in read_bytes(bodies).items()}


def _root(name: str, sources: dict[str, str]) -> str:
    while name in sources:
        name = sources[name]
    return name


def _bytes(type_: TensorType) -> float:
    return float(shapes.size(type_.shape) * dtypes.itemsize(type_.dtype))
