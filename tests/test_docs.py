"""What the documents show runs: their Python blocks in order in one namespace, and their frittata commands."""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from repository import ROOT

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>python|console)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)
COMMAND = re.compile(r"^\$ (?P<line>(?:.*\\\n)*.*)$", re.M)
# The console script, without relying on where it was installed.
SCRIPT = [sys.executable, "-c", "import sys; from frittata.cli import main; sys.exit(main())"]


@dataclass(frozen=True)
class Block:
    """A fenced block of a document; `line` is the number of its first line inside the fence."""

    language: str
    text: str
    line: int


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    """Find the Python and console blocks of a document, in order."""
    return [
        Block(
            language=match["language"],
            text="".join(line.removeprefix(match["indent"]) for line in match["text"].splitlines(keepends=True)),
            line=text.count("\n", 0, match.start("text")) + 1,
        )
        for match in FENCE.finditer(text)
    ]


def commands(console: str) -> list[list[str]]:
    """Find the frittata commands of a console block, as argument lists; other commands are for the reader."""
    found: list[list[str]] = []
    for match in COMMAND.finditer(console):
        match shlex.split(match["line"].replace("\\\n", " "), comments=True):
            case ["frittata", *arguments]:
                found.append([*SCRIPT, *arguments])
            case ["python", "-m", "frittata", *arguments]:
                found.append([sys.executable, "-m", "frittata", *arguments])
            case _:
                pass
    return found


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_shows_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    namespace = {"__name__": f"document_{document.stem}"}
    for block in blocks(document.read_text(encoding="utf-8")):
        if block.language == "python":
            # The empty lines make tracebacks point into the document.
            exec(compile("\n" * (block.line - 1) + block.text, document, "exec"), namespace)
        else:
            for command in commands(block.text):
                result = subprocess.run(command, capture_output=True, text=True, check=False)
                assert result.returncode == 0, f"{document}:{block.line}: {command}\n{result.stdout}{result.stderr}"


def test_blocks_are_found_with_their_lines_and_without_their_indent() -> None:
    text = "text\n```python\nx = 1\n```\n- item\n  ```console\n  $ make demo\n  ```\n```text\nno\n```\n"
    assert blocks(text) == [Block("python", "x = 1\n", 3), Block("console", "$ make demo\n", 7)]


def test_only_frittata_commands_run() -> None:
    console = "$ make demo\n$ frittata run \\\n    m.frt --seed 1  # note\noutput\n$ python -m frittata cache\n"
    assert commands(console) == [
        [*SCRIPT, "run", "m.frt", "--seed", "1"],
        [sys.executable, "-m", "frittata", "cache"],
    ]


def test_the_demonstration_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "(holds softmax)" in done.stdout
    assert (tmp_path / "frittata-demo.html").stat().st_size > 10_000
