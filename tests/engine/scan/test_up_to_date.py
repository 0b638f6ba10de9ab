"""The up-to-date check: reports differences from the stored state, with one or two processes, and repeats the work of a child that
dies."""

from __future__ import annotations

import os
import select
import shutil
import signal
from contextlib import contextmanager

import pytest

from aptui.core.project import Project, ScanFolder
from aptui.engine.scan import up_to_date
from aptui.engine.scan.walk import Walk, digests_of


def tree(root, count=12):
    """A tree of `count` folders with two levels each."""
    for number in range(count):
        for rel in (f"f{number}/a.txt", f"f{number}/deep/b.txt", f"f{number}/deep/c.txt"):
            path = root / rel
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rel)
    (root / "top.txt").write_text("top")


def walk_of(*roots):
    folders = tuple(ScanFolder(number, root.name, str(root), number) for number, root in enumerate(roots, 1))
    return Walk(Project((), "linux", folders, ()))


def remembered(*roots):
    walk = walk_of(*roots)
    return {folder: tuple(digests_of(entries).items()) for folder, entries in walk.folders([("", walk.roots())])}


def seen(found):
    return (
        sorted(found.unchanged),
        sorted((folder, [part.path for part in parts]) for folder, parts in found.differing),
        found.vanished,
    )


@pytest.fixture(params=["one process", "two processes"])
def processes(request, monkeypatch):
    """Run the check with one process or with two, and verify their number at the end."""
    forks = []
    fork = os.fork
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "fork", lambda: (forks.append(1), fork())[1])
    monkeypatch.setattr(up_to_date, "_FOLDERS_FOR_TWO", 1 if request.param == "two processes" else 10_000)
    yield
    assert len(forks) == (request.param == "two processes")


@pytest.mark.real
def test_check_of_unchanged_folders_finds_no_difference(tmp_path, processes):
    tree(tmp_path)
    digests = remembered(tmp_path)
    walk = walk_of(tmp_path)

    found = up_to_date.check(walk, digests)

    assert found.is_clean
    assert sorted(found.unchanged) == sorted(digests)
    assert walk.files_seen == 37


@pytest.mark.parametrize(
    ("folders", "files", "count"),
    [(299, 2_999, 1), (300, 0, 2), (10, 3_000, 2), (0, 0, 1)],
    ids=["little", "folders", "files", "nil"],
)
def test_large_trees_are_checked_by_two_processes(monkeypatch, folders, files, count):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    known = up_to_date._Comparison({str(at): () for at in range(folders)}, up_to_date.nullcontext, files)

    assert known.process_count == count


@pytest.mark.real
@pytest.mark.parametrize("folder", ["", "f3", "f11/deep"])
@pytest.mark.parametrize("change", ["change", "add", "remove"])
def test_changed_folder_is_reported_with_its_scan_folder(tmp_path, processes, folder, change):
    tree(tmp_path)
    digests = remembered(tmp_path)
    place = tmp_path / folder
    file = next(path for path in sorted(place.iterdir()) if path.is_file())
    if change == "change":
        file.write_text("other")
    elif change == "add":
        (place / "new.txt").write_text("new")
    else:
        file.unlink()

    found = up_to_date.check(walk_of(tmp_path), digests)

    assert not found.is_clean
    assert [(name, [part.path for part in parts]) for name, parts in found.differing] == [(folder, [str(place)])]
    assert found.vanished == frozenset()
    assert len(found.unchanged) == len(digests) - 1


@pytest.mark.real
def test_new_and_removed_folders_are_reported(tmp_path, processes):
    tree(tmp_path)
    digests = remembered(tmp_path)
    shutil.rmtree(tmp_path / "f5")
    (tmp_path / "new").mkdir()
    (tmp_path / "new/a.txt").write_text("a")

    found = up_to_date.check(walk_of(tmp_path), digests)

    assert not found.is_clean
    assert found.vanished == {"f5", "f5/deep"}
    assert [folder for folder, _parts in found.differing] == ["new"]


@pytest.mark.real
def test_check_by_two_processes_finds_the_same_as_check_by_one_process(tmp_path, monkeypatch):
    roots = tmp_path / "one", tmp_path / "two"
    for root in roots:
        tree(root)
    digests = remembered(*roots)
    (roots[0] / "f1/a.txt").write_text("other")
    (roots[1] / "f7/deep/b.txt").unlink()
    (roots[0] / "f2/link").symlink_to("../f3")
    for root in roots:
        (root / "f9").rename(root / "moved")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    walks = walk_of(*roots), walk_of(*roots)

    alone = up_to_date.check(walks[0], digests)
    monkeypatch.setattr(up_to_date, "_FOLDERS_FOR_TWO", 1)
    together = up_to_date.check(walks[1], digests)

    assert seen(together) == seen(alone)
    assert walks[1].files_seen == walks[0].files_seen
    assert sorted(walks[1].sentences) == sorted(walks[0].sentences)
    assert all(part.scan_folder in walks[1].scan_folders for _, parts in together.differing for part in parts)


@pytest.mark.real
def test_each_message_of_the_parent_or_child_process_is_reported_once(tmp_path, processes):
    tree(tmp_path)
    digests = remembered(tmp_path)
    for number in range(12):
        (tmp_path / f"f{number}/link").symlink_to("deep")
    walk = walk_of(tmp_path)

    found = up_to_date.check(walk, digests)

    assert sorted(walk.sentences) == sorted(
        f"'{tmp_path}/f{n}/link' is a link to a folder, so its files are not sources" for n in range(12)
    )
    assert found.is_clean


@pytest.mark.real
@pytest.mark.parametrize("death", ["killed", "raises"])
def test_parent_process_checks_the_folders_of_a_child_process_that_died(tmp_path, monkeypatch, death):
    tree(tmp_path)
    digests = remembered(tmp_path)
    (tmp_path / "f1/a.txt").write_text("other")
    (tmp_path / "f2/a.txt").write_text("other")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(up_to_date, "_FOLDERS_FOR_TWO", 1)
    parent = os.getpid()
    compare = up_to_date._compare

    def dying(*arguments):
        if os.getpid() != parent:
            if death == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
            raise RuntimeError
        compare(*arguments)

    monkeypatch.setattr(up_to_date, "_compare", dying)
    walk = walk_of(tmp_path)

    found = up_to_date.check(walk, digests)

    assert sorted(folder for folder, _parts in found.differing) == ["f1", "f2"]
    assert len(found.unchanged) == len(digests) - 2
    assert walk.files_seen == 37


@pytest.mark.real
def test_up_to_date_check_has_no_result_if_too_many_folders_differ(tmp_path, processes, monkeypatch):
    monkeypatch.setattr(up_to_date, "_MOST_DIFFERING", 3)
    tree(tmp_path)
    digests = remembered(tmp_path)
    for number in range(4):
        (tmp_path / f"f{number}/a.txt").write_text("other")

    assert up_to_date.check(walk_of(tmp_path), digests) is None


@pytest.mark.real
def test_child_process_of_a_check_ends_when_its_parent_is_killed(tmp_path, monkeypatch):
    tree(tmp_path)
    digests = remembered(tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(up_to_date, "_FOLDERS_FOR_READERS", 1)
    reader, writer = os.pipe()

    @contextmanager
    def reading_for_ever():
        os.write(writer, f"{os.getpid()}\n".encode())
        signal.pause()
        yield None

    looking = os.fork()
    if looking == 0:
        try:
            up_to_date.check(walk_of(tmp_path), digests, reading_for_ever)
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader, encoding="ascii") as pipe:
        pids = {int(pipe.readline()), int(pipe.readline())}
        (child,) = pids - {looking}
        descriptor = os.pidfd_open(child)
        os.kill(looking, signal.SIGKILL)
        os.waitpid(looking, 0)

        assert select.select([descriptor], [], [], 10.0)[0]
        os.close(descriptor)
