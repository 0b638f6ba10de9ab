"""Why a file has no jobs: an ignore rule, no builder's pattern, another file that wins its path, no scan folder; for `why`.

Tests: `tests/test_linear_patterns.py`.
"""

from __future__ import annotations

import os
import re
from typing import Any

from aptui.cli.naming import NamedPath
from aptui.cli.opening import OpenedProject, all_builders
from aptui.config.load import tree
from aptui.config.model import Config
from aptui.config.own_files import is_own
from aptui.core.patterns import PatternSet, ignore_matcher
from aptui.core.project import Builder, Pattern
from aptui.core.settings import is_settings
from aptui.shared.errors import KnownError
from aptui.shared.printing import line

_NEAR = 3
_LEAST_LIKENESS = 0.6


def outside(word: str, config: Config) -> str:
    """Return the sentence for a file that exists but lies in no scan folder, "" for one that does not exist."""
    if not os.path.lexists(word):
        return ""
    folders = ", ".join(f"'{folder.path}'" for folder in config.project.scan_folders)
    return f"it is in no scan folder; these are {folders}"


def explain(named: NamedPath, project: OpenedProject) -> dict[str, Any]:
    """Return what is known of a file that exists and has no jobs."""
    answer: dict[str, Any] = {"path": named.rel, "scan_folder": named.root}
    if os.path.isdir(named.path):
        return {**answer, "is": "folder", "said": "it is a folder; 'aptui jobs --filter source:FOLDER/*' lists the jobs in it"}
    if is_settings(named.rel):
        return {**answer, "is": "settings", "said": "it holds settings of its folder; 'aptui explain' shows what they adjust"}
    if is_own(named.path, project.config):
        return {**answer, "is": "own", "said": "aptui itself keeps or wrote it, so it is not a source"}
    rule = find_ignore_rule(named.rel, project.config)
    if rule:
        return {**answer, "is": "ignored", "said": f"it is ignored by {rule}"}
    builders = all_builders(project.config)
    patterns = PatternSet([builder.patterns for builder in builders])
    wanting = [builders[index] for index in patterns.builders_for(named.rel, named.root)]
    if not wanting:
        near = _near(named.rel, builders)
        return {**answer, "is": "unwanted", "said": "no builder handles it: it matches none of their patterns", "near": near}
    return {
        **answer,
        "is": "not yet" if _has_platform(named, wanting, project.config) else "unwanted",
        "said": _explain_wanted(named, wanting, project),
    }


def _has_platform(named: NamedPath, builders: list[Builder], config: Config) -> bool:
    enabled = {platform for folder in config.project.scan_folders if folder.path == named.root for platform in folder.platforms}
    return any(enabled & set(builder.platforms) for builder in builders)


def _explain_wanted(named: NamedPath, builders: list[Builder], project: OpenedProject) -> str:
    names = ", ".join(f"'{builder.name}'" for builder in builders)
    if not _has_platform(named, builders, project.config):
        return f"builder {names} matches it, but works for no platform that is enabled for its scan folder"
    if project.database.file(named.rel) is None:
        return f"builder {names} matches it, but it was not there at the last scan; run 'aptui batch'"
    return f"builder {names} matches it, but it has no job: its analysis found nothing to do, or has not run"


# --------------------------------------------------------------------------------------------------------------- ignored


def find_ignore_rule(rel: str, config: Config) -> str:
    """Return the rule that ignores a path or a folder above it, "" for none."""
    is_ignored = ignore_matcher(config.project.ignore_regex)
    parts = rel.split("/")
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    if not any(is_ignored(path) for path in above):
        return ""
    found = _rule(above, config)
    return f"the rule {found}" if found else "an ignore rule"


def _rule(paths: list[str], config: Config) -> str:
    """Read the layers again to find the rule; the compiled configuration has only what they come to together."""
    from aptui.config.yaml import scalars

    try:
        rules = tree(config.project_dir).get("ignore")
    except KnownError:  # it was changed since
        return ""
    for node in rules.value if rules is not None else ():
        if any(re.fullmatch(scalars.ignore_regex(node), path, re.IGNORECASE) for path in paths):
            shown = node.value if isinstance(node.value, str) else node.plain()
            return f"{shown!r} ({node.where})"
    return ""


# ------------------------------------------------------------------------------------------------------------------ near


def _near(rel: str, builders: tuple[Builder, ...]) -> list[str]:
    """Return patterns that a small change of the name or the pattern would make match, the likeliest first."""
    found = []
    for builder in builders:
        for pattern in builder.patterns:
            likeness = _likeness(rel.lower(), pattern)
            if likeness >= _LEAST_LIKENESS:
                found.append((-likeness, f"'{line(pattern.text)}' of builder '{line(builder.name)}'"))
    return [text for _likeness_, text in sorted(found)[:_NEAR]]


def _likeness(rel: str, pattern: Pattern) -> float:
    """Return 0 … 1: the last parts match and the folders do not, or the extensions look alike."""
    from difflib import SequenceMatcher

    name, wanted = rel.rpartition("/")[2], pattern.text.lower().rpartition("/")[2]
    extension, wanted_extension = os.path.splitext(name)[1], os.path.splitext(wanted)[1]
    if extension and extension == wanted_extension:
        return 0.95
    if not extension or not wanted_extension or set(wanted_extension) & set("*?[("):
        return SequenceMatcher(None, name, wanted).ratio()
    return SequenceMatcher(None, extension[1:], wanted_extension[1:]).ratio()
