"""The configuration of the gateway (`serve:` in `aptui.yaml`); `config.peer_lists` writes back what people change while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from aptui.shared.connections.peers import Dial
from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node

PORT = 45_650


class GatewaySettings(Struct, frozen=True):
    """Where the gateway listens, and to whom.

    Args:
        is_enabled: the engine starts it and keeps it alive.
        address: to listen at; any but the loopback needs TLS and a token. `port` 0 = any that is free.
        tls_cert: absolute path of the certificate chain, `tls_key` that of its key (PEM); "" = no TLS.
        dial_ca: absolute path of the authority (PEM) that signs certificates of devices that are dialled; "" = those the system
            trusts.
        dial_fingerprints: SHA-256 of their certificates; where there are any, they decide alone.
        clients_limit: how many WebSockets may be open.
        hosts: names under which clients may call it, beside the address itself and those of the loopback: `name` or `name:port`.
        origins: web pages that may use it beside its own: `https://name`.
        proxies: (name, URL) of services that it forwards to.
        allowed: host names, addresses and CIDR ranges that may connect, `rejected` those that may not.
        has_allow_list: whether `allowed` decides.
        connections: whom it dials.
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


def compile_gateway(given: Mapping[str, Any], project_dir: Path) -> GatewaySettings:
    """Return what the checked mapping `serve:` means; paths are relative to the project."""
    texts: dict[str, Any] = {
        name: str(project_dir / Path(given[name]).expanduser()) for name in ("tls_cert", "tls_key", "dial_ca") if name in given
    }
    lists: dict[str, Any] = {
        name: tuple(given[name]) for name in ("hosts", "origins", "allowed", "rejected", "dial_fingerprints") if name in given
    }
    plain = {name: given[name] for name in ("address", "port", "clients_limit") if name in given}
    dials = tuple(Dial(each["id"], each["address"], each["port"], each.get("auto", True)) for each in given.get("connections", ()))
    return GatewaySettings(
        is_enabled=given.get("enabled", False),
        proxies=tuple(given.get("proxies", {}).items()),
        has_allow_list=given.get("allow_list", True),
        connections=dials,
        **plain,
        **texts,
        **lists,
    )


def mistakes(given: Node | None) -> list[UserError]:
    """Return what is wrong with the lists and the connections of `serve:`, each with its place."""
    from aptui.shared.connections.addresses import canonical  # a configuration that is remembered was checked
    from aptui.shared.connections.peer_rules import check_dial

    found = []
    for name in ("allowed", "rejected"):
        listed = given.get(name) if given is not None else None
        for entry in listed.value if listed is not None else ():
            try:
                canonical(entry.value)
            except UserError as error:
                found.append(UserError(error.what, where=entry.where, hint=error.hint))
    dials = given.get("connections") if given is not None else None
    for entry in dials.value if dials is not None else ():
        each = entry.plain()
        try:
            check_dial(Dial(each["id"], each["address"], each["port"], each.get("auto", True)))
        except UserError as error:
            found.append(UserError(error.what, where=entry.where, hint=error.hint))
    return found


def restore_gateway(data: Mapping[str, Any]) -> GatewaySettings:
    """Return the record that `msgspec.to_builtins` and JSON made `data` of."""
    known = set(GatewaySettings.__struct_fields__)
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items() if name in known
    }
    plain["proxies"] = tuple((name, url) for name, url in data.get("proxies", ()))
    plain["connections"] = tuple(Dial(**each) for each in data.get("connections", ()))
    return GatewaySettings(**plain)
