"""What a chosen program has to do at least: the flops of its products, and each byte that comes in or goes out once.

What a program keeps between its kernels may stay in a cache, and what is not a product needs few flops: neither counts.
What comes in is read again where more was read in between than the near caches hold.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from frittata.egraph import dtypes, shapes, terms
from frittata.egraph.ops.elements import CONTRACTIONS
from frittata.egraph.ops.winograd import KERNEL
from frittata.egraph.program import Join, Kernel, Program, View, operands_of
from frittata.egraph.terms import TensorType, Term
from frittata.kernels.traffic import read_bytes


@dataclass(frozen=True)
class Work:
    """Units: floating-point operations, bytes; those of `again_bytes` come from the far cache at least."""

    flops: float
    read_bytes: float
    written_bytes: float
    again_bytes: float = 0.0


def work_of(program: Program, near_bytes: float) -> tuple[Work, ...]:
    """Return the work of each kernel in turn; `near_bytes` is what the first and second caches of all cores hold.

    Of arguments and weights counts what is looked up, at most their size for all kernels together. What is read again
    once other bytes were read is not near any more but for what the near caches hold of both.
    """
    types = program.types()
    within = _within(program)
    given = program.inputs.keys() | program.constants.keys()
    left = {name: float(_bytes(types[name])) for name in given}
    written: defaultdict[str, float] = defaultdict(float)
    for name in set(program.outputs):
        written[_root(name, within)] += _bytes(types[name])
    recent: dict[str, float] = {}
    works: list[Work] = []
    for kernel in program.kernels:
        reads: defaultdict[str, float] = defaultdict(float)
        for name, size in _reads(kernel).items():
            reads[_root(name, within)] += size
        first = again = 0.0
        for name in sorted(reads.keys() & given):
            size = min(reads[name], _bytes(types[name]))
            new = min(size, left[name])
            left[name] -= new
            first += new
            if name in recent:
                names = list(recent)
                since = sum(recent[n] for n in names[names.index(name) :])
                again += max(0.0, min(size - new, since - near_bytes))
            recent.pop(name, None)
            recent[name] = size
        results = {_root(output.name, within) for output in kernel.outputs}
        works.append(Work(product_flops(kernel), first, sum(written.pop(name, 0.0) for name in results), again))
    return tuple(works)


def _within(program: Program) -> dict[str, str]:
    """Return where what has no memory of its own lies: a view in its source, a part in its join."""
    sources = {step.name: step.source for step in program.steps if isinstance(step, View)}
    return sources | {part: step.name for step in program.steps if isinstance(step, Join) for part in step.parts}


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
