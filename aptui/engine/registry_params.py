"""Checks of builders' parameters against their classes' `params_schema`, before anything runs.

Those in `.aptui.yaml` are `core.settings`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from aptui.config.model import Config, ConfigErrors
from aptui.core.project import Builder
from aptui.core.settings import place_key
from aptui.engine import registry
from aptui.shared.errors import UserError
from aptui.shared.param_schema import ParamError, mistakes


def complete(config: Config, memory: Path, notify: Callable[[str], None] = lambda _sentence: None) -> tuple[Builder, ...]:
    """Return the builders of a configuration as `registry.complete` does, their parameters checked.

    Args:
        memory: the file in which `registry` remembers what it saw.
        notify: called with an error in a script that an adapter runs.

    Raises:
        UserError: what `registry.complete` raises, and every parameter that is unknown or has a wrong value, with its place.
    """
    builders = registry.complete(config, memory, notify)
    check(builders, config.places)
    return builders


def check(builders: Iterable[Builder], places: Mapping[str, str]) -> None:
    """Raise one `ConfigErrors` with what is wrong with any parameter of `builders`; `places` as in `Config`."""
    wrong = {str(error): error for builder in builders if builder.params_schema for error in _mistakes(builder, places)}
    if wrong:
        raise ConfigErrors(list(wrong.values()))


def _mistakes(builder: Builder, places: Mapping[str, str]) -> Iterator[UserError]:
    schema = json.loads(builder.params_schema)
    for mistake in mistakes(schema, json.loads(builder.params)):
        yield _place_mistake(mistake, builder, places.get(place_key((builder.name, "params", mistake.name)), ""), places)
    for platform, params in builder.platform_params:
        for mistake in mistakes(schema, json.loads(params)):
            yield _place_mistake(mistake, builder, places.get(place_key((builder.name, platform, mistake.name)), ""), places)


def _place_mistake(mistake: ParamError, builder: Builder, where: str, places: Mapping[str, str]) -> UserError:
    return UserError(f"{mistake.what} (builder '{builder.name}')", where=where or places.get(builder.name, ""), hint=mistake.hint)
