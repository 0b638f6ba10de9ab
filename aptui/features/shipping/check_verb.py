"""`aptui check`: what the checks of `aptui.yaml` find in what was processed: names, sizes, facts, budgets, lint, commands.

Tests: `tests/features/shipping/test_check_verb.py`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec import to_builtins

from aptui.batch.options import load_config
from aptui.batch.summary import findings_line
from aptui.cli.opening import OpenedProject, open_for_reading, os_path
from aptui.config import trust
from aptui.core.paths import cache_path
from aptui.core.project import SHARE_OF_MEMORY
from aptui.core.results.checks import Check, CheckLevel
from aptui.core.results.retry import FailureKind
from aptui.features.shipping.lint import find_with
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.problems.checks import CheckFinding, ProductToCheck, findings, products_to_check
from aptui.worker.commands.command import CommandError, Invocation, execute, find_program
from aptui.worker.processes import kill_family

if TYPE_CHECKING:
    from aptui.config.model import Config
    from aptui.engine.pool.sandbox import Sandbox

FOUND = 1
_COMMAND_LIMIT_S = 60.0
_MOST_CHARS = 1000
"""Maximum length of what a command says."""
_LISTED = 200
_COLOURS = {CheckLevel.WARN: "yellow", CheckLevel.FAIL: "red", CheckLevel.BLOCK: "red"}


def check_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `check`."""
    parser.add_argument("--only", action="append", default=[], metavar="CHECK", help="only this one; may be given several times")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = """\
checks stand in aptui.yaml; 'aptui batch' applies them too, but for commands and lint:
  checks:
    textures: {files: ["textures/*"], width: "<= 4096", power_of_two: true, level: fail}
exit code 1 when one of level fail or block finds something"""


def check(arguments: Namespace) -> int:
    """Apply the checks, and tell what they found."""
    config = load_config(arguments)
    wanted = _choose_wanted(config.checks, arguments.only)
    if not wanted and not arguments.json:
        printing.say("no checks are configured: 'checks:' in aptui.yaml")
        return 0
    with open_for_reading(arguments, config) as project:
        found = findings(project.database, wanted)
        commands = [each for each in wanted if each.command]
        skipped = commands if commands and not trust.is_trusted(config) else []
        found += _of_commands(project, [] if skipped else commands)
    for each in skipped:
        why = "it runs a command of this project, which you have not trusted; see 'aptui trust'"
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
            there = f"there are {', '.join(sorted(known))}" if known else "'checks:' in aptui.yaml has none"
            raise UserError(f"--only: there is no check '{name}'", hint=there)
    return tuple(each for each in checks if not only or each.name in only)


def print_findings(found: Sequence[CheckFinding], limit: int) -> None:
    """Print findings, at most so many."""
    for each in found[:limit]:
        about = printing.line(each.product or each.source or "all together")
        colour = _COLOURS[CheckLevel(each.level)]
        printing.say(f"{each.level:<5} {printing.line(each.check)}  {about}: {printing.line(each.what)}", colour)
    if len(found) > limit:
        printing.say(f"and {len(found) - limit:,} more: aptui check --json")


# ---------------------------------------------------------------------------------------------------------------- commands


def _of_commands(project: OpenedProject, checks: Sequence[Check]) -> list[CheckFinding]:
    """Run the commands of checks as workers run those of builders: in the sandbox, with their environment, output and limits."""
    if not checks:
        return []
    from aptui.engine.pool.sandbox import sandbox_of  # only checks with commands need the engine's room

    config = project.config
    sandbox = sandbox_of(config, stages=False, notify=lambda text: printing.complain(f"aptui: {printing.line(text)}", "yellow"))
    asked = [(each, item) for item in products_to_check(project.database) for each in checks if each.wants(item.source)]
    with contextlib.chdir(config.project_dir), ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(lambda pair: _ask(config, sandbox, *pair), asked)
        return [finding for finding in answers if finding is not None]


def _ask(config: Config, sandbox: Sandbox | None, check: Check, item: ProductToCheck) -> CheckFinding | None:
    """Run the command on one product; what it writes last is what is wrong."""
    from aptui.engine.pool.spawning import MARK_VARIABLE, python_environment

    name = check.command[0]
    program = find_program(name)
    if not program:
        if os.path.exists(name):
            raise UserError(
                f"the check '{check.name}' cannot run '{name}': it is not a program", hint="correct 'command' of the check"
            )
        raise UserError(f"the check '{check.name}' runs '{name}', which is not there", hint="install it")
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
        what = f"'{name}' takes longer than {_COMMAND_LIMIT_S:g} s"
    elif not done.error:
        return None
    else:
        lines = [line.strip() for line in done.output.lines() if line.strip()]
        what = lines[-1][:_MOST_CHARS] if lines else f"'{name}' failed: {done.error}"
    return CheckFinding(check.name, check.level, item.source, item.product.name, what, item.job_id)


# -------------------------------------------------------------------------------------------------------------------- lint


def _of_lint(arguments: Namespace, checks: Sequence[Check]) -> Iterator[CheckFinding]:
    if not checks:
        return
    for each in checks:
        for finding in find_with(arguments, each.lint):
            if each.wants(finding.asset):
                yield CheckFinding(each.name, each.level, finding.asset, "", f"{finding.what}; {finding.next}")
