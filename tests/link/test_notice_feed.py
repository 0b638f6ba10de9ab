"""A client that receives merged notices ends in the same state as a client that receives every single notice."""

from typing import Any

import pytest
from hypothesis import example as hypothesis_example
from hypothesis import given, settings
from hypothesis import strategies as st
from link_harness import NOTICES, example

from aptui.core import notices
from aptui.core.notices import EngineMessage, JobChanged, JobProgress, Notice, ProductsChanged, Progress, SourcesChanged
from aptui.link import codec
from aptui.link.codec import NoticeLine, NoticeLines
from aptui.link.notice_feed import NoticeFeed, Outbox

STATES = ("pending", "processing", "completed", "failed", "cancelled", "")


def job(number: int, status: str = "completed", run_key: int = 0) -> JobChanged:
    return JobChanged(1, number, "a/b.txt", 1, "pc", "key", "builder", status, "", "", 0, 0, 5, "", run_key)


def progress(done: int) -> Progress:
    return Progress(done, 0, 0, 0, 0, 0, done, 0, False)


def analysis(source: str, status: str) -> JobChanged:
    return JobChanged(1, 0, source, 1, "pc", "analysis", "builder", status, "", "", 0, 0, 5, "", 0)


class State:
    """The state of a client after the notices so far."""

    def __init__(self) -> None:
        self.jobs: dict[Any, JobChanged] = {}
        self.outcomes: dict[Any, JobChanged] = {}
        self.products: dict[str, str] = {}
        self.sources: dict[str, bool] = {}
        self.newest: dict[type, Notice] = {}
        self.percent: dict[int, JobProgress] = {}
        self.notices: list[Notice] = []
        self.moment = (0, 0)

    def receive(self, line: NoticeLine) -> None:
        self.moment = max(self.moment, (line.epoch, line.seq))
        match line.notice:
            case JobChanged() as notice:
                self.jobs[notice.key] = notice
                if notice.status not in {"pending", "processing"}:
                    self.outcomes[notice.key] = notice
            case ProductsChanged(products=products):
                self.products.update(products)
            case SourcesChanged(sources=sources):
                self.sources.update(sources)
            case JobProgress() as notice:
                self.percent[notice.job_id] = notice
            case Progress() | notices.HealthChanged() | notices.ConnectionsChanged() as notice:
                self.newest[type(notice)] = notice
            case notice:
                self.notices.append(notice)


def receive(state: State, lines: list[bytes]) -> None:
    for line in lines:
        for each in decode(line):
            state.receive(each)


def decode(line: bytes) -> tuple[NoticeLine, ...]:
    decoded = codec.decode_message(line[:-1])
    assert isinstance(decoded, NoticeLines)
    return tuple(decoded.all)


news = st.one_of(
    st.builds(job, st.integers(1, 4), st.sampled_from(STATES), st.integers(0, 99)),
    st.builds(analysis, st.sampled_from(["a", "b"]), st.sampled_from(STATES)),
    st.builds(progress, st.integers(0, 9)),
    st.builds(
        lambda name, digest: ProductsChanged(1, ((name, digest),)), st.sampled_from("pqr"), st.sampled_from(["", "d1", "d2"])
    ),
    st.builds(lambda name, is_there: SourcesChanged(1, ((name, is_there),)), st.sampled_from("stu"), st.booleans()),
    st.builds(JobProgress, st.just(1), st.integers(1, 4), st.just(7), st.integers(0, 100)),
    st.builds(EngineMessage, st.integers(0, 3), st.just(1), st.sampled_from(["x", "y"])),
    st.sampled_from([example(record) for record in NOTICES]),
)
BEAT, RESTART = "beat", "restart"


@settings(deadline=None)
@given(st.lists(st.one_of(news, st.just(BEAT), st.just(RESTART)), max_size=60), st.integers(1, 8))
@hypothesis_example([example(JobProgress), example(JobProgress)], 1)
def test_coalesced_notices_give_the_same_state_as_all_notices_after_every_interval(story: list[Any], most: int) -> None:
    beat, plain, coalesced = NoticeFeed(most), State(), State()
    epoch = 1
    for seq, what in enumerate([*story, BEAT], 1):
        if what == RESTART:
            epoch += 1
        elif what == BEAT:
            while lines := beat.lines(0.0):
                receive(coalesced, lines)
            assert vars(coalesced) == vars(plain)
        else:
            plain.receive(NoticeLine(epoch, seq, what))
            beat.put(what, epoch, seq)


def test_failure_of_a_job_is_sent_even_if_the_job_runs_again() -> None:
    beat = NoticeFeed()
    for seq, status in enumerate(("pending", "processing", "failed", "pending", "processing"), 1):
        beat.put(job(1, status), 7, seq)
    (line,) = beat.lines(0.0)

    decoded = codec.decode_message(line[:-1])

    assert isinstance(decoded, NoticeLines)
    assert [(each.seq, each.notice.status) for each in decoded.all] == [(3, "failed"), (5, "processing")]


def test_notices_of_many_jobs_and_products_are_sent_as_two_lines() -> None:
    beat = NoticeFeed()
    for number in range(1, 1001):
        beat.put(job(number), 7, number)
        beat.put(ProductsChanged(number, ((f"pc/{number}", "d"),)), 7, number)

    assert len(beat.lines(0.0)) == 2


def test_notice_of_an_unknown_kind_or_with_unknown_fields_is_decoded_as_none() -> None:
    assert codec.decode_message(b'{"notices":"NeverHeardOf","epoch":1,"seqs":[2],"told":[{"x":1}]}') is None
    assert codec.decode_message(b'{"notices":"Said","epoch":1,"seqs":[2],"told":[{"x":1}]}') is None


def test_truncated_line_of_several_notices_is_malformed() -> None:
    beat = NoticeFeed()
    beat.put(job(1), 7, 1)
    (line,) = beat.lines(0.0)

    for end in (12, 14, 40, len(line) - 3):
        with pytest.raises(codec.MalformedLine):
            codec.decode_message(line[:end])


def test_outbox_forgets_the_keys_of_sent_lines() -> None:
    class Channel:
        def sendmsg(self, buffers: list[bytes]) -> int:
            return min(30, sum(map(len, buffers)))

    outbox = Outbox(Channel(), 0.0)  # type: ignore[arg-type]  # it uses only `sendmsg`
    for number in range(1_000):
        outbox.put(number, b"x" * 40)
        outbox.put("waiting", b"old")
        outbox.put("waiting", b"new")
        outbox.send(1.0)

    assert len(outbox) == outbox.waiting_bytes == 0
    assert len(outbox._places) < 50


def test_only_the_newest_progress_of_each_job_is_sent() -> None:
    feed = NoticeFeed()
    for number, percent in ((1, 10), (2, 5), (1, 20), (1, 30)):
        feed.put(JobProgress(1, number, 7, percent), 1, percent)
    decoded = [each.notice for line in feed.lines(0.0) for each in decode(line)]

    assert [(each.job_id, each.percent) for each in decoded] == [(2, 5), (1, 30)]  # type: ignore[union-attr]  # only these were put
