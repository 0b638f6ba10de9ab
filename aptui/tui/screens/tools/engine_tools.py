"""Tools that ask the engine: pause, scans, options, restart.

Tests: `tests/tui/screens/tools/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from aptui.tui.frame.commandline import Choice

if TYPE_CHECKING:
    from aptui.link.port import Answer
    from aptui.tui.pane import Shell

_OPTION_NAMES = {"debug_output": "debug output", "fast_scan": "faster scanning"}


class EngineTools:
    """Asks the engine, and knows its options.

    Args:
        changed: called when `options` changed.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._asked_pid = 0
        self.options: dict[str, bool] | None = None
        """{option: whether it is on}; None = not known."""

    def forget(self) -> None:
        """Have the options asked for again."""
        self._asked_pid = 0

    def refresh(self, *, is_attached: bool) -> None:
        """Ask for the options once after the engine was attached to."""
        pid = self._shell.session.engine.pid
        if not is_attached:
            self.options, self._asked_pid = None, 0
        elif self._asked_pid != pid:
            from aptui.link.port import ReadStatus  # for start-up: the verbs come after the first paint

            self._asked_pid = pid
            self._shell.ask(ReadStatus(), then=self._take_status)

    def _take_status(self, answer: Answer) -> None:
        options = answer.get("options")
        self.options = {str(name): bool(value) for name, value in options.items()} if isinstance(options, dict) else {}
        self._changed()

    def resume(self) -> None:
        """Go on after a pause."""
        from aptui.link.port import ResumeJobs  # for start-up: the verbs come after the first paint

        self._shell.ask(ResumeJobs(), "going on")

    def run_next(self) -> None:
        """Run one job more while paused."""
        from aptui.link.port import RunNext  # for start-up: the verbs come after the first paint

        self._shell.ask(RunNext(), then=lambda answer: self._shell.show_toast(_show_start(answer)))

    def drain(self) -> None:
        """Finish what is queued and look at nothing new, after asking."""
        from aptui.link.port import Drain  # for start-up: the verbs come after the first paint

        ask = partial(self._shell.ask, Drain(), "drained: everything pending is done")
        text = "drain? changes wait until you end it"
        self._shell.question(text, [Choice("y", "drain", ask), Choice("n", "no")])

    def rescan(self, *, is_full: bool) -> None:
        """Look at everything again."""
        from aptui.link.port import RescanSources  # for start-up: the verbs come after the first paint

        self._shell.ask(RescanSources(is_full=is_full), "scanning")

    def full_scan(self) -> None:
        """Read every byte of every source, after asking."""
        text = "read every byte of every source?"
        self._shell.question(text, [Choice("y", "scan", partial(self.rescan, is_full=True)), Choice("n", "no")])

    def reload(self) -> None:
        """Read the configuration again."""
        from aptui.link.port import ReloadConfig  # for start-up: the verbs come after the first paint

        def report(answer: Answer) -> None:
            self._shell.show_toast("configuration reloaded" if answer.get("is_changed") else "the configuration has not changed")

        self._shell.ask(ReloadConfig(), then=report)

    def turn_debug(self, *, is_on: bool | None = None) -> None:
        """Turn debug output on or off, after asking; None = the other way."""
        from aptui.link.port import SetOption  # for start-up: the verbs come after the first paint

        options = self.options or {}
        wanted = not options.get("debug_output", False) if is_on is None else is_on
        if wanted == options.get("debug_output"):
            self._shell.show_toast(f"debug output is {'on' if wanted else 'off'} already")
            return
        ask = partial(self._shell.ask, SetOption("debug_output", wanted), then=self._take_option)
        to, now = ("on", "off") if wanted else ("off", "on")
        text = f"turn debug output {to}? it holds for jobs that run from now on"
        self._shell.question(text, [Choice("y", f"turn it {to}", ask), Choice("n", f"leave it {now}")])

    def turn_fast_scanning(self, *, is_on: bool | None = None) -> None:
        """Let rescans skip files with the stored size and time, or have them read every file; None = the other way."""
        from aptui.link.port import SetOption  # for start-up: the verbs come after the first paint

        wanted = not (self.options or {}).get("fast_scan", True) if is_on is None else is_on
        self._shell.ask(SetOption("fast_scan", wanted), then=self._take_option)

    def say_fast_scanning(self, rest: str) -> None:
        """Turn faster scanning on or off, as a word says."""
        self.turn_fast_scanning(is_on={"on": True, "off": False}.get(rest))

    def say_debug(self, rest: str) -> None:
        """Turn debug output on or off, as a word says."""
        self.turn_debug(is_on={"on": True, "off": False}.get(rest))

    def _take_option(self, answer: Answer) -> None:
        name, value = str(answer.get("name", "debug_output")), bool(answer.get("value"))
        self.options = {**(self.options or {}), name: value}
        self._shell.show_toast(f"{_OPTION_NAMES.get(name, name)} is {'on' if value else 'off'}")
        self._changed()

    def restart(self) -> None:
        """Restart the engine, after asking when."""
        restart = self._shell.session.restart_engine
        choices = [
            Choice("w", "when idle", partial(restart, is_when_idle=True)),
            Choice("y", "now", partial(restart, is_when_idle=False)),
            Choice("n", "no"),
        ]
        self._shell.question("restart the engine?", choices)


def _show_start(answer: Answer) -> str:
    return f"running {answer['source']}" if answer.get("job_id") else "nothing is pending"
