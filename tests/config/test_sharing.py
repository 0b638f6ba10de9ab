"""Shared caches that are trusted without a key: the user's own folder, and a store with an explicit `trust`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aptui.config import configuration, trust
from aptui.config import load as config_load
from aptui.features.sharing.namespaces import TroubleReporter, namespaces_of, open_store, probe
from aptui.features.sharing.stores.folder_store import FolderStore
from aptui.shared.errors import UserError


@pytest.fixture
def load(tmp_path: Path):
    (tmp_path / "assets").mkdir()

    def loaded(shared: str) -> configuration.Config:
        (tmp_path / "aptui.yaml").write_text(f"scan_folders: [{{name: game, path: assets}}]\nshared_cache: {{{shared}}}\n")
        return config_load.load(tmp_path)

    return loaded


@pytest.mark.parametrize("store", ["https://cache.example/x", "http://127.0.0.1:8089", "s3://bucket/x", "OPEN"])
def test_store_that_other_users_can_write_to_needs_a_key_or_explicit_trust(load, tmp_path: Path, store: str) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    store = store.replace("OPEN", str(tmp_path / "open"))

    with pytest.raises(
        configuration.ConfigErrors, match=r"the shared cache has no key, .*; run 'aptui cache init' to make a key"
    ) as caught:
        load(f"mode: client, store: '{store}'")
    assert caught.value.errors[0].where.endswith("aptui.yaml:2:37")

    assert load(f"mode: client, store: '{store}', trust: unsealed").sharing.store == store
    assert load(f"mode: server, store: '{store}', team_key_file: k").sharing.store == store
    assert load(f"mode: client, store: '{store}', writers: ['{'0' * 64}']").sharing.store == store
    assert load(f"mode: inactive, store: '{store}'").sharing.store == store


@pytest.mark.parametrize(
    ("store", "what"),
    [
        ("http://host:99999/", "'http://host:99999/' is not an address: port out of range"),
        ("http://[::1/", "is not an address: invalid IPv6"),
        ("https:///path", "is not a complete address: the host is missing"),
        ("https://me:secret@host:x/", "'host:x/' is not an address: port could not be cast"),
        ("ftp://host/", "'ftp://host/' cannot be the store of a shared cache"),
    ],
)
def test_invalid_store_address_is_refused_with_its_place(load, store: str, what: str) -> None:
    with pytest.raises(configuration.ConfigErrors) as caught:
        load(f"mode: client, store: '{store}', trust: unsealed")

    (error,) = caught.value.errors
    assert what in error.what
    assert error.where.endswith("aptui.yaml:2:37")


def test_local_store_that_only_this_user_can_write_is_used_for_writing(
    load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir(mode=0o755)

    assert load(f"mode: server, store: '{tmp_path / 'own'}'").sharing.writes
    assert load(f"mode: server, store: '{tmp_path / 'own/deeper/one'}'").sharing.writes
    monkeypatch.setattr(trust, "filesystem", lambda _path: "nfs4")
    assert not trust.is_own_store(str(tmp_path / "own"))


def test_token_is_sent_over_http_to_the_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APTUI_CACHE_TOKEN", "sesame")

    for address in ("http://cache.example", "http://10.0.0.1:8089/x", "http://localhost.example"):
        with pytest.raises(UserError, match="would be sent unencrypted over http"):
            open_store(address)
    for address in ("https://cache.example", "http://127.0.0.1:8089", "http://[::1]:8089", "http://localhost:1"):
        open_store(address).close()
    monkeypatch.delenv("APTUI_CACHE_TOKEN")
    open_store("http://cache.example").close()
    with pytest.raises(UserError, match="would be sent unencrypted over http"):
        open_store("http://user:word@cache.example")


@pytest.mark.parametrize("below", ["", "ac", "cas", "tmp", "ac/00", "ns/team/cas"])
def test_store_that_became_writable_by_others_is_refused_when_it_is_opened(load, tmp_path: Path, below: str) -> None:
    store = tmp_path / "own"
    (store / below).mkdir(parents=True)
    store.chmod(0o755)
    found = load(f"mode: client, store: '{store}'").sharing
    words = load(f"mode: client, store: '{store}', trust: unsealed").sharing
    namespaces_of(found, TroubleReporter(None))

    (store / below).chmod(0o777)

    with pytest.raises(UserError, match="the shared cache has no key"):
        namespaces_of(found, TroubleReporter(None))
    assert probe(found).is_bad
    namespaces_of(words, TroubleReporter(None))


def test_own_store_is_writable_only_by_its_user_with_umask_0(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        FolderStore(str(tmp_path / "own"), "team").put_record("0" * 64, b"x")
    finally:
        os.umask(before)

    assert trust.is_own_store(str(tmp_path / "own"))
