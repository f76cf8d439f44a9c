"""Rule files: what is read, and how errors point at their place."""

from pathlib import Path

import pytest

from frittata.egraph.errors import RuleError
from frittata.rules.library import load_file
from frittata.rules.parse import parse_family
from frittata.rules.pattern import AttrVariable, Condition, Family, Level, Node, Number, Rule, Variable

X = Variable("x", "tensor")


def family(text: str) -> Family:
    return parse_family(text, "my.rules")


def rule(text: str) -> Rule:
    (found,) = family(text).rules
    return found


def error(text: str) -> str:
    with pytest.raises(RuleError) as raised:
        family(text)
    return str(raised.value)


def test_reads_an_equation() -> None:
    found = rule("relu-relu: relu(relu(x)) => relu(x)  # once is enough")
    assert found.full_name == "my/relu-relu"
    assert found.kind == "equation" and found.level == Level("exact")
    assert found.left[0].name == "it"
    assert found.left[0].pattern == Node("relu", "tensor", (Node("relu", "tensor", (X,), ()),), ())
    assert found.right[0].pattern == Node("relu", "tensor", (X,), ())
    assert found.location.text.strip() == "relu-relu: relu(relu(x)) => relu(x)"


def test_both_ways_is_two_rules() -> None:
    there, back = family("spread: x * a + x * b <=> x * (a + b) [reassoc]").rules
    assert (there.name, back.name) == ("spread", "spread.reverse")
    assert there.left == back.right and there.right == back.left
    assert back.level == Level("reassoc")


def test_transform_is_marked() -> None:
    assert rule("faster: gelu(x) ~> gelu_tanh(x)").kind == "transform"


def test_infix_follows_the_default_sort_and_the_operands() -> None:
    rules = family("a: x + y => y + x\nsort element\nb: x + y => y + x\nc: load(x) * 2 => load(x)").rules
    tensor, element, loaded = rules
    assert tensor.left[0].pattern.sort == "tensor"
    assert element.left[0].pattern.sort == "element"
    assert loaded.sort_by_variable["x"] == "tensor"


def test_number_takes_its_dtype_from_a_variable_beside_it() -> None:
    pattern = rule("a: where(c, x, y) => where(c, max(x, 0), -1)").right[0].pattern
    assert isinstance(pattern, Node) and isinstance(pattern.args[1], Node)
    assert pattern.args[1].args[1] == Number(0, "tensor", "x")
    assert pattern.args[2] == Number(-1, "tensor", "x")


def test_minus_zero_keeps_its_sign() -> None:
    pattern = rule("a: x + -0.0 => x").left[0].pattern
    assert isinstance(pattern, Node) and repr(pattern.args[1]) == "Number(value=-0.0, sort='tensor', like='x')"


def test_attributes_by_name_order_and_default() -> None:
    named, placed, default = (
        rule(f"a: relu({text}) => relu(x)").left[0].pattern
        for text in ("softmax(x, axis=k)", "softmax(x, k)", "softmax(x)")
    )
    assert named == placed
    assert isinstance(named, Node) and isinstance(named.args[0], Node)
    assert named.args[0].attrs == (AttrVariable("k"),)
    assert isinstance(default, Node) and isinstance(default.args[0], Node)
    assert str(default.args[0].attrs[0]).startswith("Expression(text='-1'")


def test_build_without_shape_joins_its_class() -> None:
    pattern = rule("a: relu(x) => build(max(load(x), 0))").right[0].pattern
    assert isinstance(pattern, Node) and pattern.attrs == (None,)


def test_several_patterns_and_a_guard_over_lines() -> None:
    found = rule("""two: p = matmul(x, v), q = matmul(x, w)
        => y = matmul(x, v + w),
           p = slice(y, -1, 0, 1, shape(v)[-1]),  # one half
           q = slice(y, -1, 0, 1, shape(w)[-1])
        if const(v, w) and shape(v) == shape(w)  [reassoc]""")
    assert [b.name for b in found.left] == ["p", "q"]
    assert [b.name for b in found.right] == ["y", "p", "q"]
    assert found.conditions[0] == Condition(constants=("v", "w"))
    assert found.conditions[1].expression is not None
    assert found.conditions[1].expression.text == "shape(v) == shape(w)"
    assert found.conditions[1].expression.names == ("v", "w")


def test_levels_and_directives() -> None:
    found = family("opt_level 2\na: gelu(x) => gelu_tanh(x) [approx(1e-3)]")
    assert found.opt_level == 2
    assert found.rules[0].level == Level("approx", 1e-3)
    assert family("a: relu(x) => x [loose]").rules[0].level == Level("loose")


def test_operators_that_python_keeps_for_itself() -> None:
    pattern = rule("a: not_(not_(x)) => x").left[0].pattern
    assert isinstance(pattern, Node) and pattern.op == "not"


def test_error_shows_line_column_and_caret() -> None:
    text = error("# first\nok: relu(relu(x)) => relu(x)\nbad: gelu(x) =>  relux(x)")
    assert "my.rules:3:18" in text
    assert "\n    bad: gelu(x) =>  relux(x)\n                     ^" in text
    assert "unknown operator 'relux'" in text and "did you mean 'relu'?" in text


def test_error_in_a_continued_line_points_there() -> None:
    text = error("bad: relu(x)\n    => max(\n        x,\n        gelux(x))")
    assert "my.rules:4:9" in text and "\n            gelux(x))\n            ^" in text


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a: relu(x, y) => x", "1:12", "takes 1 operand; this is one too many"),
        ("a: add(x) => x", "1:4", "add takes 2 operands (x, y), got 1"),
        ("a: softmax(x, axs=3) => x", "1:15", "did you mean 'axis'?"),
        ("a: reduce_sum(x) => x", "1:4", "needs the attribute 'axis'"),
        ("a: relu(x) => gelu(y)", "1:20", "'y' is not bound on the left"),
        ("a: softmax(x, k) => softmax(x, n)", "1:32", "'n' is not bound on the left"),
        ("a: relu(x) => x if shpe(x) == ()", "1:20", "did you mean 'shape'?"),
        ("a: relu(x) => x if x.shape == ()", "1:20", "write shape(x)"),
        ("a: relu(x) => x if x == 1", "1:20", "'x' is a tensor where a value is needed"),
        ("a: relu(x) => x if const(3)", "1:26", "takes tensors bound on the left"),
        ("a: relu(x) => x if const()", "1:20", "takes tensors bound on the left"),
        ("a: relu(x) => x if not const(x)", "1:24", "const(...) is a condition by itself"),
        ("a: relu(x) => x if dtype(x) == f32", "1:32", 'write "f32"'),
        ("a: relu(x) => x * scalar(1, dtype(x))", "1:19", "scalar(...) is a value"),
        ("a: where(x > 0, x, 0) => relu(x)", "1:10", "write gt(..., ...)"),
        ("a: softmax(x, k) => x * k", "1:25", "an attribute where a tensor is needed"),
        ("a: softmax(x, k) => x * k", "1:25", "write full(scalar(k, dtype(x)), ())"),
        ("a: square(x) => x**2", "1:17", "write pow(..., ...)"),
        ("a: relu(x) => x\na: gelu(x) => x", "2:1", "stands in line 1 already"),
        ("a: relu(x => x", "1:8", "'(' is never closed"),
        ("a: relu(x)) => x", "1:11", "')' closes nothing"),
        ("a: relu(x) + => x", "1:13", "cannot read this"),
        ("a: relu(x) x", "1:12", "has no arrow"),
        ("a: relu(x) => x => y", "1:17", "a second arrow"),
        ("a: x => relu(x)", "1:4", "matches everything"),
        ("relu(x) => x", "1:1", "starts with its name"),
        ("    a: relu(x) => x", "1:5", "at the beginning of a line: what is indented continues the one before"),
        ("a: relu(x) => x [exat]", "1:18", "no numerics level 'exat'"),
        ("a: relu(x) => x [approx(much)]", "1:25", "is not a number"),
        ("a: relu(x) => x [approx(-1)]", "1:25", "'-1' is not positive and finite"),
        ("a: relu(x) => x [approx(nan)]", "1:25", "'nan' is not positive and finite"),
        ("a: relu(x)  [one kernel] [exact]", "1:25", "fusion group 'a' has a level"),
        ("a: relu(x)  [exact] [one kernel]", "1:12", "fusion group 'a' has a level"),
        ("a: relu(x) ~> x  [exact]", "1:17", "transform 'a' has a level"),
        ("a: relu(x) => x [exact unless c]\nb: relu(x) => x", "1:1", "unless 'c' names no rule of this file"),
        ("a: exp(x) => x if value(x) > 0", "1:25", "write value(c)"),
        ("a: exp(x) => x if 9**9 > rank(x)", "1:19", "'9 ** 9' is not allowed in an expression: it has Pow"),
        ("a: relu(x) * const(c) => x", "1:14", "write full(c, ()) for a number as a tensor"),
        ("a: and(x, y) => x", "1:4", "write and_(...)"),
        ("a: where(or(x, y), x, y) => x", "1:10", "write or_(...)"),
        ("a: exp(not(x)) => x", "1:8", "write not_(...)"),
        ("sort tensr", "1:6", "no sort 'tensr'"),
        ("opt_level high", "1:11", "is none of"),
        ("opt_level 3", "1:11", "is none of"),
        ("a: load(x) + 1 => x", "1:19", "'x' is a tensor where an element is needed"),
        ("a: relu(load(x)) => x", "1:9", "load gives an element where a tensor is needed"),
        ("a: relu(x) => relu(build(load(x)))", "1:20", "to do: its attributes are shape"),
        ("a: p = relu(x), q = gelu(x) => x", "1:32", "which pattern of the left is this?"),
        ("a: relu(x), gelu(x) => x", "1:13", "of several patterns each needs a name"),
        ("a: relu(x) => x if shape(x)[lambda: 0]", "1:29", "is not allowed in an expression"),
        ("a: relu(x) =>", "1:13", "an expression is missing here"),
    ],
)
def test_errors(text: str, place: str, message: str) -> None:
    shown = error(text)
    assert f"my.rules:{place}\n" in shown, shown
    assert message in shown


def test_number_that_no_dtype_holds_is_refused() -> None:
    for number in ("1e400", "9" * 400):
        assert "no dtype holds this number" in error(f"a: x + {number} => x")
        assert "no dtype holds this number" in error(f"a: relu(x) => x if rank(x) < {number}")


def test_file_may_begin_with_a_mark_and_must_be_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "my.rules"
    file.write_bytes("\ufeffa: relu(relu(x)) => relu(x)".encode())
    assert [rule.full_name for rule in load_file(file).rules] == ["my/a"]
    file.write_bytes(b"a: relu(relu(x)) => relu(x)  # \xe9")
    with pytest.raises(RuleError, match=r"(?s)not text in UTF-8: byte 31 is 0xe9.*my\.rules.*save it as UTF-8"):
        load_file(file)
