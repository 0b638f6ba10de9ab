"""Metrics of the database and of the engine in the OpenMetrics format for scrapers."""

from __future__ import annotations

import re
from typing import Any

from aptui.features.insight.figures import document, of_engine
from aptui.shared.openmetrics import Family, Sample, gauge, text
from tests.store.conftest import BUILDER, Store, job_row
from tests.store.queries.test_session_history import job, session_row

_LINE = re.compile(r'[a-z_]+(\{([a-z_]+="(\\.|[^"\\\n])*",?)*\})? -?[0-9.e+]+\Z')
STATUS: dict[str, Any] = {
    "state": "working", "uptime_s": 3.5, "rss_bytes": 1000, "connection_count": 2,
    "progress": {"jobs_waiting": 7, "jobs_done": 5},
    "health": {"roots": [{"mode": "native"}, {"mode": "native"}, {"mode": "polling"}], "disk": "full", "database": "", "pool": "",
               "configuration": ""},
}  # fmt: skip


def parsed(exposition: str) -> dict[str, str]:
    """Return {name and labels: value}; check that each line is valid and that each name has one type line before its values."""
    found: dict[str, str] = {}
    kinds: set[str] = set()
    *lines, end, nothing = exposition.split("\n")
    assert (end, nothing) == ("# EOF", "")
    for line in lines:
        if line.startswith("# TYPE "):
            name = line.split()[2]
            assert name not in kinds
            kinds.add(name)
        elif not line.startswith("# HELP "):
            assert _LINE.match(line), line
            key, _blank, value = line.rpartition(" ")
            assert key not in found
            assert any(key.startswith(name) for name in kinds)
            found[key] = value
    return found


def test_database_metrics_do_not_need_an_engine(store: Store) -> None:
    job(store, 1, 1, duration_ms=5)
    job(store, 2, 2, outcome=1)
    store.put(put_job=[job_row(1, 1, run_key=1, duration_ms=5), job_row(3, 1, run_key=3, duration_ms=700, platform="windows")])
    store.put(put_session=[session_row()])

    found = parsed(document(store.reader(), {BUILDER: 'im"age'}.__getitem__, None))

    assert (found['aptui_jobs{status="completed"}'], found['aptui_jobs{status="failed"}']) == ("2", "1")
    assert (found["aptui_session"], found["aptui_session_jobs_run"], found["aptui_session_jobs_failed"]) == ("1", "2", "1")
    buckets = {
        bound: found[f'aptui_job_seconds_bucket{{builder="im\\"age",le="{bound}"}}'] for bound in ("0.01", "1.0", "10.0", "+Inf")
    }
    assert buckets == {"0.01": "1", "1.0": "2", "10.0": "3", "+Inf": "3"}
    assert found['aptui_job_seconds_gsum{builder="im\\"age"}'] == "2.205"
    assert found["aptui_engine_up"] == "0"
    assert not any(key.startswith("aptui_queue") for key in found)


def test_status_of_a_running_engine_adds_metrics() -> None:
    found = parsed(text(of_engine(STATUS)))

    assert (found["aptui_engine_up"], found["aptui_queue_jobs_waiting"], found["aptui_queue_jobs_running"]) == ("1", "7", "0")
    assert found["aptui_engine_jobs_done_total"] == "5"
    assert found['aptui_engine_state{aptui_engine_state="working"}'] == "1"
    assert found['aptui_watched_folders{mode="polling"}'] == "1"
    assert found["aptui_engine_troubles"] == "1"
    assert "aptui_queue_left_seconds" not in found
    assert parsed(text(of_engine({**STATUS, "progress": {"eta_ms": 2500}})))["aptui_queue_left_seconds"] == "2.5"
    assert parsed(text(of_engine({**STATUS, "progress": None})))["aptui_queue_jobs_waiting"] == "0"


def test_metrics_of_an_empty_database_are_zero(store: Store) -> None:
    found = parsed(document(store.reader(), str, None))

    assert found["aptui_products"] == "0"
    assert "aptui_session" not in found


def test_untrusted_names_cannot_break_the_metrics_format() -> None:
    odd = Family("x", "gauge", "told\nin two", (Sample(1.5, {"a": 'q"b\\c\nd\ud800'}),))

    assert text([odd, gauge("y", "", 2)]) == (
        '# TYPE x gauge\n# HELP x told\\nin two\nx{a="q\\"b\\\\c\\nd?"} 1.5\n# TYPE y gauge\n# HELP y \ny 2\n# EOF\n'
    )
