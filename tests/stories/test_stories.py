"""Stories: each has a small project and a script of edits.

After every step it checks the jobs that ran, their outcome, and the settled state.

Each `NNN-name/story.py` holds `FILES` {path: text or bytes}, `play(story)`, and `CONFIG` (aptui.yaml): by default `OWN_BUILDERS`
if the story has builders, else `COPIES`. A run is written `source:job key[@platform][!]`; the host's platform is left out, `!`
means that it failed. After every step the cache is checked against the database, and after the last one against a clean build.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from disk_project import COPIES, Project, Ran

pytestmark = pytest.mark.real

FOLDER = Path(__file__).parent
OWN_BUILDERS = "scan_folders: [{name: game, path: assets}]\nbuilders: []\n"
NAMES = sorted(path.parent.name for path in FOLDER.glob("[0-9][0-9][0-9]-*/story.py"))


class Story(Project):
    """A project that checks which jobs each run executes."""

    def run(
        self,
        *expected: str,
        failed: tuple[str, ...] | None = None,
        analysed: int | None = None,
        is_full_scan: bool = False,
        sets: tuple[str, ...] = (),
    ) -> Ran:
        """Run the engine; exactly `expected` must have run.

        Args:
            failed: names of all jobs that must be failed afterwards; by default those that failed in this run.
            analysed: how many analyses must have run.
        """
        ran = self.engine_run(is_full_scan=is_full_scan, sets=sets)
        failing = tuple(name.removesuffix("!") for name in expected if name.endswith("!")) if failed is None else failed

        assert ran.runs == Counter(expected)
        assert sorted(name for name, status in self.statuses().items() if status != "completed") == sorted(failing)
        assert analysed in (None, ran.analysed)
        self.check_rest()
        return ran


@pytest.fixture
def story(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ModuleType, Story]:
    name = request.param
    spec = importlib.util.spec_from_file_location(f"story_{name[:3]}", FOLDER / name / "story.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    default = OWN_BUILDERS if any(os.fsencode(rel).startswith(b"builders/") for rel in module.FILES) else COPIES
    project = Story(tmp_path / os.fsdecode(getattr(module, "ROOT", b"project")), getattr(module, "CONFIG", default))
    for rel, data in module.FILES.items():
        project.write(rel, data)
    return module, project


@pytest.mark.parametrize("story", NAMES, indirect=True)
def test_story(story: tuple[ModuleType, Story], tmp_path: Path) -> None:
    module, project = story

    module.play(project)

    if getattr(module, "CHECKS_CLEAN_BUILD", True):
        project.check_clean_build(tmp_path / "clean")
