"""Marks jobs as failed: after a failed run, or without a run if a job can never succeed.

Tests: `tests/core/pipeline/test_jobs.py`.
"""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from aptui.core import rows
from aptui.core.fingerprint import Manifest
from aptui.core.machine import Trigger
from aptui.core.model import SETTLED, Job, JobState, RunKey
from aptui.core.orders import Outcome
from aptui.core.pipeline.jobs import PipelinePart
from aptui.core.project import SHARE_OF_MEMORY, Builder, RetryFailed
from aptui.core.retry import CHECK, ENDLESS, EXIT, CommittedRun, Entry, FailureKind, JobFailure, RetryRule

# A setting such as a time limit, a check or a path of the sandbox does not affect products, so fingerprints do not cover the
# setting. But the setting can make a job fail. A failed job therefore stores the settings that may have caused the failure, as
# entries of a manifest. The job runs again if one of these entries differs when the job is planned again.
# `Failures._list_settings` is the only place that names these settings.

_OUT_OF_MEMORY = re.compile(r"memory|alloc|mmap|start new thread", re.IGNORECASE)
"""Matches messages of programs and libraries that could not get memory."""
_FIRST_SIGNAL_STATUS = 129


def _make_entry(kind: str, value: str) -> Entry:
    return (kind, value, value)


def _memory(builder: Builder) -> str:
    if builder.memory_limit_bytes == SHARE_OF_MEMORY:
        return "auto"
    return f"{builder.memory_limit_bytes / (1 << 20):g} MiB" if builder.memory_limit_bytes else "none"


def _retries(rule: RetryRule | None, kind: str) -> str:
    return f"{rule.times} times" if rule is not None and rule.covers(kind) else "never"


def _is_of_memory(kind: str, error: str) -> bool:
    """Whether a run may have failed because it could not get memory."""
    if kind.startswith(EXIT) and int(kind.removeprefix(EXIT)) >= _FIRST_SIGNAL_STATUS:
        return True
    return kind in (FailureKind.MEMORY, FailureKind.CRASH) or _OUT_OF_MEMORY.search(error) is not None


class Failures(PipelinePart):
    """Moves jobs to their failed state and records why they failed."""

    def record(
        self,
        job: Job,
        text: str,
        now_ms: int,
        *,
        kind: str | None = None,
        keeps_claims: bool = False,
        drops_products: bool = False,
    ) -> None:
        """Record why `job`, which is in its failed state already, failed.

        Args:
            now_ms: when the job failed.
            kind: the kind of failure (`core.retry`), None if no setting can have made the job fail.
            keeps_claims: whether the job still claims its product names, so that other jobs with these names may conflict with it.
        """
        job.error, job.flaky, job.is_forced, job.stale_count = text, "", False, 0
        builder = self._builders[job.builder]
        committed = job.failure.committed if job.failure is not None else None
        inputs = job.planned_inputs if job.planned is not None else ()
        settings = () if kind is None else self._list_settings(job, kind)
        job.failure = JobFailure(FailureKind.OBSTACLE if kind is None else kind, inputs, settings, committed)
        if not job.is_analysis:
            self._reports.counts["run"] += 1
            job.first_fail_ms = job.first_fail_ms or now_ms
            job.first_fail_log = job.first_fail_log or job.log_file
            job.last_fail_ms, job.last_fail_log = now_ms, job.log_file
            job.failure_cause = self._cause_of(job)
            self._put_run(job, text, now_ms)
            drops_products = drops_products or builder.deletes_products_on_failure
            gone = [product.name for product in job.products] if drops_products else []
            self._jobs.delete_lost(job)
            if gone:
                self._jobs.delete_products(job)
                job.fingerprint = 0
                job.failure = replace(job.failure, committed=None)
                self._ledger.drop("drop_products", (job.id,))
                if job.is_draft:
                    self._ledger.drop("drop_draft", (job.id,))
            if not keeps_claims:
                self._todo.extend((other, True) for other in self._jobs.conflicts.release_names(job, gone))
        else:
            siblings = [other for other in job.source.jobs.values() if other.builder == job.builder]
            self._todo.extend((other, False) for other in siblings if other.state not in SETTLED or other.is_forced)
            # In a clean build a failing analysis would create no jobs, so no product names would be claimed. For the same
            # result here, the failed jobs of this analysis give up their claims.
            for other in siblings:
                if other.state is JobState.FAILED and self._jobs.conflicts.has_claims(other):
                    self.refuse(other, text)
        self._reports.counts["failed"] += 1
        self._jobs.save(job)
        self._reports.report(job, is_settled=True)
        self._jobs.note_settled(job, is_changed=True)

    def _list_settings(self, job: Job, kind: str) -> Manifest:
        """Return the settings that may have made a run fail in this way (`JobFailure.kind`), but do not affect products."""
        project, builder = self._project, self._builders[job.builder]
        if kind == CHECK:
            checks = (check for check in project.checks if check.wants(job.source.rel))
            return tuple(("check", check.name, msgspec.json.encode(check).decode()) for check in checks)
        if kind == ENDLESS:
            return (_make_entry("undeclared reads", str(builder.undeclared_reads or project.undeclared_reads)),)
        limits = dict(project.resources)
        entries = [*project.run_settings, *(("resource", name, str(limits.get(name, 0))) for name in builder.resources)]
        if builder.traces_reads:
            entries.append(_make_entry("read tracing", "on"))
        if kind == FailureKind.TIMEOUT:
            limit_s = builder.analyse_limit_s if job.is_analysis else builder.process_limit_s
            entries.append(_make_entry("time limit", f"{limit_s:g} s"))
        if _is_of_memory(kind, job.error):
            entries += [_make_entry("memory limit", _memory(builder)), *project.memory_settings]
        return (*entries, _make_entry("retry", _retries(builder.retry or project.retry, kind)))

    def list_settings_now(self, job: Job) -> Manifest:
        """Return the current settings that may have caused the failure of `job`; () = no setting can cause it."""
        return self._list_settings(job, job.failure.kind) if job.failure is not None and job.failure.settings else ()

    def is_by_other_settings(self, job: Job) -> bool:
        """Whether a setting that may have caused the failure of `job` has changed since the failure."""
        return job.failure is not None and self.list_settings_now(job) != job.failure.settings

    def may_retry(self, job: Job) -> bool:
        """Whether a scan with retries runs the failed `job` again, although its inputs and settings did not change."""
        is_always = self._project.retry_failed is RetryFailed.ALWAYS
        if job.failure is None or job.failure.kind == FailureKind.OBSTACLE:
            return is_always or not self._jobs.conflicts.loses_again(job)
        return is_always and not job.failure.is_expensive

    @staticmethod
    def remember_run(job: Job) -> None:
        """Keep the description of the run that made the products of `job`, because a failed run is about to replace it."""
        if job.failure is None and job.fingerprint:
            committed = CommittedRun(job.warnings, job.errors, job.duration_ms, job.completed_ms, job.log_file, job.last_log_ms)
            job.failure = JobFailure(committed=committed)

    @staticmethod
    def restore_run(job: Job) -> None:
        """Restore the description that `remember_run` kept: `job` needs no run, because its products fit its present inputs."""
        committed = job.failure.committed if job.failure is not None else None
        if committed is not None:
            job.warnings, job.errors, job.duration_ms = committed.warnings, committed.errors, committed.duration_ms
            job.completed_ms, job.log_file, job.last_log_ms = committed.completed_ms, committed.log_file, committed.log_ms
        job.failure, job.error, job.failure_cause = None, "", ""
        job.first_fail_ms, job.first_fail_log, job.last_fail_ms, job.last_fail_log = 0, "", 0, ""

    def try_again(self, job: Job, text: str, now_ms: int) -> None:
        """Queue `job` again after a failed run that a rule retries, and add the run to its history."""
        self._jobs.feed(job, Trigger.RETRY)
        if not job.is_analysis:
            self._put_run(job, text, now_ms)
        self._ready.push(job)
        self._jobs.save(job)
        self._reports.report(job)

    def _put_run(self, job: Job, text: str, now_ms: int) -> None:
        version = self._builders[job.builder].version
        self._ledger.put(
            "put_run",
            (
                job.id, job.run_key, now_ms, job.duration_ms, int(Outcome.FAILED), job.reason, text, job.log_file, job.planned or 0,
                version, b"", self._step_of(job), "",
            ),
        )  # fmt: skip

    def _step_of(self, job: Job) -> str:
        """Return the entry for a failed run in the history of its job, as a step (`core.rows.RunStep`)."""
        if not job.planned:
            return ""
        known = rows.moment(job.inputs, job.products)
        return rows.make_step(known, rows.RunStep(job.planned_inputs, known.products))

    def _cause_of(self, job: Job) -> str:
        """Return the name of a failed dependency, which is shown as the cause of the failed job; "" if no dependency failed."""
        for dependency in job.plan.job_dependencies if job.plan else ():
            other = self._graph.find_job(dependency)
            if isinstance(other, Job) and other.state is JobState.FAILED:
                return other.label
        return ""

    def refuse(self, job: Job, text: str) -> None:
        """Fail a job without a run, because its inputs can never work."""
        is_known = job.state is JobState.FAILED and job.error == text
        if is_known and not job.is_forced:
            return
        job.set_reason("its source or its declaration has an error")
        if is_known:  # the job was forced to run, for example because it lost a product, and its row must be saved
            job.is_forced = False
            self._jobs.save(job)
            return
        job.planned = None
        self.give_up(job, text)

    def give_up(self, job: Job, text: str, kind: str | None = None) -> None:
        """Fail a job that cannot succeed with its present inputs. `kind`: see `record`.

        The job keeps its planned fingerprint. While its inputs stay the same, it runs again only on request, as a retry, or after a
        change of settings.
        """
        self.remember_run(job)
        self._jobs.feed(job, Trigger.REFUSE)
        # Without a new run key, this failure would replace the history entry and the log of the job's last run.
        if not job.is_analysis:
            job.run_key = RunKey(self._ledger.next_run_keys(1)[0])
        job.warnings, job.errors = 0, 1
        self._reports.write_log(job, (), text)
        self.record(job, text, 0, kind=kind)
