from __future__ import annotations

from pathlib import Path

import pytest

from aptui.config import load
from aptui.config.settings import ClusterSettings, check_address, compile_cluster
from aptui.shared.errors import UserError


@pytest.mark.parametrize(
    ("address", "has_certificates"),
    [("tcp://127.0.0.1:8786", False), ("tcp://localhost:8786", False), ("tcp://[::1]:8786", False), ("tls://head:8786", True)],
)
def test_scheduler_behind_tls_or_on_the_loopback_is_accepted(address, has_certificates):
    check_address(address, has_certificates=has_certificates, is_insecure=address.startswith("tcp"))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786"])
def test_plain_tcp_on_the_loopback_needs_insecure(address):
    with pytest.raises(UserError, match="every user of this machine could run programs as you; use tls://"):
        check_address(address, has_certificates=True)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://head:8786", "not encrypted"),
        ("tcp://10.0.0.1:8786", "not encrypted"),
        ("tls://head:8786", "certificates"),
        ("head:8786", "not the address of a scheduler"),
        ("tls://head", "not the address of a scheduler"),
        ("inproc://x:1", "not the address of a scheduler"),
    ],
)
def test_scheduler_without_authentication_is_refused(address, message):
    with pytest.raises(UserError, match=message):
        check_address(address, has_certificates=False)


def test_cluster_settings_are_compiled():
    said = {"kind": "dask", "scheduler": "tcp://127.0.0.1:8786", "insecure": True, "share": 4, "store": "store", "tags": ["GPU"]}

    found = compile_cluster(said, [{"name": "bake", "needs": ["gpu", "Licence"], "at_most": 2}, {"name": "copy"}], Path("/p"))

    assert found.store == "/p/store"
    assert found.tags == ("gpu",)
    assert found.needs == (("bake", ("gpu", "licence")),)
    assert found.at_most == (("bake", 2),)
    assert not ClusterSettings().is_used


def test_cluster_without_a_store_is_refused(tmp_path):
    (tmp_path / "aptui.yaml").write_text("pool: {kind: dask, scheduler: 'tcp://127.0.0.1:8786', insecure: true}\n")

    with pytest.raises(UserError, match="needs a store"):
        load.load(tmp_path)


def test_doctor_names_a_cluster_without_authentication(tmp_path, monkeypatch, capsys):
    import json

    from aptui.cli import main

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "assets").mkdir()
    (tmp_path / "aptui.yaml").write_text(
        "scan_folders: [{name: game, path: assets}]\n"
        "pool: {kind: dask, scheduler: 'tcp://127.0.0.1:8786', insecure: true, store: store}\n"
    )

    main.main(["doctor", "--json"])

    (found,) = [check for check in json.loads(capsys.readouterr().out) if check["name"] == "cluster"]
    assert found["state"] == "warn"
    assert "every user of this machine can run programs as you" in found["said"]


def test_cluster_of_project_that_requires_sandbox_is_refused(tmp_path: Path) -> None:
    pool = "pool: {kind: dask, scheduler: 'tcp://127.0.0.1:8786', insecure: true, store: store}\n"
    (tmp_path / "aptui.yaml").write_text(f"sandbox: require\n{pool}")

    with pytest.raises(UserError, match="jobs on a cluster run without a sandbox"):
        load.load(tmp_path)
