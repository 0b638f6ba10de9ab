"""Environment variables that the configuration names: builders get them, and their values decide about products.

What counts is the environment that this process was started with. Digests alone are kept and compared: a value may be a secret.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from aptui.config.model import Config
from aptui.config.signature import sign_project

_DIGEST_HEX = 32


def digests_of(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return (name, digest of its value, "" where it is not set) of variables, each once, sorted."""
    return tuple((name, _digest(os.environb.get(name.encode()))) for name in sorted(set(names)))


def _digest(value: bytes | None) -> str:
    return "" if value is None else hashlib.sha256(value).hexdigest()[:_DIGEST_HEX]


def refresh_variables(config: Config) -> Config:
    """Return `config` with the digests of this process's environment."""
    project = config.project
    if not any(builder.variables for builder in (project.unlisted_builder, *project.builders)):
        return config
    unlisted, *builders = (
        replace(builder, variables=digests_of(dict(builder.variables))) for builder in (project.unlisted_builder, *project.builders)
    )
    now = replace(project, unlisted_builder=unlisted, builders=tuple(builders))
    return config if now == project else replace(config, project=sign_project(now))


def variables_of(config: Config) -> dict[str, str]:
    """Return {name: digest, "" where it is not set} of all that the configuration names."""
    project = config.project
    return dict(sorted(pair for builder in (project.unlisted_builder, *project.builders) for pair in builder.variables))


def differing(config: Config, other: Mapping[str, object]) -> list[str]:
    """Return the names of variables that have another value, or none, where {name: digest} `other` comes from."""
    return [name for name, digest in variables_of(config).items() if name in other and other[name] != digest]
