"""A copied project whose original has a running engine. No command in the copy reaches that engine; the copy starts its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from waiting import until

from aptui.cli import main
from aptui.config import load
from aptui.features.o3de.programs.run_request import ask_holder
from aptui.link import places, port
from aptui.link.engine_client import EngineClient, NoEngine
from aptui.link.engine_link import EngineLink
from aptui.shared.errors import BusyError
from aptui.tui.data.session import EnginePlaces, LinkSession, SessionState

from .test_daemon_process import Home

pytestmark = pytest.mark.real


class Copied(Home):
    """A project with an engine, and a copy of the project whose source differs."""

    copy: Path

    def make_copy(self, words: str) -> None:
        """Copy the project by running the shell command `words`; {} in it stands for the path of the copy."""
        self.copy = self.project.parent / "copy"
        subprocess.run(words.format(self.copy), shell=True, cwd=self.project, check=True, env=self.environment, timeout=60)
        (self.copy / "assets/a.txt").write_text("of the copy")

    @property
    def cache(self) -> Path:
        return self.project / "Cache"

    def engine_at(self, project: Path) -> int:
        found = places.engine_of(project / "Cache")
        return found.pid if found is not None else 0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copied]:
    home = Copied(tmp_path)
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    home.run("start")
    until(lambda: home.product("a.txt") == "a")
    yield home
    home.run("stop", "--all")


_TAR = "mkdir {0} && tar cf - . | tar xf - -C {0}"
_WORKTREE = (
    "git init -q && git add aptui.yaml assets && git -c user.name=a -c user.email=a@b commit -qm a"
    " && git worktree add -q {0} && cp -r Cache {0}"
)
_COPIES = {
    "cp -r": "cp -r . {}",
    "cp -a": "cp -a . {}",
    "rsync": "rsync -a ./ {}" if shutil.which("rsync") else _TAR,
    "worktree": _WORKTREE if shutil.which("git") else _TAR,
    "cache alone": "mkdir {0} && cp -r aptui.yaml assets Cache {0}",
}


@pytest.mark.parametrize("how", _COPIES)
def test_batch_and_start_in_a_copied_project_do_not_use_the_original_engine(home: Copied, how: str) -> None:
    home.make_copy(_COPIES[how])
    original = home.engine_at(home.project)

    assert main.main(["-C", str(home.copy), "batch"]) == 0
    made_by_batch = (home.copy / "Cache/linux/a.txt").read_text()
    (home.copy / "assets/b.txt").write_text("b")
    started = main.main(["-C", str(home.copy), "start"])
    own = home.engine_at(home.copy)
    until((home.copy / "Cache/linux/b.txt").exists)
    main.main(["-C", str(home.copy), "stop"])

    assert (made_by_batch, started) == ("of the copy", 0)
    assert own not in (0, original)
    assert (home.engine_at(home.copy), home.engine_at(home.project)) == (0, original)
    assert home.product("a.txt") == "a"
    assert not (home.cache / "linux/b.txt").exists()


_NO_ENGINE = 2
_COMMANDS: dict[str, tuple[list[str], int]] = {
    "stop": (["stop"], 0),
    "stop when idle": (["stop", "--when-idle"], 0),
    "pause": (["pause"], _NO_ENGINE),
    "resume": (["resume"], _NO_ENGINE),
    "run-next": (["run-next"], _NO_ENGINE),
    "drain": (["drain", "--stop"], _NO_ENGINE),
    "rescan": (["rescan", "--full"], _NO_ENGINE),
    "reload": (["reload"], _NO_ENGINE),
    "interest": (["interest", "a.txt"], _NO_ENGINE),
    "hold": (["hold", "--", "true"], 0),
    "reprocess": (["reprocess", "a.txt"], 0),
    "status": (["status"], 0),
    "jobs": (["jobs"], 0),
    "log": (["log", "a.txt", "--follow"], 0),
    "why": (["why", "a.txt"], 0),
    "verify": (["verify"], 0),
    "scan-missing": (["scan-missing"], 0),
    "move": (["move", "a.txt", "c.txt", "--confirm"], 0),
    "batch": (["batch", "--full-scan"], 0),
    "doctor": (["doctor"], 0),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, port.Verb]]:
    """Return a list of (socket, request) that records the requests of clients in this process, without the hello."""
    asked: list[tuple[str, port.Verb]] = []
    post = EngineClient.post

    def note(client: EngineClient, verb: port.Verb, then: object = None) -> int:
        if not isinstance(verb, port.EngineHello):
            asked.append((client.path, verb))
        return post(client, verb, then)  # type: ignore[arg-type]

    monkeypatch.setattr(EngineClient, "post", note)
    return asked


def test_no_verb_in_a_copied_project_asks_the_original_engine(
    home: Copied, asked: list[tuple[str, port.Verb]], capsys: pytest.CaptureFixture[str]
) -> None:
    home.make_copy(_COPIES["cp -a"])
    original = home.engine_at(home.project)
    wrong = {}
    for name, (words, expected) in _COMMANDS.items():
        code = main.main(["-C", str(home.copy), *words])
        printed = capsys.readouterr()
        if code != expected or asked or str(original) in printed.out:
            wrong[name] = (code, list(asked), printed)
            asked.clear()

    assert wrong == {}
    assert home.engine_at(home.project) == original


def test_verb_why_in_a_copied_project_checks_the_copied_sources(home: Copied, capsys: pytest.CaptureFixture[str]) -> None:
    home.make_copy(_COPIES["cp -a"])
    (home.copy / "assets/a.txt").write_text("of the copy")

    main.main(["-C", str(home.copy), "why", "a.txt"])

    assert "changed since the last scan" in capsys.readouterr().out


def test_ps_in_a_copied_project_lists_the_original_engine_with_the_original_project(
    home: Copied, capsys: pytest.CaptureFixture[str]
) -> None:
    home.make_copy(_COPIES["cp -a"])

    main.main(["-C", str(home.copy), "ps", "--json"])

    rows = msgspec.json.decode(capsys.readouterr().out)["engines"]
    assert [row["project"] for row in rows] == [str(home.project)]


def _connect_verb(cache: Path) -> bool:
    try:
        EngineClient.of(cache).close()
    except NoEngine:
        return False
    return True


def _connect_screen(cache: Path) -> bool:
    session = LinkSession(EnginePlaces("game", cache, ""), back_off_s=(0.01,))
    session.open()
    until(lambda: session.state is not SessionState.ATTACHING)
    state = session.state
    session.close()
    return state is SessionState.ATTACHED


def _connect_gateway(cache: Path) -> bool:
    tried: list[bool] = []
    link = EngineLink(cache, bool, bool)
    link._in_loop = lambda call, *_values: tried.append(call == link._set_here)  # type: ignore[method-assign]
    link._ends.wait = lambda _timeout: link._ends.set()  # type: ignore[method-assign, assignment, return-value]
    link._listen = lambda _client: tried.append(True)  # type: ignore[method-assign]
    link._run()
    return tried[0]


def _ask_as_o3de_program(cache: Path) -> bool:
    try:
        ask_holder(load.load(cache.parent), BusyError("held"), port.PingEngine())
    except BusyError:
        return False
    return True


_CLIENTS: list[Callable[[Path], bool]] = [_connect_verb, _connect_screen, _connect_gateway, _ask_as_o3de_program]


@pytest.mark.parametrize("connect", _CLIENTS)
def test_clients_find_the_engine_through_a_cache_link_but_not_in_a_copy(home: Copied, connect: Callable[[Path], bool]) -> None:
    home.make_copy(_COPIES["cp -a"])
    linked = home.project.parent / "linked"
    linked.mkdir()
    shutil.copy(home.project / "aptui.yaml", linked)
    (linked / "assets").symlink_to(home.project / "assets")
    (linked / "Cache").symlink_to(home.cache)

    assert [connect(project / "Cache") for project in (home.project, linked, home.copy)] == [True, True, False]


def test_client_refuses_an_engine_whose_hello_names_another_cache(home: Copied) -> None:
    home.make_copy(_COPIES["cp -a"])
    record = places.engine_of(home.cache)
    assert record is not None
    lying = msgspec.structs.replace(record, cache=str(home.copy / "Cache"), cache_id=places.identity_of(home.copy / "Cache"))
    (home.copy / "Cache/.aptui/engine.json").write_bytes(msgspec.json.encode(lying))

    assert places.engine_of(home.copy / "Cache") is not None
    with pytest.raises(NoEngine, match="has cache '"):
        EngineClient.of(home.copy / "Cache")


def test_gateway_record_is_ignored_if_the_folder_at_its_path_was_replaced(home: Copied) -> None:
    own = places.GatewayRecord(os.getpid(), places.process_start(os.getpid()), "http://x", "x", 1, "secret")
    places.announce_gateway(home.cache, own)
    assert places.find_gateway(home.cache) is not None

    home.cache.rename(home.project / "moved")
    shutil.copytree(home.project / "moved", home.cache, ignore=shutil.ignore_patterns(".cookies"))

    assert places.find_gateway(home.cache) is None
