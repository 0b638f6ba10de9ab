"""Places of sockets and records, their owners, and running engines."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tools import MACHINE

from aptui.link import places
from aptui.link.places import EngineRecord
from aptui.shared.errors import HostError


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(places, "SOCKET_PATH_BYTES", 4096)  # the path of `tmp_path` may be too long for a socket
    return tmp_path / "state" / "aptui"


def record(**fields) -> EngineRecord:
    here = {"pid": os.getpid(), "pid_started": places.process_start(os.getpid()), "started_ms": 5}
    return EngineRecord(**{**here, "project": "/p", "cache": "/c", "version": "1", "protocol": 1, "socket": "/s", **fields})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_state_folder_follows_the_xdg_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert places.state_dir() == Path("/var/state/aptui")

    for not_absolute in ("", "state"):
        monkeypatch.setenv("XDG_STATE_HOME", not_absolute)
        assert places.state_dir() == Path("/home/x/.local/state/aptui")


def test_this_suite_does_not_use_the_state_folder_of_the_user(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = tmp_path_factory.getbasetemp() / ("x" * 31) / "home" / "STATE"
    monkeypatch.setenv("XDG_STATE_HOME", str(longest))

    assert places.state_dir() == longest / "aptui"


@pytest.mark.parametrize("length", range(60, 120))
def test_socket_path_never_exceeds_the_limit_of_unix_sockets(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    home = "/" + "ä" * (length // 2)
    monkeypatch.setenv("XDG_STATE_HOME", home)

    path = places.socket_path("/some/cache")

    assert len(os.fsencode(path)) < 108
    is_at_home = path.startswith(f"{home}/aptui/")
    assert is_at_home == (len(os.fsencode(f"{home}/aptui/0123456789abcdef/socket")) < 108)
    assert is_at_home or path.startswith(f"/tmp/aptui-{os.getuid()}/")


@pytest.mark.parametrize(
    ("kind", "is_valid"), [("nfs4", False), ("fuse.sshfs", False), ("9p", False), ("cifs", False), ("ext4", True)]
)
def test_network_mount_is_not_used_for_the_state_folder(
    kind: str, is_valid: bool, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "filesystem", lambda _path: kind)

    assert (places.state_dir() == state) == is_valid


def test_last_mount_on_the_nearest_mount_point_gives_the_file_system(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    lines = [
        "1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw",
        "2 1 0:40 / /home rw shared:1 - nfs4 server:/home rw",
        "3 2 0:41 / /home/my\\040name rw - ext4 /dev/sdb rw",
        "4 3 0:42 / /home/my\\040name rw master:2 shared:3 - fuse.sshfs host: rw",
    ]
    mounts.write_text("".join(line + "\n" for line in lines))

    kinds = [places.filesystem(path, str(mounts)) for path in ("/etc", "/home/a", "/homes", "/home", "/home/my name/x")]

    assert kinds == ["ext4", "nfs4", "ext4", "nfs4", "fuse.sshfs"]
    assert places.filesystem("/", str(tmp_path / "absent")) == ""
    assert places.filesystem("/proc/self") == "proc"


def test_an_engine_is_found_by_the_real_path_of_its_cache(state: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (tmp_path / "link").symlink_to(cache)

    folder = places.engine_dir(cache)

    assert folder.parent == state
    assert len(folder.name) == 16
    assert places.engine_dir(str(tmp_path / "link")) == folder
    assert places.engine_dir(tmp_path / "other") != folder
    assert Path(places.socket_path(cache)).parent == places.output_path(cache).parent == folder


def test_new_folders_are_accessible_only_to_their_user(tmp_path: Path) -> None:
    places.make_private(tmp_path / "a" / "b" / "c")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)

    places.make_private(tmp_path / "open")

    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c", "open")] == [0o700] * 4


def test_a_folder_that_others_could_change_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "everybodys").mkdir()
    (tmp_path / "everybodys").chmod(0o777)

    for path, words in (
        ("file", "not a folder that belongs to you"),
        ("file/x", "cannot be created"),
        ("everybodys/x", "other users can change"),
    ):
        with pytest.raises(HostError, match=words):
            places.make_private(tmp_path / path)
    (tmp_path / "everybodys").chmod(0o1777)
    places.make_private(tmp_path / "everybodys" / "x")


@pytest.mark.skipif(os.geteuid() != 0, reason=MACHINE + "only root can give a link away")
def test_a_link_that_another_user_made_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "link").symlink_to("ours")
    places.make_private(tmp_path / "link")
    os.lchown(tmp_path / "link", 12345, 12345)

    with pytest.raises(HostError, match="not a folder that belongs to you"):
        places.make_private(tmp_path / "link")


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(HostError, match="not a folder that belongs to you"):
        places.make_private(tmp_path / "theirs")


def test_registry_lists_running_engines(state: Path, tmp_path: Path) -> None:
    assert places.engines() == []
    one, two = ({"socket": places.socket_path(tmp_path / name)} for name in ("one", "two"))
    places.announce(tmp_path / "one", record(project="/one", **one))
    places.announce(tmp_path / "two", record(project="/two", started_ms=6, **two))
    places.announce(tmp_path / "one", record(project="/one again", **one))

    assert [engine.project for engine in places.engines()] == ["/two", "/one again"]
    assert all(engine.is_alive for engine in places.engines())
    assert mode(state) == mode(places.engine_dir(tmp_path / "one")) == 0o700
    assert os.listdir(places.engine_dir(tmp_path / "one")) == ["engine.json"]
    places.retract(tmp_path / "two")
    places.retract(tmp_path / "two")
    assert [engine.project for engine in places.engines()] == ["/one again"]


def test_engine_of_another_registry_is_found_by_the_record_in_its_cache(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, socket = tmp_path / "cache", tmp_path / "socket"
    (cache / ".aptui").mkdir(parents=True)
    socket.touch()
    places.announce(cache, record(cache=str(cache), socket=str(socket)))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))

    assert places.engines() == []
    assert places.listening_at(cache) == str(socket)
    assert places.engine_of(cache) is not None
    socket.unlink()
    assert places.listening_at(cache) == places.socket_path(cache)
    socket.touch()
    places.announce(cache, record(cache=str(cache), socket=str(socket), pid_started=1))
    assert places.engine_of(cache) is None
    places.retract(cache)
    assert os.listdir(cache / ".aptui") == []


@pytest.mark.parametrize("is_link", [False, True])
def test_engine_record_is_valid_through_a_link_but_not_in_a_copied_cache(is_link: bool, state: Path, tmp_path: Path) -> None:
    cache, other, socket = tmp_path / "cache", tmp_path / "other", tmp_path / "socket"
    (cache / ".aptui").mkdir(parents=True)
    socket.touch()
    places.announce(cache, record(cache=str(cache), socket=str(socket), cache_id=places.identity_of(cache)))
    if is_link:
        other.symlink_to(cache)
    else:
        shutil.copytree(cache, other)

    assert (places.engine_of(other) is not None) == is_link
    assert (places.listening_at(other) == str(socket)) == is_link


def test_engine_record_is_valid_in_a_moved_cache_but_not_at_its_old_path(state: Path, tmp_path: Path) -> None:
    cache, moved = tmp_path / "cache", tmp_path / "moved"
    (cache / ".aptui").mkdir(parents=True)
    places.make_private(places.engine_dir(cache))
    socket = Path(places.socket_path(cache))
    socket.touch()
    places.announce(cache, record(cache=str(cache), socket=str(socket), cache_id=places.identity_of(cache)))
    cache.rename(moved)
    without_folder = places.engine_of(cache)
    cache.mkdir()

    assert without_folder is not None, "the record stays valid for the old path until a new folder exists there"
    assert places.engine_of(moved) is not None
    assert places.engine_of(cache) is None


def test_record_in_a_copied_registry_is_ignored(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places.announce(tmp_path, record(cache=str(tmp_path), socket=places.socket_path(tmp_path)))
    shutil.copytree(state, tmp_path / "copy/aptui")
    assert places.engines()

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "copy"))

    assert places.engines() == []


def test_retracting_a_record_keeps_the_record_of_another_engine(state: Path, tmp_path: Path) -> None:
    (tmp_path / ".aptui").mkdir()
    places.announce(tmp_path, record(pid=1, cache=str(tmp_path), socket=places.socket_path(tmp_path)))

    places.retract(tmp_path)

    assert os.listdir(tmp_path / ".aptui") == os.listdir(places.engine_dir(tmp_path)) == ["engine.json"]


@pytest.mark.real
def test_engine_is_not_alive_if_its_process_ended_or_its_pid_was_reused(state: Path, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = places.process_start(process.pid)
        socket = places.socket_path(tmp_path)
        places.announce(tmp_path, record(pid=process.pid, pid_started=started, socket=socket))
        assert places.engines()[0].is_alive
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not places.engines()[0].is_alive
    assert not places.engines()[0].is_alive

    places.announce(tmp_path, record(pid_started=started + 1, socket=socket))
    assert not places.engines()[0].is_alive


def test_malformed_engine_records_are_ignored(state: Path) -> None:
    for name, content in (("a", b"{"), ("b", b'{"pid":1}'), ("c", b"\xff"), ("d", b'{"x":' + b"[" * 10_000)):
        (state / name).mkdir(parents=True)
        (state / name / "engine.json").write_bytes(content)
    (state / "crash-1.txt").touch()

    assert places.engines() == []


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipe_or_device_in_place_of_an_engine_record_is_ignored(state: Path, tmp_path: Path, kind: str) -> None:
    """A cache may come from another machine, and its record may be a link to `/dev/zero`."""
    file = tmp_path / ".aptui/engine.json"
    file.parent.mkdir()
    os.mkfifo(file) if kind == "pipe" else file.symlink_to("/dev/zero")

    assert places.engine_of(tmp_path) is None


def test_unwritable_registry_is_a_host_error(state: Path, tmp_path: Path) -> None:
    places.make_private(places.engine_dir(tmp_path) / "engine.json")

    with pytest.raises(HostError, match="cannot be written"):
        places.announce(tmp_path, record())
