"""Notifications about assets whose drafts are served while their finals are processed."""

from __future__ import annotations

from pathlib import Path

import pytest
from waiting import until

from aptui.features.gateway import wire_records
from aptui.features.gateway.wire_records import Status
from tests.features.gateway.live_served import garden

pytestmark = pytest.mark.real

SETTINGS = """
name: Garden
platforms: {linux: {}}
scan_folders: [{name: game, path: assets}]
builders:
  - name: slow
    patterns: ["*.slow"]
    quality: [draft, final]
    command: "while [ {quality} = final -a -e %(gate)s ]; do sleep 0.02; done;
      (echo {quality}; cat {source}) > {products_dir}/{stem}.out"
    products: ["*.out"]
"""


def test_an_asset_is_ready_with_its_draft_while_its_final_is_made(tmp_path: Path) -> None:
    with garden(tmp_path, SETTINGS, {"a.slow": "old"}) as there:
        there.rest()
        client = there.client()
        before = client.ask(wire_records.AssetStatus(term="a.slow"))

        there.gate.touch()
        there.write("a.slow", "new")
        waited = there.ready(client, "a.slow")
        until(lambda: bool(there.served.room.engine.running), "the final is being made")
        by_term = client.ask(wire_records.AssetStatus(term="a.slow"))
        by_id = client.ask(wire_records.AssetStatus(asset=before.assets[0].id))
        (drawn,) = client.ask(wire_records.JobsInfo(term="a.slow")).jobs
        there.gate.unlink()
        until(lambda: not client.ask(wire_records.AssetStatus(term="a.slow")).is_draft, "the final is there")
        after = client.ask(wire_records.AssetStatus(term="a.slow"))
        (made,) = client.ask(wire_records.JobsInfo(term="a.slow")).jobs

    states = [before, waited, by_term, by_id, after]
    assert [state.status for state in states] == [Status.COMPILED] * 5
    assert [state.is_draft for state in states] == [False, True, True, True, False]
    assert (drawn.is_draft, made.is_draft) == (True, False)
    assert waited.assets == by_term.assets == by_id.assets
    assert len({state.assets[0].digest for state in (before, waited, after)}) == 3
