"""Optional programs of the tests. If one is missing, tests that need it are skipped, and the reason names it.

* `python -m tests.tools packages` prints the Debian packages of the programs that are missing.
* `python -m tests.tools hide FOLDER` fills FOLDER with links to the programs of PATH, without the optional ones.
* `python -m tests.tools compare WITH WITHOUT` compares the skipped tests of two runs: only the first
  run had the programs.

A run writes its skipped tests to the file that `APTUI_TEST_SKIPS` names (`lanes`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import aptui

PROGRAMS = {
    "apache2": "apache2", "assimp": "assimp-utils", "bwrap": "bubblewrap", "cadaver": "cadaver", "ccache": "ccache",
    "chromium": "chromium", "ffmpeg": "ffmpeg", "fish": "fish", "git-lfs": "git-lfs", "glslangValidator": "glslang-tools",
    "glslc": "glslc", "gltfpack": "gltfpack", "luac5.4": "lua5.4", "nginx": "nginx-core", "node": "nodejs", "openssl": "openssl",
    "rsync": "rsync", "spirv-cross": "spirv-cross", "strace": "strace", "tmux": "tmux", "zsh": "zsh",
}  # fmt: skip
"""{program: Debian package that has it}."""
ALIASES = {"chromium-browser": "chromium", "glslang": "glslangValidator", "httpd": "apache2", "luac": "luac5.4", "nodejs": "node"}
"""{other name of a program: its name in `PROGRAMS`}."""
MISSING = "missing program: "
"""Prefix of the skip reason of a test whose program is missing."""
MACHINE = "this machine: "
"""Prefix of the skip reason of a test that the machine or its user cannot run."""


def find_program(name: str) -> str | None:
    """Return the path of an optional program, None if it is missing; its name must be in `PROGRAMS`."""
    names = [name, *(alias for alias, of in ALIASES.items() if of == PROGRAMS.get(name) or of == name)]
    assert name in PROGRAMS, f"add {name} to PROGRAMS"
    return next(filter(None, map(shutil.which, names)), None)


def needs(*names: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped if one of the programs is missing."""
    missing = next((name for name in names if find_program(name) is None), "")
    return pytest.mark.skipif(bool(missing), reason=MISSING + missing)


def needs_feature(*names: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped if the folder of one of the features has been deleted."""
    missing = next((name for name in names if has_been_deleted(name)), "")
    return pytest.mark.skipif(bool(missing), reason=f"deleted feature: {missing}")


FEATURES_WITH_SCREENS = ("gateway", "insight", "relocation", "sharing", "shipping")
"""Features that add a screen, or add a part, key or command to a screen, and so change snapshots and lists of keys."""
FEATURES = (*FEATURES_WITH_SCREENS, "cluster", "graph", "o3de")


def has_been_deleted(feature: str) -> bool:
    """Whether the folder of a feature that aptui ships with has been deleted."""
    return not Path(aptui.__file__).parent.joinpath("features", feature).is_dir()


def is_of_deleted_feature(path: str) -> bool:
    """Whether a path from the checkout is in the folder of a feature that has been deleted, or in the folder of its tests."""
    parts = path.split("/")
    return parts[0] in {"aptui", "tests"} and parts[1:2] == ["features"] and has_been_deleted(parts[2])


def skip_without(name: str) -> None:
    """Skip the running test if the program is missing."""
    if find_program(name) is None:
        pytest.skip(MISSING + name)


def _may_use_bubblewrap() -> bool:
    program = find_program("bwrap")
    if program is None:
        return True  # without the program, `needs` skips the test and names the program in the reason
    words = [program, "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


_may_isolate = pytest.mark.skipif(not _may_use_bubblewrap(), reason=MACHINE + "bubblewrap may not make namespaces")


def needs_bubblewrap(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that runs something in bubblewrap."""
    return needs("bwrap")(_may_isolate(test))


def hide_programs(folder: Path) -> None:
    """Fill a folder with links to the programs of PATH, without the optional ones."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(place).iterdir()) if os.path.isdir(place) else ():
            link = folder / program.name
            if program.name not in PROGRAMS and program.name not in ALIASES and not link.is_symlink():
                link.symlink_to(program)


def compare_skips(had: Mapping[str, str], had_not: Mapping[str, str], missing: set[str]) -> list[str]:
    """Return messages about tests that were wrongly skipped, or wrongly run, in two runs of the tests.

    Args:
        had: skipped tests {test: reason} of the run with the optional programs.
        had_not: skipped tests {test: reason} of the run without the optional programs.
        missing: optional programs that are not installed on this machine.
    """
    wrong = [
        f"{test}: skipped for neither a program nor the machine: {reason}"
        for test, reason in sorted({**had, **had_not}.items())
        if not reason.startswith((MISSING, MACHINE))
    ]
    for test, reason in sorted(had.items()):
        if reason.startswith(MISSING) and reason.removeprefix(MISSING) not in missing:
            wrong.append(f"{test}: skipped, although the program is installed: {reason}")
        elif test not in had_not:
            wrong.append(f"{test}: skipped with the programs and run without them: {reason}")
    return wrong


def _main(verb: str, *arguments: str) -> int:
    missing = {name for name in PROGRAMS if find_program(name) is None}
    match verb, arguments:
        case "packages", ():
            print(" ".join(sorted(PROGRAMS[name] for name in missing)))
        case "hide", (folder,):
            hide_programs(Path(folder))
        case "compare", (had, had_not):
            first, second = (json.loads(Path(file).read_text(encoding="utf-8")) for file in (had, had_not))
            wrong = compare_skips(first, second, missing)
            print(*wrong, f"skipped: {len(first)} with the programs, {len(second)} without; missing: {sorted(missing)}", sep="\n")
            return bool(wrong)
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
