"""Converts database rows to records of the protocol, and reads asset ids. This module makes no queries.

Tests: `tests/features/gateway/ws/test_frames.py`.
"""

from __future__ import annotations

import re

from aptui.core.notices import JobChanged
from aptui.features.gateway.wire_codec import RequestMistake
from aptui.features.gateway.wire_records import Asset, JobInfo
from aptui.store.db.schema import uuid_text, wire_asset_id
from aptui.store.queries.reader import JobRow
from aptui.store.queries.serving import Served

_ASSET_ID = re.compile(
    r"\{?([0-9a-fA-F]{8})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{12})\}?(?::([0-9a-fA-F]{1,8}))?"
)


def parse_asset_id(text: str) -> tuple[bytes, int | None]:
    """Return (UUID, sub id or None) of an asset id or a UUID; braces and hyphens are optional.

    Raises:
        RequestMistake: the text is not an asset id.
    """
    found = _ASSET_ID.fullmatch(text.strip())
    if found is None:
        raise RequestMistake(f"'{text[:60]}' is not an asset id", "write '{UUID}:<sub id in hexadecimal>'")
    return bytes.fromhex("".join(found.groups()[:5])), int(found[6], 16) if found[6] else None


def asset_of(row: Served) -> Asset:
    """Return a product as a record."""
    platform, _, path = row.name.partition("/")
    needs = tuple((wire_asset_id(uuid, sub_id), flags) for uuid, sub_id, flags in row.needs)
    former = tuple(wire_asset_id(row.uuid, sub_id) for sub_id in row.legacy)
    return Asset(
        wire_asset_id(row.uuid, row.sub_id), platform, path, uuid_text(row.asset_type), row.size, row.digest.hex(), needs, former
    )


def job_of(row: JobRow, builder: str) -> JobInfo:
    """Return a job as a record."""
    return JobInfo(
        row.job_id, row.run_key, row.source, row.platform, row.job_key, builder, row.status, row.error, row.warnings, row.errors,
        round(1000 * row.duration_s), row.completed_ms, row.is_draft,
    )  # fmt: skip


def job_of_news(notice: JobChanged) -> JobInfo:
    """Return the job of a notice as a record."""
    return JobInfo(
        notice.job_id, notice.run_key, notice.source, notice.platform, notice.job_key, notice.builder, notice.status, notice.error,
        notice.warnings, notice.errors, notice.duration_ms, notice.completed_ms, notice.is_draft,
    )  # fmt: skip
