"""Which programs are notified when jobs fail or are mended, and when all is done (`on:` in `aptui.yaml`); `batch.alerts` runs them.

Folder settings cannot say it: what is run here comes from the project's own file, or the person's.

Tests: `tests/config/sections/test_alerts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node

EVENTS = ("failed", "mended", "idle")
QUIET_S = 10.0


class Alert(Struct, frozen=True):
    """What is done at an event.

    Args:
        event: one of `EVENTS`.
        exec: a program and its arguments; no shell sees them.
        webhook: a URL that gets the digest as JSON.
        desktop: whether a desktop notification is shown.
        bell: whether the terminal rings, and shows a notification if it can.
    """

    event: str
    exec: tuple[str, ...] = ()
    webhook: str = ""
    desktop: bool = False
    bell: bool = False


class AlertSettings(Struct, frozen=True):
    """All of `on:`; between two digests of one event lie `quiet_s` at least."""

    alerts: tuple[Alert, ...] = ()
    quiet_s: float = QUIET_S


def compile_alerts(given: Mapping[str, Any]) -> AlertSettings:
    """Return what the checked mapping `on:` means."""
    from aptui.config.yaml import scalars

    alerts = tuple(_alert({"event": event, **given[event]}) for event in EVENTS if event in given)
    return AlertSettings(alerts, scalars.seconds(given["quiet"]) if "quiet" in given else QUIET_S)


def mistakes(given: Node | None) -> list[UserError]:
    """Return what is wrong with `on:`, each with its place."""
    found = []
    for event in EVENTS:
        value = given.get(event) if given is not None else None
        if value is None:
            continue
        if not value.value:
            found.append(UserError(f"'on.{event}' says nothing to do", where=value.where, hint="exec, webhook, desktop or bell"))
        hook = value.get("webhook")
        if hook is not None and (problem := _fault(hook.value)):
            found.append(UserError(f"'{hook.value}' {problem}", where=hook.where, hint="https://…, or http:// of this machine"))
    return found


def _fault(address: str) -> str:
    """Say why nothing is sent to this address, "" if it may be."""
    from urllib.parse import urlsplit  # a configuration that is remembered was checked

    from aptui.shared.connections.addresses import is_loopback

    try:
        url = urlsplit(address)
        has_host = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        has_host = False
    if not has_host or url.scheme not in {"https", "http"}:
        return "is no address of a web hook"
    return "" if url.scheme == "https" or is_loopback(url.hostname or "") else "is not encrypted"


def restore_alerts(data: Mapping[str, Any]) -> AlertSettings:
    """Return the record that `msgspec.to_builtins` and JSON made `data` of."""
    return AlertSettings(tuple(map(_alert, data["alerts"])), data["quiet_s"])


def _alert(data: dict[str, Any]) -> Alert:
    return Alert(**{**data, "exec": tuple(data.get("exec", ()))})
