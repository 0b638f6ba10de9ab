"""The drill A1 in short: it passes, and it would notice if what waits for a client were not bounded."""

import pytest
from drills import wire_fuzz
from link_room import short_folder

PATIENT_S = 5.0
"""Here only what hangs is too slow; the drill itself is strict."""


def quiet(_text: str) -> None:
    """Say nothing."""


@pytest.mark.slow
def test_no_client_can_hurt_the_engine_or_another_client() -> None:
    with short_folder() as folder:
        report = wire_fuzz.attacked(folder, seed=5, answer_limit_s=PATIENT_S, say=quiet)

    assert report.violations == []
    assert report.faults == len(wire_fuzz.ATTACKS)


@pytest.mark.slow
def test_an_outbox_without_bounds_is_noticed() -> None:
    attacks = [wire_fuzz.deaf_subscribers]

    with short_folder() as folder:
        report = wire_fuzz.attacked(folder, seed=5, mutant="unbounded-outbox", attacks=attacks, answer_limit_s=PATIENT_S, say=quiet)

    assert [text for text in report.violations if "memory grew" in text]
