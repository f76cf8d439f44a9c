"""The house rules that a machine can hold: who imports whom, what is packaged, how modules are named and how long."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import networkx as nx
from repository import OTHER_FOLDERS, PACKAGE_FOLDERS, ROOT, files, module_name, pyproject, python_files

# The four stages in the middle never see each other; frittata/pipeline.py passes values between them.
MAY_IMPORT = {
    "frittata": {"rules", "extract", "kernels", "frontends", "egraph"},
    "rules": {"egraph"},
    "extract": {"egraph"},
    "kernels": {"egraph"},
    "frontends": {"egraph"},
    "egraph": set[str](),
}
HEAVY = {"torch", "numba", "llvmlite", "highspy", "egglog", "onnx"}
VAGUE = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers"}
MOST_LINES = 600
MACHINE_PATH = re.compile(r"(?<![\w.\-])/(?:home|root|tmp|work|Users)/\w")

PACKAGE_FILES = list(python_files(*PACKAGE_FOLDERS))
ALL_FILES = [*PACKAGE_FILES, *python_files(*OTHER_FOLDERS, ".ci")]
FILE_BY_MODULE = {module_name(file): file for file in PACKAGE_FILES}


def imports(node: ast.AST, *, when_loaded: bool = False) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the dotted target of each import below a node, down to the module where `from` names one of ours.

    With `when_loaded`, only those that run while the module loads: not in functions, not for type checkers.
    """
    if isinstance(node, ast.Import):
        yield from ((alias.name, node) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = "." * node.level + (node.module or "")
        for alias in node.names:
            target = f"{source}.{alias.name}"
            yield (target if target in FILE_BY_MODULE else source), node
    elif not when_loaded or not runs_later(node):
        for child in ast.iter_child_nodes(node):
            yield from imports(child, when_loaded=when_loaded)


def runs_later(node: ast.AST) -> bool:
    """Tell whether a statement's body does not run while its module loads."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test).endswith("TYPE_CHECKING")
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes(), filename=str(file))


def folder_of(module: str) -> str:
    """Name the folder that holds one of our modules: frittata.rules.parse -> rules, frittata.options -> frittata."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in PACKAGE_FOLDERS else "frittata"


def place(file: Path, line: int | None = None) -> str:
    return str(file.relative_to(ROOT)) + (f":{line}" if line else "")


def test_a_folder_imports_only_the_folders_that_it_may() -> None:
    wrong: list[str] = []
    for module, file in FILE_BY_MODULE.items():
        here = folder_of(module)
        for target, statement in imports(parse(file)):
            there = folder_of(target)
            if target.split(".")[0] == "frittata" and there != here and there not in MAY_IMPORT[here]:
                wrong.append(f"{place(file, statement.lineno)}: {here} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_modules_import_each_other_without_cycles() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, file in FILE_BY_MODULE.items():
        targets = {target for target, _ in imports(parse(file), when_loaded=True)}
        graph.add_edges_from((module, target) for target in targets & FILE_BY_MODULE.keys())
    cycles = [" -> ".join([*cycle, cycle[0]]) for cycle in nx.simple_cycles(graph)]
    assert not cycles, "\n".join(cycles)


def test_imports_are_absolute() -> None:
    wrong = [
        place(file, statement.lineno)
        for file in ALL_FILES
        for target, statement in imports(parse(file))
        if target.startswith(".")
    ]
    assert not wrong, "\n".join(wrong)


def test_packages_are_imported_by_their_import_names() -> None:
    # From the root, `import egraph` finds the folder and loads a second copy of every class in it.
    wrong = [
        f"{place(file, statement.lineno)}: write frittata.{target}"
        for file in ALL_FILES
        for target, statement in imports(parse(file))
        if target.split(".")[0] in set(PACKAGE_FOLDERS) - {"frittata"}
    ]
    assert not wrong, "\n".join(wrong)


def test_the_packages_in_pyproject_are_those_of_the_tree() -> None:
    setuptools = pyproject()["tool"]["setuptools"]
    folders = {module_name(file.parent / "__init__.py") for file in PACKAGE_FILES}
    assert set(setuptools["packages"]) == folders
    assert {package: folder_of(package) for package in setuptools["package-dir"]} == setuptools["package-dir"]
    assert set(setuptools["package-dir"].values()) == set(PACKAGE_FOLDERS)
    without_init = sorted({place(file.parent) for file in PACKAGE_FILES if not (file.parent / "__init__.py").exists()})
    assert not without_init


def test_every_data_file_is_packaged() -> None:
    patterns_by_package: dict[str, list[str]] = pyproject()["tool"]["setuptools"]["package-data"]
    data = [file for file in files() if file.relative_to(ROOT).parts[0] in PACKAGE_FOLDERS and file.suffix != ".py"]
    left_behind = [
        place(file)
        for file in data
        if not any(
            fnmatch(file.name, pattern)
            for pattern in patterns_by_package.get(module_name(file.parent / "__init__.py"), [])
        )
    ]
    assert not left_behind, "add to [tool.setuptools.package-data]:\n" + "\n".join(left_behind)


def test_the_links_for_static_tools_lead_to_the_packages() -> None:
    links = {link.name: link.resolve() for link in (ROOT / ".ci/typing/frittata").iterdir()}
    stages = {folder: ROOT / folder for folder in PACKAGE_FOLDERS if folder != "frittata"}
    assert links == stages | {name: ROOT / "frittata" / name for name in ("__init__.py", "py.typed")}


def test_names_of_modules_say_what_they_hold() -> None:
    vague = [place(file) for file in ALL_FILES if VAGUE & {file.stem, file.parent.name}]
    assert not vague, "\n".join(vague)


def test_modules_stay_short() -> None:
    lines_by_place = {place(file): len(file.read_text(encoding="utf-8").splitlines()) for file in ALL_FILES}
    long = {where: lines for where, lines in lines_by_place.items() if lines > MOST_LINES}
    assert not long, f"over {MOST_LINES} lines, split by concept: {long}"


def test_importing_frittata_loads_nothing_heavy() -> None:
    code = "import sys, frittata; print(*{name.split('.')[0] for name in sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    loaded = HEAVY & set(result.stdout.split())
    assert not loaded


def test_files_name_no_path_of_a_developers_machine() -> None:
    wrong: list[str] = []
    for file in files():
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        wrong += [f"{place(file, number)}: {line}" for number, line in enumerate(lines, 1) if MACHINE_PATH.search(line)]
    assert not wrong, "\n".join(wrong)
