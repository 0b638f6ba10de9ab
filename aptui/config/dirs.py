"""Locations on this machine: the project above a folder, data of the package, the user's configuration and store.

Tests: `tests/config/test_compiler.py`.
"""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path
from typing import Any

from aptui.shared.errors import HostError, InternalError, MissingProjectError, UserError

FILE_NAME = "aptui.yaml"
DATABASE = "assetdb.sqlite"
"""File name of the asset database in the cache folder, the same as in O3DE."""
OWN_FOLDER = ".aptui"
"""Name of the folder of aptui's own files in a cache; it shows that the cache is aptui's."""
TRUST_VARIABLE = "APTUI_TRUST"
"""The environment variable whose value 1 makes every project trusted, for machines without a user, such as CI."""


# ── locations ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def data_dir() -> Path:
    """Return the folder that has `config/` and `themes/`.

    In an installed package it is inside the package, in a checkout beside it.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "_data", package.parent):
        if (folder / "config" / "defaults.yaml").is_file():
            return folder
    raise InternalError("the 'config' folder of the installation is missing", where=str(package), hint="install aptui again")


def format_of(folder: Path) -> Any | None:
    """Return the format (extension point `format`) whose feature opens the project in `folder`, None if no feature does."""
    from aptui import feature  # imported here, because `feature` imports msgspec, which is too heavy for every start

    return next((each for each in feature.formats_of(folder) if each.claims(folder)), None)


def refuse_unreadable(folder: Path) -> None:
    """Raise a `UserError` if a folder's marker file is broken, so that it is not a project. Called if no project was found."""
    from aptui import feature  # imported here, because `feature` imports msgspec

    for each in feature.formats_of(folder):
        each.refuse_unreadable(folder)


def find_project(start: Path) -> Path:
    """Return the nearest folder from `start` upwards that has an `aptui.yaml`, or is a project of a known program."""
    start = Path(os.path.abspath(start))
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file() or format_of(folder) is not None:
            refuse_strange_owner(folder)
            return folder
    for folder in (start, *start.parents):
        refuse_unreadable(folder)
    raise MissingProjectError(
        f"there is no '{FILE_NAME}' in '{start}' or in a folder above", hint="run 'aptui init' to create this file"
    )


def refuse_strange_owner(project: Path) -> None:
    """Refuse a project that was found, not named by the user, if another user could have created it, as git does (CVE-2022-24765).

    Raises:
        UserError: the project's file, its folder or a folder above it belongs neither to this user nor to root.
    """
    if os.environ.get(TRUST_VARIABLE) == "1":
        return
    marker = project / FILE_NAME
    for path in (marker, project, *project.parents):
        try:
            uid = os.stat(path).st_uid
        except OSError:
            continue  # the project of another program, such as O3DE, has no aptui.yaml
        if uid not in _list_trusted_owners() and not (path in project.parents and _is_unmapped(uid)):
            owner = _name_user(uid)
            raise UserError(
                f"'{path}' belongs to {owner}, so aptui does not open the project '{project}' by itself",
                hint=f"if you trust {owner}, run: aptui -C '{project}'",
            )


def _name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user with id {uid}"


def _list_trusted_owners() -> set[int]:
    """Return this user, root, and the user who became root by sudo."""
    own = os.geteuid()
    behind = os.environ.get("SUDO_UID", "")
    return {0, own, *([int(behind)] if own == 0 and behind.isdecimal() else [])}


def _is_unmapped(uid: int) -> bool:
    """Whether this user id stands for every host user, root included, that is not mapped into this container."""
    try:
        unknown = int(Path("/proc/sys/kernel/overflowuid").read_text())
        everybody = Path("/proc/self/uid_map").read_text().split()
    except (OSError, ValueError):
        return False
    return uid == unknown and everybody != ["0", "0", "4294967295"]


def xdg(variable: str, fallback: str) -> str:
    """Return aptui's folder in the base directory that `variable` sets, or in `fallback` if the value is not an absolute path."""
    folder = os.environ.get(variable, "")
    return os.path.join(folder if os.path.isabs(folder) else os.path.expanduser(fallback), "aptui")


def user_file() -> Path:
    """Return the path of the user's own layer of the configuration; the file may not exist."""
    return Path(xdg("XDG_CONFIG_HOME", "~/.config"), FILE_NAME)


def asset_database(cache_dir: str | os.PathLike[str]) -> Path:
    """Return the path of a cache's asset database."""
    return Path(cache_dir, DATABASE)


def own_folder(cache_dir: str | os.PathLike[str]) -> Path:
    """Return the folder of a cache for aptui's own files, which are not products."""
    return Path(cache_dir, OWN_FOLDER)


def identity_of(folder: str | os.PathLike[str]) -> str:
    """Return device and inode of a folder, "" if it does not exist.

    The result is the same through links and bind mounts, and differs for a copy of the folder.
    """
    try:
        seen = os.stat(folder)
    except OSError:
        return ""
    return f"{seen.st_dev}:{seen.st_ino}"


def filesystem(path: str | os.PathLike[str], mounts: str = "/proc/self/mountinfo") -> str:
    """Return the type of the file system that holds `path`, "" if it is unknown (proc_pid_mountinfo(5))."""
    real = os.path.realpath(path)
    best, kind = "", ""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            for text in file:
                before, _, after = text.partition(" - ")
                point = _unescape(before.split(" ")[4])
                is_above = point in ("/", real) or real.startswith(f"{point}/")
                if is_above and len(point) >= len(best):
                    best, kind = point, after.split(" ")[0]
    except (OSError, IndexError):
        return ""
    return kind


def _unescape(point: str) -> str:
    for escape, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(escape, plain)
    return point


def refuse_other_user(cache_dir: str | os.PathLike[str]) -> None:
    """Refuse a cache that another user's engine made, if this user cannot read and write the folder `.aptui` in it.

    Raises:
        HostError: the cache belongs to another user.
    """
    own = own_folder(cache_dir)
    try:
        uid = os.stat(own).st_uid
    except OSError:
        return
    if uid != os.geteuid() and not os.access(own, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        owner = _name_user(uid)
        hint = f"run aptui as {owner}, or use your own cache folder: --set cache=FOLDER"
        raise HostError(f"the cache '{os.fspath(cache_dir)}' belongs to {owner}", hint=hint)


def engine_record(cache_dir: str | os.PathLike[str]) -> Path:
    """Return the file in which an engine announces that it holds this cache (`link.places.announce`); that engine may have died."""
    return own_folder(cache_dir) / "engine.json"


def builders_record(cache_dir: str | os.PathLike[str]) -> Path:
    """Return the file in which an engine stores the descriptions of its builder classes (`engine.registry`)."""
    return own_folder(cache_dir) / "builders.json"


def recovery_folder(cache_dir: str | os.PathLike[str]) -> Path:
    """Return the folder with a file for each operation that must be completed if the engine is killed."""
    return own_folder(cache_dir) / "recovery"


def store_dir() -> str:
    """Return the default folder of the local store: results of jobs for all checkouts on this machine."""
    return os.path.join(xdg("XDG_CACHE_HOME", "~/.cache"), "store")


def host_platform() -> str:
    """Return the platform id of this machine: linux, mac or pc, as in O3DE."""
    return {"darwin": "mac", "win32": "pc"}.get(sys.platform, "linux")


def core_count() -> int:
    """Return the number of cores this process may use, at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, len(affinity(0)) if affinity else os.cpu_count() or 1)
