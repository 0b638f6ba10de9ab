"""The request for a run, as command line and configuration state it, and its form for an engine that owns the cache already.

Tests: `tests/features/o3de/programs/test_asset_processor.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from aptui.config.dirs import asset_database
from aptui.config.model import Config
from aptui.features.o3de.facts import ProjectFacts
from aptui.features.o3de.programs.control import DEFAULT_PORT
from aptui.features.o3de.programs.output import lines
from aptui.features.o3de.programs.output.console import ProgramConsole
from aptui.features.o3de.programs.switches import GivenSwitches
from aptui.link.client import EngineClient, NoEngine
from aptui.link.port import Answer, Verb
from aptui.shared.errors import BusyError


class RunRequest(Struct):
    """A run as its command line and its configuration want it.

    Args:
        load: reads the configuration again.
        facts: what the project's settings say beyond the configuration.
    """

    given: GivenSwitches
    config: Config
    console: ProgramConsole
    load: Callable[[], Config]
    facts: ProjectFacts

    @property
    def first_port(self) -> int:
        """Where to begin to look for a port to listen on, 0 = any will do."""
        asked = self.given.number("port")
        if asked is not None or self.given.has("randomListeningPort"):
            return asked or 0
        port = self.facts.bootstrap.get("remote_port", "")
        return int(port) if port.isdecimal() else DEFAULT_PORT

    def report_rejected(self) -> None:
        """Say what whoever connects to the listening port should know."""
        self.console.say(lines.format_turned_away(str(self.config.cache_dir)))

    @property
    def database(self) -> Path:
        """Where the asset database is."""
        return asset_database(self.config.cache_dir)


def ask_holder(config: Config, busy: BusyError, verb: Verb) -> Answer:
    """Have the engine that holds the cache do it, and return its answer; raise `busy` where whoever holds it cannot be asked."""
    try:
        client = EngineClient.of(config.cache_dir, kind="batch")
    except NoEngine:
        raise busy from None
    with client:
        return client.ask(verb)
