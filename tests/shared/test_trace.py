"""Trace events: complete, in the form that viewers read, and written only on request."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aptui.shared import trace
from aptui.shared.errors import UserError


@pytest.fixture(autouse=True)
def _stopped() -> Iterator[None]:
    yield
    trace.stop()


def test_trace_file_holds_its_events_in_trace_event_format(tmp_path: Path) -> None:
    file = trace.TraceFile(str(tmp_path / "t.json"))
    file.name("engine")
    file.name("loop", track=3)
    file.span("turn", 5_000, 7_500, track=3, details={"events": 2})
    file.begin("run", 9, 6_000, details={"source": "a.txt"})
    file.end("run", 9, 8_000, details={"outcome": "SUCCEEDED"})
    file.close()

    events = [event for event in json.loads((tmp_path / "t.json").read_text()) if event]
    assert [event["ph"] for event in events] == ["M", "M", "X", "b", "e"]
    assert events[2] == {
        "ph": "X", "name": "turn", "cat": "span", "ts": 5.0, "dur": 2.5, "pid": 1, "tid": 3, "args": {"events": 2},
    }  # fmt: skip
    assert (events[3]["id"], events[3]["cat"]) == (events[4]["id"], events[4]["cat"]) == (9, "run")


def test_trace_of_a_killed_process_lacks_only_the_closing_bracket(tmp_path: Path) -> None:
    file = trace.TraceFile(str(tmp_path / "t.json"))
    file.span("turn", 0, 1)
    file.flush()

    text = (tmp_path / "t.json").read_text()
    file.close()
    assert [event["name"] for event in json.loads(text.removesuffix(",\n") + "]")] == ["turn"]


def test_process_is_traced_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(trace.VARIABLE, raising=False)
    trace.start_if_asked()
    with trace.span("turn"):
        trace.begin("run", 1)
    assert trace.active is None

    monkeypatch.setenv(trace.VARIABLE, str(tmp_path / "t.json"))
    trace.start_if_asked()
    with trace.span("turn"):
        trace.begin("run", 1)
    trace.stop()
    names = [event["name"] for event in json.loads((tmp_path / "t.json").read_text()) if event.get("ph") in ("X", "b")]
    assert names == ["run", "turn"]


def test_threads_with_the_same_name_share_a_track(tmp_path: Path) -> None:
    def work() -> None:
        with trace.span("commit"):
            pass

    trace.start(str(tmp_path / "t.json"))
    for _ in range(2):
        thread = threading.Thread(target=work, name="commit")
        thread.start()
        thread.join()
    with trace.span("turn"):
        pass
    trace.stop()

    events = json.loads((tmp_path / "t.json").read_text())
    tracks = [event["tid"] for event in events if event.get("ph") == "X"]
    assert tracks[0] == tracks[1] != tracks[2]


def test_unwritable_trace_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        trace.start(str(tmp_path / "nowhere" / "t.json"))
