"""The processor's own log, `AP_Batch.log` or `AP_GUI.log`: records of what was said, in the reference's form.

What a record is, and that a full log is rolled, is `store.joblog`'s; here is which of them a run has, and that a disk that fails
costs the log alone.
"""

from __future__ import annotations

from pathlib import Path

from aptui.core.notices import LogLevel, LogRecord
from aptui.shared.errors import HostError
from aptui.store.logs.joblog import EngineLog

BATCH, LIVE = "AP_Batch", "AP_GUI"
"""The names of the logs, without `.log`."""


class ProgramLog:
    """The log of one run.

    Args:
        folder: where logs are.
        base: `BATCH` or `LIVE`.
        started_ms: when the run began.
    """

    def __init__(self, folder: Path, base: str, started_ms: int) -> None:
        self.trouble = ""
        """Why nothing is written any more, "" = it is."""
        self._log: EngineLog | None = None
        try:
            self._log = EngineLog(folder, base, started_ms)
        except HostError as error:
            self.trouble = str(error)

    def append(self, level: LogLevel, window: str, text: str, time_ms: int) -> None:
        """Write one record a line of `text`."""
        if self._log is None:
            return
        try:
            self._log.append(LogRecord(level, window, text, time_ms))
        except HostError as error:
            self.trouble = str(error)
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._log is not None:
            self._log.close()
            self._log = None
