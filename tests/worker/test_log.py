"""The log of a failed run names the limits of the sandbox, if these may be the reason for the failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from aptui.core.retry import FailureKind
from aptui.worker.builder_run import failure
from aptui.worker.log import RunLog

pytestmark = pytest.mark.real


def has_note(output: str, error: str, kind: str) -> bool:
    log = RunLog("tool")
    if output:
        log.write(1, output)
    failure(log, error, kind=kind)
    return any("sandboxed" in record.text for record in log.records())


@pytest.mark.parametrize(
    ("output", "error", "kind", "is_noted"),
    [
        ("", "x.json:2:1: Expecting value", FailureKind.ERROR, False),
        ("", "buffer 'x.bin' is missing", FailureKind.ERROR, False),
        ("a.frag:3: error: undeclared identifier", "command exited with status 1", "exit 1", False),
        ("", "MemoryError: out of memory (limit 512 MiB)", FailureKind.MEMORY, False),
        ("", "command exited with status 3", "exit 3", True),
        ("sh: tool: not found", "command exited with status 127", "exit 127", True),
        ("curl: (6) Could not resolve host: example.org", "command exited with status 6", "exit 6", True),
        ("cannot open display :0", "command exited with status 1", "exit 1", True),
        ("", "PermissionError: [Errno 13] Permission denied: '/x'", FailureKind.ERROR, True),
        ("", "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/folder/x'", FailureKind.ERROR, True),
        ("", "FileNotFoundError: [Errno 2] No such file or directory: 'HERE/x.bin'", FailureKind.ERROR, False),
    ],
)
def test_sandbox_is_mentioned_only_as_a_possible_reason(
    output: str, error: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_noted: bool
) -> None:
    monkeypatch.setenv("APTUI_SANDBOX", "on")

    assert has_note(output, error.replace("HERE", str(tmp_path)), kind) is is_noted


def test_failed_run_outside_a_sandbox_does_not_mention_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APTUI_SANDBOX", "off")

    assert not has_note("", "command exited with status 3", "exit 3")
