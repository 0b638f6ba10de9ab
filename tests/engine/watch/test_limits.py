"""Data from /proc: mounts, limits, and the descriptors of this process."""

import os

import pytest

from aptui.engine.watch import limits as proc
from aptui.engine.watch.limits import Mount

pytestmark = pytest.mark.real

SAMPLE = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:40 / /home/me/my\040game/share rw,relatime shared:7 master:2 - nfs4 server:/x rw
31 27 0:41 / /home/me/over rw - overlay overlay rw,lowerdir=/a - b,upperdir=/c
32 31 0:42 / /home/me/over/tmp rw - tmpfs none rw
33 27 0:43 / /home/me/over/tmp rw - fuse.sshfs me@host:/ rw
broken line
"""


def test_mounts_are_read_with_their_names_unescaped():
    assert Mount(b"/home/me/my game/share", "nfs4") in proc.mounts(SAMPLE)
    assert len(proc.mounts(SAMPLE)) == 6


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (b"/home/me/my game/share", "nfs4"),
        (b"/home/me/my game/share/deep/er", "nfs4"),
        (b"/home/me/my game/shared", "ext4"),
        (b"/home/me/over/x", "overlay"),
        (b"/home/me/over/tmp/x", "fuse.sshfs"),
        (b"/", "ext4"),
        (b"/procession", "ext4"),
    ],
)
def test_the_file_system_of_a_path_is_the_deepest_and_latest_mount(path, kind):
    assert proc.kind_of(path, proc.mounts(SAMPLE)) == kind


def test_the_file_system_of_a_path_is_unknown_without_mounts():
    assert not proc.kind_of(b"/x", proc.mounts(b""))


def test_mounts_below_a_folder_exclude_hidden_mounts():
    assert proc.mounts_below(b"/home/me/over", proc.mounts(SAMPLE)) == [Mount(b"/home/me/over/tmp", "fuse.sshfs")]
    assert len(proc.mounts_below(b"/", proc.mounts(SAMPLE))) == 4


def test_limits_and_the_root_mount_of_this_process_are_found():
    assert proc.limits().max_queued_events > 0
    assert proc.kind_of(b"/", proc.mounts(proc.mountinfo()))


def test_limit_of_a_user_namespace_is_used_if_it_is_lower(tmp_path, monkeypatch):
    monkeypatch.setattr(proc, "_KERNEL", f"{tmp_path}/")
    for setting, number in (
        ("fs/inotify/max_user_watches", 9000),
        ("user/max_inotify_watches", 40),
        ("user/max_inotify_instances", 999),
    ):
        (tmp_path / setting).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / setting).write_text(f"{number}\n")

    found = proc.limits()

    assert (found.max_user_watches, found.watches_setting) == (40, "user.max_inotify_watches")
    assert (found.max_user_instances, found.instances_setting) == (128, "fs.inotify.max_user_instances")


def test_ordinary_file_descriptor_has_no_inotify_watches():
    with open(os.devnull, "rb") as file:
        assert proc.watch_count(file.fileno()) == 0
        assert file.fileno() not in proc.inotify_descriptors()
    assert proc.watch_count(-1) == 0
    assert proc.read_queued_bytes(10**6) == 0
