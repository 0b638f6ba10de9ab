"""Check whether a process has ended."""

from pathlib import Path


def has_ended(pid: int | str) -> bool:
    """Return whether a process is gone or a zombie: the test process adopts orphans, which stay zombies after their end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
