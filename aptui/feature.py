"""Optional capabilities: how a feature declares its parts, and how the kernel uses a feature without importing it.

A feature is one folder below `aptui/features/`, or a package of another distribution with an entry point in the group
`aptui.features`. Its object `FEATURE` lists the verbs and requests that the feature adds, and the *extension points* of the kernel
that it fills. Their objects are named as `module:object` and imported when they are used, so that an unused feature costs no time.

The kernel looks up an extension point by its name (`load_all`, `load_first`), and works if no feature fills it. If a feature of
another distribution cannot be loaded, the command continues without that feature and prints one line about it (`list_problems`). A
feature imports the kernel and no other feature; `pyproject.toml` lists the exceptions. To remove a feature, delete its folder and
its line in `aptui/features/__init__.py`.

| extension point | called with | gives |
|---|---|---|
| `recovery` | configuration | completes interrupted work (`config.dirs.recovery_folder`); returns a sentence about it or "" |
| `explain` | key, function that loads a configuration | all values of the key (`config.load.ConfigMessage`), the last one applies |
| `demo_page` | configuration of the demo | shows the demo in a browser (`aptui demo --web`); returns the exit code |
| `doctor` | configuration | lines of `aptui doctor` (`shared.health.DoctorCheck`) |
| `observer` | function that returns the configuration, function that prints a line | receives the notices of an engine (below) |
| `daemon` | supervisor of the engine, options of `serve` | runs beside an engine that stays up |
| `pool` | parts of an engine (`engine.loop.context`), the plain pool's constructor | a constructor of pools |
| `results` | parts of an engine, `is_patient` (wait for slow lookups) | stored results (`engine.loop.dispatch.StoredResults`) |
| `store` | address, namespace, `limit_s` (timeout in seconds) | a store of results (`shared.result_store.Store`) |
| `restore` | configuration, job id, run key | answers an order with the products of that run (`engine.loop.dispatch.Restore`) |
| `stored file` | configuration, the first 32 letters of a digest or more | path of a stored product with these bytes, or "" |
| `format` | (a module) | opens projects of another program (below); only for features that ship |
| `project facts` | configuration of another program's project | record with `engine` and `skips_start_scan`, None if unknown |
| `convert` | folder of another program's project | for `init --from-o3de`: (path of `aptui.yaml`, its text, omitted settings) |
| `adopt cache` | configuration | sets another program's cache aside, returns a sentence or "" |
| `catalogs` | cache folder, platforms | another program's catalogs (`engine.loop.rest.ForeignCatalogs`) |
| `figures` | database, function that names builders, status of the engine or None | OpenMetrics text of `aptui status` |
| `assets` | parts of the Assets screen | actions, entries of the menu, commands and a line there (`AssetExtension`) |
| `commands` | the screen's shell | commands of the `:` line |
| `reference` | nothing | {topic: page} of `aptui docs` (`cli.manual.ReferencePage`) |

The class of `catalogs` has a static method `is_current(cache folder, platforms)`: whether its catalogs are up to date.

An observer is callable and has `close(has_rested=…)`; `batch` loads observers only if `on:` of the configuration has alerts.

A `format` module has these functions: `claims(folder)`; `refuse_unreadable(folder)`, which raises a `UserError` if a marker file
cannot be read; `code_folders(config)`, which returns the folders with the code of the project's builders; and `load`,
`layer_trees`, `check_with` and `explain`. The last four take the same arguments as the functions with these names in
`aptui.config`, except that `load` takes no `workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "aptui.features"
"""Entry point group for features of other distributions: name → `module:FEATURE`."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})
_problems: dict[str, str] = {}


class VerbInfo(NamedTuple):
    """A verb of the command line.

    Args:
        module: has `<verb>_arguments(parser)` and `<verb>(arguments)`, which returns the exit code; imported when the verb is used.
        help: one line, a verb and its object.
        group: a key of `cli.verbs.GROUP_TEXTS`.
        examples: two command lines of the verb, then command lines of the verb's actions.
    """

    module: str
    help: str
    group: str = ""
    examples: tuple[str, ...] = ()


class Feature(NamedTuple):
    """The declaration of one optional capability.

    `verbs` are {verb: `VerbInfo`} (or a plain tuple of its fields). `requests` are {name on the wire: record}; `answers` is the
    class that answers these requests (it is called with the supervisor, and has a method `handle(request, verb)`). `points` are
    {extension point: object}. Records, classes and objects are named `module:name`. `panes` are additional screens: {id: (number
    key 1 to 9, title, short title, `Pane` class)}.
    """

    name: str
    summary: str
    verbs: Mapping[str, tuple[str, str] | VerbInfo] = _NOTHING
    requests: Mapping[str, str] = _NOTHING
    answers: str = ""
    points: Mapping[str, str] = _NOTHING
    panes: Mapping[str, tuple[int, str, str, str]] = _NOTHING


def features() -> Iterator[Feature]:
    """Yield all features: shipped ones in the order of `features.FEATURES`, then those of other distributions by name.

    Other distributions are searched only after the last shipped feature, because that search is the slowest part of a start.
    """
    yield from list_shipped()
    yield from list_foreign()


@cache
def list_shipped() -> tuple[Feature, ...]:
    """Return the features that are shipped with aptui, in the order of `features.FEATURES`."""
    return tuple(import_module(f"aptui.features.{name}").FEATURE for name in import_module("aptui.features").FEATURES)


@cache
def list_foreign() -> tuple[Feature, ...]:
    """Return the features of other distributions by name; the first call takes as long as a search of all installed packages."""
    from importlib.metadata import entry_points

    taken = {feature.name for feature in list_shipped()}
    loaded = [_attempt(point.name, point.load) for point in sorted(entry_points(group=GROUP), key=lambda each: each.name)]
    return tuple(feature for feature in loaded if isinstance(feature, Feature) and feature.name not in taken)


def load(place: str) -> Any:
    """Import the object with the name `module:name`, or the module with the name `module`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name) if name else import_module(module)


def load_of(feature: Feature, place: str) -> Any | None:
    """Return an object of a feature.

    If the feature is of another distribution and cannot be loaded, record the problem for `list_problems` and return None.
    """
    if feature.name in import_module("aptui.features").FEATURES:
        return load(place)
    return _attempt(feature.name, lambda: load(place))


def list_problems() -> list[str]:
    """Return a sentence for each feature of another distribution that could not be loaded in this process."""
    advice = "update or uninstall the package that contains this feature"
    return [f"the feature '{name}' cannot be loaded: {reason}; {advice}" for name, reason in _problems.items()]


def _attempt(name: str, action: Callable[[], Any]) -> Any | None:
    try:
        return action()
    except Exception as error:  # noqa: BLE001 - code of another distribution may raise anything
        _problems[name] = f"{type(error).__name__}: {error}"
        return None


def load_all(point: str) -> Iterator[Any]:
    """Yield the objects that features give for an extension point."""
    for feature in features():
        if (place := feature.points.get(point)) and (found := load_of(feature, place)) is not None:
            yield found


def load_first(point: str) -> Any | None:
    """Return the object of the first feature that fills an extension point, None if no feature does."""
    return next(load_all(point), None)


def load_needed(point: str) -> Any:
    """Return the object of the first feature that fills an extension point, for a command that cannot work without the object.

    Raises:
        UserError: no feature fills the extension point.
    """
    found = load_first(point)
    if found is None:
        raise UserError(
            f"no installed feature fills the extension point '{point}'",
            hint="install a package with a feature for this extension point",
        )
    return found


def formats_of(folder: Path) -> Iterator[Any]:
    """Yield the project formats (extension point `format`) whose marker file is in a folder.

    Only the features of these formats are loaded.
    """
    for name, marker in import_module("aptui.features").FEATURES.items():
        if marker and (folder / marker).is_file():
            yield load(import_module(f"aptui.features.{name}").FEATURE.points["format"])


def verbs() -> dict[str, VerbInfo]:
    """Return the verbs that features add."""
    return {verb: VerbInfo(*place) for feature in features() for verb, place in feature.verbs.items()}


def requests() -> dict[str, str]:
    """Return the requests that features add: {name on the wire: record}."""
    return {name: place for feature in features() for name, place in feature.requests.items()}


def find_verb(name: str) -> VerbInfo | None:
    """Return a verb that a feature adds, None for an unknown name."""
    return next((VerbInfo(*feature.verbs[name]) for feature in features() if name in feature.verbs), None)


def find_request(name: str) -> type | None:
    """Return the record of a request that a feature adds, None for an unknown name."""
    place = requests().get(name)
    return load(place) if place else None
