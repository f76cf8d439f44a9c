"""Random programs of small kernels and views, for tests of planning and running."""

from __future__ import annotations

import numpy as np
from kernel_cases import build, element, leaf, number, softmax

from frittata.egraph.ops.registry import tensor
from frittata.egraph.program import Estimate, Kernel, Output, Program, View
from frittata.egraph.terms import TensorType, Term

SHAPE = (4, 6)
_FLAT = (24,)


def random_program(seed: int, length: int = 12) -> Program:
    """Draw a program over buffers of one shape: kernels of one or two outputs, views, outputs of all kinds."""
    rng = np.random.default_rng(seed)
    inputs = {name: TensorType(SHAPE, "f32") for name in ("a", "b")}
    weight = tensor("param", name="w", shape=SHAPE, dtype="f32")
    constants = {"c": tensor("mul", weight, weight), "d": weight}
    names = [*inputs, *constants]
    steps: list[Kernel | View] = []
    for number_ in range(length):
        name = f"v{number_}"
        if rng.random() < 0.2:
            # two views bring the shape back, so that every buffer of the list fits every kernel
            flat = View(f"{name}_flat", str(rng.choice(names)), TensorType(_FLAT, "f32"))
            steps += [flat, View(name, flat.name, TensorType(SHAPE, "f32"))]
            names.append(name)
            continue
        bodies = [_body(rng, names) for _ in range(1 + int(rng.random() < 0.3))]
        outputs = tuple(Output(f"{name}{suffix}", body) for suffix, body in zip("xy", bodies, strict=False))
        operands = tuple(dict.fromkeys(t.attrs[0] for body in bodies for t in _leaves(body)))
        steps.append(Kernel(name, "nest", outputs, operands, Estimate(1, 0, 0)))
        names += [output.name for output in outputs]
    chosen = tuple(str(name) for name in rng.choice(names, 4))
    return Program(inputs, constants, tuple(steps), chosen)


def _leaves(body: Term) -> list[Term]:
    from frittata.egraph.program import operands_of

    return list(operands_of(body))


def _body(rng: np.random.Generator, names: list[str]) -> Term:
    x, y = (element("load", leaf(str(rng.choice(names)), *SHAPE)) for _ in range(2))
    forms = [
        element("add", x, y),
        element("tanh", element("sub", x, y)),
        softmax(x, -1, SHAPE[-1]),
        element("max", x, number(0)),
    ]
    return build(forms[rng.integers(len(forms))], *SHAPE)
