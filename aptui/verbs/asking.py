"""What a running engine says of itself.

Tests: `tests/daemon/test_engine.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aptui.link import port
from aptui.link.client import EngineClient
from aptui.shared.errors import HostError

if TYPE_CHECKING:
    from aptui.config.model import Config


def engine_answer(config: Config) -> dict[str, Any] | None:
    """Return what the engine says of itself, None when none answers."""
    try:
        with EngineClient.of(config.cache_dir, timeout_s=1.0) as client:
            return client.ask(port.ReadStatus(), timeout_s=2.0)
    except HostError:
        return None
