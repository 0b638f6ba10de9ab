"""Reasons in words: why a job needs a run.

Tests: `tests/core/pipeline/test_configuration.py`.
"""

from __future__ import annotations

from aptui.core import fingerprint
from aptui.core.fingerprint import Manifest
from aptui.core.model import Job, JobState
from aptui.core.pipeline.jobs import Jobs
from aptui.core.project import Builder
from aptui.core.results import quality


class Reasons:
    """Compares what a job is made of with what it was made of."""

    def __init__(self, jobs: Jobs) -> None:
        self._graph = jobs.graph
        self._memory = jobs.memory
        self._ledger = jobs.ledger
        self._builders = jobs.builders
        self._saved_rules: set[str] = set()

    def reason(self, job: Job, number: int, manifest: Manifest) -> str:
        """Return why `job` needs a run over `manifest`, whose fingerprint is `number`."""
        if job.is_forced:
            return job.reason or "asked for"
        if not job.inputs:
            if job.last_fail_ms:  # its state says so no more when it had to wait for an analysis
                is_same = job.planned == number or (job.state is JobState.FAILED and job.planned is None)
                return "tried again: it failed before" if is_same else "something it is made of changed since it failed"
            return "new source" if not job.fingerprint else job.reason or "not recorded"
        before, now = quality.as_final(job.inputs), quality.as_final(manifest)
        if before == now and job.is_draft and manifest == now and not job.error:
            return "the final follows its draft"
        before, now = _differing(before, now)
        old, new = self._expand(job, before), self._expand(job, now)
        if any(kind == "rule" for kind, _name, _digest in old):  # nobody knows any more what it stood for
            old, new = before, now
        difference = fingerprint.explain(old, new)
        return difference or ("tried again: it failed before" if job.state is JobState.FAILED else "products are missing")

    def _expand(self, job: Job, manifest: Manifest) -> Manifest:
        """Put in place of a rule's entry what it stands for, so that a difference names the very key."""
        if not manifest or manifest[0][0] != "rule":
            return manifest
        builder = self._builders.get(job.builder)
        expanded: list[tuple[str, str, str]] = []
        for entry in manifest:
            if entry[0] != "rule":
                expanded.append(entry)
                continue
            now = self._graph.rule(builder, job.platform) if builder and job.platform else None
            stored = now[1] if now and now[0] == entry else fingerprint.load(self._memory.archive.state("rule:" + entry[2]))
            expanded.extend(stored or (entry,))
        return tuple(expanded)

    def save_rule(self, builder: Builder, platform: str) -> None:
        """Save what the rule's entry of a job's manifest stands for, so that a later engine can name the key that differs."""
        if not platform:
            return
        entry, expansion = self._graph.rule(builder, platform)
        if entry[2] not in self._saved_rules:
            self._saved_rules.add(entry[2])
            self._ledger.put("put_state", ("rule:" + entry[2], fingerprint.dump(expansion)))


def _differing(before: Manifest, now: Manifest) -> tuple[Manifest, Manifest]:
    """Return what only one of two manifests has, which are a few entries of many."""
    same = set(before).intersection(now)
    return tuple(entry for entry in before if entry not in same), tuple(entry for entry in now if entry not in same)
