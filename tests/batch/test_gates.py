"""`--fail-on` and `--stop-after`: accepted values, and when they stop a run."""

from __future__ import annotations

from argparse import Namespace

import pytest
from msgspec.structs import replace

from aptui.batch.options import STOPPED_EARLY, FailureCounter, StopAfter, knows_all_jobs, mask_error, report_arguments, stop_after
from aptui.batch.run import exit_code
from aptui.batch.summary import Summary
from aptui.cli.parser import Parser
from aptui.core.model import RelPath, RunKey
from aptui.core.notices import JobChanged
from aptui.core.pipeline.pipeline import PipelineStatus
from aptui.shared.errors import UserError


def parsed(*words: str) -> Namespace:
    parser = Parser(prog="aptui")
    report_arguments(parser)
    parser.set_defaults(fail_slower=None, fail_flaky=False)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "level", "factor"),
    [
        ((), None, None),
        (("warning",), "warning", None),
        (("slower:2x",), None, 2.0),
        (("slower:1.5",), None, 1.5),
        (("error", "slower:3x"), "error", 3.0),
    ],
)
def test_failure_criteria_may_be_a_level_and_a_factor(words: tuple[str, ...], level: str | None, factor: float | None) -> None:
    found = parsed(*(text for word in words for text in ("--fail-on", word)))

    assert (found.fail_on, found.fail_slower) == (level, factor)


def test_failure_criteria_flaky_slower_and_error_can_be_combined() -> None:
    found = parsed("--fail-on", "flaky", "--fail-on", "slower:2x", "--fail-on", "error")

    assert (found.fail_flaky, found.fail_slower, found.fail_on) == (True, 2.0, "error")
    assert not parsed().fail_flaky


@pytest.mark.parametrize(
    "word", ["", "slow", "slower", "slower:", "slower:x", "slower:1x", "slower:-2", "slower:nan", "slower:inf"]
)
def test_invalid_failure_criterion_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="--fail-on"):
        parsed("--fail-on", word)


@pytest.mark.parametrize(("text", "wanted"), [("1", StopAfter(1)), ("20", StopAfter(20)), ("20:same-cause", StopAfter(20, True))])
def test_stop_after_option_parses_a_count_and_a_cause(text: str, wanted: StopAfter) -> None:
    assert stop_after(text) == wanted


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "2.5", "20:", "20:cause", ":same-cause", "٣", "9" * 5000])
def test_invalid_failure_limit_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--stop-after"):
        stop_after(text)


def failure(number: int, error: str, *, status: str = "failed", builder: str = "image") -> JobChanged:
    return JobChanged(
        0, number, RelPath(f"{number}.png"), 1, "linux", "Image", builder, status, "", error, 0, 0, 5, "", RunKey(number)
    )


def outcome_of(limit: StopAfter, *news: JobChanged) -> tuple[str, int]:
    stops: list[int] = []
    counter = FailureCounter(limit, lambda: stops.append(1))
    for notice in news:
        counter(notice)
    return counter.why, len(stops)


def test_stop_after_limit_stops_the_engine_only_once() -> None:
    news = [failure(number, f"error {number}") for number in range(5)]

    assert outcome_of(StopAfter(3), *news[:2]) == ("", 0)
    assert outcome_of(StopAfter(3), *news) == ("3 failures", 1)


def test_failure_limit_counts_each_failed_job_once_and_ignores_successes() -> None:
    assert outcome_of(StopAfter(2), failure(1, "a"), failure(1, "a"), failure(2, "", status="completed")) == ("", 0)


def test_failures_that_differ_only_in_names_and_numbers_have_the_same_cause() -> None:
    limit = StopAfter(2, is_same_cause=True)

    assert outcome_of(limit, failure(1, "a.png:1: no 'x'"), failure(2, "disk is gone")) == ("", 0)
    assert outcome_of(limit, failure(1, "cannot read textures/a.png at 17"), failure(2, "cannot read b/c.png at 9")) == (
        "2 failures with the same cause: cannot read … at …", 1,
    )  # fmt: skip
    assert outcome_of(limit, failure(1, "no"), failure(2, "no", builder="audio")) == ("", 0)


def test_masked_error_has_no_paths_and_no_numbers() -> None:
    assert mask_error("") == ""
    assert mask_error("exit code 3 of '/bin/x'") == "exit code … of …"


STATUS = PipelineStatus(3, 1, 2, 0, 7, 0, 0, 0, True, 1)


@pytest.mark.parametrize(
    ("changes", "is_all"),
    [
        ({}, True),
        ({"is_scanned": False}, False),
        ({"reading": 1}, False),
        ({"ready_analyses": 1}, False),
        ({"running_analyses": 1}, False),
    ],
)
def test_job_count_is_partial_until_all_files_are_scanned_and_analysed(changes: dict[str, int], *, is_all: bool) -> None:
    assert knows_all_jobs(replace(STATUS, **changes)) == is_all


@pytest.mark.parametrize(
    ("pending", "is_partial", "message"),
    [
        (7, False, ", 7 not tried,"),
        (7, True, ", at least 7 not tried,"),
        (0, True, ", at least 0 not tried,"),
        (0, False, "failed, 0 warnings"),
    ],
)
def test_summary_of_a_stopped_run_counts_the_known_pending_jobs(
    capsys: pytest.CaptureFixture[str], pending: int, message: str, *, is_partial: bool
) -> None:
    summary = Summary(jobs_failed=2, jobs_pending=pending, stopped_after="2 failures", is_count_partial=is_partial)

    summary.print_summary()

    assert message in capsys.readouterr().out
    assert (summary.to_json()["jobs_pending"], summary.to_json()["pending_is_all"]) == (pending, not is_partial)


def test_exit_code_shows_whether_a_run_was_stopped_or_too_slow_or_interrupted() -> None:
    assert exit_code(Summary(jobs_failed=2, stopped_after="2 failures"), None) == STOPPED_EARLY
    assert exit_code(Summary(is_too_slow=True), None) == 1
    assert exit_code(Summary(is_interrupted=True, stopped_after=""), None) == 130
