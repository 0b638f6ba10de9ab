"""The folders that a live engine watches, tested with a fake watcher."""

import os
from types import SimpleNamespace

import pytest

from aptui.config.configuration import Config
from aptui.core.notices import LogLevel
from aptui.core.project import INTERMEDIATES
from aptui.engine.live import roots as watched_roots
from aptui.engine.live.roots import WatchedRoots
from aptui.shared.errors import HostError
from aptui.shared.health import WatchedRoot, WatchMode


class Watcher:
    """A watcher that watches nothing."""

    def __init__(self, roots, _take, hear, settings):
        self.roots, self.hear, self.cookie_folder, self.suspected, self.is_open = roots, hear, settings.cookie_folder, [], True

    def start(self):
        self.say()

    def say(self, mode=WatchMode.NATIVE, detail=""):
        self.modes = [WatchedRoot(os.fsdecode(root.path), mode, detail) for root in self.roots]
        self.hear(tuple(self.modes))

    def health(self):
        return self.modes

    def replace(self, roots):
        self.roots = roots
        self.say()

    def suspect(self, reason):
        self.suspected.append(reason)

    def close(self):
        self.is_open = False


@pytest.fixture
def room(tmp_path, monkeypatch):
    watchers, said = [], []
    monkeypatch.setattr(watched_roots, "Watcher", lambda *given, **named: watchers.append(Watcher(*given, **named)) or watchers[-1])
    (tmp_path / "assets").mkdir()
    folder = SimpleNamespace(name="game", path=str(tmp_path / "assets"), recursive=True)
    project = SimpleNamespace(scan_folders=[folder], platforms=[SimpleNamespace(id="linux")], builders=())
    cache = tmp_path / "Cache"
    config = Config(tmp_path, "p", cache, cache / "logs", cache / "temp", project)  # type: ignore[arg-type]  # three fields are read
    roots = WatchedRoots(lambda: config, lambda _hint: None, lambda: None, lambda text, level: said.append((level, text)))
    return SimpleNamespace(roots=roots, watchers=watchers, said=said, cache=cache, assets=folder.path)


def test_sources_are_watched_before_the_cache_folder(room):
    assert room.roots.start()

    [watcher] = room.watchers
    assert room.assets in [root.path for root in watcher.health()]
    assert not any(root.path.startswith(str(room.cache)) for root in watcher.health())
    assert os.path.isdir(watcher.cookie_folder)
    room.roots.follow_configuration()
    assert str(room.cache / "linux") in [root.path for root in watcher.health()]
    assert room.assets in [root.path for root in room.roots.health()]
    assert not any(root.path.startswith(str(room.cache)) for root in room.roots.health())


def test_unwritable_cache_is_reported_before_watching(room):
    room.cache.write_text("a file", encoding="utf-8")

    with pytest.raises(HostError, match="cannot be written"):
        room.roots.start()

    assert not room.watchers


def test_start_and_end_of_polling_are_each_reported_once(room):
    room.roots.start()
    room.roots.poll()
    assert not room.said
    assert room.roots.are_all_native

    room.watchers[0].say(WatchMode.POLLING, "no room")
    room.roots.poll()
    room.watchers[0].say(WatchMode.POLLING, "no room")
    room.roots.poll()
    assert (LogLevel.WARNING, f"'{room.assets}' is polled: no room") in room.said
    assert len(room.said) == len(set(room.said))
    assert not room.roots.are_all_native

    room.watchers[0].say()
    room.roots.poll()
    assert room.said[-1][0] == LogLevel.INFO
    assert (LogLevel.INFO, f"'{room.assets}' is watched again") in room.said


def test_folder_of_intermediates_is_watched_as_soon_as_it_exists(room):
    room.roots.start()
    path = str(room.cache / INTERMEDIATES)
    room.roots.add_intermediates()
    assert path not in [root.path for root in room.watchers[0].health()]

    os.makedirs(path)
    room.roots.add_intermediates()

    assert path in [root.path for root in room.watchers[0].health()]


def test_closed_watcher_ignores_requests_for_a_check(room):
    room.roots.start()
    room.roots.suspect("was stopped")
    room.roots.close()
    room.roots.suspect("was stopped again")
    room.roots.follow_configuration()

    assert room.watchers[0].suspected == ["was stopped"]
    assert not room.watchers[0].is_open
