from types import SimpleNamespace

import pytest

from aptui.tui.screens.builders import builders_pane
from aptui.tui.screens.builders.builder_facts import FoundBuilders
from aptui.tui.screens.builders.builders_pane import READ_AGAIN_S, BuilderReading


class World:
    """A reader of builders with a clock, timers and thread that the test controls."""

    def __init__(self, monkeypatch, tmp_path):
        self.now, self.timers, self.reads, self.due, self.taken = 100.0, [], [], 0, []
        monkeypatch.setattr(builders_pane.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(builders_pane, "run_in_background", lambda _name, do, *places: self.reads.append(lambda: do(*places)))
        monkeypatch.setattr(builders_pane, "find", lambda *_places: FoundBuilders(trouble=f"read {len(self.taken) + 1}"))
        shell = SimpleNamespace(
            config=None, session=SimpleNamespace(cache_dir=tmp_path), all_builders=None, in_ui=lambda do, *rest: do(*rest)
        )
        self.reading = BuilderReading(shell, lambda *timer: self.timers.append(timer), self.count_due, self.taken.append)

    def count_due(self):
        self.due += 1

    def finish(self):
        self.reads.pop()()


@pytest.fixture
def world(monkeypatch, tmp_path):
    return World(monkeypatch, tmp_path)


def test_builders_are_not_read_without_a_request(world):
    world.reading.poll()

    assert not world.reads


def test_first_read_starts_at_once_and_only_once(world):
    world.reading.is_stale = True
    world.reading.poll()
    world.reading.is_stale = True
    world.reading.poll()

    assert len(world.reads) == 1
    assert not world.reading.is_known
    world.finish()
    assert world.reading.is_known
    assert world.reading.found.trouble == "read 1"
    assert [was.trouble for was in world.taken] == [""]


def test_next_read_of_the_builders_waits_for_the_minimum_interval(world):
    world.reading.is_stale = True
    world.reading.poll()
    world.finish()
    world.reading.is_stale = True
    world.reading.poll()
    world.reading.poll()

    assert not world.reads
    [(wait_s, come)] = world.timers
    assert wait_s == READ_AGAIN_S
    world.now += wait_s
    come()
    assert world.due == 1
    world.reading.poll()
    world.finish()
    assert [was.trouble for was in world.taken] == ["", "read 1"]


def test_read_of_the_builders_after_a_reload_does_not_wait(world):
    world.reading.is_stale = True
    world.reading.poll()
    world.finish()
    world.reading.is_stale, world.reading.is_known = True, False
    world.reading.poll()

    assert len(world.reads) == 1
    assert not world.timers
