"""A small O3DE project, and a stand-in for O3DE's own test tools, LyTestTools (§3.8).

The stand-in starts and awaits Asset Processor and its batch program, and reads their output, as these tools do.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from waiting import TIMEOUT_S, until

PLATFORMS = {"Platform linux": {"tags": "tools"}, "Platform pc": {"tags": "tools"}, "Platform ios": {"tags": "mobile"}}
RULES = {"RC txt": {"glob": "*.txt", "params": "copy"}, "RC ini": {"glob": "*.ini", "params": "copy"}}


class O3deProject:
    """An asset root `T` with an engine's settings and a project `AutomatedTesting`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.project, self.logs = root, root / "AutomatedTesting", root / "logs"
        self.cache = self.project / "Cache"
        self.write("engine.json", json.dumps({"engine_name": "o3de"}))
        self.write("AutomatedTesting/project.json", json.dumps({"project_name": "AutomatedTesting"}))
        self.settings({**PLATFORMS, **RULES, "Platforms": {"linux": "enabled"}})
        for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            monkeypatch.setenv(name, str(root / "person"))

    def settings(self, settings: dict[str, object], name: str = "Registry/AssetProcessorPlatformConfig.setreg") -> None:
        """Write a file of the settings registry."""
        self.write(name, json.dumps({"Amazon": {"AssetProcessor": {"Settings": settings}}}))

    def write(self, rel: str, text: str) -> Path:
        """Write a file below the root."""
        path = self.root / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def source(self, rel: str, text: str) -> Path:
        """Write a source of the project."""
        return self.write(f"AutomatedTesting/{rel}", text)

    def product(self, name: str) -> str:
        """Return the content of a product."""
        return (self.cache / name).read_text()

    def arguments(self, *more: str, is_fast: bool = True) -> list[str]:
        """Return the command line that LyTestTools makes, literal quotes included."""
        return [
            *(["--zeroAnalysisMode"] if is_fast else []),
            f'--regset="/Amazon/AzCore/Bootstrap/project_path={self.project}"',
            "--assetroot",
            str(self.root),
            f'--regset="/Amazon/AzCore/Bootstrap/project_cache_path={self.cache}"',
            "--randomListeningPort",
            "--logDir",
            str(self.logs),
            "--scanfolders",
            str(self.project),
            "--noGemScanFolders",
            "--noConfigScanFolders",
            *more,
        ]


@dataclass
class Run:
    """The output of one program run: lines without prefix, and the numbers that LyTestTools extracts from these lines."""

    lines: list[str] = field(default_factory=list)
    numbers: dict[str, int | float | tuple[int, int]] = field(default_factory=dict)


_NUMBERS = {
    "Successes": r"^Number of Assets Successfully Processed: (\d*).",
    "Failures": r"^Number of Assets Failed to Process: (\d*).",
    "Warnings": r"^Number of Warnings Reported: (\d*).",
    "Errors": r"^Number of Errors Reported: (\d*).",
    "Control Port": r"^Control Port: (\d*)",
    "Listening Port": r"^Listening Port: (\d*)",
    "Time": r"^Total Assets Processing Time: (\d*\.?\d*)s",
    "Full Analysis": r"^Builder optimization: (\d*) / (\d*)",
}


def read_output(text: str) -> Run:
    """Return the lines that LyTestTools reads from the standard output."""
    run = Run()
    for line in text.splitlines():
        window, _, content = line.partition(": ")
        if window and content:
            _digest(run, content)
    return run


def read_log(path: Path) -> list[Run]:
    """Return the runs in a log."""
    runs, run, before = [], Run(), ""
    for line in path.read_text().splitlines():
        fields = line.strip().split("~~", 4)
        window, _, content = (fields[4] if len(fields) > 4 else "").partition("~~")
        if window and window != "none":
            _digest(run, content)
        elif window == "none" and "AzFramework File Logging New Run" in before and run.lines:
            runs.append(run)
            run = Run()
        before = line
    return [*runs, run] if run.lines else runs


def _digest(run: Run, content: str) -> None:
    run.lines.append(content)
    for name, pattern in _NUMBERS.items():
        if match := re.match(pattern, content):
            numbers = [float(text) if "." in text else int(text) for text in match.groups()]
            run.numbers[name] = numbers[0] if len(numbers) == 1 else (int(numbers[0]), int(numbers[1]))


class Driven:
    """A program as LyTestTools drives it: `AssetProcessor`, unless another module and its log are named."""

    def __init__(self, project: O3deProject, *more: str, module: str = "asset_processor", log: str = "AP_GUI.log") -> None:
        command = [sys.executable, "-c", f"import sys; from aptui.features.o3de.programs.{module} import main; sys.exit(main())"]
        arguments = project.arguments("--acceptInput", "--platforms", "linux", *more)
        self._log = project.logs / log
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        self._output = (project.root / "output.txt").open("wb")
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=project.root,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._channel: socket.socket | None = None

    def port(self, name: str) -> int:
        """Return a port from the log of the last run."""

        def found() -> list[int]:
            assert self.process.poll() is None, "the program has ended"
            runs = read_log(self._log) if self._log.exists() else []
            return [int(runs[-1].numbers[name])] if runs and name in runs[-1].numbers else []  # type: ignore[arg-type]

        return until(found, f"{name} in the log")[0]

    def until_logged(self, content: str) -> None:
        """Wait for a line in the log of the last run."""

        def is_there() -> bool:
            assert self.process.poll() is None, "the program has ended"
            return content in read_log(self._log)[-1].lines

        until(is_there, content)

    def connect(self) -> None:
        """Connect to the control channel."""
        self._channel = socket.create_connection(("127.0.0.1", self.port("Control Port")), timeout=TIMEOUT_S)

    def ask(self, command: str) -> str:
        """Send a command and return the answer."""
        self.send(command)
        assert self._channel is not None
        return self._channel.recv(4096).decode()

    def send(self, command: str) -> None:
        """Send a command."""
        if self._channel is None:
            self.connect()
        assert self._channel is not None
        self._channel.sendall(command.encode())

    def receive(self) -> str:
        """Return the next message."""
        assert self._channel is not None
        return self._channel.recv(4096).decode()

    def end(self) -> int:
        """Wait until the program has ended, and return its exit code."""
        try:
            return self.process.wait(TIMEOUT_S)
        finally:
            self.close()

    def close(self) -> None:
        """Close all connections, and end the program if it is still running."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._output.close()
