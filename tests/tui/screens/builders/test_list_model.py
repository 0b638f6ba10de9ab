"""After any reads, filters and sorts, the list of builders equals a list computed by plain Python, and has the right details."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aptui.core.notices import HealthChanged
from aptui.core.project import Builder, BuilderKind, Pattern, PatternKind
from aptui.shared.health import Health
from aptui.store.queries.metrics import BuilderSpent, Spent
from aptui.tui.screens.builders import builder_facts
from aptui.tui.screens.builders.builder_facts import FoundBuilders, KnownBuilder
from tui.shell_harness import until

from .test_builders_pane import _frames_are_fast, visit  # noqa: F401  # the fixture is used by being there

pytestmark = pytest.mark.real

NAMES = ("image", "Mesh", "audio", "copy", "Image2", "font")
FILTERS: dict[str, Callable[[str], object]] = {
    "": lambda _text: True,
    "image": lambda text: re.search("image", text, re.IGNORECASE),
    "(?-i)Image": lambda text: "Image" in text,
    "!a": lambda text: "a" not in text.lower(),
    "png": lambda text: "png" in text,
    "nothing": lambda _text: False,
}
ORDERS: dict[str, Callable[[KnownBuilder], Any]] = {
    "name": lambda each: each.name.lower(),
    "kind": lambda each: each.builder.kind.value if each.builder else "·",
    "jobs": lambda each: each.spent.jobs.count if each.spent else 0,
    "total": lambda each: each.all_spent.total_ms,
}
_STEPS = 100


def some_builders(chance: random.Random) -> tuple[KnownBuilder, ...]:
    """Return random builders; some lack a configuration, some lack recorded runs."""
    found = []
    for at in sorted(chance.sample(range(len(NAMES)), chance.randint(0, len(NAMES)))):
        patterns = (Pattern(PatternKind.GLOB, chance.choice(("*.png", "*.fbx")), "x"),)
        kind = chance.choice((BuilderKind.PYTHON, BuilderKind.COMMAND))
        uuid = bytes([at + 1]) * 16
        builder = Builder(uuid, NAMES[at], kind, "1", patterns=patterns) if chance.random() < 0.8 else None
        spent = BuilderSpent(uuid, Spent(1, 5, 5), Spent(*[chance.randint(0, 3)] * 3)) if chance.random() < 0.7 else None
        found.append(KnownBuilder(uuid, NAMES[at], builder, spent))
    return tuple(found)


@pytest.mark.parametrize("seed", range(3))
def test_builder_list_and_details_equal_a_reference_after_random_steps(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def play(app: Any, pilot: Any, session: Any, pane: Any) -> None:
        pane.reading.poll = lambda: None  # nothing is read, because the test sets the result of a read
        text, order = "", pane.list.sort
        for _ in range(_STEPS):
            before, step = pane.current, chance.choice(("read", "health", "filter", "sort", "go", "reveal"))
            wanted = None
            match step:
                case "read":
                    was, pane.reading.found = pane.reading.found, FoundBuilders(some_builders(chance))
                    pane._accept_builders(was)
                case "health":
                    session.latest_health = Health(broken_builders=((chance.choice(NAMES), "it died"),))
                    session.say(HealthChanged(0, session.latest_health))
                case "filter":
                    text = chance.choice(list(FILTERS))
                    pane.search._narrow(text)
                case "sort":
                    column = chance.choice(list(ORDERS))
                    order = (column, not order[1] if order[0] == column else column in builder_facts.DESCENDING)
                    pane.sort_by(column, is_tree=False)
                case "go":
                    pane.list.move_cursor(chance.randrange(len(NAMES)))
                case "reveal":
                    names = [each.name for each in pane.reading.found.builders]
                    wanted = chance.choice(names) if names else None
                    pane.reveal(wanted or "none")
                    text = pane.search.list_text if wanted else text
            await pilot.pause()

            found = pane.reading.found.builders
            passing = [each for each in found if FILTERS[text](builder_facts.join_searched(each))]
            passing.sort(key=ORDERS[order[0]], reverse=order[1])
            assert [row.data for row in pane.rows.records] == passing, step
            assert [pane.rows.index_of(pane.rows.key(at)) for at in range(len(passing))] == list(range(len(passing)))
            current = pane.current
            assert (current is None) == (not passing)
            if step not in {"go", "reveal"} and before is not None and before.uuid in {each.uuid for each in passing}:
                assert current.uuid == before.uuid, "the cursor stays on its builder"
            assert wanted is None or current.name == wanted
            health = session.latest_health
            broken = dict(health.broken_builders) if health else {}
            await until(pilot, lambda current=current, broken=broken: is_beside(pane, app.config, current, broken))

    visit(tmp_path, play)


def is_beside(pane: Any, config: Any, current: KnownBuilder | None, broken: dict[str, str]) -> bool:
    """Return whether the screen shows the patterns and details of `current`."""
    details = builder_facts.details(current, config, broken.get(current.name, "")) if current else []
    patterns = builder_facts.pattern_rows(current, config) if current else []
    return pane.details.pairs == details and [row.cells for row in pane.pattern_rows.records] == [row.cells for row in patterns]
