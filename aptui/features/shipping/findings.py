"""`lint` and `check`: problems of the last processing.

`lint` finds misspelled references, dead dependencies, unreachable assets, and names that differ only in case. `check` applies the
checks of `aptui.yaml`. Both read the database and the sources, and change nothing.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from msgspec import Struct, to_builtins

from aptui.batch.options import load_config
from aptui.batch.summary import findings_line
from aptui.cli.asset_names import AskedAssets, AssetNames, database_argument, find_misspelt, open_asked
from aptui.cli.read_access import OpenedProject, open_for_reading
from aptui.config import trust
from aptui.config.own_files import note_written
from aptui.core.asset_checks import Check, CheckLevel
from aptui.core.paths import cache_path, os_path
from aptui.core.project import SHARE_OF_MEMORY
from aptui.core.retry import FailureKind
from aptui.features.shipping.asset_list import closure, orphans
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.shared.files.confinement import describe_difference, same_letters
from aptui.shared.files.replacing import replace_bytes
from aptui.store.queries.asset_graph import AssetGraph, Node
from aptui.store.queries.checks import CheckFinding, ProductToCheck, findings, products_to_check
from aptui.store.queries.dependencies import find_named_sources, list_same_but_for_case
from aptui.worker.commands.command import CommandError, Invocation, execute, find_program
from aptui.worker.processes import kill_family

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.engine.pool.sandbox import Sandbox


FOUND = 1
CHECKS = {
    "spelling": "a reference that is spelled differently from its file: it works on Windows, but not on Linux",
    "dead": "a dependency on an asset that does not exist",
    "unreachable": "an asset that no root needs, directly or indirectly",
    "case": "names that differ only in case or in the encoding of accents, which are the same file on Windows or macOS",
}


class LintFinding(Struct, frozen=True):
    """One finding: `check` is one of `CHECKS`, `asset` the affected source or product."""

    check: str
    asset: str
    what: str
    next: str


def lint_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `lint`."""
    parser.epilog = "checks:\n" + "\n".join(f"  {name:<12} {text}" for name, text in CHECKS.items())
    parser.add_argument(
        "--roots", nargs="+", action="extend", default=[], metavar="SEED",
        help="assets that the game loads first; needed to find unreachable assets",
    )  # fmt: skip
    parser.add_argument("--only", action="append", choices=list(CHECKS), default=[], metavar="CHECK", help=f"{', '.join(CHECKS)}")
    parser.add_argument("--platform", default="", metavar="ID", help="only products of this platform")
    parser.add_argument("--fail", action="store_true", help="exit with code 1 if there are findings")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--junit", metavar="FILE", help="write the findings as JUnit XML")
    database_argument(parser)


def lint(arguments: Namespace) -> int:
    """Print the findings."""
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
        note = "" if arguments.roots or "unreachable" not in wanted else "; add --roots ASSET to find unreachable assets, too"
        printing.say(f"{printing.count(len(found), 'finding')}{f': {summary}' if summary else ''}{note}")
    return FOUND if found and arguments.fail else 0


def find_with(arguments: Namespace, wanted: Sequence[str]) -> list[LintFinding]:
    """Return the findings of some checks of `lint`. Without roots, the check `unreachable` has no findings."""
    asked_for = copy(arguments)
    asked_for.roots, asked_for.platform, asked_for.database = [], "", None
    with open_asked(asked_for) as place:
        return sorted(set(_find(place, wanted, asked_for)), key=lambda each: (each.check, each.asset, each.what))


def _find(place: AskedAssets, wanted: Sequence[str], arguments: Namespace) -> Iterator[LintFinding]:
    graph = place.graph(arguments.platform)
    if "spelling" in wanted:
        for each in chain.from_iterable(map(find_misspelt, find_named_sources(place.database))):
            yield LintFinding("spelling", each.named_by, each.what, "spell the reference like the file, or rename the file")
    if "dead" in wanted:
        yield from _dead(graph, arguments.platform)
    if "unreachable" in wanted and arguments.roots:
        yield from _unreachable(place, graph, arguments)
    if "case" in wanted:
        yield from _find_same_names(place)


# ---------------------------------------------------------------------------------------------------- dead and unreachable


def _dead(graph: AssetGraph, platform: str) -> Iterator[LintFinding]:
    everything = [Node(fact.product_id) for fact in graph.products()]
    for end in closure(graph, everything, (), platform).loose_ends:
        what, advice = {
            "unmet": (f"'{end.target}'", "fix the path, or create the asset"),
            "dangling": (f"asset {end.target}", "fix the id, or restore the asset"),
        }.get(end.kind, ("", ""))
        if what:
            yield LintFinding("dead", end.product, f"this product needs {what}, which does not exist", advice)


def _unreachable(place: AskedAssets, graph: AssetGraph, arguments: Namespace) -> Iterator[LintFinding]:
    names = AssetNames(place, graph)
    seeds = {node for word in arguments.roots for node in graph.ends_of_chains(names.products(word))}
    for product in orphans(graph, seeds, arguments.platform).products:
        yield LintFinding(
            "unreachable",
            product.name,
            "no product of --roots needs this product",
            "delete its source, or add the source to --roots",
        )


# -------------------------------------------------------------------------------------------------------------------- case


def _find_same_names(place: AskedAssets) -> Iterator[LintFinding]:
    for name, source in list_same_but_for_case(place.database):
        yield LintFinding(
            "case", name, f"this product of '{source}' differs only in case from another product", "rename one of them"
        )
    roots = [] if place.config is None else [folder.path for folder in place.config.project.scan_folders]
    cache = os.fspath(place.cache_dir)
    for root in roots:
        for names in _list_same_names(root, cache):
            others = ", ".join(f"'{name}'" for name in names[1:])
            how = describe_difference(names[0], names[1])
            yield LintFinding("case", names[0], f"differs only in {how} from {others}", "rename all but one")


def _list_same_names(root: str, cache: str) -> Iterator[list[str]]:
    """Yield names below a scan folder that would collide on a disk that ignores case or normalizes accents."""
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith(".") and os.path.join(folder, name) != cache]
        alike: dict[str, list[str]] = {}
        for name in (*below, *names):
            alike.setdefault(same_letters(name), []).append(os.path.relpath(os.path.join(folder, name), root))
        yield from (sorted(group) for group in alike.values() if len(group) > 1)


# ------------------------------------------------------------------------------------------------------------------- JUnit


def _write_junit(file: str, wanted: Sequence[str], found: Sequence[LintFinding]) -> None:
    """Write a JUnit file: a test case for each check, and a failure for each finding."""
    replace_bytes(Path(file), ("\n".join(_junit(wanted, found)) + "\n").encode(), what=f"'{file}'")
    note_written(file)


def _junit(wanted: Sequence[str], found: Iterable[LintFinding]) -> Iterator[str]:
    by_check = {name: [each for each in found if each.check == name] for name in wanted}
    count = sum(max(1, len(each)) for each in by_check.values())
    failures = sum(map(len, by_check.values()))
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f'<testsuites><testsuite name="aptui lint" tests="{count}" failures="{failures}" errors="0" skipped="0">'
    for name, listed in by_check.items():
        if not listed:
            yield f'<testcase classname="lint" name="{name}"/>'
        for each in listed:
            message = quoteattr(printing.line(f"{each.what}; {each.next}"))
            asset = quoteattr(printing.line(each.asset))
            yield f'<testcase classname="lint.{name}" name={asset}><failure message={message}/></testcase>'
    yield "</testsuite></testsuites>"


# `aptui check` applies the checks of `aptui.yaml` to the last results. A check may concern names, sizes, values that builders
# report (such as pixels or durations), budgets, the findings of `lint`, or the result of a command.

_COMMAND_LIMIT_S = 60.0
_MOST_CHARS = 1000
"""Maximum length of a command's message."""
_LISTED = 200
_COLOURS = {CheckLevel.WARN: "yellow", CheckLevel.FAIL: "red", CheckLevel.BLOCK: "red"}


def check_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `check`."""
    parser.add_argument("--only", action="append", default=[], metavar="CHECK", help="apply only this check; repeatable")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = """\
Checks are in aptui.yaml. 'aptui batch' applies them too, except commands and lint:
  checks:
    textures: {files: ["textures/*"], width: "<= 4096", power_of_two: true, level: fail}
Exit code 1 if a check of level fail or block has findings."""


def check(arguments: Namespace) -> int:
    """Apply the checks, and print their findings."""
    config = load_config(arguments)
    wanted = _choose_wanted(config.checks, arguments.only)
    if not wanted and not arguments.json:
        printing.say("no checks are configured; add 'checks:' to aptui.yaml")
        return 0
    with open_for_reading(arguments, config) as project:
        found = findings(project.database, wanted, config.project.resting_platforms)
        commands = [each for each in wanted if each.command]
        skipped = commands if commands and not trust.is_trusted(config) else []
        found += _of_commands(project, [] if skipped else commands)
    for each in skipped:
        why = "the check runs a command of this project, which you have not trusted; run 'aptui trust' first"
        printing.complain(f"aptui: check '{printing.line(each.name)}' was not applied: {why}", "yellow")
    found += _of_lint(arguments, [each for each in wanted if each.lint])
    if arguments.json:
        counts = Counter(each.check for each in found)
        printing.say_json(
            {"findings": [to_builtins(each) for each in found], "counts": {each.name: counts[each.name] for each in wanted}}
        )
    else:
        print_findings(found, _LISTED)
        printing.say(findings_line(found, len(wanted)), "" if found else "green")
    if any(each.level != CheckLevel.WARN for each in found):
        return FOUND
    return UserError.exit_code if skipped else 0


def _choose_wanted(checks: Sequence[Check], only: Sequence[str]) -> tuple[Check, ...]:
    known = {each.name for each in checks}
    for name in only:
        if name not in known:
            there = f"the checks are {', '.join(sorted(known))}" if known else "'checks:' in aptui.yaml is empty"
            raise UserError(f"'{name}' is not a check of this project (--only)", hint=there)
    return tuple(each for each in checks if not only or each.name in only)


def print_findings(found: Sequence[CheckFinding], limit: int) -> None:
    """Print at most `limit` findings."""
    for each in found[:limit]:
        about = printing.line(each.product or each.source or "all together")
        colour = _COLOURS[CheckLevel(each.level)]
        printing.say(f"{each.level:<5} {printing.line(each.check)}  {about}: {printing.line(each.what)}", colour)
    if len(found) > limit:
        printing.say(f"and {len(found) - limit:,} more; run 'aptui check --json' to see all")


# ---------------------------------------------------------------------------------------------------------------- commands


def _of_commands(project: OpenedProject, checks: Sequence[Check]) -> list[CheckFinding]:
    """Run the commands of checks in the same way as commands of builders.

    The commands run in the sandbox, with the same environment, output format and limits.
    """
    if not checks:
        return []
    from aptui.engine.pool.sandbox import sandbox_of  # imported here, because only checks with commands need it

    config = project.config
    sandbox = sandbox_of(config, stages=False, notify=lambda text: printing.complain(f"aptui: {printing.line(text)}", "yellow"))
    products = products_to_check(project.database, left_out=config.project.resting_platforms)
    asked = [(each, item) for item in products for each in checks if each.wants(item.source)]
    with contextlib.chdir(config.project_dir), ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(lambda pair: _run_command(config, sandbox, *pair), asked)
        return [finding for finding in answers if finding is not None]


def _run_command(config: Config, sandbox: Sandbox | None, check: Check, item: ProductToCheck) -> CheckFinding | None:
    """Run the command on one product; if it fails, its last line of output is the finding."""
    from aptui.engine.pool.spawning import MARK_VARIABLE, python_environment

    name = check.command[0]
    program = find_program(name)
    if not program:
        if os.path.exists(name):
            raise UserError(
                f"the check '{check.name}' cannot run '{name}': it is not a program", hint="correct 'command' of the check"
            )
        raise UserError(f"the check '{check.name}' runs '{name}', which is not installed", hint="install it")
    words = [os.path.abspath(program), *check.command[1:], os.path.join(config.cache_dir, os_path(cache_path(item.product.name)))]
    if config.limits.memory_bytes not in (0, SHARE_OF_MEMORY):
        words = ["/bin/sh", "-c", 'ulimit -v "$0" && exec "$@"', str(config.limits.memory_bytes >> 10), *words]
    if sandbox is not None:
        words = sandbox.command(words, str(config.project_dir))
    mark = f"check-{os.getpid()}-{os.urandom(8).hex()}"
    command = Invocation(words[0], tuple(words), shlex.join(words))
    try:
        done = execute(command, python_environment({MARK_VARIABLE: mark}), limit_s=_COMMAND_LIMIT_S)
    except CommandError as error:
        raise UserError(f"the check '{check.name}' cannot run: {error}", hint="correct 'command' of the check") from None
    if done.kind == FailureKind.TIMEOUT:
        kill_family(-1, f"{MARK_VARIABLE}={mark}")
        what = f"'{name}' timed out after {_COMMAND_LIMIT_S:g} s"
    elif not done.error:
        return None
    else:
        lines = [line.strip() for line in done.output.lines() if line.strip()]
        what = lines[-1][:_MOST_CHARS] if lines else f"'{name}' failed: {done.error}"
    return CheckFinding(check.name, check.level, item.source, item.product.name, what, item.job_id)


# -------------------------------------------------------------------------------------------------------------------- lint


def _of_lint(arguments: Namespace, checks: Sequence[Check]) -> Iterator[CheckFinding]:
    for each in checks:
        for finding in find_with(arguments, each.lint):
            if each.wants(finding.asset):
                yield CheckFinding(each.name, each.level, finding.asset, "", f"{finding.what}; {finding.next}")
