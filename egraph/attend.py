"""What `attend` stands for, by other elements: the softmax of scores times values."""

from __future__ import annotations

from functools import lru_cache

from frittata.egraph.ops.elements import fold_identity
from frittata.egraph.ops.registry import element
from frittata.egraph.terms import Scalar, Term


@lru_cache(maxsize=1024)
def expanded(attend: Term) -> Term:
    """attend(s, v) = dot(p, v) with e = exp(s - max(s)), p = e / sum(e); where it is safe, p = 0 if max(s) = -inf."""
    scores, values = attend.args
    keys, safe = attend.attrs
    top = element("fold", scores, op="max", axis=-1, extent=keys)
    powers = element("exp", element("sub", scores, top))
    shares = element("div", powers, element("fold", powers, op="sum", axis=-1, extent=keys))
    if safe:
        nothing = element("const", value=fold_identity("max", scores.dtype))
        zero = element("const", value=Scalar.of(0, scores.dtype))
        shares = element("where", element("eq", top, nothing), zero, shares)
    return element("dot", shares, values, depth=keys)
