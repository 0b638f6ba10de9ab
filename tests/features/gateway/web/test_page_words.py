"""Texts of the demo page for counts, sizes and kinds: `words.js`, run with Node if it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tools import find_program, needs

from aptui.features.gateway.web import web_screen

NODE = find_program("node")
pytestmark = [pytest.mark.real, needs("node")]
ASKED = """
import { kindOf, sized, stateOf } from "./words.mjs";
const counts = [[0, 0, 0], [2, 1, 4], [0, 1, 0], [0, 0, 1], [0, 0, 4]];
const states = counts.map(([waiting, running, failed]) => stateOf({ waiting, running, failed }));
const kinds = ["a.webp", "b.tar.glb", "c.mp3", "d.txt", "png", "e.ktx2", "f.opus"].map((path) => kindOf({ path }));
console.log(JSON.stringify({ states, kinds, sizes: [0, 1023, 1024, 1536].map(sized) }));
"""


def test_demo_page_shows_current_only_without_pending_or_failed_jobs(tmp_path: Path) -> None:
    shutil.copy(Path(web_screen.__file__).parent / "page" / "words.js", tmp_path / "words.mjs")
    (tmp_path / "asked.mjs").write_text(ASKED)

    words = json.loads(subprocess.check_output([str(NODE), "asked.mjs"], cwd=tmp_path, text=True, timeout=60))

    assert words["states"] == [
        ["everything is current", "good"],
        ["3 jobs to do", "busy"],
        ["1 job to do", "busy"],
        ["1 job failed, everything else is current", "wrong"],
        ["4 jobs failed, everything else is current", "wrong"],
    ]
    assert words["kinds"] == ["pictures", "meshes", "sounds", "others", "pictures", "textures", "sounds"]
    assert words["sizes"] == ["0 B", "1023 B", "1.0 KiB", "1.5 KiB"]
