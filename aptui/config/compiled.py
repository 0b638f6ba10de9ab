"""The compiled form of a configuration, stored so that the next start reads no YAML; a damaged file is ignored.

Tests: `tests/config/test_load.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

from aptui.config import configuration, settings
from aptui.config.configuration import Config
from aptui.config.dirs import xdg
from aptui.config.merge import refresh_variables
from aptui.config.packing import canonical, digest_of, frozen, refresh_tools
from aptui.core import asset_checks, project, retry
from aptui.shared.connections import peers
from aptui.shared.errors import KnownError
from aptui.shared.files.replacing import replace_bytes


def find_compiled_file(*asked: object) -> str:
    """Return the path of a compiled configuration in the user's cache folder.

    `asked` has the project and the options, which identify the configuration.
    """
    return os.path.join(xdg("XDG_CACHE_HOME", "~/.cache"), "config", f"{digest_of([str(each) for each in asked])}.json")


_MODULES = (configuration, settings, asset_checks, project, retry, peers)
"""Modules with the records of a configuration."""
_KINDS: dict[str, Callable[..., Any]] = {
    **{name: kind for module in _MODULES for name, kind in vars(module).items() if isinstance(kind, type)},
    "bytes": bytes.fromhex,
    "dict": lambda *pairs: dict(pairs),
    type(Path()).__name__: Path,
}


def dump(value: Any) -> Any:
    """Return a record as plain JSON data: {name of its class: arguments that make it}. Tuples are lists.

    msgspec can do the same, but reading the annotations of all records would take 4 ms at each start.
    """
    if isinstance(value, tuple):
        return [dump(item) for item in value]
    if isinstance(value, Struct):
        return {type(value).__name__: [dump(getattr(value, name)) for name in value.__struct_fields__]}
    if isinstance(value, Enum):
        return {type(value).__name__: [value.value]}
    if isinstance(value, bytes | Path):
        return {type(value).__name__: [value.hex() if isinstance(value, bytes) else str(value)]}
    return {"dict": [[*pair] for pair in value.items()]} if isinstance(value, dict) else value


def restore(text: str) -> Config:
    """Return the configuration in `text`, the JSON of the data that `dump` returned."""
    config: Config = json.loads(text, object_hook=_restore)
    return config


def _restore(data: dict[str, list[Any]]) -> Any:
    ((name, arguments),) = data.items()
    return _KINDS[name](*map(frozen, arguments))


def recall(file: str, key: str) -> Config | None:
    """Return the stored configuration if nothing that it depends on changed; a damaged file is ignored."""
    config = read_compiled(file, key)
    if config is None or not all(os.path.isdir(folder.path) for folder in config.project.scan_folders):
        return None
    return refresh_tools(refresh_variables(config))


def read_compiled(file: str, key: str | None = None) -> Config | None:
    """Return the compiled form in `file` if it was stored with `key` (None = any key), else None; a damaged file is ignored."""
    try:
        with open(file, encoding="ascii") as stream:
            stored_key, digest, text = stream.read().split("\n", 2)
        if key not in (None, stored_key) or digest != hashlib.sha256(text.encode()).hexdigest():
            return None
        return restore(text)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def keep(file: str, key: str, config: Config) -> None:
    """Store the compiled form of a configuration, so that `recall` can return it."""
    text = canonical(dump(config))
    write_compiled(file, f"{key}\n{hashlib.sha256(text.encode()).hexdigest()}\n{text}")


def write_compiled(file: str, text: str) -> None:
    """Write a file of the user's cache folder atomically.

    Errors are ignored, because without the file the next start only takes longer.
    """
    with suppress(OSError, KnownError):
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        replace_bytes(Path(file), text.encode("ascii"), is_synced=False)
