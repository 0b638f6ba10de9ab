"""The orphan reaper: a shell that waits for the engine's death, then ends what its workers left running.

A worker dies with the engine (`die_with_parent`), but the kernel does not pass that on: the commands that it had started
would go on, and write into folders that the next engine gives to others. They are known by a variable in their environment.
An engine that ends in good order ends its reaper first; that one has nothing to do then.

Tests: `tests/engine/pool/test_pool.py`.
"""

from __future__ import annotations

import os
import subprocess

_SCRIPT = """
trap '' HUP INT TERM
while read -r _; do :; done
for _ in 1 2 3 4 5 6 7 8 9 10; do
  found=$(grep -Fls -e "$1" /proc/[0-9]*/environ)
  [ -n "$found" ] || exit 0
  for file in $found; do
    pid=${file#/proc/}
    kill -KILL "${pid%/environ}" 2>/dev/null
  done
done
"""


class OrphanReaper:
    """Waits for the end of this process.

    Args:
        mark: the processes that are ended have it in their environment; the reaper itself has no environment to speak of.
    """

    def __init__(self, mark: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "aptui-warden", mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
                cwd="/",
            )
        except OSError:
            pass  # without a shell, what a killed engine leaves behind ends by itself, or by hand

    @property
    def pid(self) -> int:
        """Its process, 0 when there is none."""
        return self._process.pid if self._process else 0

    def close(self) -> None:
        """End it; the engine has ended its workers itself."""
        if self._process:
            self._process.kill()
            self._process.wait()
            if self._process.stdin:
                self._process.stdin.close()
            self._process = None
