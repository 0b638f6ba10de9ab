"""Settings of single features in `aptui.yaml`: retries and resources of runs, alerts, cluster, gateway."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert

from aptui.core.retry import EXIT, FailureKind, RetryRule
from aptui.shared.connections.peers import Dial
from aptui.shared.errors import UserError, nearest
from aptui.shared.forms import prepare_form

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node


_USUAL = (FailureKind.CRASH.value, FailureKind.TIMEOUT.value)


def retry_rule(given: Mapping[str, Any] | None) -> RetryRule | None:
    """Return the rule in the validated mapping `retry:`, None if it is empty or missing."""
    if not given:
        return None
    kinds = given.get("on", _USUAL)
    return RetryRule(given["times"], tuple(f"{EXIT}{kind}" if isinstance(kind, int) else kind for kind in kinds))


def run_mistakes(resources: Node | None, builders: Iterable[Node]) -> list[UserError]:
    """Return a mistake, with its place, for each resource that a builder names but the project does not have."""
    known = set(resources.value) if resources else set()
    found = []
    for builder in builders:
        for item in builder.items("resources"):
            if item.value not in known:
                hint = nearest(item.value, known) if known else "add the resource and its limit, for example resources: {gpu: 1}"
                found.append(UserError(f"'{item.value}' is not a resource", where=item.where, hint=hint))
    return found


# `on:` in `aptui.yaml` lists programs that `features.insight.alerter` runs when jobs fail or recover, and when all work is done.
# Folder settings cannot contain `on:`, so these programs come only from the layer of the project or of the user.

EVENTS = ("failed", "mended", "idle")
QUIET_S = 10.0


class Alert(Struct, frozen=True):
    """The actions that an event causes.

    Args:
        event: one of `EVENTS`.
        exec: a program and its arguments; they are run without a shell.
        webhook: a URL that receives the summary of the events as JSON.
        bell: whether the terminal rings, and shows a notification if it can.
    """

    event: str
    exec: tuple[str, ...] = ()
    webhook: str = ""
    desktop: bool = False
    bell: bool = False


class AlertSettings(Struct, frozen=True, rename={"quiet_s": "quiet"}):
    """The settings in `on:`; `quiet_s` is the minimum interval between two summaries of one event."""

    alerts: tuple[Alert, ...] = ()
    quiet_s: float = QUIET_S


def compile_alerts(given: Mapping[str, Any]) -> AlertSettings:
    """Return the settings in the validated mapping `on:`."""
    from aptui.config.yaml import nodes

    alerts = tuple(convert({"event": event, **given[event]}, prepare_form(Alert)) for event in EVENTS if event in given)
    return AlertSettings(alerts, nodes.seconds(given.get("quiet", QUIET_S)))


def alert_mistakes(given: Node | None) -> list[UserError]:
    """Return the mistakes in `on:`, each with its place."""
    found = []
    for event in EVENTS:
        value = given.get(event) if given is not None else None
        if value is None:
            continue
        if not value.value:
            found.append(UserError(f"'on.{event}' has no action", where=value.where, hint="add exec, webhook, desktop or bell"))
        hook = value.get("webhook")
        if hook is not None and (problem := _fault(hook.value)):
            found.append(UserError(f"'{hook.value}' {problem}", where=hook.where, hint="use https://…, or http:// on this machine"))
    return found


def _fault(address: str) -> str:
    """Return why webhooks to this address are refused, "" if they are allowed."""
    from urllib.parse import urlsplit  # imported here, because most starts load a validated configuration and check nothing

    from aptui.shared.connections.addresses import is_loopback

    try:
        url = urlsplit(address)
        has_host = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        has_host = False
    if not has_host or url.scheme not in {"https", "http"}:
        return "is not the address of a web hook"
    return "" if url.scheme == "https" or is_loopback(url.hostname or "") else "is not encrypted"


# `features.cluster` uses the compiled settings of a cluster: `pool:` in `aptui.yaml`, and `needs` and `at_most` of builders.


class ClusterSettings(Struct, frozen=True):
    """A cluster that jobs may go to when this machine is busy.

    Args:
        kind: "local" = no cluster, "dask".
        scheduler: `tls://host:port`. `tcp://host:port` is allowed only on the loopback, and only if `insecure` is set.
        tls_ca, tls_cert, tls_key: absolute paths (PEM) of the trusted authority, and of the certificate and key of this engine.
        share: maximum number of the cluster's slots that this engine uses; 0 = all.
        store: the store that transfers inputs and products, in the form of `shared_cache.store`; "" = the store of the shared
            cache.
        tags: tags of this machine, in lower case. Jobs that need any other tag run only on the cluster.
        needs: (builder, tags that a machine must have to run its jobs).
        at_most: (builder, maximum number of its jobs on the cluster at once).
        insecure: plain `tcp://` is allowed. It has no authentication: every user of this machine may run programs as this user.
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
        """Whether the project uses a cluster."""
        return self.kind != "local"


def compile_cluster(section: Mapping[str, Any], builders: Iterable[Mapping[str, Any]], folder: Path) -> ClusterSettings:
    """Return the cluster that the `pool` section and the entries of `builders` describe; relative paths are below `folder`.

    Raises:
        UserError: `check_address` refuses the scheduler's address.
    """
    listed = list(builders)
    cluster = convert(
        {
            **section,
            **{name: _path(section.get(name), folder) for name in ("tls_ca", "tls_cert", "tls_key")},
            "store": section.get("store", "") if "://" in section.get("store", "") else _path(section.get("store"), folder),
            "tags": _words(section.get("tags", ())),
            "needs": [(each["name"], _words(each["needs"])) for each in listed if each.get("needs")],
            "at_most": [(each["name"], each["at_most"]) for each in listed if each.get("at_most")],
        },
        prepare_form(ClusterSettings),
    )
    if cluster.is_used:
        has_certificates = bool(cluster.tls_ca and cluster.tls_cert and cluster.tls_key)
        check_address(cluster.scheduler, has_certificates=has_certificates, is_insecure=cluster.insecure)
    return cluster


def check_address(address: str, *, has_certificates: bool, is_insecure: bool = False) -> None:
    """Refuse a scheduler that accepts unauthenticated connections: Dask runs any program that a client sends.

    Raises:
        UserError: the address is not valid, `tls://` has no certificates, or `tcp://` is used for another machine. Even for this
            machine, `tcp://` is refused without `insecure`.
    """
    from urllib.parse import urlsplit  # imported here, because most starts load a validated configuration and check nothing

    from aptui.shared.connections.addresses import is_loopback

    try:
        url = urlsplit(address)
        host = url.hostname if url.port is not None else ""
    except ValueError:
        host = ""
    if not host or url.scheme not in {"tls", "tcp"}:
        raise UserError(f"'{address}' is not the address of a scheduler", hint="write tls://HOST:8786")
    if url.scheme == "tls" and not has_certificates:
        raise UserError(f"'{address}' needs certificates", hint="set tls_ca, tls_cert and tls_key to PEM files")
    if url.scheme == "tcp" and not is_loopback(host):
        raise UserError(
            f"'{address}' is not encrypted, so any program that can connect to it could run programs on this machine",
            hint="use tls://; tcp:// is allowed only on the loopback (this machine)",
        )
    if url.scheme == "tcp" and not is_insecure:
        raise UserError(
            f"'{address}' has no authentication, so every user of this machine could run programs as you",
            hint="use tls:// with certificates; if you are the only user, 'insecure: true' ('aptui worker --insecure') allows tcp://",
        )


def _path(text: str | None, folder: Path) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(text))) if text else ""


def _words(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({tag.lower() for tag in tags}))


# The configuration of the gateway (`serve:` in `aptui.yaml`); `features.gateway.peers.peer_settings` writes back changes that users
# make while the gateway runs.

PORT = 45_650


class GatewaySettings(Struct, frozen=True, rename={"is_enabled": "enabled", "has_allow_list": "allow_list"}):
    """The addresses of the gateway, and the clients that may connect.

    Args:
        is_enabled: the engine starts the gateway, and restarts it when it ends.
        address: the address to listen at; any except the loopback needs TLS and a token. `port` 0 = any free port.
        tls_cert: absolute path of the certificate chain, `tls_key` that of its key (PEM); "" = no TLS.
        dial_ca: absolute path of the authority (PEM) that signs certificates of devices that are dialled; "" = the authorities that
            the system trusts.
        dial_fingerprints: SHA-256 of these devices' certificates; if it is not empty, only these certificates are accepted.
        clients_limit: maximum number of open WebSockets; one token may use three quarters of them.
        hosts: names (`name` or `name:port`) that clients may use for the gateway, besides its address and the loopback names.
        origins: origins (`https://name`) of web pages that may use the gateway, besides its own pages.
        proxies: (name, URL) of services to which the gateway forwards requests.
        allowed: host names, addresses and CIDR ranges that may connect; `rejected` has those that may not connect.
        has_allow_list: whether only `allowed` addresses may connect.
        connections: devices that the gateway dials.
        o3de: whether programs of O3DE may connect through their own protocol, at `o3de_port`; None = only in an O3DE project.
    """

    is_enabled: bool = False
    address: str = "127.0.0.1"
    port: int = PORT
    tls_cert: str = ""
    tls_key: str = ""
    dial_ca: str = ""
    dial_fingerprints: tuple[str, ...] = ()
    clients_limit: int = 64
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    proxies: tuple[tuple[str, str], ...] = ()
    allowed: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    has_allow_list: bool = True
    connections: tuple[Dial, ...] = ()
    o3de: bool | None = None
    o3de_port: int = 45643


def compile_gateway(given: Mapping[str, Any], project_dir: Path) -> GatewaySettings:
    """Return the settings in the checked mapping `serve:`; paths are relative to the project."""
    paths = {name: _path(given[name], project_dir) for name in ("tls_cert", "tls_key", "dial_ca") if name in given}
    lists = {"proxies": [*given.get("proxies", {}).items()], "connections": [_dial(each) for each in given.get("connections", ())]}
    return convert({**given, **paths, **lists}, prepare_form(GatewaySettings))


def _dial(given: Mapping[str, Any]) -> Dial:
    return Dial(given["id"], given["address"], given["port"], given.get("auto", True))


def serve_mistakes(given: Node | None) -> list[UserError]:
    """Return the mistakes in the lists and the connections of `serve:`, each with its place."""
    from aptui.shared.connections.addresses import (
        canonical,  # imported here, because most starts load a validated configuration and check nothing
        check_dial,
    )

    if given is None:
        return []
    found = []
    checks: list[tuple[Callable[[Any], object], Node]] = [
        (canonical, entry) for name in ("allowed", "rejected") for entry in given.items(name)
    ]
    checks += [(lambda dial: check_dial(_dial(dial)), entry) for entry in given.items("connections")]
    for check, entry in checks:
        try:
            check(entry.plain())
        except UserError as error:
            found.append(UserError(error.what, where=entry.where, hint=error.hint))
    return found
