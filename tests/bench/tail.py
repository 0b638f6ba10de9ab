"""Explain slow saves: list the spans of an engine's trace that lie within the time of a save.

The engine's trace and the bench read one clock (`time.perf_counter_ns`, which is CLOCK_MONOTONIC on Linux), so that spans and
samples can be compared directly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

_MIN_US = 1000.0
"""Spans shorter than this (microseconds) are not listed."""


class Sample(Struct, frozen=True):
    """A save: its path, and the times of its write and its product, in seconds of the clock."""

    path: str
    began_s: float
    ended_s: float

    @property
    def took_s(self) -> float:
        """Return the seconds between the write of the source and the appearance of its product."""
        return self.ended_s - self.began_s


class Span(Struct, frozen=True):
    """A span of the engine: a name, a thread, and microseconds of the clock."""

    name: str
    thread: str
    began_us: float
    ended_us: float


def read_spans(trace: Path) -> list[Span]:
    """Return the spans of a trace in the order of their start, including nested ones."""
    events = json.loads(trace.read_text(encoding="utf-8").rstrip().rstrip(",").removesuffix("]").rstrip().rstrip(",") + "]")
    threads = {event["tid"]: event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    spans = [
        Span(event["name"], threads.get(event["tid"], "?"), event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("ph") == "X"
    ]
    return sorted(spans, key=lambda span: span.began_us)


def explain(samples: Iterable[Sample], spans: list[Span], limit_s: float) -> list[str]:
    """Return a line for each save that took longer than the limit, slowest first.

    A line lists the engine's spans during the save, and the time that no span covers.
    """
    slow = sorted((sample for sample in samples if sample.took_s > limit_s), key=lambda sample: -sample.took_s)
    return [_explain_one(sample, spans) for sample in slow]


def _explain_one(sample: Sample, spans: list[Span]) -> str:
    began_us, ended_us = sample.began_s * 1e6, sample.ended_s * 1e6
    within = [span for span in spans if span.began_us < ended_us and span.ended_us > began_us]
    parts = [f"{span.thread}/{span.name} {(span.ended_us - span.began_us) / 1000:.1f}" for span in within if _is_long(span)]
    first = min((span.began_us for span in within if span.began_us >= began_us), default=ended_us)
    idle_us = (ended_us - began_us) - _covered_us(within, began_us, ended_us)
    return (
        f"{sample.took_s * 1000:.1f} ms, '{sample.path}': the engine begins after {(first - began_us) / 1000:.1f}, "
        f"no span covers {idle_us / 1000:.1f}; over 1 ms: {', '.join(parts) or 'none'}"
    )


def _is_long(span: Span) -> bool:
    return span.ended_us - span.began_us >= _MIN_US


def _covered_us(spans: list[Span], began_us: float, ended_us: float) -> float:
    covered, at_us = 0.0, began_us
    for span in spans:
        begins, ends = max(span.began_us, at_us), min(span.ended_us, ended_us)
        if ends > begins:
            covered += ends - begins
            at_us = ends
    return covered
