"""`lint`: what breaks later or elsewhere: spelling of references, dead dependencies, unreachable assets, names equal but for case.

It looks at what was processed last, and reads the text of sources; it changes nothing.

Tests: `tests/features/shipping/test_lint.py`.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from xml.sax.saxutils import quoteattr

from msgspec import Struct, to_builtins

from aptui.cli.naming import AskedAssets, AssetNames, database_argument, open_asked
from aptui.cli.spelling import find_misspelt
from aptui.config.own_files import note_written
from aptui.features.shipping.asset_list import closure, orphans
from aptui.shared import printing
from aptui.shared.errors import HostError
from aptui.shared.files.named_files import describe_difference, same_letters
from aptui.store.graph.asset_graph import AssetGraph, Node
from aptui.store.queries.named import find_named_sources, list_same_but_for_case

FOUND = 1
CHECKS = {
    "spelling": "a reference in another spelling than the file: found here, or on Windows, and not on Linux",
    "dead": "a dependency of a product that nothing fulfils",
    "unreachable": "an asset that the roots do not reach",
    "case": "sources or products whose names differ in case or in how accents are stored alone: one file on Windows or macOS",
}


class LintFinding(Struct, frozen=True):
    """One finding: `check` is one of `CHECKS`, `asset` the source or product it is about."""

    check: str
    asset: str
    what: str
    next: str


def lint_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `lint`."""
    parser.epilog = "checks:\n" + "\n".join(f"  {name:<12} {text}" for name, text in CHECKS.items())
    parser.add_argument(
        "--roots", nargs="+", action="extend", default=[], metavar="SEED",
        help="assets that the game loads by itself: what they do not reach is found; nothing is, unless they are given",
    )  # fmt: skip
    parser.add_argument("--only", action="append", choices=list(CHECKS), default=[], metavar="CHECK", help=f"{', '.join(CHECKS)}")
    parser.add_argument("--platform", default="", metavar="ID", help="of this platform alone")
    parser.add_argument("--fail", action="store_true", help="exit 1 when something is found")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--junit", metavar="FILE", help="write the findings as JUnit XML")
    database_argument(parser)


def lint(arguments: Namespace) -> int:
    """Look, and tell what was found."""
    wanted = arguments.only or list(CHECKS)
    with open_asked(arguments) as place:
        found = sorted(
            set(_find(place, wanted, arguments)), key=lambda each: (list(CHECKS).index(each.check), each.asset, each.what)
        )
    if arguments.junit:
        _write_junit(arguments.junit, wanted, found)
    counts = Counter(each.check for each in found)
    if arguments.json:
        printing.say_json({"findings": [to_builtins(each) for each in found], "counts": {name: counts[name] for name in wanted}})
    else:
        for each in found:
            printing.say(f"{each.check:<11} {printing.line(each.asset)}: {printing.line(each.what)}; {printing.line(each.next)}")
        summary = ", ".join(f"{counts[name]:,} {name}" for name in wanted if counts[name])
        note = (
            "" if arguments.roots or "unreachable" not in wanted else "; name assets with --roots to look for unreachable ones, too"
        )
        printing.say(f"{printing.count(len(found), 'finding')}{f': {summary}' if summary else ''}{note}")
    return FOUND if found and arguments.fail else 0


def find_with(arguments: Namespace, wanted: Sequence[str]) -> list[LintFinding]:
    """Return what these checks find in the project, without roots."""
    asked_for = copy(arguments)
    asked_for.roots, asked_for.platform, asked_for.database = [], "", None
    with open_asked(asked_for) as place:
        return sorted(set(_find(place, wanted, asked_for)), key=lambda each: (each.check, each.asset, each.what))


def _find(place: AskedAssets, wanted: Sequence[str], arguments: Namespace) -> Iterator[LintFinding]:
    graph = place.graph(arguments.platform)
    if "spelling" in wanted:
        yield from _misspelt(place)
    if "dead" in wanted:
        yield from _dead(graph, arguments.platform)
    if "unreachable" in wanted and arguments.roots:
        yield from _unreachable(place, graph, arguments)
    if "case" in wanted:
        yield from _find_same_names(place)


# ---------------------------------------------------------------------------------------------------------------- spelling


def _misspelt(place: AskedAssets) -> Iterator[LintFinding]:
    for item in find_named_sources(place.database):
        for each in find_misspelt(item):
            yield LintFinding("spelling", each.named_by, each.what, "write it as the file is spelled, or rename the file")


# ---------------------------------------------------------------------------------------------------- dead and unreachable


def _dead(graph: AssetGraph, platform: str) -> Iterator[LintFinding]:
    everything = [Node(fact.product_id) for fact in graph.products()]
    for end in closure(graph, everything, (), platform).loose_ends:
        if end.kind == "unmet":
            yield LintFinding(
                "dead", end.product, f"needs '{end.target}', which does not exist", "fix the path, or create the asset"
            )
        elif end.kind == "dangling":
            yield LintFinding(
                "dead", end.product, f"needs asset {end.target}, which does not exist", "fix the id, or restore the asset"
            )


def _unreachable(place: AskedAssets, graph: AssetGraph, arguments: Namespace) -> Iterator[LintFinding]:
    names = AssetNames(place, graph)
    seeds = {node for word in arguments.roots for node in graph.ends_of_chains(names.products(word))}
    for product in orphans(graph, seeds, arguments.platform).products:
        yield LintFinding("unreachable", product.name, "no root reaches it", "delete its source, or name it among the roots")


# -------------------------------------------------------------------------------------------------------------------- case


def _find_same_names(place: AskedAssets) -> Iterator[LintFinding]:
    for name, source in list_same_but_for_case(place.database):
        yield LintFinding("case", name, f"of '{source}' differs in case alone from another product", "rename one of them")
    roots = [] if place.config is None else [folder.path for folder in place.config.project.scan_folders]
    cache = os.fspath(place.cache_dir)
    for root in roots:
        for names in _list_same_names(root, cache):
            others = ", ".join(f"'{name}'" for name in names[1:])
            how = describe_difference(names[0], names[1])
            yield LintFinding("case", names[0], f"differs in {how} alone from {others}", "rename all but one")


def _list_same_names(root: str, cache: str) -> Iterator[list[str]]:
    """Yield names below a scan folder that would be one on a disk that ignores case, or how accents are stored."""
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith(".") and os.path.join(folder, name) != cache]
        alike: dict[str, list[str]] = {}
        for name in (*below, *names):
            alike.setdefault(same_letters(name), []).append(os.path.relpath(os.path.join(folder, name), root))
        yield from (sorted(group) for group in alike.values() if len(group) > 1)


# ------------------------------------------------------------------------------------------------------------------- JUnit


def _write_junit(file: str, wanted: Sequence[str], found: Sequence[LintFinding]) -> None:
    """Write a test case for each check, and a failure for each finding."""
    try:
        Path(file).write_text("\n".join(_junit(wanted, found)) + "\n", encoding="utf-8")
        note_written(file)
    except OSError as error:
        raise HostError(
            f"'{file}' cannot be written: {(error.strerror or str(error)).lower()}", hint="choose another FILE"
        ) from None


def _junit(wanted: Sequence[str], found: Iterable[LintFinding]) -> Iterator[str]:
    by_check = {name: [each for each in found if each.check == name] for name in wanted}
    count = sum(max(1, len(each)) for each in by_check.values())
    failures = sum(map(len, by_check.values()))
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f'<testsuites><testsuite name="aptui lint" tests="{count}" failures="{failures}" errors="0" skipped="0">'
    for name, findings in by_check.items():
        if not findings:
            yield f'<testcase classname="lint" name="{name}"/>'
        for each in findings:
            message = quoteattr(printing.line(f"{each.what}; {each.next}"))
            asset = quoteattr(printing.line(each.asset))
            yield f'<testcase classname="lint.{name}" name={asset}><failure message={message}/></testcase>'
    yield "</testsuite></testsuites>"
