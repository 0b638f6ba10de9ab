"""The configuration of a cluster (`pool:` in `aptui.yaml`, `needs` and `at_most` of builders); `engine.cluster` uses it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from aptui.shared.errors import UserError


class ClusterSettings(Struct, frozen=True):
    """A cluster that jobs may go to when this machine is busy.

    Args:
        kind: "local" = there is none, "dask".
        scheduler: `tls://host:port`; `tcp://` on the loopback alone, and only if `insecure`.
        tls_ca, tls_cert, tls_key: absolute paths (PEM): who is believed, and who we are.
        share: how many of its slots this engine takes at most; 0 = all there are.
        store: where inputs and products travel through, as `shared_cache.store`; "" = that one.
        tags: what this machine has, in lower case: a builder that needs something else goes to the cluster alone.
        needs: (builder, tags that a machine must have to do its jobs).
        at_most: (builder, how many of its jobs the cluster is given at once).
        insecure: every user of this machine may run programs as us: plain `tcp://` asks nobody who they are.
    """

    kind: str = "local"
    scheduler: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    share: int = 0
    store: str = ""
    tags: tuple[str, ...] = ()
    needs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    at_most: tuple[tuple[str, int], ...] = ()
    insecure: bool = False

    @property
    def is_used(self) -> bool:
        """Whether there is a cluster at all."""
        return self.kind != "local"


def compile_cluster(section: Mapping[str, Any], builders: Iterable[Mapping[str, Any]], folder: Path) -> ClusterSettings:
    """Return what the `pool` section and the entries of `builders` come to; relative paths are below `folder`.

    Raises:
        UserError: the scheduler's address cannot be used so.
    """
    listed = list(builders)
    plain: dict[str, Any] = {key: section[key] for key in ("kind", "scheduler", "share", "insecure") if key in section}
    cluster = ClusterSettings(
        **plain,
        tls_ca=_path(section.get("tls_ca"), folder),
        tls_cert=_path(section.get("tls_cert"), folder),
        tls_key=_path(section.get("tls_key"), folder),
        store=_store(section.get("store", ""), folder),
        tags=_words(section.get("tags", ())),
        needs=tuple((each["name"], _words(each["needs"])) for each in listed if each.get("needs")),
        at_most=tuple((each["name"], each["at_most"]) for each in listed if each.get("at_most")),
    )
    if cluster.is_used:
        has_certificates = bool(cluster.tls_ca and cluster.tls_cert and cluster.tls_key)
        check_address(cluster.scheduler, has_certificates=has_certificates, is_insecure=cluster.insecure)
    return cluster


def check_address(address: str, *, has_certificates: bool, is_insecure: bool = False) -> None:
    """Refuse a scheduler to whom anybody on the network, or on this machine, could speak: Dask runs what it is sent.

    Raises:
        UserError: it is no address, or without certificates, or plain and not of the loopback, or that and not said to be wanted.
    """
    from urllib.parse import urlsplit  # a configuration that is remembered was checked

    from aptui.shared.connections.addresses import is_loopback

    url = urlsplit(address)
    try:
        has_port = url.port is not None
    except ValueError:
        has_port = False
    if url.scheme not in {"tls", "tcp"} or not url.hostname or not has_port:
        raise UserError(f"'{address}' is no address of a scheduler", hint="tls://<host>:8786")
    if url.scheme == "tls" and not has_certificates:
        raise UserError(f"'{address}' needs certificates", hint="tls_ca, tls_cert and tls_key name PEM files")
    if url.scheme == "tcp" and not is_loopback(url.hostname):
        raise UserError(
            f"'{address}' is not encrypted: anyone who reaches it can run programs here",
            hint="use tls://; tcp:// is for the loopback alone",
        )
    if url.scheme == "tcp" and not is_insecure:
        raise UserError(
            f"'{address}' has no authentication: every user of this machine could run programs as you",
            hint="use tls:// with certificates; 'insecure: true' ('aptui worker --insecure') where you are the only user",
        )


def restore_cluster(data: Mapping[str, Any]) -> ClusterSettings:
    """Return the record that `config.pack` and JSON made `data` of."""
    known = set(ClusterSettings.__struct_fields__)
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items() if name in known
    }
    plain["needs"] = tuple((name, tuple(tags)) for name, tags in data.get("needs", ()))
    plain["at_most"] = tuple((name, count) for name, count in data.get("at_most", ()))
    return ClusterSettings(**plain)


def _path(text: str | None, folder: Path) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(text))) if text else ""


def _store(text: str, folder: Path) -> str:
    return text if "://" in text else _path(text, folder)


def _words(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({tag.lower() for tag in tags}))
