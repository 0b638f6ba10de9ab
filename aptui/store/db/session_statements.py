"""The SQL that ends a session and lets old ones go; `statements` has it executed, within the transaction of a rest.

The engine says when a session began and why; what ran in it is found by run keys: all that are higher than those of the
session before. So nothing is written while it lasts, and the runs of an engine that was killed are found by the next one.

Tests: `tests/store/history/test_sessions.py`.
"""

from __future__ import annotations

PRUNED_AT_ONCE = 5_000
"""Runs: some milliseconds of writing, which a save may have to wait for."""
_MOST_REASONS = 1_000

_LAST = "(SELECT MAX(session_id) FROM aptui_sessions)"
_KEY_BEFORE = f"COALESCE((SELECT MAX(run_key) FROM aptui_sessions WHERE session_id < {_LAST}), 0)"
_FAILED = 1
_SIZE = """(SELECT COALESCE(SUM(o.size), 0) FROM Products p JOIN aptui_products o ON o.product_id = p.ProductID
    WHERE p.JobPK = j.JobID)"""
_FAILING = """(SELECT COUNT(*) FROM Jobs j JOIN aptui_jobs o ON o.job_id = j.JobID WHERE j.Status <> 4 AND o.state = 'failed')
    + (SELECT COUNT(*) FROM aptui_analyses WHERE (state <> 'completed' OR fingerprint IS NULL) AND state = 'failed')"""
_MINE = f"aptui_session_runs r WHERE r.session_id = {_LAST}"

PUT_SESSION = (
    """INSERT INTO aptui_sessions SELECT COALESCE((SELECT MAX(session_id) FROM aptui_sessions), 0) + 1, ?, ?, ?, ?, ?, ?,
    MAX(COALESCE((SELECT MAX(JobRunKey) FROM Jobs), 0), COALESCE((SELECT MAX(run_key) FROM aptui_sessions), 0)),
    0, 0, 0, 0, 0, ?, ?, 0""",
    # 0 for a beginning: nobody saw it, so it is where the first of its runs began
    f"""UPDATE aptui_sessions SET
    started_ms = COALESCE((SELECT MIN(r.completed_ms - r.duration_ms) FROM Jobs j JOIN aptui_runs r ON r.job_id = j.JobID
        AND r.run_key = j.JobRunKey WHERE j.JobRunKey > {_KEY_BEFORE}), 0),
    ended_ms = COALESCE((SELECT MAX(r.completed_ms) FROM Jobs j JOIN aptui_runs r ON r.job_id = j.JobID
        AND r.run_key = j.JobRunKey WHERE j.JobRunKey > {_KEY_BEFORE}), 0)
    WHERE session_id = {_LAST} AND started_ms = 0""",
    f"""INSERT OR REPLACE INTO aptui_session_runs SELECT j.JobID, s.session_id, r.outcome, r.origin <> '', r.duration_ms,
    r.completed_ms - s.started_ms, {_SIZE},
    EXISTS (SELECT 1 FROM aptui_drafts d WHERE d.job_id = j.JobID)
    FROM Jobs j JOIN aptui_runs r ON r.job_id = j.JobID AND r.run_key = j.JobRunKey
    JOIN aptui_sessions s ON s.session_id = {_LAST} WHERE j.JobRunKey > {_KEY_BEFORE} ORDER BY j.JobID""",
    f"""UPDATE aptui_sessions SET
    (jobs_run, jobs_failed, restored, work_ms) = (SELECT COUNT(*), COALESCE(SUM(outcome = {_FAILED}), 0),
        COALESCE(SUM(is_restored), 0), COALESCE(SUM(duration_ms * (is_restored = 0)), 0) FROM {_MINE}),
    jobs_gone = (SELECT COUNT(*) FROM aptui_gone_jobs WHERE gone_ms >= started_ms),
    failing = {_FAILING},
    detail = CASE detail WHEN '' THEN COALESCE((SELECT r.reason FROM (SELECT JobID, JobRunKey FROM Jobs
        WHERE JobRunKey > {_KEY_BEFORE} ORDER BY JobRunKey LIMIT {_MOST_REASONS}) j JOIN aptui_runs r
        ON r.job_id = j.JobID AND r.run_key = j.JobRunKey GROUP BY r.reason ORDER BY COUNT(*) DESC, r.reason LIMIT 1), '')
        ELSE detail END
    WHERE session_id = {_LAST}""",
    # in which nothing happened: what was looked at was as it was
    f"""DELETE FROM aptui_sessions WHERE session_id = {_LAST} AND session_id > 1 AND jobs_run = 0 AND jobs_gone = 0
    AND kind NOT IN ('checkout', 'configuration')
    AND failing = (SELECT failing FROM aptui_sessions WHERE session_id < {_LAST} ORDER BY session_id DESC LIMIT 1)""",
)
"""What `put_session` comes to; only the first statement takes its parameters."""

_PART = f"SELECT job_id FROM aptui_session_runs WHERE session_id = ? ORDER BY job_id LIMIT {PRUNED_AT_ONCE}"
PRUNE_SESSION = (
    """INSERT OR IGNORE INTO aptui_sessions VALUES (0, 0, 0, 'before', '', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0)""",
    f"""INSERT OR REPLACE INTO aptui_session_runs SELECT r.job_id, 0, r.outcome, r.is_restored, r.duration_ms,
    r.ended_after_ms + s.started_ms, r.size, r.is_draft
    FROM aptui_sessions s JOIN aptui_session_runs r ON r.session_id = s.session_id
    WHERE s.session_id = ? AND r.job_id IN ({_PART}) AND r.job_id IN (SELECT JobID FROM Jobs)""",
    f"DELETE FROM aptui_session_runs WHERE session_id = ? AND job_id IN ({_PART})",
    """DELETE FROM aptui_gone_jobs WHERE gone_ms < (SELECT ended_ms FROM aptui_sessions WHERE session_id = ?)
    AND NOT EXISTS (SELECT 1 FROM aptui_session_runs WHERE session_id = ?)""",
    "DELETE FROM aptui_sessions WHERE session_id = ? AND NOT EXISTS (SELECT 1 FROM aptui_session_runs WHERE session_id = ?)",
)
"""What `prune_session` comes to; each takes the id as often as it names a parameter."""
