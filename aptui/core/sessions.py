"""Sessions: spells of work of the engine, from the start, a save or a checkout to rest; the words for why they began and ended.

Tests: `tests/engine/loop/reporting/test_sessions.py`.
"""

from __future__ import annotations

from enum import StrEnum


class SessionKind(StrEnum):
    """Why a session began."""

    BEFORE = "before"
    START = "start"
    CHECKOUT = "checkout"
    EDIT = "edit"
    CONFIGURATION = "configuration"
    ASKED = "asked"
    RECOVERY = "recovery"


class SessionEnd(StrEnum):
    """How it ended: at rest, stopped before that, or with the death of the engine."""

    RESTED = ""
    STOPPED = "stopped"
    KILLED = "killed"
