"""The command line: `frittata optimize`, `explain`, `extract`, `cache`, `rules check`, `rules list`, `rules show`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frittata.egraph.errors import FrittataError, RuleError
from frittata.egraph.phases import LEVELS

if TYPE_CHECKING:
    from frittata.optimized import Optimized
    from frittata.rules.pattern import Family, Rule


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 1 for an error that is told in words, 2 for wrong usage."""
    given = _parser().parse_args(arguments)
    try:
        return given.run(given)
    except FrittataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has seen enough
        sys.stderr.close()
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="frittata", description="An equality-saturation compiler for tensor programs."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="tell the version, and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    optimize = commands.add_parser("optimize", help="compile a model and report what was chosen")
    _add_model(optimize)
    optimize.add_argument(
        "--page", type=Path, metavar="OUT.html", help="write a page that draws what was chosen and why; OUT.dot is DOT"
    )
    optimize.add_argument("--save", type=Path, metavar="OUT.frt", help="write the compiled model, for frittata.load")
    optimize.add_argument("--measure", action="store_true", help="time each kernel on the example arguments")
    optimize.add_argument("--script", action="store_true", help="print the chosen program as script")
    optimize.add_argument("--json", action="store_true", help="print the report as JSON")
    optimize.set_defaults(run=_optimize)

    explain = commands.add_parser("explain", help="tell why a kernel is what it is, or whether a rule fired")
    _add_model(explain)
    explain.add_argument("kernel", help="the name of a kernel, of an operator in it, or of a rule: family/name")
    explain.add_argument("--measure", action="store_true", help="time each kernel on the example arguments")
    explain.add_argument("--source", action="store_true", help="print the kernel's source too")
    explain.add_argument("--json", action="store_true", help="print the explanation as JSON")
    explain.set_defaults(run=_explain)

    extract = commands.add_parser("extract", help="choose from any e-graph, given as JSON in extraction-gym's format")
    extract.add_argument("file", type=Path, metavar="FILE.json", help="the e-graph")
    extract.add_argument(
        "--time-limit", type=_seconds, default=60.0, metavar="S", help="for everything, in seconds (default 60)"
    )
    extract.set_defaults(run=_extract)

    cached = commands.add_parser("cache", help="tell what the cache folder holds, or clear it")
    cached.add_argument("action", nargs="?", choices=("clear",), help="delete it all, the machine profile too")
    _add_cache(cached)
    cached.set_defaults(run=_cache)

    rules = commands.add_parser("rules", help="look at rules").add_subparsers(required=True, metavar="COMMAND")
    check = rules.add_parser("check", help="search for counterexamples to the rules of a file")
    check.add_argument("file", help="a rule file, the name of a built-in family, or all")
    check.add_argument("--seed", type=int, default=0, help="of the random instances (default 0)")
    check.set_defaults(run=_check)
    listed = rules.add_parser("list", help="list rules by name")
    listed.add_argument("family", nargs="?", help="only of this family or file")
    listed.set_defaults(run=_list)
    shown = rules.add_parser("show", help="show a rule")
    shown.add_argument("name", help="family/name, or name")
    shown.add_argument("family", nargs="?", help="only of this family or file")
    shown.set_defaults(run=_show)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import frittata

        print(f"frittata {frittata.__version__}")
        parser.exit()


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        help="file.py:function or package.module:function returning (module, args), a .txt script or an .onnx file",
    )
    parser.add_argument(
        "--dim", action="append", type=_dim, default=[], metavar="NAME=N", help="the extent of a symbolic dim"
    )
    parser.add_argument(
        "--rules", action="append", type=Path, default=[], metavar="FILE", help="rules that join the built-in ones"
    )
    parser.add_argument(
        "--numerics", choices=("exact", "reassoc", "loose", "approx"), default="reassoc", help="loosest level of rules"
    )
    parser.add_argument("--disable", action="append", default=[], metavar="NAME", help="a family, or family/rule")
    parser.add_argument(
        "--required", action="append", default=[], metavar="NAME", help="a family or transform to keep at any opt level"
    )
    parser.add_argument("--pipeline", default="default", metavar="NAME", help="default, zero or max")
    parser.add_argument("--opt-level", type=int, choices=LEVELS, default=2, help="0 fuses nothing, 2 is all (default)")
    parser.add_argument(
        "--instruments", action="append", choices=_INSTRUMENTS, default=[], help="tell of each stage on standard error"
    )
    parser.add_argument("--no-library", action="store_true", help="choose no calls into a library")
    parser.add_argument("--target", default="cpu", metavar="NAME", help="what to compile for: cpu (default) or cuda")
    parser.add_argument("--tune", choices=("measure",), help="time the chosen kernels and choose again")
    parser.add_argument("--verify", action="store_true", help="compare the results with the model's in float64")
    parser.add_argument(
        "--freeze",
        action=argparse.BooleanOptionalAction,
        help="fold parameters without a guard, or read them at every call",
    )
    parser.add_argument("--fallback", choices=("extern", "error"), default="extern", help="for what has no definition")
    parser.add_argument("--plain", action="store_true", help="run kernels in their plain form")
    parser.add_argument(
        "--reference-machine", action="store_true", help="use the checked-in profile instead of this machine's"
    )
    parser.add_argument(
        "--time-limit", type=_seconds, default=3.0, metavar="S", help="for the search, in seconds (default 3)"
    )
    _add_cache(parser)


_INSTRUMENTS = ("timing", "snapshot")


def _dim(text: str) -> tuple[str, int]:
    name, _, extent = text.rpartition("=")
    if not name or not extent.isdecimal() or not int(extent):
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=N, with N at least 1")
    return name, int(extent)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text} is no time: give seconds, at least 0")
    return seconds


def _add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="where chosen programs and compiled kernels are kept"
    )


# ---- models ----------------------------------------------------------------------------------------------------------


def _compiled(given: argparse.Namespace) -> Optimized:
    import frittata
    from frittata.egraph.machine import REFERENCE
    from frittata.instruments import Snapshot, Timing
    from frittata.specs import load

    model, args = load(given.model, dict(given.dim))
    timing = Timing()
    told = {"timing": timing, "snapshot": Snapshot(sys.stderr)}
    made = frittata.optimize(
        model,
        args,
        rules=tuple(given.rules),
        numerics=given.numerics,
        disable=tuple(given.disable),
        required=tuple(given.required),
        pipeline=given.pipeline,
        opt_level=given.opt_level,
        instruments=tuple(told[name] for name in given.instruments),
        verify=given.verify,
        freeze=given.freeze,
        fallback=given.fallback,
        library=not given.no_library,
        target=given.target,
        form="plain" if given.plain else "fast",
        tune=given.tune,
        time_limit_s=given.time_limit,
        machine=REFERENCE if given.reference_machine and given.target == "cpu" else None,
        cache=given.cache,
    )
    if timing.stages:
        print(timing, file=sys.stderr)
    return made


def _optimize(given: argparse.Namespace) -> int:
    from frittata.optimized import page_path

    if given.page:
        page_path(given.page)  # before what takes long
    fast = _compiled(given)
    if given.measure:
        fast.measure()
    if given.page:
        fast.show(given.page, given.model)
    if given.save:
        fast.save(given.save)
    if given.json:
        _print_json(fast.report.to_dict())
    elif given.script:
        print(fast)
    else:
        print(fast.report)
        for path in filter(None, (given.page, given.save)):
            print(f"\nwritten to {path}")
    return 0


def _explain(given: argparse.Namespace) -> int:
    fast = _compiled(given)
    if given.measure:
        fast.measure()
    if "/" in given.kernel:
        account = fast.explain_rule(given.kernel)
        _print_json(account.to_dict()) if given.json else print(account)
        return 0
    explanation = fast.explain(given.kernel)
    if given.json:
        _print_json(explanation.to_dict())
        return 0
    print(explanation)
    if given.source:
        print(f"\nSource, in its plain form\n{explanation.kernel.source}")
    return 0


def _extract(given: argparse.Namespace) -> int:
    begun = time.perf_counter()
    from frittata.extract.egraph_json import extract_file

    _print_json(extract_file(given.file, given.time_limit, begun).to_dict())
    return 0


def _cache(given: argparse.Namespace) -> int:
    from frittata import cache, tables

    folder = cache.folder_of(given.cache)
    sizes = {what: [path.stat().st_size for path in paths] for what, paths in cache.files(folder).items()}
    if given.action == "clear":
        cache.clear(folder)
    print(f"{folder}{' is empty now; it held' if given.action == 'clear' else ' holds'}")
    for what, bytes_of in sizes.items():
        print(f"  {len(bytes_of)} {what}, {tables.count(sum(bytes_of), 'B')}")
    return 0


def _print_json(data: dict[str, Any]) -> None:
    print(json.dumps(data, indent=2))


# ---- rules -----------------------------------------------------------------------------------------------------------


def _families(name: str | None) -> tuple[Family, ...]:
    from frittata.rules import library

    families = library.builtin_families()
    if name is None or name == "all":
        return families
    found = tuple(family for family in families if family.name == name)
    if found:
        return found
    if Path(name).suffix == ".rules" or Path(name).exists():
        return (library.load_file(name),)
    raise RuleError(f"no family and no file {name!r}", do=f"families are {', '.join(f.name for f in families)}")


_NO_EQUATION = {
    "transform": "a transform may change the meaning",
    "group": "a fusion group says what to fuse, not what is equal",
}


def _check(given: argparse.Namespace) -> int:
    from frittata.rules import audit

    wrong = checked = skipped = 0
    for family in _families(given.file):
        for rule in family.rules:
            if rule.kind != "equation":
                skipped += 1
                print(f"skip  {rule.full_name}: {_NO_EQUATION[rule.kind]}")
                continue
            result = audit.audit(rule, given.seed, most=audit.THOROUGH)
            checked += 1
            if result.failure:
                wrong += 1
                print(f"WRONG {rule.location}\n{result.failure}")
            else:
                but = "; no numerics admits it as an equation: write ~>" if rule.level.kind == "approx" else ""
                print(f"ok    {rule.full_name} [{rule.level.kind}]: {result.instances} instances{but}")
    print(f"{checked} equations checked, {wrong} wrong, {skipped} other rules skipped")
    return 1 if wrong else 0


def _list(given: argparse.Namespace) -> int:
    for family in _families(given.family):
        for rule in family.rules:
            print(f"{rule.full_name:<40} {_level(rule)}")
    return 0


def _show(given: argparse.Namespace) -> int:
    from frittata.rules import library

    for _, rule in library.named(given.name, _families(given.family)):
        print(f"{rule.full_name} [{_level(rule)}], {rule.location}\n    {' '.join(str(rule).split())}")
    return 0


def _level(rule: Rule) -> str:
    if rule.kind != "equation":
        return "transform" if rule.kind == "transform" else "one kernel"
    return f"approx({rule.level.tolerance:g})" if rule.level.kind == "approx" else rule.level.kind
