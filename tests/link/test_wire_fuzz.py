"""A short form of the drill A1. The drill fails if the server keeps unlimited data for a client.

Each test runs in a separate process, because free memory of earlier tests would hide the growth.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

_ATTACK = """
import sys
from drills.hostile import wire_fuzz
from link_harness import short_folder

mutant, names = sys.argv[1], sys.argv[2:]
attacks = [getattr(wire_fuzz, name) for name in names] or wire_fuzz.ATTACKS
with short_folder() as folder:
    report = wire_fuzz.attacked(folder, seed=5, mutant=mutant, attacks=attacks, answer_limit_s=60.0, say=lambda _text: None)
print(report.faults == len(attacks), *report.violations, sep="\\n")
"""


def attacked(mutant: str = "", *attacks: str) -> list[str]:
    """Return whether every attack was made, and all violations.

    The time limits are long, so that only a hang exceeds them. The full drill has strict time limits.
    """
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), str(tests / "link"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", _ATTACK, mutant, *attacks]
    found = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    return found.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.timeout(600)  # this timeout detects hangs; under load the attacks take minutes
def test_hostile_clients_affect_neither_the_engine_nor_other_clients() -> None:
    assert attacked() == ["True"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fuzzing_detects_a_server_with_unlimited_outboxes() -> None:
    assert any("memory grew" in text for text in attacked("unbounded-outbox", "deaf_subscribers"))
