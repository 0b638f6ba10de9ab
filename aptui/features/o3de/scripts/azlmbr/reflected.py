"""The common base of the stand-in's classes, errors for unknown names, and the registrations of scripts in this process.

Tests: `tests/features/o3de/scripts/test_azlmbr_stand_in.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

Callback = Callable[[list[Any]], Any]

_WHAT = {
    "scene": "the scene API",
    "editor": "the Editor API",
    "legacy": "the Editor API",
}


class Missing(Exception):
    """A script uses a part of O3DE ("azlmbr.…") that exists only in O3DE's own programs."""

    def __init__(self, name: str) -> None:
        what = _WHAT.get(name.split(".")[1], "this module")
        super().__init__(f"the script needs {name!r}, but {what} exists only in O3DE's own programs")


class MissingModule(Missing, ImportError):
    """A script imports an O3DE module that exists only in O3DE's own programs."""


class MissingName(Missing, AttributeError):
    """A script uses a name of an O3DE module that exists only in O3DE's own programs."""


def refusing(module: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a module of the stand-in; it refuses names that only O3DE's own programs have."""

    def get(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingName(f"{module}.{name}")

    return get


class Reflected:
    """An object of O3DE in scripts: properties with defaults, several constructor forms, and properties that scripts add."""

    _properties: ClassVar[Mapping[str, Callable[[], object]]] = {}
    _forms: ClassVar[tuple[tuple[str, ...], ...]] = ()

    def __init__(self, *values: object) -> None:
        for name, default in self._properties.items():
            setattr(self, name, default())
        if not values:
            return
        form = next((names for names in self._forms if len(names) == len(values)), None)
        if form is None:
            counts = ", ".join(str(len(names)) for names in ((), *self._forms))
            raise TypeError(f"{type(self).__name__} takes {counts} arguments, not {len(values)}")
        for name, value in zip(form, values, strict=True):
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    # A script may set a property that O3DE does not define, and may then read it. Any other unknown property is an error.
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no property {name!r}")


class Outcome:
    """The result of a request: a value or an error."""

    def __init__(self, value: object = None, error: str = "") -> None:
        self._value, self._error = value, error

    def is_success(self) -> bool:
        """Whether the request succeeded."""
        return not self._error

    def value(self) -> object:
        """Return the value of a successful request, None if the request failed."""
        return self._value

    def error(self) -> str:
        """Return the error of a failed request, "" if the request succeeded."""
        return self._error

    IsSuccess, GetValue, GetError = is_success, value, error


class Registered(Struct):
    """A builder of a script. `description` is its `AssetBuilderDesc`, `script` the bootstrap file that registered it."""

    bus_id: bytes
    description: Any
    script: str


class Registrations(Struct):
    """The builders and callbacks of scripts by their bus ids; `script` is the bootstrap file that runs now.

    Callbacks are kept after a script drops its handler.
    """

    script: str = ""
    builders: dict[bytes, Registered] = field(default_factory=dict)
    callbacks: dict[bytes, dict[str, Callback]] = field(default_factory=dict)

    def clear(self) -> None:
        """Delete all registrations."""
        self.builders.clear()
        self.callbacks.clear()

    def callback(self, bus_id: bytes, name: str) -> Callback | None:
        """Return the callback for a request to a builder, None if it is not registered."""
        return self.callbacks.get(bus_id, {}).get(name)


registrations = Registrations()
