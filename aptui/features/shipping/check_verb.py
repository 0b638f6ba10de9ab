"""`aptui check`: what the checks of `aptui.yaml` find in what was processed: names, sizes, facts, budgets, lint, commands.

Tests: `tests/features/shipping/test_check_verb.py`.
"""

from __future__ import annotations

import os
import subprocess
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec import to_builtins

from aptui.batch.options import load_config
from aptui.batch.summary import findings_line
from aptui.cli.opening import OpenedProject, open_for_reading, os_path
from aptui.core.paths import cache_path
from aptui.core.results.checks import Check, CheckLevel
from aptui.features.shipping.lint import find_with
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.problems.checks import CheckFinding, ProductToCheck, findings, products_to_check

if TYPE_CHECKING:
    from aptui.config.model import Config

FOUND = 1
_COMMAND_LIMIT_S = 60.0
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
        found += _of_commands(project, [each for each in wanted if each.command])
    found += _of_lint(arguments, [each for each in wanted if each.lint])
    if arguments.json:
        counts = Counter(each.check for each in found)
        printing.say_json(
            {"findings": [to_builtins(each) for each in found], "counts": {each.name: counts[each.name] for each in wanted}}
        )
    else:
        print_findings(found, _LISTED)
        printing.say(findings_line(found, len(wanted)), "" if found else "green")
    return FOUND if any(each.level != CheckLevel.WARN for each in found) else 0


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
    if not checks:
        return []
    asked = [(each, item) for item in products_to_check(project.database) for each in checks if each.wants(item.source)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(lambda pair: _ask(project.config, *pair), asked)
        return [finding for finding in answers if finding is not None]


def _ask(config: Config, check: Check, item: ProductToCheck) -> CheckFinding | None:
    """Run the command on one product; what it writes last is what is wrong."""
    path = os.path.join(config.cache_dir, os_path(cache_path(item.product.name)))
    try:
        done = subprocess.run(
            [*check.command, path], cwd=config.project_dir, capture_output=True, timeout=_COMMAND_LIMIT_S, check=False
        )
    except FileNotFoundError:
        raise UserError(f"the check '{check.name}' runs '{check.command[0]}', which is not there", hint="install it") from None
    except OSError as error:
        failed = f"the check '{check.name}' cannot run '{check.command[0]}': {error.strerror}"
        raise UserError(failed, hint="install it, or correct 'command' of the check") from None
    except subprocess.TimeoutExpired:
        what = f"'{check.command[0]}' takes longer than {_COMMAND_LIMIT_S:.0f} s"
        return CheckFinding(check.name, check.level, item.source, item.product.name, what, item.job_id)
    if not done.returncode:
        return None
    text = (done.stderr.strip() or done.stdout.strip()).decode("utf-8", "backslashreplace").splitlines()
    what = text[-1] if text else f"'{check.command[0]}' ended with {done.returncode}"
    return CheckFinding(check.name, check.level, item.source, item.product.name, what, item.job_id)


# -------------------------------------------------------------------------------------------------------------------- lint


def _of_lint(arguments: Namespace, checks: Sequence[Check]) -> Iterator[CheckFinding]:
    if not checks:
        return
    for each in checks:
        for finding in find_with(arguments, each.lint):
            if each.wants(finding.asset):
                yield CheckFinding(each.name, each.level, finding.asset, "", f"{finding.what}; {finding.next}")
