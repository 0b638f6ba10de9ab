"""The session recorder: when sessions begin, continue and end, and their causes.

Sessions are written only when the engine is idle.
"""

from __future__ import annotations

from aptui.core.rows import SessionKind
from aptui.engine.loop.engine_reports import LONGEST_HISTORY_MS, SessionRecorder
from aptui.shared.files.git import CheckoutHead
from aptui.shared.result_store import Account


class Archive:
    """A fake database whose answers a test sets as attributes."""

    def __init__(self) -> None:
        self.commit = ""
        self.is_pending = False
        self.asked_before_ms = 0
        self.outdated = 0

    def last_end(self) -> tuple[str, int]:
        return self.commit, 5000

    def is_session_pending(self) -> bool:
        return self.is_pending

    def find_outdated_session(self, before_ms: int, _most_runs: int, _most_sessions: int) -> int:
        self.asked_before_ms = before_ms
        return self.outdated


class World:
    """A clock, a repository, a recorder."""

    def __init__(self) -> None:
        self.now = 1000
        self.head = CheckoutHead()
        self.archive = Archive()
        self.recorder = SessionRecorder("/project", lambda: self.now, lambda _folder: self.head)

    def end(self, account: Account | None = None, *, is_stopping: bool = False) -> list[tuple[object, ...]]:
        return self.recorder.end(self.archive, account, is_stopping=is_stopping).get("put_session", [])


def test_session_lasts_from_the_first_work_until_the_engine_is_idle() -> None:
    world = World()
    world.recorder.begin_scan(None, "signature")
    world.now = 5000
    world.recorder.begin(SessionKind.EDIT)
    world.now = 7000
    world.recorder.note_rest()
    world.now = 8000

    assert world.end() == [(1000, 7000, "start", "", "", "", 0, 0)]
    assert world.end() == []


def test_session_continues_if_work_begins_soon_after_its_end() -> None:
    world = World()
    world.recorder.begin(SessionKind.EDIT)
    world.recorder.note_rest()
    world.now = 1500
    world.recorder.begin(SessionKind.EDIT)
    world.now = 2000

    assert world.end()[0][:3] == (1000, 2000, "edit")


def test_kind_of_a_session_depends_on_the_reason_of_its_scan() -> None:
    world = World()
    kinds = []
    for signature in ("old", "new", "", None):
        world.recorder = SessionRecorder("/project", lambda: 1, lambda _folder: CheckoutHead())
        world.recorder.begin_scan(signature, "new")
        kinds.append(world.end()[0][2])
    world.recorder.begin_scan("new", "new")
    kinds.append(world.end()[0][2])

    assert kinds == ["configuration", "start", "start", "start", "edit"]


def test_session_after_a_checkout_of_a_foreign_commit_has_kind_checkout() -> None:
    world = World()
    world.archive.commit = "a" * 40
    world.head = CheckoutHead("b" * 40)
    world.recorder.begin(SessionKind.EDIT)
    assert world.end()[0][2:5] == ("checkout", "aaaaaaaaaa → bbbbbbbbbb", "b" * 40)

    world.head = CheckoutHead("b" * 40, is_made_here=True)
    world.recorder.begin(SessionKind.EDIT)
    assert world.end()[0][2:5] == ("edit", "", "b" * 40)

    world.head = CheckoutHead()
    world.recorder.begin(SessionKind.EDIT)
    assert world.end()[0][2:5] == ("edit", "", "a" * 40)


def test_session_after_a_checkout_and_return_has_kind_checkout() -> None:
    world = World()
    world.archive.commit = "a" * 40
    for moved_ms, left, kind in ((6000, "b" * 40, "checkout"), (4000, "b" * 40, "edit"), (6000, "a" * 40, "edit")):
        world.head = CheckoutHead("a" * 40, left=left, moved_ms=moved_ms)
        world.recorder.begin(SessionKind.EDIT)
        assert world.end()[0][2:4] == (kind, "bbbbbbbbbb → aaaaaaaaaa" if kind == "checkout" else "")


def test_engine_records_the_end_of_a_session_when_it_stops() -> None:
    world = World()
    world.recorder.begin(SessionKind.START)

    assert world.end(is_stopping=True)[0][5] == "stopped"


def test_reopened_engine_continues_its_session() -> None:
    world = World()
    world.recorder.begin_scan(None, "one")
    world.recorder.is_held = True
    assert world.end() == []
    world.recorder.forget()
    world.recorder.is_held = False
    world.now = 9000
    world.recorder.begin_scan("one", "two")

    assert world.end()[0][:3] == (1000, 9000, "start")


def test_session_of_a_scan_without_changes_is_not_recorded() -> None:
    world = World()
    world.recorder.begin(SessionKind.EDIT)
    world.recorder.forget()

    assert world.end() == []


def test_runs_of_a_killed_engine_are_recorded_as_a_killed_session() -> None:
    world = World()
    assert world.recorder.find_killed(world.archive) == {}
    world.archive.is_pending, world.archive.commit = True, "c"

    assert world.recorder.find_killed(world.archive) == {"put_session": [(0, 0, "start", "", "c", "killed", 0, 0)]}


def test_each_session_records_only_its_own_saved_time_and_bytes() -> None:
    world, account = World(), Account()
    account.count("image", local_hits=1, built_ms=500, fetch_ms=100, fetched_bytes=10)
    world.recorder.begin(SessionKind.EDIT)
    assert world.end(account)[0][6:] == (400, 10)
    account.count("image", local_hits=1, built_ms=50)
    world.recorder.begin(SessionKind.EDIT)
    assert world.end(account)[0][6:] == (50, 0)


def test_old_session_is_pruned_when_the_engine_becomes_idle() -> None:
    world = World()
    world.now, world.archive.outdated = LONGEST_HISTORY_MS + 77, 4
    world.recorder.begin(SessionKind.EDIT)

    assert world.recorder.end(world.archive, None, is_stopping=False)["prune_session"] == [(4,)]
    assert world.archive.asked_before_ms == 77
