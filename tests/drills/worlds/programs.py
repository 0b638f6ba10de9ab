"""The real programs over one project: a live engine, verbs that run beside the engine, and kills of these processes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from disk_project import Project

_SETTLE_S = 900.0
"""Timeout (seconds) of each program. A few dozen jobs need less time, even on a machine under load.

If a program exceeds the timeout, it is assumed to hang, and its stacks are printed.
"""
_START_S = 300.0


class Programs:
    """One project and the programs that work on it.

    `before` is code that the engine's process runs first, to break a rule on purpose.
    """

    def __init__(self, project: Project, seed: int, before: str = "") -> None:
        self.project, self.random, self._before = project, random.Random(seed), before

    @contextmanager
    def engine(self, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """Run an engine in a separate process until the end of the block. The process first runs the code `before`."""
        words = ["--project", str(self.project.root), "serve"]
        code = f"import sys\n{self._before}\n{before}\nfrom aptui.cli.main import main\nsys.exit(main({words!r}))"
        with self.project.root.with_name("engine.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def wait_for_engine(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the engine answers and is idle.

        Raises:
            AssertionError: no engine answers.
        """
        deadline = time.monotonic() + _START_S
        while ", idle," not in self.aptui("status").stdout:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the engine does not come up: {process.returncode}")
            time.sleep(0.1)

    def aptui(self, *words: str, kill_after_s: float = 0.0) -> subprocess.CompletedProcess[str]:
        """Run a verb to its end, or until its processes are killed; a hanging verb prints its stacks."""
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", "aptui", "--project", str(self.project.root), *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            output, errors = process.communicate(timeout=kill_after_s or _SETTLE_S)
        except subprocess.TimeoutExpired:
            if not kill_after_s:
                process.send_signal(signal.SIGABRT)
                time.sleep(1.0)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            if not kill_after_s:
                raise AssertionError(f"{' '.join(words)} hangs: {errors[-3000:]}") from None
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def kill(self, victim: str, process: subprocess.Popen[bytes]) -> None:
        """Kill the engine, or the engine with all its processes, or one child of the engine (if any).

        A child is a worker, or the helper process that ends the processes that workers leave behind.
        """
        workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        if victim == "worker":
            for pid in workers and [self.random.choice(workers)]:  # empty if an idle engine has stopped all its workers
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif victim == "family":
            os.killpg(process.pid, signal.SIGKILL)
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            os.kill(process.pid, signal.SIGKILL)


def keep(folder: Path) -> str:
    """Copy the project, the logs of its engines and the user's folders for a later examination; return the path of the copy."""
    copied_to = tempfile.mkdtemp(prefix="drill-kept-")
    with suppress(shutil.Error):  # `copytree` cannot copy sockets
        shutil.copytree(folder, copied_to, symlinks=True, dirs_exist_ok=True)
    return copied_to
