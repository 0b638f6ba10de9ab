"""`BuilderConfig.ini` of a project: overrides of builders (`[Builder NAME]`) and jobs (`[Job KEY]`).

`checkExclusiveLock` and `checkServer` are accepted and change nothing: no file is read while it is being written, and
the patterns of the shared cache say what is shared.

Tests: `tests/o3de/project/test_project_format.py`.
"""

from __future__ import annotations

from aptui.config.yaml.nodes import Node
from aptui.o3de.facts import JobOverride
from aptui.o3de.registry.ini_file import read_ini
from aptui.o3de.registry.registry import plain_text, split_texts, truth, whole
from aptui.shared.errors import UserError

FILE_NAME = "BuilderConfig.ini"


def read_overrides(data: bytes, name: str) -> tuple[list[JobOverride], list[JobOverride], list[str]]:
    """Return what is said of builders, what of jobs, and what cannot be understood, a line each.

    Raises:
        UserError: a line is none of an INI file.
    """
    builders: list[JobOverride] = []
    jobs: list[JobOverride] = []
    doubts: list[str] = []
    for section, node in read_ini(data, name).items():
        kind, _, called = section.partition(" ")
        found = {"builder": builders, "job": jobs}.get(kind.lower())
        if found is None or not called.strip():
            doubts.append(f"{node.where}: section '[{section}]' is neither '[Builder NAME]' nor '[Job KEY]'")
            continue
        try:
            found.append(_override(called.strip(), node))
        except UserError as mistake:
            doubts.append(str(mistake))
    return builders, jobs, doubts


def _override(name: str, node: Node) -> JobOverride:
    keys = {key.lower(): value for key, value in node.value.items()}

    def text(key: str) -> str:
        return plain_text(keys[key]) if key in keys else ""

    return JobOverride(
        name=name,
        fingerprint=text("fingerprint"),
        version=text("version"),
        patterns=tuple(item.value for item in split_texts(keys.get("patterns"))),
        flags=_whole(keys.get("flags")),
        priority=_whole(keys.get("priority")),
        is_critical=truth(keys["critical"]) if "critical" in keys else None,
        params=text("params"),
    )


def _whole(node: Node | None) -> int | None:
    if node is None:
        return None
    try:
        return whole(int(plain_text(node), 0))
    except ValueError:
        raise UserError(f"'{plain_text(node)}' is not a whole number", where=node.where) from None
