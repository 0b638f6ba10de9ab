"""Every request in every state of the engine: each is answered or refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from live_project import LiveProject, Request, own_live_project

from aptui import feature
from aptui.features.gateway.engine_requests import Barrier, OrderPeers, Readiness, ReportPeers, ShowSource, WriteCatalog
from aptui.features.relocation.relocation_records import Relocate
from aptui.features.sharing.job_results import Restore
from aptui.features.shipping.missing_rows import ClearMissing, ScanMissing
from aptui.link import port
from aptui.shared.connections.peers import GatewayReport, PeerOrder
from aptui.shared.errors import HostError
from tests.link.link_harness import example

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}]
workers: 1
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: slow, patterns: ["*.slow"], command: 'while ! test -e GATE; do sleep 0.01; done; cp {source} {products_dir}'}
"""
HOLDER = 77
_NUMBERS = itertools.count()

REQUESTS: dict[type[Any], Any] = {
    port.EngineHello: port.EngineHello(port.PROTOCOL, "1", "test", 1),
    port.PingEngine: port.PingEngine(),
    port.Subscribe: port.Subscribe(),
    port.ReprocessJobs: port.ReprocessJobs(keys=("a.txt",)),
    Restore: Restore(1, 999),
    port.Cancel: port.Cancel((1,)),
    port.EscalateJobs: port.EscalateJobs(keys=("a.txt",)),
    port.NoteInterest: port.NoteInterest(("a.txt",)),
    port.ReadRunLog: port.ReadRunLog(1),
    port.RescanSources: port.RescanSources(),
    port.SetOption: port.SetOption("debug_output", False),
    port.ReloadConfig: port.ReloadConfig(),
    port.Disconnect: port.Disconnect(5),
    port.RestartWorker: port.RestartWorker(99),
    port.ReadStatus: port.ReadStatus(lists_connections=True),
    port.Settle: port.Settle(),
    port.PauseJobs: port.PauseJobs(),
    port.RunNext: port.RunNext(),
    port.ResumeJobs: port.ResumeJobs(),
    port.Drain: port.Drain(),
    port.Hold: port.Hold("a test"),
    Relocate: Relocate("b.txt", "c.txt"),
    port.StopEngine: port.StopEngine(is_when_idle=True),
    ScanMissing: ScanMissing(),
    ClearMissing: ClearMissing(("*",)),
    Barrier: Barrier(0.2),
    Readiness: Readiness(),
    WriteCatalog: WriteCatalog(),
    ShowSource: ShowSource("a.txt"),
    ReportPeers: ReportPeers(example(GatewayReport)),
    OrderPeers: OrderPeers(example(PeerOrder)),
}


def enter(project: LiveProject, state: str) -> None:
    """Bring the engine from any state into the given one."""
    live = project.live
    live.is_stopping = live.stops_when_idle = False
    for client in (1, HOLDER):
        project.handler.forget_client(client)
    project.handler.handle(Request(port.ResumeJobs()))
    project.config(SETTINGS.replace("GATE", str(project.path("gate"))))
    project.write("gate", "")
    live._retry_at = 0.0
    # Reload now. Otherwise a late notification about aptui.yaml could reload it after the engine has entered `state`.
    project.ask(port.ReloadConfig())
    project.until(lambda: project.is_idle and not live.is_reopening and not live.configuration_error, "idle")
    _ENTER[state](project)
    project.until(lambda: project.ask(port.ReadStatus()).answered["state"] == _STATE[state], _STATE[state])


def _change(project: LiveProject) -> None:
    project.write("assets/b.txt", f"b{next(_NUMBERS)}")


def _build(project: LiveProject) -> None:
    project.path("gate").unlink(missing_ok=True)
    project.write("assets/a.slow", f"{next(_NUMBERS)}")
    project.until(lambda: project.live.engine is not None and project.live.engine.pipeline.jobs.running)


def _pause(project: LiveProject) -> None:
    project.ask(port.PauseJobs())
    _change(project)
    project.until(lambda: project.live.engine is not None and project.live.engine.pipeline.jobs.ready)


def _drain(project: LiveProject) -> None:
    project.ask(port.Drain(), HOLDER)
    _change(project)
    project.until(lambda: project.live.watching._paths)


def _start_draining(project: LiveProject) -> None:
    _build(project)
    project.handler.handle(Request(port.Drain(), HOLDER))


def _hold(project: LiveProject) -> None:
    project.ask(port.Hold("a command"), HOLDER)
    _change(project)
    project.until(lambda: project.live.watching._paths)


def _fail(project: LiveProject) -> None:
    project.live._break_down(HostError("the disk is full"))
    project.live._retry_at = math.inf
    project.live._tried_at = math.inf


def _lose_cache(project: LiveProject) -> None:
    away = project.cache.with_name("away")
    project.cache.rename(away)
    project.live.is_cache_displaced()
    project.until(lambda: project.live.engine is None, "no engine")
    project.live._retry_at = project.live._tried_at = math.inf
    away.rename(project.cache)


def _break_configuration(project: LiveProject) -> None:
    project.config("scan_folders: [")
    project.live.reload()
    project.until(lambda: project.live.configuration_error, "a broken configuration")


def _stop(project: LiveProject) -> None:
    project.live.stop()


_ENTER: dict[str, Callable[[LiveProject], None]] = {
    "idle": lambda _project: None,
    "building": _build,
    "paused": _pause,
    "drained": _drain,
    "draining": _start_draining,
    "held": _hold,
    "in trouble": _fail,
    "cache gone": _lose_cache,
    "broken configuration": _break_configuration,
    "stopping": _stop,
}
_STATE = {**{state: state for state in _ENTER}, "cache gone": "in trouble", "broken configuration": "idle", "stopping": "idle"}
_STATE["building"] = "working"
_NO_ENGINE = "the engine cannot process requests now"
_MOST = {
    Restore: "has no run with this number",
    port.Disconnect: "connection 5 does not exist",
    port.RestartWorker: "worker 99 does not exist",
    port.RunNext: "not paused",
    OrderPeers: "no gateway",
}
_PAUSED, _DRAINED = "the engine is paused", "the engine does not process new changes"
_UNAVAILABLE: dict[type[Any], str] = dict.fromkeys(
    (
        port.ReprocessJobs, Restore, port.Cancel, port.EscalateJobs, port.NoteInterest, port.ReadRunLog, port.RescanSources,
        port.Settle, port.RunNext, port.Drain, Relocate, ClearMissing, Barrier, WriteCatalog, ShowSource,
    ),
    _NO_ENGINE,
)  # fmt: skip
_BUSY: dict[type[Any], str] = {ScanMissing: "while work is pending"}
REFUSALS: dict[str, dict[type[Any], str]] = {
    "idle": {},
    "building": {**_BUSY},
    "paused": {**_BUSY, port.Settle: _PAUSED, port.Drain: _PAUSED, port.RunNext: ""},
    "drained": {**_BUSY, port.Settle: _DRAINED, port.RescanSources: _DRAINED},
    "draining": {**_BUSY, port.Settle: _DRAINED, port.RescanSources: _DRAINED},
    "held": {**_BUSY, port.Settle: "changes are held by a command"},
    "in trouble": {**_BUSY, **_UNAVAILABLE},
    "cache gone": {**_BUSY, **_UNAVAILABLE},
    "broken configuration": {port.ReloadConfig: "was not reloaded"},
    "stopping": {},
}
"""{state of the engine: {kind of request: words of its refusal, "" = it is answered}}.

An entry overrides that of `_MOST`, which holds in all states. Requests without an entry are answered.
"""
_WAITS_FOR_JOBS = (port.Settle, port.Drain)
"""Kinds of requests that are answered only after the running jobs have ended."""


def test_every_kind_of_request_has_an_example() -> None:
    assert set(REQUESTS) == {*port.VERBS.values(), *map(feature.load, feature.requests().values())}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("state", _ENTER)
def test_every_request_is_answered_or_refused_in_every_state_of_the_engine(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aptui.engine.live.requests._HELD_S", 0.1)
    monkeypatch.setattr("aptui.engine.live.requests._TROUBLE_S", 0.1)
    project = own_live_project(tmp_path, monkeypatch, SETTINGS, {"assets/a.txt": "a", "assets/b.txt": "b"})
    found: dict[str, str] = {}
    expected: dict[str, str] = {}
    with project.running() as live:
        live.server = mock.Mock(
            **{"disconnect.return_value": False, "next_deadline.return_value": None, "connections.return_value": ()}
        )
        for kind, verb in REQUESTS.items():
            enter(project, state)
            request = Request(verb)
            project.handler.handle(request)
            if kind in _WAITS_FOR_JOBS and state in ("building", "draining") and not request.is_over:
                project.write("gate", "")
            project.until(lambda request=request: request.is_over, f"{kind.__name__} in the state {state}")
            words = {**_MOST, **REFUSALS[state]}.get(kind, "")
            expected[kind.__name__] = words
            found[kind.__name__] = words if words and words in request.refused else request.refused
        enter(project, "idle")

    assert found == expected


@pytest.mark.parametrize("state", ["paused", "draining", "held", "in trouble"])
def test_pending_settle_request_is_refused_when_the_engine_pauses_or_fails(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aptui.engine.live.requests._HELD_S", 0.1)
    monkeypatch.setattr("aptui.engine.live.requests._TROUBLE_S", 0.1)
    project = own_live_project(tmp_path, monkeypatch, SETTINGS, {"assets/a.txt": "a", "assets/b.txt": "b"})
    stand_still = {"paused": _pause, "draining": _start_draining, "held": _hold, "in trouble": _fail}[state]
    with project.running():
        enter(project, "building")
        settling, draining = Request(port.Settle()), Request(port.Drain())
        project.handler.handle(settling)
        if state in ("paused", "in trouble"):
            project.handler.handle(draining)
        stand_still(project)

        project.until(lambda: settling.is_over and (draining.is_over or state in ("draining", "held")))

        assert settling.refused
        assert bool(draining.refused) == (state in ("paused", "in trouble"))
        enter(project, "idle")
