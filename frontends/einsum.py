"""Contractions by letters: two operands at a time, each pair as one product of matrices, batched.

bij,bjk->bik:  batch b, rows i, depth j, columns k
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

from frittata.egraph import shapes
from frittata.egraph.errors import ModelError
from frittata.egraph.ops.registry import tensor
from frittata.egraph.terms import Term
from frittata.frontends import idioms, idioms_indices

_Labelled = tuple[Term, str]
"""A tensor and a letter for each of its axes."""


def einsum(
    subscripts: str, operands: Sequence[Term], path: Sequence[int] | None = None, drops_batch: bool = False
) -> Term:
    """Contract operands of one dtype by Einstein's convention, in the order in which they stand.

    A `path` has the numbers of the first two to be contracted, then of the next two, of those that are left and the
    results, which come last. If the result is written without an ellipsis, it `drops_batch`: its axes are summed over.

    Raises: ModelError if subscripts and operands do not fit.
    """
    inputs, result = _letters(subscripts, [len(x.shape) for x in operands], drops_batch)
    named = [_diagonals(x, letters) for x, letters in zip(operands, inputs, strict=True)]
    _check(subscripts, named)
    pairs = list(zip(path[::2], path[1::2], strict=True)) if path else []
    while len(named) > 1:
        first, second = sorted(pairs.pop(0)) if pairs else (0, 1)
        right, left = named.pop(second), named.pop(first)
        wanted = set(result).union(*(letters for _, letters in named))
        named.insert(len(named) if path else 0, _contracted(left, right, wanted))
    x, letters = _summed(*named[0], set(result))
    return idioms.permute(x, [letters.index(letter) for letter in result])


def sums_alone(subscripts: str, ranks: Sequence[int]) -> bool:
    """Whether it is summed over an axis of one operand alone."""
    inputs, result = _letters(subscripts, ranks, drops_batch=True)
    return any(sum(letter in part for part in inputs) == 1 for letter in {*"".join(inputs)} - {*result})


def tensordot(x: Term, y: Term, axes: tuple[Sequence[int], Sequence[int]]) -> Term:
    """Sum products over pairs of axes."""
    left, right = (len(term.shape) for term in (x, y))
    letters = ascii_letters[: left + right]
    first, second = letters[:left], list(letters[left:])
    for a, b in zip(*axes, strict=True):
        if x.shape[a] != y.shape[b]:
            raise ModelError(f"tensordot of {x.type} and {y.type} over axes {a} and {b}", do="give axes of one extent")
        second[b] = first[a]
    kept = [letter for letter in first if letter not in second] + [letter for letter in second if letter not in first]
    return einsum(f"{first},{''.join(second)}->{''.join(kept)}", (x, y))


def _letters(subscripts: str, ranks: Sequence[int], drops_batch: bool) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, those of an ellipsis among them."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise ModelError(f"einsum {subscripts!r} of {len(ranks)} operands")
    free = [letter for letter in ascii_letters if letter not in text]
    wide = max((rank - len(part) + 3 for part, rank in zip(inputs, ranks, strict=True) if "..." in part), default=0)
    batch = "".join(free[:wide])
    spelled: list[str] = []
    for part, rank in zip(inputs, ranks, strict=True):
        count = rank - len(part) + 3
        spelled.append(part.replace("...", batch[wide - count :]) if "..." in part else part)
        if len(spelled[-1]) != rank:
            raise ModelError(f"einsum {subscripts!r}: {part!r} for a tensor with {rank} axes")
    letters = "".join(spelled)
    if strange := "".join(sorted(set(letters) - set(ascii_letters))):
        raise ModelError(f"einsum {subscripts!r}: {strange!r} for an axis", do="name axes by letters from a to Z")
    once = "".join(letter for letter in sorted(set(letters) - set(batch)) if letters.count(letter) == 1)
    result = right.replace("...", batch) if arrow else batch + once
    unknown = set(result) - set(letters)
    if unknown or len(set(result)) < len(result) or not (drops_batch or set(batch) <= set(result)):
        do = "name letters of the operands, each once, and '...' if these have axes there"
        raise ModelError(f"einsum {subscripts!r}: the result has {right!r}", do=do)
    return spelled, result


def _check(subscripts: str, named: Sequence[_Labelled]) -> None:
    extents: dict[str, set[object]] = {}
    for x, letters in named:
        for letter, extent in zip(letters, x.shape, strict=True):
            extents.setdefault(letter, set()).add(extent)
    for letter, found in extents.items():
        if len(found - {1}) > 1:
            raise ModelError(f"einsum {subscripts!r}: {letter} has extents {', '.join(sorted(map(str, found)))}")


def _diagonals(x: Term, letters: str) -> _Labelled:
    """Let each letter stand for one axis."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ModelError(f"einsum: {letter} has extents {x.shape[first]} and {x.shape[second]}")
            x = idioms_indices.diagonal(x, 0, first, second)
            letters = letters[:first] + letters[first + 1 : second] + letters[second + 1 :] + letter
    return x, letters


def _summed(x: Term, letters: str, wanted: set[str]) -> _Labelled:
    """Sum over what nobody wants."""
    gone = [i for i, letter in enumerate(letters) if letter not in wanted]
    return (idioms.reduce(x, "sum", gone) if gone else x), "".join(letter for letter in letters if letter in wanted)


def _contracted(left: _Labelled, right: _Labelled, wanted: set[str]) -> _Labelled:
    """Return the product of two tensors, summed over what only they have."""
    (x, first), (y, second) = _summed(*left, wanted | set(right[1])), _summed(*right, wanted | set(left[1]))
    shared = [letter for letter in first if letter in second]
    depth = [letter for letter in shared if letter not in wanted]
    batch = [letter for letter in shared if letter in wanted]
    rows = [letter for letter in first if letter not in second]
    columns = [letter for letter in second if letter not in first]
    if not depth:
        order = [*batch, *rows, *columns]
        return tensor("mul", _spread(x, first, order), _spread(y, second, order)), "".join(order)
    extent = {letter: x.shape[first.index(letter)] for letter in first}
    for letter, dim in zip(second, y.shape, strict=True):
        extent[letter] = dim if extent.get(letter, 1) == 1 else extent[letter]
    x, y = (_widened(*side, {letter: extent[letter] for letter in depth}) for side in ((x, first), (y, second)))
    matrices: list[Term] = []
    for (term, letters), outer, inner in (((x, first), rows, depth), ((y, second), depth, columns)):
        ordered = idioms.permute(term, [letters.index(letter) for letter in (*batch, *outer, *inner)])
        lead = ordered.shape[: len(batch)]
        sizes = [shapes.size(tuple(extent[letter] for letter in part)) for part in (outer, inner)]
        matrices.append(idioms.reshape(ordered, (*lead, *sizes)))
    product = tensor("matmul", *matrices)
    lead = product.shape[: len(batch)]
    shape = (*lead, *(extent[letter] for letter in (*rows, *columns)))
    return idioms.reshape(product, shape), "".join((*batch, *rows, *columns))


def _spread(x: Term, letters: str, order: Sequence[str]) -> Term:
    """Give a tensor axes for all letters, of extent 1 where it has none."""
    present = [letter for letter in order if letter in letters]
    ordered = idioms.permute(x, [letters.index(letter) for letter in present])
    return idioms.reshape(ordered, [x.shape[letters.index(letter)] if letter in letters else 1 for letter in order])


def _widened(x: Term, letters: str, extent: dict[str, object]) -> Term:
    """Expand axes of extent 1 that are summed together with longer ones."""
    return idioms.expand(x, [extent.get(letter, dim) for letter, dim in zip(letters, x.shape, strict=True)])  # pyright: ignore[reportArgumentType]
