"""Reads from `/proc`: the watch limits of Linux, the mounts, and the watches of this process's inotify descriptors."""

from __future__ import annotations

import array
import fcntl
import os
import re
import termios

from msgspec import Struct

NATIVE_KINDS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "zfs", "f2fs"})
"""File systems that only this kernel writes, so that the kernel reports every change."""
OVERLAY_KINDS = frozenset({"overlay", "overlayfs"})

_KERNEL = "/proc/sys/"
_OWN_LIMITS = {"max_user_watches": "user.max_inotify_watches", "max_user_instances": "user.max_inotify_instances"}
"""{kernel setting of the machine: setting of a user namespace with the same limit}; both limits apply.

For example, a container without root has a user namespace (namespaces(7)).
"""
_PLENTY = 1 << 62
_OCTAL = re.compile(rb"\\([0-7]{3})")


class WatchLimits(Struct, frozen=True):
    """The inotify limits of this user, and the kernel settings (sysctl(8)) that define these limits."""

    max_queued_events: int
    max_user_watches: int
    max_user_instances: int
    watches_setting: str = "fs.inotify.max_user_watches"
    instances_setting: str = "fs.inotify.max_user_instances"


class Mount(Struct, frozen=True):
    """The path of a mount, and the kind of its file system."""

    point: bytes
    kind: str


def limits() -> WatchLimits:
    """Return the present limits."""
    watches, instances = _least("max_user_watches"), _least("max_user_instances")
    return WatchLimits(_number("fs.inotify.max_queued_events", 16384), watches[0], instances[0], watches[1], instances[1])


def _least(name: str) -> tuple[int, str]:
    """Return the limit that is reached first, and the kernel setting that defines it."""
    of_machine, own = f"fs.inotify.{name}", _OWN_LIMITS[name]
    default = {"max_user_watches": 8192, "max_user_instances": 128}[name]
    return min((_number(of_machine, default), of_machine), (_number(own, _PLENTY), own), key=lambda limit: limit[0])


def _number(setting: str, default: int) -> int:
    try:
        with open(_KERNEL + setting.replace(".", "/"), encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return default


def mountinfo() -> bytes:
    """Return the mounts that this process sees (proc_pid_mountinfo(5)), empty if the system does not report them."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            return file.read()
    except OSError:
        return b""


def mounts(text: bytes) -> list[Mount]:
    """Return the mounts in `mountinfo`, in the order of the text; of two mounts at one path, only the later one is visible."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(b" - ")
        fields = left.split(b" ")
        if len(fields) > 4 and right:
            point = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), fields[4])
            found.append(Mount(point, right.split(b" ")[0].decode("ascii", "replace")))
    return found


def kind_of(path: bytes, among: list[Mount]) -> str:
    """Return the kind of the file system that has the absolute `path`, "" if it is unknown."""
    best = Mount(b"", "")
    for mount in among:
        if len(mount.point) >= len(best.point) and (path + b"/").startswith(mount.point.rstrip(b"/") + b"/"):
            best = mount
    return best.kind


def mounts_below(path: bytes, among: list[Mount]) -> list[Mount]:
    """Return the mounts below `path`, only the last mount at each mount point."""
    start = path.rstrip(b"/") + b"/"
    return list({mount.point: mount for mount in among if mount.point.startswith(start) and mount.point != path}.values())


def inotify_descriptors() -> frozenset[int]:
    """Return the inotify descriptors of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:inotify":
                found.add(int(name))
        except OSError:
            continue
    return frozenset(found)


def watch_count(descriptor: int) -> int:
    """Return the number of watches of an inotify descriptor, 0 if it is closed."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
            return file.read().count(b"inotify wd:")
    except OSError:
        return 0


def read_queued_bytes(descriptor: int) -> int:
    """Return the length in bytes of the notifications in the kernel's queue that were not read yet (inotify(7))."""
    size = array.array("i", [0])
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, size)
    except OSError:
        return 0
    return size[0]
