"""Moving and deleting as an asset processor is told on its command line: once, at the end of its work, with O3DE's report.

Tests: `tests/o3de_programs/test_asset_processor.py`.
"""

from __future__ import annotations

import msgspec

from aptui.engine.relocate import relocate
from aptui.engine.relocate.paths import RelocationError, from_switches
from aptui.o3de_programs.output import relocation_report
from aptui.o3de_programs.run_request import RunRequest, ask_holder
from aptui.o3de_programs.switches import GivenSwitches
from aptui.shared.errors import BusyError, KnownError
from aptui.shared.forms import prepare_form
from aptui.shared.relocation.records import Relocate, RelocationReport

_COMMANDS = ("move", "delete")
_OTHERS = ("confirm", "leaveEmptyFolders", "allowBrokenDependencies", "updateReferences", "excludeMetaDataFiles", "enablescm")


def perform(start: RunRequest) -> None:
    """Do what the switches say, and tell it; a rule that says no is an error in the log, not the end of the run."""
    try:
        order = from_switches(_format_switches(start.given))
    except RelocationError as refusal:
        for line in refusal.reference.splitlines():
            start.console.complain(line)
        return
    if order is None:
        return
    start.console.say_all(relocation_report.opening_lines(order))
    try:
        report = _perform(start, order)
    except RelocationError as refusal:
        start.console.say(refusal.reference)
        start.console.say(relocation_report.DELIMITER)
        return
    except KnownError as error:
        start.console.complain(error)
        start.console.say(relocation_report.DELIMITER)
        return
    refused = relocation_report.refusal_lines(report) if order.is_confirmed else []
    start.console.say_all(refused)
    start.console.say_all(relocation_report.report_lines(report))
    start.console.say_all(relocation_report.closing_lines(report))


def _format_switches(given: GivenSwitches) -> list[str]:
    """Return the switches in the form that `from_switches` takes."""
    given_commands = [f"{name}={','.join(given.all(name))}" for name in _COMMANDS if given.has(name)]
    return [*given_commands, *(name for name in _OTHERS if given.has(name))]


def _perform(start: RunRequest, order: Relocate) -> RelocationReport:
    if not order.is_confirmed:
        return relocate.preview(order, start.config)
    try:
        with relocate.hold_engines_off(start.config):
            return relocate.relocate(order, start.config)
    except BusyError as busy:
        return msgspec.convert(ask_holder(start.config, busy, order), prepare_form(RelocationReport))
