"""`doctor`: checks the machine and the project, and prints remedies; it changes nothing.

Tests: `tests/cli/test_run_verbs.py`.
"""

from __future__ import annotations

import os
import platform as machine
import re
import resource
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from msgspec import to_builtins
from msgspec.structs import replace

from aptui import __version__, feature
from aptui.batch.options import load_config, refuse_ignored
from aptui.cli.read_access import all_builders, hides_code
from aptui.cli.read_verbs import engine_process
from aptui.config import trust
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database, data_dir, filesystem, refuse_other_user
from aptui.core.patterns import matches
from aptui.core.project import Builder
from aptui.core.settings import place_key
from aptui.engine.watch import limits as watch_limits
from aptui.link.places import NETWORK
from aptui.shared import printing
from aptui.shared.errors import KnownError, install_advice
from aptui.shared.files.replacing import describe_unwritable
from aptui.shared.health import DoctorCheck
from aptui.store.queries.checks import faults, folder_count, has_wal_reset_bug, sqlite_version
from aptui.store.queries.reader import Reader, open_reader

T = TypeVar("T")
Result = tuple[str, ...]
"""(state, message) or (state, message, advice) of a `DoctorCheck`."""

TROUBLE = 1
"""Exit code if a check fails."""
_LEAST_FILES = 1024
_LEAST_WATCHES = 65_536
"""Recommended limits of the system: at least `_LEAST_FILES` open files per process, and `_LEAST_WATCHES` watched folders."""
_LEAST_DISK, _LITTLE_DISK = 128 << 20, 1 << 30
"""Limits of free disk space (bytes).

Below the first limit, the engine starts no jobs (`engine/cache/cache.py`), and the check fails. Below the second limit, the check
warns.
"""
_LIBRARIES = (
    "msgspec", "xxhash", "peewee", "ruamel.yaml", "jsonschema", "pathspec", "watchfiles", "numpy", "Pillow", "soundfile", "soxr",
    "textual", "google-re2", "pygments",
)  # fmt: skip
_OPTIONAL = (
    ("etcpak", "etcpak", ("texture",)),
    ("astc-encoder-py", "astc_encoder", ("texture",)),
    ("freetype-py", "freetype", ("fontatlas", "msdf")),
    ("trimesh", "trimesh", ("model",)),
    ("fonttools", "fontTools", ("font", "fontatlas", "msdf")),
    ("brotli", "brotli", ("font",)),
    ("lupa", "lupa", ("lua",)),
)
"""(package, module, shipped builders that use it)."""
_LUAC = ("luac", "luac5.4", "luac5.3", "luac5.1")
"""Programs that `lua` can use instead of the package lupa."""
_PROGRAMS = ((("glslangValidator", "glslang", "glslc"), ("shader",)), (_LUAC, ()), (("msdf-atlas-gen",), ("msdf",)))
"""(programs that replace each other, shipped builders that need one of them)."""
_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `doctor`."""
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.add_argument(
        "--systemd", action="store_true", help="print a systemd unit that starts this installation of aptui, and exit"
    )


def doctor(arguments: Namespace) -> int:
    """Print the results of all checks; exit 1 if a check fails."""
    if arguments.systemd:
        refuse_ignored(arguments, ["json"], "has no effect with '--systemd'")
        printing.say(systemd_unit().rstrip())
        return 0
    checks = list(_checks(arguments))
    if arguments.json:
        printing.say_json_list(to_builtins(check) for check in checks)
    else:
        for check in checks:
            state = printing.colour_text(f"{check.state:<4}", _COLOURS[check.state], sys.stdout)
            printing.say(f"{state}  {check.name:<13} {printing.line(check.message)}")
            if check.advice:
                printing.say(f"      {'':<13} → {printing.line(check.advice)}")
    return TROUBLE if any(check.state == "fail" for check in checks) else 0


def systemd_unit() -> str:
    """Return the shipped systemd unit with the absolute path of this installation, because systemd does not search PATH."""
    text = (data_dir() / "config" / "systemd" / "aptui@.service").read_text(encoding="utf-8")
    script = Path(sys.executable).parent / "aptui"
    words = [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", "aptui"]
    command = " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"' for word in words)
    return text.replace("ExecStart=aptui ", f"ExecStart={command} ")


def _checks(arguments: Namespace) -> Iterator[DoctorCheck]:
    yield DoctorCheck("aptui", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield DoctorCheck("python", "ok", f"{machine.python_version()} ({sys.executable}) on {machine.system()} {machine.release()}")
    for name, check in _MACHINE_CHECKS.items():
        yield DoctorCheck(name, *check())
    try:
        config = load_config(arguments)
    except KnownError as error:
        yield DoctorCheck(
            "configuration",
            "fail",
            str(error).replace("\n", " | "),
            "correct the configuration; until then the checks of the project cannot run",
        )
        return
    yield DoctorCheck(
        "configuration",
        "warn" if config.warnings else "ok",
        "; ".join(config.warnings) or str(config.project_dir / ("project.json" if config.foreign else "aptui.yaml")),
    )
    for name, check_project in _PROJECT_CHECKS.items():
        yield DoctorCheck(name, *check_project(config))
    for checks in feature.load_all("doctor"):
        yield from checks(config)


# ----------------------------------------------------------------------------------------------------------------- machine


def _sqlite() -> Result:
    version = ".".join(map(str, sqlite_version()))
    if has_wal_reset_bug():
        message = f"{version} has the WAL-reset bug (fixed in 3.51.3); aptui avoids it by writing through only one connection"
        return "ok", message, "do not let another program write to the asset database while an engine is running"
    return "ok", version


def _libraries() -> Result:
    from importlib.metadata import PackageNotFoundError, version

    found, missing = [], []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return "fail", f"missing: {', '.join(missing)}", f"run: pip install {' '.join(missing)}"
    return "ok", ", ".join(found)


def _builders_need() -> Result:
    """Check which of the packages and programs that builders can use are installed."""
    from importlib.util import find_spec

    packages = [name for name, module, _users in _OPTIONAL if find_spec(module) is None]
    programs = [names[0] for names, _users in _PROGRAMS if not any(map(shutil.which, names))]
    message = [f"not installed: {', '.join(packages)}"] if packages else []
    message += [f"not in the PATH: {', '.join(programs)}"] if programs else []
    advice = install_advice("builders") if packages else ""
    return "ok", "; ".join(message) or "all packages and programs that builders can use are installed", advice


def _open_files() -> Result:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _LEAST_FILES:
        return "warn", f"a process can have at most {soft} open files (hard limit {hard})", f"run: ulimit -n {_LEAST_FILES}"
    return "ok", f"a process can have at most {soft} open files"


def _terminal() -> Result:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if encoding != "utf8":
        return "warn", f"the terminal's encoding is {encoding or 'unknown'}", "set LANG to a UTF-8 locale, such as C.UTF-8"
    return "ok", "UTF-8"


def _logout() -> Result:
    """Check whether an engine survives a logout: systemd may be configured to kill all processes of a user."""
    files = [Path("/etc/systemd/logind.conf"), *sorted(Path("/etc/systemd/logind.conf.d").glob("*.conf"))]
    message = ""
    for file in files:
        try:
            lines = file.read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        message = next(
            (text.partition("=")[2].strip() for text in reversed(lines) if text.strip().startswith("KillUserProcesses")), message
        )
    lingers = Path("/var/lib/systemd/linger", os.environ.get("USER", "")).is_file() if os.environ.get("USER") else False
    if message.lower() in ("yes", "true", "1", "on") and not lingers:
        return (
            "warn",
            "when you log out, the system ends your engines",
            "run 'loginctl enable-linger', or use the unit that 'aptui doctor --systemd' prints",
        )
    return "ok", "engines keep running after you log out; 'aptui doctor --systemd' prints a unit that starts them"


# ----------------------------------------------------------------------------------------------------------------- project


def _trust(config: Config) -> Result:
    """Check whether the project is trusted, so that its code may run."""
    from aptui.cli.trust_verb import change_lines, count_runnable

    state = trust.assess(config)
    if state.is_given:
        return "ok", count_runnable(config)
    why = "; ".join(change_lines(config, state)) or "you have not trusted this project"
    return "warn", f"{why}; {count_runnable(config)}", "run 'aptui trust' to list this code and to trust the project"


def _builders(config: Config) -> Result:
    try:
        builders = config.project.builders if hides_code(config) else all_builders(config)
    except KnownError as error:
        return "fail", str(error), "correct the builder; until then nothing can be processed"
    versions = {tool.builder for tool in config.tools if tool.version}
    text = "; ".join([f"{len(builders)}", *(f"{each.name} {each.version}" for each in builders if each.name in versions)])
    if faults := [each.fault for each in builders if each.fault]:
        return "fail", "; ".join([text, *faults]), "correct these builders; until then their jobs fail"
    if missing := [f"'{each.name}' uses {', '.join(names)}" for each in builders if (names := _list_missing(each))]:
        return "warn", "; ".join([text, *missing]), "install these packages and programs; without them, jobs of these builders fail"
    return "ok" if builders else "warn", text, "" if builders else "add builders to aptui.yaml"


def _list_missing(builder: Builder) -> list[str]:
    """Return the packages and programs that a builder uses and that are not installed.

    `_OPTIONAL` and `_PROGRAMS` list the packages and programs that shipped builders use. The version text of any other builder
    contains `NAME missing` for each required package that is not installed.
    """
    from importlib.util import find_spec

    shipped = {each.origin.split(":")[1] for each in (builder.steps or (builder,)) if each.origin.startswith("entry:")}
    found = [name for name, module, users in _OPTIONAL if shipped & set(users) and find_spec(module) is None]
    found += [names[0] for names, users in _PROGRAMS if shipped & set(users) and not any(map(shutil.which, names))]
    if any(map(shutil.which, _LUAC)):
        found = [name for name in found if name != "lupa"]
    return sorted({*found, *re.findall(r"([\w.-]+) missing\b", builder.version)})


def _rules(config: Config) -> Result:
    """Report builder rules that match no source."""
    builders = [builder for builder in config.project.builders if builder.rules]
    sources = _from_database(config, lambda reader: [row.source for row in reader.sources()]) if builders else None
    if not sources:
        return "ok", "not checked, because nothing was processed yet" if builders else "no builder has rules"
    idle = []
    for builder in builders:
        for number, rule in enumerate(builder.rules):
            if not any(matches(pattern, source, "") for pattern in rule.patterns for source in sources):
                text = ", ".join(pattern.text for pattern in rule.patterns)
                where = config.places.get(place_key((builder.name, f"rules {number}")), "")
                idle.append(f"{where}: builder '{builder.name}' has a rule for '{text}', which matches no source")
    if idle:
        return "warn", "; ".join(idle), "correct the pattern, or remove the rule"
    return "ok", "each rule matches a source"


def _tracing(config: Config) -> Result:
    """Check whether this machine can trace the file accesses of commands for which tracing is enabled."""
    tracing = [builder.name for builder in config.project.builders if builder.traces_reads]
    if not tracing:
        return "ok", "no builder has 'trace_reads'"
    from aptui.worker.commands.read_trace import fault

    message = f"the files that {', '.join(tracing)} read"
    if why := fault():
        return "warn", f"{message} cannot be recorded: {why}", "install strace, or remove 'trace_reads'"
    return "ok", f"strace records {message}"


def _scan_folders(config: Config) -> Result:
    missing = [folder.path for folder in config.project.scan_folders if not os.path.isdir(folder.path)]
    if missing:
        return "fail", f"missing: {', '.join(missing)}", "create these folders, or correct 'scan_folders'"
    sensitive = (
        "upper and lower case differ on this disk"
        if not os.path.exists(config.project_dir / "APTUI.YAML")
        else "upper and lower case are equal on this disk"
    )
    return "ok", f"{len(config.project.scan_folders)}, {sensitive}"


def _watches(config: Config) -> Result:
    if not os.path.isdir("/proc/sys/fs/inotify"):
        return "ok", "this system has no inotify"
    limits = watch_limits.limits()
    limit = limits.max_user_watches
    folders = _from_database(config, folder_count) or _count_folders(config)
    if limit < max(folders, _LEAST_WATCHES):
        number = max(2 * folders, 8 * _LEAST_WATCHES)
        advice = f"raise the limit: sysctl {limits.watches_setting}={number}; 'aptui batch' does not watch folders"
        return "warn", f"at most {limit:,} folders can be watched; the project has {folders:,}", advice
    return "ok", f"at most {limit:,} folders can be watched; the project has {folders:,}"


def _cache(config: Config) -> Result:
    cache, there = config.cache_dir, _existing(config.cache_dir)
    if problem := describe_unwritable(cache):
        return "fail", problem, "correct its permissions, or choose another folder as 'cache'"
    if os.path.realpath(cache) != os.path.join(os.path.realpath(cache.parent), cache.name):
        return "warn", f"'{cache}' is a link to '{os.path.realpath(cache)}'", "give the real folder as 'cache'"
    kind = filesystem(there)
    if kind in NETWORK:
        advice = "on network file systems, locks and SQLite are not reliable; choose a folder on a local disk as 'cache'"
        return "warn", f"'{cache}' is on a network file system ({kind})", advice
    return "ok", f"{cache} ({kind or 'unknown file system'})"


def _disk(config: Config) -> Result:
    free = shutil.disk_usage(_existing(config.cache_dir)).free
    if free < _LITTLE_DISK:
        state = "fail" if free < _LEAST_DISK else "warn"
        return state, f"{printing.size(free)} free on the disk of the cache", "free some space on that disk"
    return "ok", f"{printing.size(free)} free on the disk of the cache"


def _host(config: Config) -> Result:
    last = _from_database(config, lambda reader: reader.state("host"))
    if last and last != machine.node():
        advice = "do not use one cache from two machines at the same time"
        return "warn", f"the cache was last used by '{last}', not by '{machine.node()}'", advice
    return "ok", machine.node()


def _engine(config: Config) -> Result:
    process = engine_process(config)
    return "ok", f"process {process} uses the cache" if process else "not running" if process == 0 else "unknown"


def _sandbox(config: Config) -> Result:
    """Report which files and networks the builders and commands can access."""
    from aptui.engine.pool import sandbox

    found = sandbox.plan_sandbox(config)
    if not config.may_use_sandbox:
        advice = (
            ""
            if found is None or config.foreign
            else "set 'sandbox: auto' in aptui.yaml to restrict builders and commands to the project"
        )
        if config.sandbox == "auto":
            advice = f"unset the environment variable {sandbox.VARIABLE}"
        return "ok", "off: builders and commands can access everything that you can access", advice
    problem = sandbox.MISSING
    if found is not None:
        # The check assumes a sandbox without writable folders, because the staging folder may not exist yet.
        problem = sandbox.problem_of(replace(found, writes=()))
    if problem:
        return "fail" if config.sandbox == "require" else "warn", problem, sandbox.HINT
    return "ok", f"{config.sandbox}: builders and commands can access only the project, and no network"


def _database(config: Config) -> Result:
    path = asset_database(config.cache_dir)
    if not path.is_file():
        return "ok", "there is no asset database yet", "'aptui batch' creates it"
    try:
        refuse_other_user(config.cache_dir)
    except KnownError as error:
        return "fail", error.what, error.hint
    found = faults(path)
    if found:
        advice = f"move '{path}' away; the next 'aptui batch' then rebuilds everything"
        return "fail", "; ".join(found), advice
    return "ok", f"{printing.size(path.stat().st_size)}, sound"


def _leftovers(config: Config) -> Result:
    try:
        folder_count = len(list(config.temp_dir.iterdir()))
    except OSError:
        folder_count = 0
    if folder_count:
        return (
            "ok",
            f"{printing.count(folder_count, 'work folder')} kept by 'aptui rerun'",
            f"if you do not need them: rm -r '{config.temp_dir}'",
        )
    return "ok", "none"


_MACHINE_CHECKS: dict[str, Callable[[], Result]] = {
    "sqlite": _sqlite, "libraries": _libraries, "extras": _builders_need, "open files": _open_files, "encoding": _terminal,
    "logout": _logout,
}  # fmt: skip
_PROJECT_CHECKS: dict[str, Callable[[Config], Result]] = {
    "trust": _trust, "builders": _builders, "rules": _rules, "tracing": _tracing, "scan folders": _scan_folders,
    "watches": _watches, "cache": _cache, "disk": _disk, "host": _host, "engine": _engine, "sandbox": _sandbox,
    "database": _database, "leftovers": _leftovers,
}  # fmt: skip
"""{name of the check in the output: function that runs it}."""


def _count_folders(config: Config) -> int:
    """Count the folders of a project that has not been processed yet."""
    roots = [folder.path for folder in config.project.scan_folders]
    return len({path for root in roots for path, _folders, _files in os.walk(root)})


def _from_database(config: Config, ask: Callable[[Reader], T]) -> T | None:
    """Return the answer of `ask`, a query of the database. Return None if the database does not exist or cannot be read."""
    try:
        with closing(open_reader(asset_database(config.cache_dir))) as reader:
            return ask(reader)
    except (KnownError, OSError):
        return None


def _existing(path: Path) -> Path:
    """Return the nearest existing folder: the path itself or a folder above it."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
