"""Hash orders: how many files an order and an answer contain, and which copies are committed together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

import pytest

from aptui.core.messages import Event, FilesHashed, HashFiles
from aptui.core.model import FileFact, PathKey, RelPath
from aptui.core.orders import HashOrder, HashResult
from aptui.engine.loop.hashing import CopyStaging, HashQueue


class Orders(HashQueue):
    """A queue that records its orders and answers."""

    def __init__(self, *, is_live: bool, is_small_build: bool = False, may_group: bool = False, root: str = "/game") -> None:
        self.posted: list[Event] = []
        numbers = count(1)
        self.withdrawn: list[int] = []
        self.announced: list[Sequence[tuple[PathKey, tuple[int, ...]]]] = []
        self.asked: list[tuple[str, bool]] = []
        copying = CopyStaging(
            f"{root}/staging",
            lambda: True,
            self._is_written,
            lambda _keys: None,
            lambda: may_group,
            self.announced.append,
            self.withdrawn.extend,
        )
        super().__init__(
            {1: root}, lambda: next(numbers), self.posted.append, is_live=is_live, is_small_build=is_small_build, copying=copying
        )

    def _is_written(self, path: str, is_asked: bool) -> bool:
        self.asked.append((path, is_asked))
        return not is_asked

    def want_copies(self, files: int, size: int = 5, known: bytes = b"", *, is_copied: bool = True) -> None:
        """Request that this number of files is read and copied. `known` is the last known digest of each; b"" means a new file."""
        facts = tuple(FileFact(1, RelPath(f"{number}.txt"), size, 1, 1, number) for number in range(files))
        self.add(HashFiles(1, facts, tuple((number,) * is_copied for number in range(files)), (known,) * files))

    def take_orders(self) -> list[HashOrder]:
        """Return all waiting files as orders."""
        orders = []
        while self.are_waiting:
            orders.append(self._order(may_copy=True))
        return orders

    def answer(self, orders: Iterable[HashOrder], unasked: tuple[int, ...] = ()) -> None:
        """Report all files of these orders as read and copied, as a worker would."""
        for order in orders:
            found = tuple((b"d" * 32, 1, 5, 1, 1, 1) for _path in order.paths)
            self.accept_result(HashResult(order.order, found, (), tuple((index, 1) for index in range(len(order.paths))), unasked))

    def report_all(self) -> list[FilesHashed]:
        """Report all results, and return them."""
        while self.are_answered:
            self.post_answers()
        return [event for event in self.posted if isinstance(event, FilesHashed)]


def test_each_hash_order_contains_more_files_if_more_files_wait() -> None:
    few, many = Orders(is_live=True), Orders(is_live=True)
    few.want_copies(40)
    many.want_copies(2000)

    assert [len(order.paths) for order in few.take_orders()] == [32, 8]
    assert max(len(order.paths) for order in many.take_orders()) == 128


def test_worker_gets_only_a_few_large_files_in_one_order() -> None:
    digests = Orders(is_live=True)
    digests.want_copies(8, size=30 << 20)

    assert [len(order.paths) for order in digests.take_orders()] == [3, 3, 2]


@pytest.mark.parametrize(("is_live", "at_most"), [(True, 32), (False, 512)])
def test_hashed_files_are_reported_once_in_groups_of_limited_size(is_live: bool, at_most: int) -> None:
    digests = Orders(is_live=is_live)
    digests.want_copies(1100)
    digests.answer(digests.take_orders())

    reports = digests.report_all()

    assert [fact.rel for event in reports for fact in event.facts] == [f"{number}.txt" for number in range(1100)]
    assert [keys for event in reports for _key, keys, _took_ms in event.copies] == [(number,) for number in range(1100)]
    assert max(len(event.facts) for event in reports) == at_most
    assert digests.is_idle


def test_last_copies_of_a_burst_are_committed_without_delay() -> None:
    digests = Orders(is_live=True)
    digests.want_copies(600)
    digests.answer(digests.take_orders())

    commits, waiting = [], 0
    for event in digests.report_all():
        waiting += len(event.copies)
        if not event.has_more:
            commits.append(waiting)
            waiting = 0

    assert commits == [256, 256, 88]


@pytest.mark.parametrize("known", [b"", b"k" * 32])
def test_live_engine_reports_larger_groups_if_copies_are_planned_together(known: bytes) -> None:
    together, alone = Orders(is_live=True, may_group=True), Orders(is_live=True)
    for digests in (together, alone):
        digests.want_copies(600, known=known)
        digests.answer(digests.take_orders())

    assert [(len(event.copies), event.has_more) for event in together.report_all()] == [(128, False)] * 4 + [(88, False)]
    assert {len(event.copies) for event in alone.report_all()} == {32, 24}
    assert [event.has_more for event in alone.report_all()].count(False) == 3


@pytest.mark.parametrize(
    ("who", "is_copied", "files", "size", "is_here"),
    [
        ("small", True, 4, 5, True),
        ("batch", True, 4, 5, False),
        ("live", True, 4, 5, False),
        ("live", False, 4, 5, True),
        ("small", True, 5, 5, False),
        ("small", True, 1, 1 << 20, False),
    ],
)
def test_engine_reads_a_few_small_files_itself(
    tmp_path: Path, who: str, is_copied: bool, files: int, size: int, is_here: bool
) -> None:
    digests = Orders(is_live=who == "live", is_small_build=who == "small", root=str(tmp_path))
    digests.want_copies(files, size=size, is_copied=is_copied)
    (tmp_path / "staging").mkdir()
    (tmp_path / "0.txt").write_bytes(b"bytes")

    digests.read_few()

    assert digests.are_answered == is_here
    assert (tmp_path / "staging" / "0").exists() == (is_here and is_copied)


def test_copies_in_a_batch_do_not_wait_for_more_copies() -> None:
    digests = Orders(is_live=False)
    digests.want_copies(1100)
    digests.answer(digests.take_orders())

    assert [event.has_more for event in digests.report_all()] == [False, False, False]


def test_batch_reports_groups_of_2048_if_copies_are_planned_together() -> None:
    digests = Orders(is_live=False, may_group=True)
    digests.want_copies(3000)
    digests.answer(digests.take_orders())

    assert [len(event.copies) for event in digests.report_all()] == [2048, 952]


def test_engine_checks_a_file_for_writers_if_the_worker_did_not_check() -> None:
    digests = Orders(is_live=True)
    digests.want_copies(2)
    orders = digests.take_orders()
    digests.answer(orders, unasked=(1,))

    reports = digests.report_all()

    assert [order.asks_writers for order in orders] == [True]
    assert digests.asked == [("/game/0.txt", True), ("/game/1.txt", False)]
    assert [(event.facts[0].rel, event.unstable) for event in reports] == [("0.txt", ("1.txt",))]


def test_batch_does_not_check_for_writers() -> None:
    digests = Orders(is_live=False)
    digests.want_copies(2)

    assert [order.asks_writers for order in digests.take_orders()] == [False]


class Workers:
    """Workers that accept every order."""

    free_for_analyses = 1

    def send_hash(self, _order: HashOrder) -> None:
        """Accept an order."""


@pytest.mark.parametrize(
    ("is_live", "files", "known", "announced"),
    [(True, 2, b"d", [[("0.txt", (0,)), ("1.txt", (1,))]]), (True, 40, b"d", []), (True, 2, b"", [[]]), (False, 2, b"d", [])],
)
def test_live_engine_announces_the_replaced_products_of_a_few_saved_files(
    is_live: bool, files: int, known: bytes, announced: list[object]
) -> None:
    digests = Orders(is_live=is_live)
    digests.want_copies(files, known=known)

    digests.send(Workers())  # type: ignore[arg-type]

    assert digests.announced[:1] == announced


def test_announced_intents_are_deleted_if_the_file_was_not_copied() -> None:
    digests = Orders(is_live=True)
    digests.want_copies(2, known=b"d")
    (order,) = digests.take_orders()

    digests.accept_result(HashResult(order.order, ((b"d" * 32, 1, 5, 1, 1, 1),) * 2, (), ((1, 1),)))
    digests.report_all()

    assert digests.withdrawn == [0]
