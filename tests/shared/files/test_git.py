"""The commit that is checked out, read from Git's files; malformed files give no commit."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from aptui.shared.files.git import CheckoutHead, author_of, head
from tests.tools import MACHINE

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason=MACHINE + "git is not installed")

COMMIT, OTHER = "1" * 40, "2" * 40


@pytest.fixture
def git(tmp_path: Path) -> Path:
    folder = tmp_path / ".git"
    (folder / "refs/heads").mkdir(parents=True)
    (folder / "logs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "refs/heads/main").write_text(f"{COMMIT}\n")
    return folder


def test_commit_of_the_current_branch_is_found_from_a_subfolder(git: Path, tmp_path: Path) -> None:
    below = tmp_path / "assets/deep"
    below.mkdir(parents=True)

    assert head(str(below)) == CheckoutHead(COMMIT)


def test_commit_of_a_branch_in_packed_refs_is_found(git: Path, tmp_path: Path) -> None:
    (git / "refs/heads/main").unlink()
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{OTHER} refs/heads/other\n{COMMIT} refs/heads/main\n^{OTHER}\n")

    assert head(str(tmp_path)).commit == COMMIT


def test_commit_of_a_detached_head_is_found(git: Path, tmp_path: Path) -> None:
    (git / "HEAD").write_text(OTHER)

    assert head(str(tmp_path)).commit == OTHER


@pytest.mark.parametrize(
    ("move", "is_made_here"),
    [("commit: one", True), ("commit (amend): one", True), ("checkout: moving", False), ("pull: x", False)],
)
def test_last_move_of_head_is_read_from_the_reflog(git: Path, tmp_path: Path, move: str, is_made_here: bool) -> None:
    (git / "logs/HEAD").write_text(f"{OTHER} {COMMIT} A <a@b> 1 +0000\tcheckout: x\n{COMMIT} {OTHER} A <a@b> 2 +0000\t{move}\n")

    assert head(str(tmp_path)) == CheckoutHead(COMMIT, is_made_here, COMMIT, 2000)


@pytest.mark.parametrize("line", ["", "nonsense", f"{COMMIT} {OTHER} A <a@b> x\tcheckout: y", f"{COMMIT} {OTHER} A <a@b>", "\t\t"])
def test_malformed_reflog_is_ignored(git: Path, tmp_path: Path, line: str) -> None:
    (git / "logs/HEAD").write_text(f"{line}\n")

    assert head(str(tmp_path)) == CheckoutHead(COMMIT)


def test_commit_of_a_linked_worktree_is_found(git: Path, tmp_path: Path) -> None:
    own = git / "worktrees/side"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/side\n")
    (own / "commondir").write_text("../..\n")
    (git / "refs/heads/side").write_text(OTHER)
    side = tmp_path / "side"
    side.mkdir()
    (side / ".git").write_text(f"gitdir: {own}\n")

    assert head(str(side)).commit == OTHER


@pytest.mark.parametrize(
    "text", ["", "ref: refs/heads/none", "ref: ../../../etc/passwd", "nonsense", "\0\1", "ref: \0", COMMIT[:12]]
)
def test_malformed_git_files_give_no_commit(git: Path, tmp_path: Path, text: str) -> None:
    (git / "HEAD").write_text(text)

    assert head(str(tmp_path)) == CheckoutHead()


@pytest.mark.parametrize(
    ("name", "commit"),
    [("HEAD", ""), ("refs/heads/main", COMMIT), ("packed-refs", ""), ("commondir", COMMIT), ("logs/HEAD", COMMIT)],
)
def test_pipe_in_place_of_a_file_of_git_is_not_read(git: Path, tmp_path: Path, name: str, commit: str) -> None:
    (git / "packed-refs").write_text(f"{COMMIT} refs/heads/main\n")
    if name == "packed-refs":
        (git / "refs/heads/main").unlink()
    (git / name).unlink(missing_ok=True)
    os.mkfifo(git / name)

    assert head(str(tmp_path)) == CheckoutHead(commit)


@pytest.mark.parametrize("target", ["pipe", ""])
def test_pipe_in_place_of_the_git_file_or_of_its_target_gives_no_commit(tmp_path: Path, target: str) -> None:
    os.mkfifo(tmp_path / (target or ".git"))
    if target:
        (tmp_path / ".git").write_text(f"gitdir: {tmp_path}/{target}\n")

    assert head(str(tmp_path)) == CheckoutHead()


def test_missing_repository_gives_no_commit(tmp_path: Path) -> None:
    assert head(str(tmp_path / "nowhere")).commit == ""


@needs_git
@pytest.mark.real
def test_author_lookup_runs_no_program_that_the_repository_names(tmp_path: Path) -> None:
    marker, script = tmp_path / "ran", tmp_path / "hostile.sh"
    script.write_text(f"#!/bin/sh\ntouch {marker}\n")
    script.chmod(0o755)
    for words in (("init", "-q"), ("-c", "user.name=Bea", "-c", "user.email=b@c", "commit", "-q", "--allow-empty", "-m", "one")):
        subprocess.run(("git", *words), cwd=tmp_path, check=True)
    for key in ("core.fsmonitor", "gpg.program", "core.pager", "core.sshCommand", "core.hooksPath"):
        subprocess.run(("git", "config", key, str(script)), cwd=tmp_path, check=True)
    subprocess.run(("git", "config", "log.showSignature", "true"), cwd=tmp_path, check=True)

    assert author_of(tmp_path, head(str(tmp_path)).commit) == "Bea"
    assert author_of(tmp_path, COMMIT) == author_of(tmp_path, "--output=x") == ""
    assert not marker.exists()


@pytest.mark.real
def test_author_is_unknown_if_git_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert author_of(tmp_path, COMMIT) == ""
