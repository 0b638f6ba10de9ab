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

    def __init__(self, roots, _take, receive, settings):
        self.roots, self.receive, self.cookie_folder, self.suspected, self.is_open = (
            roots,
            receive,
            settings.cookie_folder,
            [],
            True,
        )

    def start(self):
        self.say()

    def say(self, mode=WatchMode.NATIVE, detail=""):
        self.modes = [WatchedRoot(os.fsdecode(root.path), mode, detail) for root in self.roots]
        self.receive(tuple(self.modes))

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
def harness(tmp_path, monkeypatch):
    watchers, messages = [], []
    monkeypatch.setattr(watched_roots, "Watcher", lambda *given, **named: watchers.append(Watcher(*given, **named)) or watchers[-1])
    (tmp_path / "assets").mkdir()
    folder = SimpleNamespace(name="game", path=str(tmp_path / "assets"), recursive=True)
    project = SimpleNamespace(scan_folders=[folder], platforms=[SimpleNamespace(id="linux")], builders=())
    cache = tmp_path / "Cache"
    config = Config(tmp_path, "p", cache, cache / "logs", cache / "temp", project)  # type: ignore[arg-type]  # three fields are read
    roots = WatchedRoots(lambda: config, lambda _hint: None, lambda: None, lambda text, level: messages.append((level, text)))
    return SimpleNamespace(roots=roots, watchers=watchers, messages=messages, cache=cache, assets=folder.path)


def test_sources_are_watched_before_the_cache_folder(harness):
    assert harness.roots.start()

    [watcher] = harness.watchers
    assert harness.assets in [root.path for root in watcher.health()]
    assert not any(root.path.startswith(str(harness.cache)) for root in watcher.health())
    assert os.path.isdir(watcher.cookie_folder)
    harness.roots.follow_configuration()
    assert str(harness.cache / "linux") in [root.path for root in watcher.health()]
    assert harness.assets in [root.path for root in harness.roots.health()]
    assert not any(root.path.startswith(str(harness.cache)) for root in harness.roots.health())


def test_unwritable_cache_is_reported_before_watching(harness):
    harness.cache.write_text("a file", encoding="utf-8")

    with pytest.raises(HostError, match="cannot be written"):
        harness.roots.start()

    assert not harness.watchers


def test_start_and_end_of_polling_are_each_reported_once(harness):
    harness.roots.start()
    harness.roots.poll()
    assert not harness.messages
    assert harness.roots.are_all_native

    harness.watchers[0].say(WatchMode.POLLING, "no room")
    harness.roots.poll()
    harness.watchers[0].say(WatchMode.POLLING, "no room")
    harness.roots.poll()
    assert (LogLevel.WARNING, f"'{harness.assets}' is polled: no room") in harness.messages
    assert len(harness.messages) == len(set(harness.messages))
    assert not harness.roots.are_all_native

    harness.watchers[0].say()
    harness.roots.poll()
    assert harness.messages[-1][0] == LogLevel.INFO
    assert (LogLevel.INFO, f"'{harness.assets}' is watched again") in harness.messages


def test_scan_folder_that_also_has_the_configuration_is_listed_once_with_its_worst_mode(harness):
    harness.roots.start()
    limited = WatchedRoot(harness.assets, WatchMode.LIMITED, "no watch is left", 7)
    alone = WatchedRoot(harness.assets, WatchMode.NATIVE, "", 1)

    for given in ((limited, alone), (alone, limited)):
        harness.watchers[0].receive(given)
        harness.roots.poll()
        assert harness.roots.health() == (limited,)
        assert not harness.roots.are_all_native
    harness.watchers[0].receive((alone, WatchedRoot(harness.assets, WatchMode.NATIVE, "", 9)))

    assert [root.watches for root in harness.roots.health()] == [9]
    assert [text for _, text in harness.messages] == [f"'{harness.assets}' is polled: no watch is left"]


def test_folder_of_intermediates_is_watched_as_soon_as_it_exists(harness):
    harness.roots.start()
    path = str(harness.cache / INTERMEDIATES)
    harness.roots.add_intermediates()
    assert path not in [root.path for root in harness.watchers[0].health()]

    os.makedirs(path)
    harness.roots.add_intermediates()

    assert path in [root.path for root in harness.watchers[0].health()]


def test_closed_watcher_ignores_requests_for_a_check(harness):
    harness.roots.start()
    harness.roots.suspect("was stopped")
    harness.roots.close()
    harness.roots.suspect("was stopped again")
    harness.roots.follow_configuration()

    assert harness.watchers[0].suspected == ["was stopped"]
    assert not harness.watchers[0].is_open
