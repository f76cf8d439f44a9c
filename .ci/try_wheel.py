"""Build the wheel, install it away from the sources, compare it with the tree, and import all of it."""

import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Runs with the installed wheel ahead of everything else, in a folder without sources.
SMOKE = """
import importlib, importlib.metadata, pathlib, sys
site, *packages = sys.argv[1:]
for package in packages:
    module = importlib.import_module(package)
    assert pathlib.Path(module.__file__).is_relative_to(site), f"{package} comes from {module.__file__}"
for entry_point in importlib.metadata.distribution("frittata").entry_points:
    entry_point.load()
"""


def main() -> None:
    """Fail with the difference if the wheel does not hold what the repository holds."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = folder / "sources"
        copy_sources(tables["package-dir"], sources)
        run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(sources))
        (wheel,) = folder.glob("*.whl")
        check_contents(wheel, expected_files(tables["package-dir"]))
        site = folder / "site"
        run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel))
        run("-c", SMOKE, str(site), *tables["packages"], cwd=folder, path=site)
    print(f"{wheel.name}: same files as the tree, every package and entry point imports from it")


def copy_sources(folder_by_package: dict[str, str], target: Path) -> None:
    """Copy what the build reads, so that it leaves nothing in the tree and finds nothing that another left."""
    target.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (target / name).write_bytes((ROOT / name).read_bytes())
    for folder in folder_by_package.values():
        for file in source_files(folder):
            copy = target / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())


def source_files(folder: str) -> list[Path]:
    """List the files below a folder of the repository, without Python's caches."""
    return [file for file in (ROOT / folder).rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def expected_files(folder_by_package: dict[str, str]) -> set[str]:
    """Name every file of the packages as the wheel should name it."""
    return {
        f"{package.replace('.', '/')}/{file.relative_to(ROOT / folder).as_posix()}"
        for package, folder in folder_by_package.items()
        for file in source_files(folder)
    }


def check_contents(wheel: Path, expected: set[str]) -> None:
    """Exit with both differences if the wheel's package files are not the expected ones."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    if found != expected:
        sys.exit(f"missing from the wheel: {sorted(expected - found)}; only in the wheel: {sorted(found - expected)}")


def run(*arguments: str, cwd: Path = ROOT, path: Path | None = None) -> None:
    """Run Python with the arguments; a failure ends this script with its status."""
    environment = None if path is None else {**os.environ, "PYTHONPATH": str(path)}
    status = subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, check=False).returncode
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
