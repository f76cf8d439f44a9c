"""Programs over images with the channels last, one kernel after the other, that can run together in bands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from kernel_cases import Array, build, element, fold, leaf, number, reindex, softmax

from frittata.egraph import indexing
from frittata.egraph.bands import Finder
from frittata.egraph.machine import REFERENCE
from frittata.egraph.ops.registry import tensor
from frittata.egraph.ops.windows import pool_extents
from frittata.egraph.places import find_places, placed_bodies
from frittata.egraph.program import Band, Estimate, Join, Kernel, Output, Program, Step, operands_of
from frittata.egraph.terms import Scalar, TensorType, Term
from frittata.kernels import runtime, templates


@dataclass
class Images:
    """Grows a program; `last` is the buffer that the next step reads, an image of `shape` with the channels last."""

    shape: tuple[int, ...]
    steps: list[Step] = field(default_factory=list[Step])
    params: dict[str, Term] = field(default_factory=dict[str, Term])
    last: str = "x"

    def __post_init__(self) -> None:
        self.inputs = {"x": TensorType(self.shape, "f32")}

    def product(self, columns: int) -> Images:
        """Add a product of the channels with weights, and what is positive of it."""
        weights = element("load", self._weights(self.shape[-1], columns))
        e = element("dot", self._load(), weights, depth=self.shape[-1])
        return self._kernel(element("max", e, number(0)), (*self.shape[:-1], columns))

    def scaled(self) -> Images:
        """Add a point-wise step."""
        return self._kernel(element("add", element("mul", self._load(), number(0.5)), number(-0.25)), self.shape)

    def softmax(self) -> Images:
        """Add a softmax over the channels."""
        return self._kernel(softmax(self._load(), -1, self.shape[-1]), self.shape)

    def residual(self, name: str = "x") -> Images:
        """Add the sum with another buffer of the same shape."""
        return self._kernel(element("add", self._load(), element("load", leaf(name, *self.shape))), self.shape)

    def reversed_lines(self) -> Images:
        """Add a copy whose lines stand the other way round."""
        sources = list(indexing.axes_of(self.shape))
        sources[-3] = sources[-3] * -1 + (self.shape[-3] - 1)
        view = indexing.IndexMap(self.shape, self.shape, tuple(sources))
        return self._kernel(reindex(self._load(), view), self.shape)

    def padded(self, margin: int, value: float = 0.0) -> Images:
        """Put a border around the lines and columns, in place."""
        low = (*(0,) * (len(self.shape) - 3), margin, margin, 0)
        part = leaf(self.last, *self.shape)
        body = tensor("pad", part, low=low, high=low, value=Scalar.of(value, "f32"))
        self.steps.append(Join(f"around{len(self.steps)}", body))
        self.last, self.shape = self.steps[-1].name, tuple(n + 2 * m for n, m in zip(self.shape, low, strict=True))
        return self

    def windows(self, op: str = "sum", kernel: int = 3, stride: int = 1, dilation: int = 1) -> Images:
        """Add a fold over windows of each channel, a weighted sum or an extreme."""
        n, h, w, c = self.shape
        kernels, strides, dilations = (kernel,) * 2, (stride,) * 2, (dilation,) * 2
        out = pool_extents((h, w), kernels, strides, (0, 0), dilations, False)
        e = reindex(self._load(), indexing.pool_map_last(self.shape, kernels, (0, 0), strides, dilations, out))
        if op == "sum":
            e = element("mul", e, element("load", self._weights(kernel, kernel, 1, 1, 1, c)))
        return self._kernel(fold(op, fold(op, e, -5, kernel), -6, kernel), (n, *out, c))

    def program(self) -> Program:
        """Return the program, with templates as they are cheapest."""
        program = Program(self.inputs, self.params, tuple(self.steps), (self.last,))
        places = find_places(program)
        names = {
            kernel.name: templates.cheapest(placed_bodies(kernel, places), frozenset(self.params), REFERENCE)
            for kernel in program.kernels
        }
        steps = (replace(s, template=names[s.name]) if isinstance(s, Kernel) else s for s in self.steps)
        return replace(program, steps=tuple(steps))

    def values(self, seed: int = 0) -> dict[str, Array]:
        """Draw the weights."""
        rng = np.random.default_rng(seed)
        return {name: rng.standard_normal(p.shape).astype(np.float32) for name, p in self.params.items()}  # type: ignore[arg-type]

    def image(self, seed: int = 0) -> Array:
        """Draw the argument."""
        return np.random.default_rng(seed).standard_normal(self.inputs["x"].shape).astype(np.float32)  # type: ignore[arg-type]

    def _weights(self, *shape: int) -> Term:
        name = f"w{len(self.params)}"
        self.params[name] = tensor("param", name=name, shape=shape, dtype="f32")
        return leaf(name, *shape)

    def _load(self) -> Term:
        return element("load", leaf(self.last, *self.shape))

    def _kernel(self, e: Term, shape: tuple[int, ...]) -> Images:
        body = build(e, *shape)
        name = f"step{len(self.steps)}"
        operands = tuple(operand.attrs[0] for operand in operands_of(body))
        self.steps.append(Kernel(name, "nest", (Output(name, body),), operands, Estimate(1e-5, 1, 1)))
        self.last, self.shape = name, shape
        return self


def banded(program: Program, parts: int) -> Program:
    """Let all kernels that can run together do so, the longest bands first."""
    finder = Finder(program, find_places(program))
    names = [kernel.name for kernel in program.kernels]
    bands: list[Band] = []
    first = 0
    while first < len(names):
        ends = (end for end in range(len(names), first + 1, -1) if finder.stages(names[first:end]) is not None)
        end = next(ends, first + 1)
        if end > first + 1:
            bands.append(Band(tuple(names[first:end]), parts))
        first = end
    return replace(program, bands=tuple(bands))


def run(images: Images, program: Program, argument: Array) -> Array:
    """Build the program and run it twice."""
    executable = runtime.build(program, images.values())
    (first,) = executable(argument)
    (second,) = executable(argument)
    np.testing.assert_array_equal(first, second)
    return first
