"""A project with a live engine whose loop the test itself runs: no thread, no sleep, a deadline for every wait."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disk_project import Project
from homes import own_homes
from waiting import until

from aptui.config import configuration, load
from aptui.core.notices import EngineMessage, JobChanged, Notice
from aptui.engine.live.requests import RequestHandler
from aptui.engine.live.supervisor import EngineSupervisor
from aptui.link import port


class Request:
    """A request without a socket."""

    def __init__(self, verb: port.Verb, client: int = 1) -> None:
        self.verb, self.client = verb, client
        self.answered: dict[str, object] | None = None
        self.refused = ""

    def answer(self, **fields: object) -> None:
        self.answered = fields

    def refuse(self, what: str, hint: str = "", code: int = 3) -> None:
        self.refused = f"{what}; {hint}" if hint else what

    @property
    def is_over(self) -> bool:
        return self.answered is not None or bool(self.refused)


class Ticker:
    """A component of the loop that polls a condition every `every_s` seconds."""

    def __init__(self, every_s: float = math.inf, check: Callable[[float], object] = bool) -> None:
        self._every_s, self._check = every_s, check

    def next_deadline(self, now: float) -> float:
        return now + self._every_s

    def poll(self, now: float) -> None:
        self._check(now)


class LiveProject(Project):
    """A project with the running engine `live`. `runs` is {`source:key[!]`: number of runs since `forget`}."""

    live: EngineSupervisor
    handler: RequestHandler

    def __init__(self, root: Path, settings: str, *, workers: int = 1) -> None:
        super().__init__(root, settings, workers=workers)
        self.news: list[Notice] = []

    @contextmanager
    def running(self, *, skips_start_scan: bool = False) -> Iterator[EngineSupervisor]:
        self.live = EngineSupervisor(self.load(), self.load, skips_start_scan=skips_start_scan)
        self.live.listeners.append(self.news.append)
        self.handler = RequestHandler(self.live)
        self.live.open()
        try:
            if not skips_start_scan:
                self.until_idle()
            yield self.live
        finally:
            self.live.close()

    def load(self) -> configuration.Config:
        return load.load(self.root, workers=self.workers)

    # ---------------------------------------------------------------------------------------------------------------- waits

    def until(self, is_true: Callable[[], object], what: str = "") -> None:
        ticker = Ticker(0.02)
        self.live.parts.append(ticker)
        try:
            until(is_true, lambda: f"{what or is_true}; {self.messages[-5:]}", step=lambda _left_s: self.live.turn())
        finally:
            self.live.parts.remove(ticker)

    @property
    def is_idle(self) -> bool:
        engine = self.live.engine
        return engine is not None and engine.is_idle and self.live.watching.is_quiet and not self.live.is_reopening

    def until_idle(self) -> None:
        self.until(lambda: self.is_idle, "idle")

    def until_product(self, name: str, data: str | bytes | None) -> None:
        """Wait until a product contains `data` (None = until it is deleted) and the engine is idle."""
        wanted = data.encode() if isinstance(data, str) else data
        self.until(lambda: self.product(name) == wanted, f"{name} = {wanted!r}, not {self.product(name)!r}")
        self.until_idle()

    def save(self, rel: str, data: str | bytes | None) -> None:
        """Write (None = delete) a file below `assets` that is only copied, and wait until its product has the same bytes."""
        self.delete(f"assets/{rel}") if data is None else self.write(f"assets/{rel}", data)
        self.until_product(f"linux/{rel}", data)

    def settle(self) -> None:
        """Wait until all changes so far are processed."""
        request = self.ask(port.Settle())
        assert request.answered, request.refused

    def ask(self, verb: port.Verb, client: int = 1) -> Request:
        request = Request(verb, client)
        self.handler.handle(request)
        self.until(lambda: request.is_over, str(verb))
        return request

    # ----------------------------------------------------------------------------------------------------------------- news

    def product(self, name: str) -> bytes | None:
        try:
            return (self.cache / name).read_bytes()
        except OSError:
            return None

    def forget(self) -> None:
        self.news.clear()

    @property
    def messages(self) -> list[str]:
        return [notice.text for notice in self.news if isinstance(notice, EngineMessage)]

    @property
    def runs(self) -> Counter[str]:
        return Counter(
            f"{news.source}:{news.job_key}{'!' * (news.status == 'failed')}"
            for news in self.news
            if isinstance(news, JobChanged) and news.status in ("completed", "failed") and news.run_key
        )


def own_live_project(folder: Path, patch: pytest.MonkeyPatch, settings: str, files: dict[str, str]) -> LiveProject:
    """Make a project in `folder`/project with the files {path: text}; store the user's caches and configuration beside it."""
    own_homes(folder, patch)
    project = LiveProject(folder / "project", settings)
    for name, text in files.items():
        project.write(name, text)
    return project
