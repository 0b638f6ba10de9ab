"""Every error that a user sees has a place or a next step."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

from aptui.shared import errors

ROOT = Path(errors.__file__).parents[1]
ERRORS = ("HostError", "UserError")
SAYS_IT_ITSELF = {"expected"}
"""Words that show that a message already names the next step, as in "expected a number"."""
ELSEWHERE = {
    "features/o3de/programs/run_request.py",
    "features/o3de/programs/asset_builder.py",
    "features/o3de/programs/bundler_project.py",
    "features/o3de/bundling/object_stream.py",
    "features/sharing/record.py",
}
"""Modules whose errors need no place or hint: an error repeats a message of O3DE, or is wrapped in an error with a hint."""


def test_every_error_raised_in_the_code_has_a_place_or_a_hint() -> None:
    bare = []
    for file in ROOT.rglob("*.py"):
        name = file.relative_to(ROOT).as_posix()
        if any(name.startswith(part) for part in ELSEWHERE):
            continue
        text = file.read_text(encoding="utf-8")
        if not any(f"{error}(" in text for error in ERRORS):
            continue
        for call in ast.walk(ast.parse(text)):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ERRORS):
                continue
            given = {keyword.arg for keyword in call.keywords}
            if given & {"where", "hint", None}:
                continue
            what = ast.unparse(call.args[0]) if call.args else ""
            if not any(word in what for word in SAYS_IT_ITSELF):
                bare.append(f"{name}:{call.lineno}: {what}")

    assert bare == [], "add a `where` or a `hint` to each error"


def test_install_advice_names_all_packages_of_an_extra() -> None:
    words = shlex.split(errors.install_advice("web"))

    assert words[:2] == ["pip", "install"]
    assert {re.split(r"\W", word)[0] for word in words[2:]} == {"aiohttp", "multidict", "yarl", "textual"}
    assert "trimesh" in errors.install_advice("builders")
