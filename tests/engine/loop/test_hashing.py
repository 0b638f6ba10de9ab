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


@pytest.mark.parametrize("known", [b"", b"k" * 32])
@pytest.mark.parametrize(
    ("is_live", "may_group", "files", "expected"),
    [
        (True, False, 600, [(32, True)] * 7 + [(32, False)] + [(32, True)] * 7 + [(32, False)] + [(32, True)] * 2 + [(24, False)]),
        (True, True, 600, [(128, False)] * 4 + [(88, False)]),
        (False, False, 1100, [(512, False)] * 2 + [(76, False)]),
        (False, True, 3000, [(2048, False), (952, False)]),
    ],
)
def test_reported_groups_are_larger_in_batches_and_if_copies_are_planned_together(
    is_live: bool, may_group: bool, files: int, expected: list[tuple[int, bool]], known: bytes
) -> None:
    digests = Orders(is_live=is_live, may_group=may_group)
    digests.want_copies(files, known=known)
    digests.answer(digests.take_orders())

    reports = digests.report_all()

    assert [(len(event.copies), event.has_more) for event in reports] == expected
    assert [fact.rel for event in reports for fact in event.facts] == [f"{number}.txt" for number in range(files)]
    assert [keys for event in reports for _key, keys, _took_ms in event.copies] == [(number,) for number in range(files)]
    assert digests.is_idle


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
