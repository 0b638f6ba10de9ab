"""Reasons in words: why a job needs a run.

Tests: `tests/core/pipeline/test_configuration.py`.
"""

from __future__ import annotations

from aptui.core import fingerprint
from aptui.core.fingerprint import Manifest
from aptui.core.model import Job, JobState
from aptui.core.pipeline.failures import Failures
from aptui.core.pipeline.jobs import Jobs
from aptui.core.project import Builder
from aptui.core.results import quality

_OF_ANALYSES = frozenset({"rule", "source", "dependency", "companion"})
"""The kinds of inputs that an analysis shares with the jobs that it plans."""
RETRIED = "tried again: it failed before"


class Reasons:
    """Compares what a job is made of with what it was made of."""

    def __init__(self, jobs: Jobs, failures: Failures) -> None:
        self._failures = failures
        self._graph = jobs.graph
        self._memory = jobs.memory
        self._ledger = jobs.ledger
        self._builders = jobs.builders
        self._saved_rules: set[str] = set()

    def reason(self, job: Job, manifest: Manifest) -> str:
        """Return why `job` needs a run over `manifest`."""
        if job.is_forced:
            return job.reason or "asked for"
        failure = job.failure
        if failure is not None and (failure.inputs or failure.settings):
            now = (*manifest, *self._failures.list_settings_now(job))
            return self._explain(job, (*failure.inputs, *failure.settings), now) or RETRIED
        if job.state is JobState.FAILED or (failure is not None and not failure.committed):
            return RETRIED
        if job.is_analysis and not job.inputs and job.fingerprint:
            return self._explain_analysis(job, manifest) or job.reason or "not recorded"
        if not job.inputs:
            return "new source" if not job.fingerprint else job.reason or "not recorded"
        before = quality.as_final(job.inputs)
        if before == quality.as_final(manifest) and job.is_draft and manifest == quality.as_final(manifest) and not job.error:
            return "the final follows its draft"
        return self._explain(job, job.inputs, manifest) or "products are missing"

    def _explain_analysis(self, job: Job, now: Manifest) -> str:
        """Return why an analysis differs, whose own inputs are not stored, by the inputs of the jobs that it planned."""
        planned = (other.inputs for other in job.source.jobs.values() if other.builder == job.builder)
        before = tuple({entry: None for inputs in planned for entry in inputs if entry[0] in _OF_ANALYSES})
        return self._explain(job, before, tuple(entry for entry in now if entry[0] in _OF_ANALYSES)) if before else ""

    def _explain(self, job: Job, before: Manifest, now: Manifest) -> str:
        """Return the inputs in which two manifests of `job` differ, in words, "" if they are equal."""
        before, now = _differing(quality.as_final(before), quality.as_final(now))
        old, new = self._expand(job, before), self._expand(job, now)
        if any(kind == "rule" for kind, _name, _digest in old):  # the stored expansion of the rule is gone
            old, new = before, now
        return fingerprint.explain(old, new)

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
