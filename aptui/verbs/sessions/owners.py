"""Who owns a file: the last pattern of CODEOWNERS that means it, as GitHub and GitLab read it.

Sections of GitLab's are read as if they were one; what a section's heading says of owners is not.

Tests: `tests/verbs/sessions/test_report.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
NO_OWNER = "(nobody)"
_WORD = re.compile(r"(?:\\.|[^\s\\])+")
_MOST_BYTES = 3 << 20
"""GitHub reads no larger one."""


class Owners:
    """The owners that one CODEOWNERS names.

    Args:
        root: the folder that its patterns are relative to.
        rules: (pattern, owners), in the order of the file.
    """

    def __init__(self, root: str, rules: list[tuple[str, tuple[str, ...]]]) -> None:
        self._root = root
        self._rules = [(_Rule(pattern), owners) for pattern, owners in reversed(rules)]
        self._known: dict[str, str] = {}

    def of(self, path: str) -> str:
        """Return the owners of an absolute path, `NO_OWNER` where nobody is named."""
        found = self._known.get(path)
        if found is None:
            rel = os.path.relpath(path, self._root)
            named = next((owners for rule, owners in self._rules if rule.means(rel)), ()) if not rel.startswith("..") else ()
            found = self._known[path] = " ".join(named) or NO_OWNER
        return found


class _Rule:
    """One pattern: as in .gitignore, but `folder/*` means the files right in the folder."""

    def __init__(self, text: str) -> None:
        from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # only whoever asks for owners pays for it

        self._is_flat = text.endswith("/*") and text != "/*"
        self._pattern: GitIgnoreSpecPattern = GitIgnoreSpecPattern(text.removesuffix("/*") if self._is_flat else text)

    def means(self, rel: str) -> bool:
        """Whether it is about this file."""
        if not self._is_flat:
            return self._is_like(rel)
        folder = os.path.dirname(rel)
        return self._is_like(f"{folder}/") and not self._is_like(f"{os.path.dirname(folder)}/")

    def _is_like(self, text: str) -> bool:
        return self._pattern.match_file(text) is not None


def owners_of(project_dir: Path) -> Owners:
    """Read the CODEOWNERS of the repository that a project is in, or of the project's folder.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    root = next((folder for folder in (project_dir, *project_dir.parents) if (folder / ".git").exists()), project_dir)
    file = next((root / place for place in PLACES if (root / place).is_file()), None)
    if file is None:
        raise UserError(f"there is no CODEOWNERS in '{root}'", hint=f"it may lie at {', '.join(PLACES)}")
    try:
        with file.open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"'{file}' cannot be read: {error.strerror}", hint="check its permissions") from error
    if len(text) > _MOST_BYTES:
        raise UserError(f"'{file}' is larger than 3 MiB", hint="name folders instead of files")
    return Owners(str(root), _rules(text.decode("utf-8", "replace"), file))


def _rules(text: str, file: Path) -> list[tuple[str, tuple[str, ...]]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = _WORD.findall(line.strip())
        if not words or words[0].startswith(("#", "[", "^[")):
            continue
        owners = words[1 : next((at for at, word in enumerate(words) if word.startswith("#")), None)]
        if words[0].startswith("!"):
            raise UserError(f"'{words[0]}': exceptions are not known here", where=f"{file}:{number}", hint="a later line decides")
        try:
            _Rule(words[0])
        except ValueError:
            raise UserError(f"'{words[0]}' is no pattern", where=f"{file}:{number}", hint="write it as in .gitignore") from None
        found.append((words[0], tuple(owners)))
    return found
