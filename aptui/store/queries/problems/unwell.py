"""Which sources have jobs that are not well, and how many: failed, with errors or warnings, cancelled, waiting.

Two indexes hold these jobs alone, so what is asked costs as much as is not well.

Tests: `tests/tui/data/test_asset_health.py`.
"""

from __future__ import annotations

from aptui.store.queries.reader import SHOWN, Reader

UNWELL = ("failed", "errors", "warnings", "cancelled", "pending")
"""How a job can be that is not well, the worst first; what runs counts as waiting ("pending")."""
_CODES = {word: code for code, word in enumerate(UNWELL)} | {"processing": UNWELL.index("pending")}
_STATE = " ".join(f"WHEN '{state}' THEN {_CODES[shown]}" for state, shown in SHOWN.items() if shown in _CODES)
_SQL = f"""SELECT source, code, COUNT(*) FROM (
    SELECT j.SourcePK source, CASE o.state {_STATE} ELSE CASE WHEN j.Status < 2 THEN {_CODES["pending"]} ELSE 0 END END code
        FROM Jobs j LEFT JOIN aptui_jobs o ON o.job_id = j.JobID WHERE j.Status <> 4
    UNION ALL SELECT SourcePK, CASE WHEN ErrorCount > 0 THEN {_CODES["errors"]} ELSE {_CODES["warnings"]} END
        FROM Jobs WHERE (WarningCount > 0 OR ErrorCount > 0) AND +Status = 4
    UNION ALL SELECT source_id, 0 FROM aptui_analyses
        WHERE (state <> 'completed' OR fingerprint IS NULL) AND state = 'failed'
) GROUP BY source, code"""


def unwell_sources(reader: Reader) -> list[tuple[int, int, int]]:
    """Return (source id, place in `UNWELL`, how many jobs); 0.1 s where 100,000 jobs wait, else a few milliseconds."""
    return reader.ask(_SQL).fetchall()
