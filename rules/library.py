"""The rule files: those that come with the package, and a user's."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from frittata.egraph.errors import RuleError
from frittata.rules.parse import parse_family
from frittata.rules.pattern import Family, Rule

FOLDER = Path(__file__).parent


@cache
def builtin_families() -> tuple[Family, ...]:
    """Return the families of the package, by name."""
    return tuple(load_file(path) for path in sorted(FOLDER.glob("*.rules")))


def load_file(path: str | Path) -> Family:
    """Read a file; the family has its name: `my.rules` -> my.

    Raises: RuleError if it cannot be opened or read.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        do = "rules are given as paths of files, not as text"
        raise RuleError(f"cannot open the rule file: {error.strerror}", str(file), do) from error
    except UnicodeDecodeError as error:
        what = f"the rule file is not text in UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"
        raise RuleError(what, str(file), "save it as UTF-8") from error
    name = str(file.relative_to(FOLDER.parent)) if file.is_relative_to(FOLDER) else str(file)
    return parse_family(text, name)


def named(name: str, families: Iterable[Family]) -> list[tuple[Family, Rule]]:
    """Return the rules of a full name, or of a name alone, which several families may have.

    Raises: RuleError that names the nearest, if there is none.
    """
    pairs = [(family, rule) for family in families for rule in family.rules]
    found = [pair for pair in pairs if name in (pair[1].full_name, pair[1].name)]
    if not found:
        names = [rule.full_name for _, rule in pairs] + [rule.name for _, rule in pairs]
        near = difflib.get_close_matches(name, names, 3)
        do = f"did you mean {' or '.join(near)}?" if near else "`frittata rules list [FILE]` shows the names"
        raise RuleError(f"no rule {name!r}", do=do)
    return found
