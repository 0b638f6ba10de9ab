"""The explanation of slow saves: only slow saves are explained, the slowest first, with the spans during each save."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.tail import Sample, Span, explain, read_spans


def test_spans_of_an_unfinished_trace_are_read_with_their_threads(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "commit"}},
        {"ph": "X", "name": "sync", "cat": "span", "ts": 7.0, "dur": 3.0, "pid": 1, "tid": 2, "args": {}},
        {"ph": "X", "name": "commit", "cat": "span", "ts": 5.0, "dur": 9.0, "pid": 1, "tid": 2, "args": {}},
    ]
    (tmp_path / "trace.json").write_text("[\n" + "".join(f"{json.dumps(event)},\n" for event in events))

    spans = read_spans(tmp_path / "trace.json")

    assert spans == [Span("commit", "commit", 5.0, 14.0), Span("sync", "commit", 7.0, 10.0)]


def test_explain_lists_only_slow_saves_with_the_slowest_first() -> None:
    samples = [Sample("quick", 1.0, 1.002), Sample("slow", 2.0, 2.020), Sample("slower", 3.0, 3.040)]
    spans = [Span("turn", "loop", 2.001e6, 2.0015e6), Span("transaction", "database-writer", 2.005e6, 2.015e6)]

    slower, slow = explain(samples, spans, limit_s=0.012)

    assert slower == "40.0 ms, 'slower': the engine begins after 40.0, no span covers 40.0; over 1 ms: none"
    assert slow.startswith("20.0 ms, 'slow': the engine begins after 1.0, no span covers 9.5; over 1 ms: ")
    assert slow.endswith("database-writer/transaction 10.0")
