"""What egglog is told, as text: the schema, the facts, and each compiled rule.

Schema. Sorts T (tensors) and E (elements); one constructor for each operator, arguments first, attributes as interned
ids. Facts: `ty` the type of a tensor class, `dt` the dtype of an element class, `varies` whether a tensor class depends
on an input (1), or has a form that is known before run time (0, whatever its other forms are), `shifted` whether a
class that varies has a form that is the sum of what varies and a constant (1), `merged_T` and `merged_E` what rules of
several results may start from (0) and what they made (1). `by_<constructor>` holds the number of the rule that made a
node; 0 is the import. Terms of the model are named `(tn i)` and `(en i)`, because nested or shared expressions are
exponential to load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

from frittata.egraph import interning
from frittata.egraph.ops.registry import Op

SORT = {"tensor": "T", "element": "E"}
CONFLICT = 1 << 32
"""Facts from here on come from merging classes that disagreed: ids are smaller."""

_AGREE = "(| old (<< (^ old new) 32))"
"""Merging equal facts (egglog does merge those) keeps them; different ones leave a number of at least CONFLICT."""


@dataclass(frozen=True)
class Plan:
    """What Python adds to a rule between rounds: from the ids of a match's types and attributes to new ids.

    Rows of `match_table` carry, after `skip` classes, `inputs` ids; `evaluate` gives the ids to insert after them into
    `plan_table`, or None where the rule does not apply. `tables` declares that table and `rules` what is done with its
    rows, which is not declared before there are any: most rules never match.
    """

    match_table: str
    plan_table: str
    tables: str
    rules: str
    skip: int
    inputs: int
    evaluate: Callable[[tuple[int, ...]], tuple[int, ...] | None]


@dataclass(frozen=True)
class Program:
    """One compiled rule: egglog text, its plan if it needs one, and the constructors that it matches and makes.

    With a plan, `tables` and `rules` are of its first half, which finds the matches.
    """

    name: str
    number: int
    tables: str
    rules: str
    plan: Plan | None = None
    matches: frozenset[str] = frozenset()
    makes: frozenset[str] = frozenset()


def schema_of(op: Op) -> str:
    """Return the egglog declarations of one operator."""
    columns = " ".join([*(SORT[sort] for _, sort in op.operands), *("i64" for _ in op.attrs)])
    return (
        f"(constructor {op.key} ({columns}) {SORT[op.sort]})\n"
        f"(function by_{op.key} ({columns}) i64 :merge (min old new))\n"
    )


def ruleset_of(family: str) -> str:
    """Return the name of a family's ruleset, which no table of ours has."""
    return "family_" + re.sub(r"\W", "_", family)


def fact_rules(ops: Iterable[Op]) -> str:
    """Facts move up from operands to results; leaves are set when they are loaded."""
    out = ["(ruleset facts)"]
    for op in ops:
        if op.sort == "tensor" and op.operands and all(sort == "tensor" for _, sort in op.operands):
            names = [f"x{i}" for i in range(len(op.operands))]
            given = " ".join([*names, *(f"a{i}" for i in range(len(op.attrs)))])
            cases = {"": (" ".join(f"(= (varies {x}) 0)" for x in names), "(set (varies e) 0)")}
            varying = "(set (varies e) 1) (set (shifted e) 0)"
            cases |= {f"_{x}": (f"(= (varies {x}) 1)", varying) for x in names}
            out += [
                f'(rule ((= e ({op.key} {given})) {facts}) ({actions}) :ruleset facts :name "facts#{op.key}{name}")'
                for name, (facts, actions) in cases.items()
            ]
        if op.key == "t_add":
            facts = "(= (varies x) 1) (= (varies a) 0)"
            out.append(f'(rule ((= e (t_add x a)) {facts}) ((set (shifted e) 1)) :ruleset facts :name "facts#shifted")')
    for key in sorted({op.key for op in ops} & {"t_reshape", "t_permute"}):  # they show every value, so they tell it
        same = f"(= e ({key} x a)) (= e ({key} y a)) (!= x y) (= known (ty x)) (= known (ty y))"
        out.append(f'(rule ({same}) ((union x y)) :ruleset facts :name "facts#{key}_shows_all")')
    out.append('(rule ((= e (t_full v s))) ((set (varies e) 0)) :ruleset facts :name "facts#full")')
    out.append('(rule ((= e (e_const v))) ((set (scalar e) v)) :ruleset facts :name "facts#scalar")')
    return "\n".join(out)


TABLES = f"""
(sort T) (sort E)
(function tn (i64) T :no-merge)
(function en (i64) E :no-merge)
(function ty (T) i64 :merge {_AGREE})
(function dt (E) i64 :merge {_AGREE})
(function scalar (E) i64 :merge {_AGREE})
(function varies (T) i64 :merge (min old new))
(function shifted (T) i64 :merge (max old new))
(function merged_T (T) i64 :merge (max old new))
(function merged_E (E) i64 :merge (max old new))
"""


def _is_told_by_sum(given: tuple[int, ...]) -> tuple[int, ...] | None:
    whole, part = map(interning.value_of, given)
    concrete = all(isinstance(dim, int) for dim in whole.shape)
    return () if concrete and prod(whole.shape) and part.shape and whole.dtype != "bool" else None


ADDENDS = Program(
    "addends",
    0,
    "(relation match_addends (T T i64 i64))\n",
    """
(rule ((= s (t_add x a)) (= s (t_add x b)) (!= a b) (= a (ordering-min a b))
       (= (varies x) 1) (= (varies a) 0) (= (varies b) 0) (= whole (ty s)) (= part (ty a)) (= part (ty b)))
      ((match_addends a b whole part)) :ruleset facts :name "facts#addends")
""",
    Plan(
        "match_addends",
        "plan_addends",
        "(relation plan_addends (i64 i64))\n",
        """
(rule ((match_addends a b whole part) (plan_addends whole part)) ((union a b)) :ruleset facts :name "facts#cancel")
""",
        skip=2,
        inputs=2,
        evaluate=_is_told_by_sum,
    ),
    frozenset({"t_add"}),
)
"""Over the reals x + a is x + b only where a is b: what constants gather to in several orders is one class.

Without it a chain of products with biases has as many forms of its last bias as there are orders to gather them in, and
what is computed from two such chains has the square of that.
"""

ALWAYS = ("t_full", "e_const")
"""Operators that the facts mention."""

KNOWN = "known before run time"
"""Stands among the operators that a rule matches for tensors that are."""
