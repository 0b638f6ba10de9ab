"""The owner and the identity of a cache folder, and the owner of a project folder."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest
from tools import MACHINE

from aptui.config import dirs
from aptui.shared.errors import HostError, UserError


def test_identity_of_a_cache_is_equal_through_a_link_and_new_in_a_copy(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert dirs.identity_of(cache) == ""
    cache.mkdir()
    (tmp_path / "link").symlink_to(cache)
    shutil.copytree(cache, tmp_path / "copy")

    assert dirs.identity_of(tmp_path / "link") == dirs.identity_of(cache) != dirs.identity_of(tmp_path / "copy")
    cache.rename(tmp_path / "moved")
    assert dirs.identity_of(tmp_path / "moved") != ""


def test_cache_of_another_user_is_refused_with_the_name_of_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = dirs.own_folder(tmp_path)
    dirs.refuse_other_user(tmp_path)
    own.mkdir()
    dirs.refuse_other_user(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    dirs.refuse_other_user(tmp_path)  # this process can read the folder, although another user owns the folder
    monkeypatch.setattr(os, "access", lambda *_args, **_named: False)

    owner = pwd.getpwuid(own.stat().st_uid).pw_name
    with pytest.raises(HostError, match=f"belongs to {owner}; run aptui as {owner}"):
        dirs.refuse_other_user(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason=MACHINE + "only root gives files away")
@pytest.mark.parametrize("strange", ["", "aptui.yaml", ".."])
def test_project_of_another_user_is_refused_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strange: str) -> None:
    project = tmp_path / "above/game"
    below = project / "sub/mine"
    below.mkdir(parents=True)
    (project / "aptui.yaml").write_text("")
    monkeypatch.delenv(dirs.TRUST_VARIABLE, raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert dirs.find_project(below) == project
    os.chown(project / strange, 65534, -1)

    with pytest.raises(UserError, match=r"belongs to nobody.*aptui -C"):
        dirs.find_project(below)
    with pytest.raises(UserError, match="belongs to nobody"):
        dirs.find_project(project)
    monkeypatch.setenv("SUDO_UID", "65534")
    assert dirs.find_project(below) == project
    monkeypatch.delenv("SUDO_UID")
    monkeypatch.setenv(dirs.TRUST_VARIABLE, "1")
    assert dirs.find_project(below) == project
