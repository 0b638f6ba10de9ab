"""The work of aptui's benchmarks done by other programs for comparison: ninja, gulp and watchman, if they are installed.

gulp is taken from `node_modules` of the bench's folder (`npm install gulp` there).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.measure import run

if TYPE_CHECKING:
    from tests.bench.__main__ import Bench


def ninja_project(bench: Bench) -> Path | None:
    """Write a `build.ninja` that copies every source; None if ninja is not installed."""
    if shutil.which("ninja") is None:
        return None
    folder = fresh(bench.base / "ninja")
    lines = ["rule cp", "  command = cp $in $out"]
    lines += [f"build out/{path.lower()}: cp {bench.sources}/{path}" for path in bench.paths]
    (folder / "build.ninja").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


_GULPFILE = """
const gulp = require('gulp');
exports.default = () => gulp.src('**/*', {{cwd: {sources}, nodir: true, encoding: false}}).pipe(gulp.dest({products}));
"""


def gulp_command(bench: Bench) -> list[str] | None:
    """Write a gulpfile that copies every source into a new folder, and return the command; None if gulp is not installed."""
    program = bench.base / "node_modules" / ".bin" / "gulp"
    if not program.exists():
        return None
    products = fresh(bench.base / "gulp")
    gulpfile = bench.base / "gulpfile.cjs"
    gulpfile.write_text(_GULPFILE.format(sources=json.dumps(str(bench.sources)), products=json.dumps(str(products))))
    return [str(program), "--silent", "--gulpfile", str(gulpfile)]


def fresh(folder: Path) -> Path:
    """Empty the folder, and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


_COPY = 'while IFS= read -r path; do mkdir -p "$0/${path%/*}"; cp "$path" "$0/$path.tmp"; mv "$0/$path.tmp" "$0/$path"; done'


@contextlib.contextmanager
def watchman_copies(sources: Path, products: Path) -> Iterator[bool]:
    """Run watchman, which copies each changed source to `products` (without fsync); yield whether it is installed."""
    if shutil.which("watchman") is None:
        yield False
        return
    shutil.copytree(sources, fresh(products), dirs_exist_ok=True)
    run(["watchman", "watch", str(sources)])
    trigger = {
        "name": "copy",
        "expression": ["type", "f"],
        "stdin": "NAME_PER_LINE",
        "append_files": False,
        "command": ["sh", "-c", _COPY, str(products)],
    }
    _ask_watchman(["trigger", str(sources), trigger])
    try:
        yield True
    finally:
        run(["watchman", "watch-del", str(sources)])


def _ask_watchman(request: list[object]) -> None:
    asked = subprocess.run(["watchman", "-j"], input=json.dumps(request), text=True, capture_output=True, check=True)
    if "error" in json.loads(asked.stdout):
        raise SystemExit(f"watchman: {asked.stdout}")
