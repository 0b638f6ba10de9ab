"""`aptui capsule`: a job in a file that others can run, and such a file run and compared with what is said in it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform as machine
import shlex
import sys
import tarfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from aptui import __version__
from aptui.batch.options import RunOptions, load_config
from aptui.batch.run import INTERRUPTED, JOBS_FAILED
from aptui.batch.run import run as run_batch
from aptui.cli.naming import find_job
from aptui.cli.opening import all_builders, open_for_reading, os_path
from aptui.config import load
from aptui.config.dirs import asset_database
from aptui.config.model import SANDBOX_VARIABLE, Config
from aptui.config.own_files import note_written
from aptui.config.yaml import scalars
from aptui.core.fingerprint import MISSING
from aptui.core.orders import Outcome
from aptui.core.project import COMMON_PLATFORM, Builder
from aptui.core.quality import QUALITY_VARIABLE, Quality, is_of_any_draft
from aptui.core.run_history import Made, RunStep, moments
from aptui.features.insight import received_capsule
from aptui.features.insight.received_capsule import FACTS, FORMAT, SOURCES, TOP, ReceivedProject
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.shared.files.replacing import replacing
from aptui.shared.files.scratch import interrupt_on_signals, scratch_folder
from aptui.store.queries.reader import JobRow, Reader, open_reader
from aptui.worker.commands import command as commands
from aptui.worker.commands.command_job import values_of

# A job in a file: a small project of its own, with the inputs of its last run, what it came to, and no personal environment.
#
# capsule.json what the job is, what its last run came to, which tools and versions did it, what is lacking aptui.yaml its
# builder alone, for all platforms; builders/ are the project's own sources/ its source and all that it was made of, under their
# paths in the scan folders run.sh for commands: the very command, over the sources beside it; needs no aptui
#
# Only files that the job's manifest names travel, and builders' code. Variables of the environment never do.

_FILES = ("source", "dependency", "discovered", "companion")
"""Kinds of a manifest's entries that are files."""
_JOBS = ("job", "products")
_PROJECT_KEYS = ("limits", "metadata_types", "undeclared_reads")
_BELOW = ".aptui.yaml"
_HERE = "/…here…"
"""Stands for the folder of the capsule while `run.sh` is written; no path of a project has it."""


class Capsule(Struct):
    """What goes into the file: `facts` is `capsule.json`, `files` {name in the file: path on the disk, or bytes}."""

    facts: dict[str, Any]
    files: dict[str, str | bytes] = field(default_factory=dict)


def pack_capsule(row: JobRow, builder: Builder, database: Reader, config: Config) -> Capsule:
    """Return the capsule of a job.

    Raises:
        UserError: the project is not one of aptui's own, or the job's source is not there.
    """
    if config.foreign:
        raise UserError("a capsule holds a job of an aptui.yaml", hint="'aptui rerun JOB' runs this one alone")
    manifest = _manifest(row, database)
    quality = Quality.DRAFT if is_of_any_draft(manifest) else Quality.FINAL
    capsule = Capsule(_facts(row, builder, database, config))
    capsule.facts["job"]["quality"] = quality.value
    found = _Inputs(database, manifest)
    found.add_to(capsule, row)
    for path in sorted((config.project_dir / "builders").rglob("*.py")):
        capsule.files[f"builders/{path.relative_to(config.project_dir / 'builders')}"] = str(path)
    capsule.files["aptui.yaml"] = _project(row, builder, config)
    if builder.command is not None and row.job_id:
        capsule.files["run.sh"] = _script(row, builder, quality)
    capsule.files[FACTS] = json.dumps(capsule.facts, indent=2).encode() + b"\n"
    return capsule


def _facts(row: JobRow, builder: Builder, database: Reader, config: Config) -> dict[str, Any]:
    runs = database.runs_of(row.job_id) if row.job_id else []
    return {
        "format": FORMAT,
        "job": {"source": row.source, "platform": row.platform, "job_key": row.job_key, "is_analysis": not row.job_id},
        "builder": {"name": builder.name, "kind": builder.kind.value, "version": builder.version},
        "made_by": {
            "aptui": __version__,
            "python": machine.python_version(),
            "system": machine.system(),
            "machine": machine.machine(),
        },
        "tools": [{"name": tool.name, "digest": tool.digest} for tool in config.tools if tool.builder == builder.name],
        "expected": {
            "status": row.status,
            "error": row.error,
            "reason": row.reason,
            "completed": printing.iso(row.completed_ms),
            "duration_s": row.duration_s,
            "fingerprint": f"{runs[0].fingerprint & (1 << 64) - 1:016x}" if runs else "",
            "products": _list_products(row, database),
        },
        "inputs": [],
        "lacks": [],
    }


def _list_products(row: JobRow, database: Reader) -> list[dict[str, Any]]:
    products = database.products_of(row.job_id) if row.job_id and row.status == "completed" else []
    return [{"name": one.name, "sub_id": one.sub_id, "bytes": one.size, "digest": one.digest.hex()} for one in products]


def _manifest(row: JobRow, database: Reader) -> tuple[tuple[str, str, str], ...]:
    """Return what the last run was made of; of one that has none, the source and what it declares."""
    if row.job_id and (runs := database.runs_of(row.job_id)):
        made: tuple[Made, ...] = ()
        states = moments(
            RunStep(database.inputs_of(row.job_id), made), ((run.outcome == Outcome.SUCCEEDED, run.step) for run in runs)
        )
        if any(kind == "source" for kind, _name, _digest in states[0].inputs):
            return states[0].inputs
    declared = [("dependency", edge.target.lower(), "") for edge in database.edges_of(row.source_id) if not edge.from_asset_id]
    return (("source", row.source, ""), *declared)


class _Inputs:
    """The files that a manifest names, where they are now."""

    def __init__(self, database: Reader, manifest: Iterable[tuple[str, str, str]]) -> None:
        self._database = database
        self._manifest = manifest
        self._roots = database.folder_paths()

    def add_to(self, capsule: Capsule, row: JobRow) -> None:
        """Put every file that is there into the capsule, and say of the others that they are lacking."""
        for kind, name, digest in self._manifest:
            if kind in _JOBS:
                capsule.facts["lacks"].append(f"the products of {name}, which this job waits for")
            elif kind in _FILES and "*" not in name:
                self._add(capsule, name, digest)
        if f"{SOURCES}/{row.source}" not in capsule.files:
            raise UserError(f"the source '{row.source}' is not there any more", hint="a capsule holds it as it is now")

    def _add(self, capsule: Capsule, name: str, digest: str) -> None:
        fact = self._database.file(name)
        path = os_path(f"{self._roots.get(fact.scan_folder, '')}/{fact.rel}") if fact is not None else ""
        if fact is None or not os.path.isfile(path):
            if digest != MISSING:
                capsule.facts["lacks"].append(f"'{name}', which is not there any more")
            return
        place = f"{SOURCES}/{fact.rel}"
        if place in capsule.files:
            return
        capsule.files[place] = path
        now = _digest_of(path)
        is_other = bool(digest) and digest != MISSING and not now.startswith(digest)
        capsule.facts["inputs"].append({"path": str(fact.rel), "digest": now, "changed_since": is_other})
        self._add_settings(capsule, self._roots[fact.scan_folder], str(fact.rel))

    @staticmethod
    def _add_settings(capsule: Capsule, root: str, rel: str) -> None:
        """Settings of folders apply to all below."""
        folder = os.path.dirname(rel)
        while True:
            name = f"{folder}/{_BELOW}".lstrip("/")
            if os.path.isfile(path := os_path(f"{root}/{name}")):
                capsule.files[f"{SOURCES}/{name}"] = path
            if not folder:
                return
            folder = os.path.dirname(folder)


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _project(row: JobRow, builder: Builder, config: Config) -> bytes:
    """Return the configuration: JSON, which is YAML too."""
    whole = load.tree(config.project_dir).plain()
    own = {
        **{key: whole[key] for key in _PROJECT_KEYS if key in whole},
        "platforms": whole["platforms"],
        "scan_folders": [{"name": row.scan_folder, "path": SOURCES}],
        "builders": [one for one in whole.get("builders", ()) if one["name"] == builder.name],
        "local_store": {"enabled": False},
        "workers": 1,
    }
    return json.dumps(own, indent=2).encode() + b"\n"


def _script(row: JobRow, builder: Builder, quality: Quality) -> bytes:
    """Return the script that runs a command as its last run did, into `out/` beside it."""
    assert builder.command is not None
    params = json.loads(dict(builder.platform_params).get(row.platform) or builder.params or "{}")
    values = values_of(row.source, row.platform, (f"{_HERE}/out", f"{_HERE}/temp"), f"{_HERE}/{SOURCES}/{row.source}", params)
    values["quality"] = quality.value
    values["depfile"], values["product_dependencies"] = f"{_HERE}/temp/depfile.d", f"{_HERE}/temp/product_dependencies.txt"
    try:
        command = commands.invocation(builder.command.command, values)
    except commands.CommandError as error:
        return f"#!/bin/sh\n# {printing.line(str(error))}\nexit 1\n".encode()
    quality_variables = ((QUALITY_VARIABLE, quality.value),) if builder.has_drafts else ()
    exports = [f"export {name}={_quote(value)}" for name, value in (*quality_variables, *command.environment)]
    line = " ".join(map(_quote, command.arguments))
    lines = ["#!/bin/sh", "# The command of this job, over the sources beside it; its products are in out/.", "set -eu"]
    lines += [
        'here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)',
        'rm -rf "$here/out" "$here/temp"',
        'mkdir -p "$here/out" "$here/temp"',
    ]
    lines += ['export TMPDIR="$here/temp"', *exports, 'cd "$here/temp"', line]
    return "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n"


def _quote(text: str) -> str:
    """Return a word for the shell; the folder of the capsule is known when the script runs."""
    return '"$here"'.join(shlex.quote(part) if part else "" for part in text.split(_HERE)) or "''"


# -------------------------------------------------------------------------------------------------------------------- file


def write(capsule: Capsule, file: str) -> int:
    """Write the capsule in one step; the same job makes the same bytes. Return its size.

    Raises:
        HostError: it cannot be written, or an input cannot be read.
    """
    path = Path(os.path.abspath(file))
    with (
        replacing(path, what=f"'{file}'") as stream,
        gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name in sorted(capsule.files, key=lambda name: (name != FACTS, name)):
            _add(tar, name, capsule.files[name])
    note_written(file)
    return path.stat().st_size


def _add(tar: tarfile.TarFile, name: str, content: str | bytes) -> None:
    entry = tarfile.TarInfo(f"{TOP}/{name}")
    entry.mode = 0o755 if name == "run.sh" else 0o644
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        return
    try:
        file = open(content, "rb")  # noqa: SIM115  # closed below
    except OSError as error:
        raise HostError(f"'{content}' cannot be read: {error.strerror}", hint="check its permissions") from error
    with file:
        entry.size = os.fstat(file.fileno()).st_size
        tar.addfile(entry, file)


_RUN = "run"
_FOLDER_PREFIX = "aptui-capsule-"
_NO_PLATFORM = (COMMON_PLATFORM, "all")
"""Of jobs that work for every platform."""


def capsule_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `capsule`."""
    parser.add_argument(
        "words", metavar="JOB | run FILE", nargs="+", help="#<number>, or PATH[@PLATFORM][:JOB KEY]; or a capsule to run"
    )
    parser.add_argument("--out", metavar="FILE", help="where the capsule goes; JOB's name and .capsule.tgz by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--trust-code", action="store_true", help="run: run the code in the capsule without asking")
    parser.add_argument(
        "--limit", metavar="SIZE", default="1GiB", help="run: refuse a capsule that unpacks to more; 1GiB by default"
    )
    parser.epilog = """\
A capsule has the inputs of the job's last run, its builder and platform, what it
came to, and for commands a run.sh that needs no aptui. The environment does not
travel. Running one says which code is in it and asks first. Of its configuration
the builders, platforms and limits count; its products, hooks and sandbox are yours.
  aptui capsule textures/a.png@linux      write a.png@linux.capsule.tgz
  aptui capsule run a.png@linux.capsule.tgz"""


def capsule(arguments: Namespace) -> int:
    """Write a capsule, or run one."""
    match arguments.words:
        case ["run", file]:
            return _run(file, arguments)
        case [job] if job != _RUN:
            return _make(job, arguments)
        case _:
            raise UserError("say one job, or 'run' and a file", hint="'aptui capsule --help' has examples")


def _make(word: str, arguments: Namespace) -> int:
    config = load_config(arguments)
    with open_for_reading(arguments, config) as project:
        row = find_job(word, config, project.database)
        builder = next((one for one in all_builders(config) if one.uuid == row.builder), None)
        if builder is None:
            raise UserError(
                "the builder of this job is not in the configuration any more", hint="'aptui builders' lists those that are"
            )
        made = pack_capsule(row, builder, project.database, config)
    name = row.source.rpartition("/")[2]
    file = arguments.out or f"{name}@{row.platform}.capsule.tgz"
    size = write(made, file)
    if arguments.json:
        printing.say_json({**made.facts, "file": file, "bytes": size})
        return 0
    _print_missing(made.facts)
    inputs = printing.count(len(made.facts["inputs"]), "input")
    printing.say(
        f"{printing.line(file)}: {inputs}, {printing.size(size)}; it is to come out as {_describe_outcome(made.facts['expected'])}"
    )
    return 0


def _print_missing(facts: dict[str, Any]) -> None:
    for text in facts["lacks"]:
        printing.complain(f"aptui: lacking: {printing.line(text)}", "yellow")
    for one in facts["inputs"]:
        if one["changed_since"]:
            printing.complain(f"aptui: '{printing.line(one['path'])}' is not as it was in the last run", "yellow")


def _describe_outcome(outcome: dict[str, Any]) -> str:
    if outcome["status"] != "completed":
        return f"{printing.line(outcome['status'])}: {printing.line(outcome['error'])}"
    return f"completed, {printing.count(len(outcome['products']), 'product')}"


# --------------------------------------------------------------------------------------------------------------------- run


def _run(file: str, arguments: Namespace) -> int:
    with interrupt_on_signals(), scratch_folder(_FOLDER_PREFIX) as folder:
        facts, project = received_capsule.receive(file, folder, _limit_of(arguments.limit))
        wanted = facts["job"]["platform"]
        config = project.load(None if wanted in _NO_PLATFORM else wanted)
        _ask_for_consent(file, project, config, is_given=arguments.trust_code)
        noise = StringIO()
        with redirect_stderr(noise):
            summary = run_batch(config, RunOptions(makes_finals=facts["job"]["quality"] != Quality.DRAFT))
        if summary.is_interrupted:
            return INTERRUPTED
        database = open_reader(asset_database(config.cache_dir))
        try:
            came = _outcome(facts["job"], database)
        finally:
            database.close()
        differences = [*_tools(facts, config), *_differences(facts["expected"], came)]
    is_same = not any(one["is_result"] for one in differences)
    if arguments.json:
        differences_json = [{"what": one["what"], "expected": one["expected"], "found": one["found"]} for one in differences]
        printing.say_json(
            {"job": facts["job"], "same": is_same, "expected": facts["expected"], "found": came, "differences": differences_json}
        )
        return 0 if is_same else JOBS_FAILED
    job = facts["job"]
    printing.say(printing.line(f"{job['source']}@{job['platform']}:{job['job_key']}"), "bold")
    _print_missing(facts)
    printing.say(f"it came out as {_describe_outcome(came)}")
    for one in differences:
        printing.say(
            f"  {printing.line(one['what'])}: {printing.line(one['found'])}, not {printing.line(one['expected'])}", "yellow"
        )
    printing.say("the same as recorded" if is_same else "not as recorded", "green" if is_same else "red")
    return 0 if is_same else JOBS_FAILED


def _limit_of(text: str) -> int:
    try:
        return scalars.byte_count(text)
    except ValueError as error:
        raise UserError(f"--limit: {error}", hint="for example --limit 4GiB") from None


def _ask_for_consent(file: str, project: ReceivedProject, config: Config, *, is_given: bool) -> None:
    """Say what of the capsule would run here, and go on only if the user wants that.

    Raises:
        UserError: the user does not, or cannot be asked.
    """
    name = f"'{printing.line(file)}'"
    if project.ignored:
        printing.complain(f"aptui: {name}: not obeyed: {printing.line(', '.join(project.ignored[:20]))}", "yellow")
    if not project.runs:
        return
    place = "in a sandbox, if bubblewrap can start" if config.may_use_sandbox else f"outside a sandbox: {SANDBOX_VARIABLE}=off"
    printing.complain(f"{name} brings code that runs on this machine, {place}:", "yellow")
    for text in project.runs:
        printing.complain(f"  {text}")
    if is_given:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(f"{name} brings code along, and nobody can be asked", hint="read it, then add --trust-code")
    sys.stderr.write("run it? (y/N) ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError(f"{name} was not run", hint="--trust-code runs it without asking")


def _outcome(job: dict[str, Any], database: Reader) -> dict[str, Any]:
    row = next((row for row in database.jobs() if _is(row, job)), None)
    if row is None:
        return {"status": "absent", "error": "there is no such job in it", "products": []}
    return {"status": row.status, "error": row.error, "products": _list_products(row, database)}


def _is(row: JobRow, job: dict[str, Any]) -> bool:
    return (row.source.lower(), row.platform, row.job_key) == (job["source"].lower(), job["platform"], job["job_key"])


def _differences(expected: dict[str, Any], came: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    if expected["status"] != came["status"]:
        found.append(_difference("its outcome", _describe_outcome(expected), _describe_outcome(came)))
    elif expected["error"] != came["error"]:
        found.append(_difference("its error", expected["error"], came["error"]))
    before = {one["name"]: one["digest"] for one in expected["products"]}
    after = {one["name"]: one["digest"] for one in came["products"]}
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, "none"), after.get(name, "none")
        if was != now:
            found.append(_difference(name, was[:12], now[:12]))
    return found


def _tools(facts: dict[str, Any], config: Config) -> list[dict[str, Any]]:
    """Return which tools are others here: that explains a difference, and is none itself."""
    here = {tool.name: tool.digest for tool in config.tools}
    return [
        _difference(f"the tool {one['name']}", one["digest"][:12], here.get(one["name"], "none")[:12], is_result=False)
        for one in facts["tools"]
        if here.get(one["name"]) != one["digest"]
    ]


def _difference(what: str, expected: str, found: str, *, is_result: bool = True) -> dict[str, Any]:
    return {"what": what, "expected": expected, "found": found, "is_result": is_result}
