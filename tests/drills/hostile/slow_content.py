"""`slow-content`: response times of a running engine while expensive content arrives. The drill needs an otherwise idle machine.

`tests/engine/test_folder_settings.py` has a short form, which counts work instead of time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock
from uuid import uuid4

from disk_project import Project

from aptui.config import load
from aptui.link import port
from aptui.link.engine_client import EngineClient

from ..worlds.report import Report

SETTINGS = """
scan_folders: [{name: game, path: assets}]
metadata_types: [.txt]
builders: [{name: d, copy: ["*.txt"]}]
"""
MOST_MS = 50.0
"""Maximum response time (milliseconds) of 99 % of the answers."""
_ATTACK_S, _PAUSE_S = 8.0, 0.01
_VALUES = b"builders: {d: {params: {x: ["


def _settings(data: bytes) -> Callable[[Project, str], None]:
    def attack(project: Project, name: str) -> None:
        for number in range(6):
            project.write(f"assets/{name}{number}/a.txt", "a")
            project.write(f"assets/{name}{number}/.aptui.yaml", data + b"# %d\n" % number)

    return attack


def _touch(project: Project, _name: str) -> None:
    for path in sorted(project.root.glob("assets/*/.aptui.yaml")):
        os.utime(path)


def _identities(project: Project, name: str) -> None:
    uuids = [f"{{{uuid4()}}}" for _ in range(700)]
    text = json.dumps({"FileVersion": 1, "UUID": {"uuid": uuids[0], "legacyUuids": uuids}})
    for number in range(100):
        project.write(f"assets/{name}/{number}.txt.meta", text.replace(uuids[0], f"{{{uuid4()}}}"))
        project.write(f"assets/{name}/{number}.txt", "a")


ATTACKS: dict[str, Callable[[Project, str], None]] = {
    "large": _settings(_VALUES + b"1," * (1 << 19) + b"1]}}}\n"),
    "values": _settings(_VALUES + b"1," * 450 + b"1]}}}\n" + b"#\n" * 15_000),
    "keys": _settings(b"builders: {d: {params: {" + b",".join(b"k%d: 1" % number for number in range(2_500)) + b"}}}\n"),
    "deep": _settings(b"[" * 30_000 + b"\n"),
    "words": _settings(b"builders: {d: {params: {x: " + b"a " * 15_000 + b"}}}\n"),
    "touched": _touch,
    "identities": _identities,
}


def answers(folder: Path, say: Callable[[str], None] = print) -> Report:
    """Attack an engine, and request its status repeatedly."""
    report = Report("slow-content")
    project = Project(folder / "project", SETTINGS)
    project.write("assets/a.txt", "a")
    environment = {f"XDG_{name}_HOME": str(folder / "xdg") for name in ("CACHE", "CONFIG", "STATE")} | {"APTUI_TRUST": "1"}
    aptui = [sys.executable, "-m", "aptui"]
    with mock.patch.dict(os.environ, environment):
        subprocess.run([*aptui, "start", "--project", str(project.root)], check=True, capture_output=True)
        try:
            with EngineClient.of(load.load(project.root).cache_dir, name="drill") as client:
                for name, attack in ATTACKS.items():
                    took_ms = _ask(client, lambda name=name, attack=attack: attack(project, name))
                    worst = statistics.quantiles(took_ms, n=100)[98]
                    say(f"{name}: {len(took_ms)} answers, p50 {statistics.median(took_ms):.1f} ms, p99 {worst:.1f} ms")
                    report.faults += 1
                    report.points += len(took_ms)
                    if worst > MOST_MS:
                        report.violations.append(f"{name}: 99 of 100 answers took up to {worst:.0f} ms")
        finally:
            subprocess.run([*aptui, "stop", "--project", str(project.root)], check=False, capture_output=True)
    return report


def _ask(client: EngineClient, attack: Callable[[], None]) -> list[float]:
    attack()
    took_ms, end_s = [], time.monotonic() + _ATTACK_S
    while time.monotonic() < end_s:
        begin_s = time.perf_counter()
        client.ask(port.ReadStatus())
        took_ms.append((time.perf_counter() - begin_s) * 1000)
        time.sleep(_PAUSE_S)
    return took_ms
