"""The sandbox of workers: bubblewrap starts them, and they see only the files that builders need.

Workers can read the system's programs and libraries, Python and its packages, folders of PATH, the project with its scan folders
and its cache, and the `sandbox_paths`. They can write only to the staging folder, and to empty temporary and home folders in
memory. There is no network. Workers cannot read the memory and environment of other processes. The sandbox does not prevent signals
to other processes of the same user, or reading the system's files that all users can read. A namespace of process ids would prevent
signals, but the engine has to know the process ids of workers, which name workspaces and identify left-over processes.

O3DE projects have no sandbox: their Python builders run the O3DE engine's own code, which writes to the user's folders.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

import aptui
from aptui.config.configuration import SANDBOX_VARIABLE, Config
from aptui.config.dirs import own_folder
from aptui.shared.errors import HostError

PROGRAM = "bwrap"
VARIABLE = SANDBOX_VARIABLE
"""Environment variable of programs in a sandbox; its value is `on`."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/sys")
_TEMP = "/tmp"  # noqa: S108  # a private folder in memory
_PROBE_TIMEOUT_S = 10.0
_PROBE_VALID_S = 10.0
"""Time (seconds) for which a successful test start of a sandbox is not repeated.

A test start takes 20 ms, and a project with Python builders needs the result twice.
"""
HINT = "install bubblewrap, or write 'sandbox: off'"
MISSING = "bubblewrap (bwrap) is not installed on this machine"


class Sandbox(Struct, frozen=True):
    """A sandbox: the files that programs in it can read and write.

    Args:
        program: bubblewrap.
        home: the user's home folder. In the sandbox, an empty folder in memory replaces it, and HOME is its path.
        reads: absolute paths that are visible; paths that do not exist are left out.
        writes: absolute folders that can be written to.
        secrets: files that are shown as empty files in the sandbox.
    """

    program: str
    home: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    secrets: tuple[str, ...] = ()

    def command(self, command: Sequence[str], folder: str = "/") -> list[str]:
        """Return the command that runs `command` inside the sandbox, in `folder`."""
        words = [self.program, "--die-with-parent", "--unshare-user", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        for path in _SYSTEM:
            if os.path.islink(path):
                words += ["--symlink", os.readlink(path), path]
            elif os.path.isdir(path):
                words += ["--ro-bind", path, path]
        words += ["--dev", "/dev", "--bind", "/proc", "/proc", "--tmpfs", _TEMP, "--tmpfs", "/run", "--tmpfs", self.home]
        for path in sorted(set(self.reads), key=_depth):
            words += ["--ro-bind-try", path, path]
        for path in sorted(set(self.writes), key=_depth):
            words += ["--bind", path, path]
        for path in self.secrets:
            if os.path.isfile(path):
                words += ["--ro-bind", "/dev/null", path]
        words += ["--setenv", "HOME", self.home, "--setenv", "TMPDIR", _TEMP, "--setenv", VARIABLE, "on"]
        return [*words, "--unsetenv", "XDG_RUNTIME_DIR", "--chdir", folder, "--", *command]


def problem_of(sandbox: Sandbox) -> str:
    """Return why no program can be started in this sandbox, "" if programs can be started."""
    command = sandbox.command([sys.executable, "-c", ""])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (
        "" if done.returncode == 0 else done.stderr.strip().partition("\n")[0] or f"bubblewrap ended with status {done.returncode}"
    )


_worked_s: dict[Sandbox, float] = {}


def _probe(sandbox: Sandbox) -> str:
    """Return the result of `problem_of`, but do not probe the same sandbox again soon after a success (`_PROBE_VALID_S`).

    Sandboxes that differ only in their writable folders count as the same.
    """
    shown = replace(sandbox, writes=())
    if time.monotonic() - _worked_s.get(shown, -_PROBE_VALID_S) < _PROBE_VALID_S:
        return ""
    problem = problem_of(sandbox)
    if not problem:
        _worked_s[shown] = time.monotonic()
    return problem


def sandbox_of(
    config: Config, writes: Iterable[str] = (), *, stages: bool = True, notify: Callable[[str], object] | None = None
) -> Sandbox | None:
    """Return the sandbox of this project's programs, None if they run without a sandbox.

    Args:
        writes: folders that can be written to besides the staging folder.
        stages: whether the staging folder can be written to.
        notify: called with a sentence if a sandbox is wanted and cannot be started.

    Raises:
        HostError: the project requires a sandbox, and it cannot be started.
    """
    if not config.may_use_sandbox:
        return None
    found = plan_sandbox(config, writes, stages=stages)
    problem = MISSING
    if found is not None:
        for folder in found.writes:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        problem = _probe(found)
    if problem and config.sandbox == "require":
        raise HostError(f"{'workers' if stages else 'programs of the project'} cannot run in a sandbox: {problem}", hint=HINT)
    if problem and notify is not None:
        notify(f"builders and commands run without a sandbox: {problem}; {HINT}")
    return None if problem else found


def plan_sandbox(config: Config, writes: Iterable[str] = (), *, stages: bool = True) -> Sandbox | None:
    """Return the sandbox that this project has if sandboxes are enabled. None = bubblewrap is not installed."""
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    home = os.path.realpath(os.path.expanduser("~"))
    staging = (str(own_folder(config.cache_dir) / "staging"),) if stages else ()
    reads = [
        *_python_paths(),
        *os.environ.get("PATH", "").split(os.pathsep),
        *(os.path.dirname(tool.path) for tool in config.tools),
        str(config.project_dir),
        *(folder.path for folder in config.project.scan_folders),
        str(config.cache_dir),
        *config.project.linked_folders,
        *config.sandbox_paths,
    ]
    secrets = (config.sharing.team_key_file, config.sharing.signing_key_file)
    real = [os.path.realpath(path) for path in reads if path]  # a file may be opened by its real path or through a link
    return Sandbox(
        program, home, tuple(_usable([*reads, *real], home)), (*staging, *writes), tuple(path for path in secrets if path)
    )


def _python_paths() -> list[str]:
    real = os.path.dirname(os.path.realpath(sys.executable))
    own = str(Path(aptui.__file__).parent)
    data = str(Path(aptui.__file__).parent.parent / "config")
    return [
        sys.prefix,
        sys.base_prefix,
        os.path.dirname(real),
        own,
        data,
        *filter(os.path.isabs, sys.path),
        *site.getsitepackages(),
    ]


def _usable(paths: Iterable[str], home: str) -> Iterable[str]:
    """Yield the folders among `paths`, except those that contain the whole disk or the whole home folder."""
    for path in dict.fromkeys(os.path.normpath(path) for path in paths if os.path.isabs(path)):
        shown = path if path.endswith("/") else f"{path}/"
        if not f"{home}/".startswith(shown) and not path.startswith(_SYSTEM_BELOW) and path not in _SYSTEM:
            yield path


_SYSTEM_BELOW = tuple(f"{path}/" for path in _SYSTEM)


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path
