"""The request for an earlier run of a job, and its answer in the engine.

Tests: `tests/features/sharing/test_restore_verb.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from aptui.link.port import FeatureRequest

if TYPE_CHECKING:
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.link.port import Request


class Restore(FeatureRequest, frozen=True):
    """Restore the products of an earlier run of a job from this machine's store. Answered with {} when the job is queued."""

    wire_name: ClassVar = "restore"
    job_id: int = 0
    run_key: int = 0


class RestoreRequests:
    """Answers `Restore` at once."""

    def __init__(self, live: EngineSupervisor) -> None:
        self._live = live

    def take(self, request: Request, verb: Restore) -> None:
        """Queue the job with the products of that run.

        Raises:
            KnownError: the engine does not work, or the products are not stored.
        """
        self._live.working_engine().restore(verb.job_id, verb.run_key)
        request.answer()

    def forget_client(self, client: int) -> None:
        """Do nothing: no request waits."""
