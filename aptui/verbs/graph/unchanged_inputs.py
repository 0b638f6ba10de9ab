"""Whether a job would be made today of what its last run was made of: the configuration of its builder, and every file's bytes.

Products of other jobs that it waits for are taken for what they were.

Tests: `tests/verbs/results/test_rebuild.py`.
"""

from __future__ import annotations

from aptui.config.model import Config
from aptui.core.fingerprint import MISSING, combine, file_digest, rule_entries
from aptui.core.model import Digest, Job
from aptui.core.project import Builder
from aptui.engine.loop.opening import with_intermediates
from aptui.store.queries.reader import Reader
from aptui.verbs.opening import os_path
from aptui.worker.files import FileChanged, hash_file

_FILES = frozenset({"source", "dependency", "companion", "discovered"})


class UnchangedInputs:
    """Answers for the jobs of one database; each file is read once."""

    def __init__(self, config: Config, database: Reader) -> None:
        self._project, self._database = with_intermediates(config.project, str(config.cache_dir)), database
        self._platforms = {platform.id: platform for platform in self._project.platforms}
        self._roots: dict[int, str] = dict(database.ask("SELECT ScanFolderID, ScanFolder FROM ScanFolders").fetchall())
        self._digests: dict[str, str] = {}

    def are_those_of(self, job: Job, builder: Builder, root: str) -> bool:
        """Whether builder, source (in the scan folder at `root`) and files of a job are those of its last run."""
        platform = self._platforms.get(job.platform)
        if platform is None:
            return False
        rule = "rule", builder.name, combine(rule_entries(builder, platform, debug_output=self._project.debug_output))
        files = [
            (f"{root}/{job.source.rel}" if kind == "source" else self._path(name), digest)
            for kind, name, digest in job.inputs
            if kind in _FILES and "*" not in name
        ]
        return rule in job.inputs and bool(files) and all(self._digest(path) == digest for path, digest in files)

    def _path(self, name: str) -> str:
        fact = None if name.startswith("/") else self._database.file(name)
        return f"{self._roots[fact.scan_folder]}/{fact.rel}" if fact is not None else name if name.startswith("/") else ""

    def _digest(self, path: str) -> str:
        if path not in self._digests:
            self._digests[path] = _digest_of(path)
        return self._digests[path]


def _digest_of(path: str) -> str:
    try:
        return file_digest(Digest(hash_file(os_path(path), sees_through=True)[0][0])) if path else MISSING
    except (FileChanged, OSError):
        return MISSING
