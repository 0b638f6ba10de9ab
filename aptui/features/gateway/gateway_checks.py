"""What `aptui doctor` says about the gateway, and what `config --explain` says about its lists.

Tests: `tests/config/sections/test_serve.py`, `tests/features/gateway/test_peer_lists.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from aptui.cli.read_verbs import engine_process
from aptui.config.explain import ConfigMessage
from aptui.config.model import Config
from aptui.features.gateway import peer_file, peer_lists
from aptui.link import gateways
from aptui.shared.errors import install_advice
from aptui.shared.health import DoctorCheck


def check(config: Config) -> Iterator[DoctorCheck]:
    """Yield the lines of `aptui doctor`."""
    yield _check_gateway(config)
    yield _check_lists(config)


def _check_gateway(config: Config) -> DoctorCheck:
    """Say whether editors, games and devices are heard, where that is wanted."""
    found = gateways.find_gateway(config.cache_dir)
    if not config.serve.is_enabled and found is None:
        return DoctorCheck("gateway", "ok", "off: 'serve.enabled' is false")
    if find_spec("aiohttp") is None:
        return DoctorCheck("gateway", "warn", "aiohttp is not installed", install_advice("serve"))
    if found is None and not engine_process(config):
        return DoctorCheck("gateway", "ok", "it starts with the engine, which is not running")
    if found is None or not found.is_alive:
        return DoctorCheck("gateway", "warn", gateways.words(found), "'aptui gateway' says what is wrong")
    return DoctorCheck("gateway", "ok", gateways.words(found))


def _check_lists(config: Config) -> DoctorCheck:
    """Say whether what the configuration says about who may connect holds."""
    changed = _find_changed(config)
    if changed:
        message = f"{', '.join(changed)} were changed on the Connections screen, which wins over the configuration"
        file = config.cache_dir / peer_file.PLACE
        advice = f"'aptui config --explain KEY' shows both; delete '{file}' to go back to the configuration"
        return DoctorCheck("connections", "warn", message, advice)
    return DoctorCheck("connections", "ok", "as configured")


def _find_changed(config: Config) -> dict[str, Any]:
    """Return {key below `serve`: its value} of what was changed on the Connections screen."""
    configured = peer_lists.read_peer_settings(config.serve)
    settings = peer_file.read(config.cache_dir / peer_file.PLACE, puts_aside=False).in_force(configured)
    return peer_file.overridden(settings, configured)


def explain(key: str, load: Callable[[], Config]) -> Iterator[ConfigMessage]:
    """Yield what the Connections screen changed about a key, which wins over the configuration."""
    if not key.startswith("serve."):
        return
    config = load()
    changed = _find_changed(config)
    if key in changed:
        file = config.cache_dir / peer_file.PLACE
        yield ConfigMessage(f"{file} (changed on the Connections screen)", json.dumps(changed[key], ensure_ascii=False))
