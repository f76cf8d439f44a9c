"""The repository as tests see it: its root, its files, and its modules by import name."""

import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE_FOLDERS = ("frittata", "egraph", "rules", "extract", "kernels", "frontends")
OTHER_FOLDERS = ("tests", "bench", "examples")
BUILT = {"build", "dist", "__pycache__"}


def pyproject() -> dict[str, Any]:
    """Read pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def files() -> list[Path]:
    """List the files that git tracks or would track; without git, every file outside of hidden and built folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        paths = [ROOT / name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for path in ROOT.rglob("*") if not is_built(path.relative_to(ROOT))]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def is_built(path: Path) -> bool:
    """Tell whether a path, relative to the root, is a tool's product or an environment."""
    return any(part in BUILT or part.endswith(".egg-info") or (part[0] == "." and part != ".ci") for part in path.parts)


def python_files(*folders: str) -> Iterator[Path]:
    """Walk the Python files below the given folders of the root."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def module_name(file: Path) -> str:
    """Name the module of a package file as users import it: egraph/ops/views.py -> frittata.egraph.ops.views."""
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    if parts[0] != "frittata":
        parts.insert(0, "frittata")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)
