"""The registrations of scripts in this process: builder descriptions and callbacks; `script_runner` runs the scripts.

Tests: `tests/features/o3de/scripts/test_azlmbr_stand_in.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from aptui.features.o3de.scripts.azlmbr.math import uuid_of

Callbacks = dict[str, Callable[[list[Any]], Any]]


class Registered(Struct):
    """A builder of a script. `description` is its `AssetBuilderDesc`, `script` the bootstrap file that registered it."""

    bus_id: bytes
    description: Any
    script: str


class _Registry(Struct):
    """The builders and callbacks by their bus ids; `script` is the bootstrap file that runs now."""

    script: str = ""
    builders: dict[bytes, Registered] = field(default_factory=dict)
    callbacks: dict[bytes, Callbacks] = field(default_factory=dict)


_registry = _Registry()


def enter(script: str) -> None:
    """Set the bootstrap file to which the following registrations belong."""
    _registry.script = script


def clear() -> None:
    """Delete all registrations."""
    _registry.builders.clear()
    _registry.callbacks.clear()


def register(description: Any) -> str:
    """Register a builder; return an error, "" on success."""
    bus_id = uuid_of(description.busId)
    if bus_id.is_null():
        return f"the builder {description.name!r} has no bus id"
    if not description.name:
        return f"the builder {bus_id} has no name"
    if bus_id.bytes in _registry.builders:
        return f"another builder has the bus id {bus_id}"
    _registry.builders[bus_id.bytes] = Registered(bus_id.bytes, description, _registry.script)
    return ""


def connect(bus_id: bytes, callbacks: Callbacks) -> None:
    """Register the callbacks of a builder, and keep them, so that they work after the script drops its handler."""
    _registry.callbacks[bus_id] = callbacks


def disconnect(bus_id: bytes, callbacks: Callbacks) -> None:
    """Unregister these callbacks."""
    if _registry.callbacks.get(bus_id) is callbacks:
        del _registry.callbacks[bus_id]


def list_registered() -> list[Registered]:
    """Return all builders in the order of their registration."""
    return list(_registry.builders.values())


def find(bus_id: bytes) -> Registered | None:
    """Return a builder."""
    return _registry.builders.get(bus_id)


def callback(bus_id: bytes, name: str) -> Callable[[list[Any]], Any] | None:
    """Return the callback for a request to a builder, None if it is not registered."""
    return _registry.callbacks.get(bus_id, {}).get(name)
