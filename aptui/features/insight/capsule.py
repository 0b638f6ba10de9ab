"""`aptui capsule`: write a job into a file for another machine, or run such a file and compare it with the recorded result."""

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
from collections.abc import Iterable, Iterator
from contextlib import closing, redirect_stderr
from io import StringIO
from pathlib import Path

from msgspec import Struct, field, to_builtins

from aptui import __version__
from aptui.batch.options import RunOptions, load_config, refuse_ignored
from aptui.batch.run import INTERRUPTED, JOBS_FAILED
from aptui.batch.run import run as run_batch
from aptui.cli.naming import find_job
from aptui.cli.read_access import all_builders, open_for_reading
from aptui.config import load
from aptui.config.configuration import SANDBOX_VARIABLE, Config
from aptui.config.dirs import asset_database
from aptui.config.own_files import note_written
from aptui.config.yaml import nodes
from aptui.core.fingerprint import MISSING
from aptui.core.paths import os_path
from aptui.core.project import COMMON_PLATFORM, Builder
from aptui.core.quality import QUALITY_VARIABLE, Quality, is_of_any_draft
from aptui.features.insight import received_capsule
from aptui.features.insight.received_capsule import (
    FACTS,
    FORMAT,
    SOURCES,
    TOP,
    CapsuleFacts,
    CapsuleInput,
    CapsuleJob,
    CapsuleOutcome,
    CapsuleProduct,
    CapsuleTool,
    ReceivedProject,
)
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.shared.files.replacing import replacing
from aptui.shared.files.scratch import interrupt_on_signals, scratch_folder
from aptui.store.queries.reader import JobRow, Reader, open_reader
from aptui.worker.commands import command as commands
from aptui.worker.commands.command_job import values_of

# A capsule is a small, separate project with the inputs and the result of a job's last run. The user's environment is not included.
# capsule.json: the job, its last result, the tools with their versions, the missing inputs.
# aptui.yaml: only the job's builder, for all platforms; builders/ holds the project's own builders.
# sources/: the job's source and all inputs, under their paths in the scan folders.
# run.sh (only for commands): runs the same command line on the capsule's sources, without aptui.
#
# Besides these files, a capsule has only the files that the job's manifest names and the code of builders, never environment
# variables.

_FILES = ("source", "dependency", "discovered", "companion")
"""Kinds of inputs in a manifest that are files."""
_JOBS = ("job", "products")
"""Kinds of inputs in a manifest that are other jobs or their products; a capsule does not contain them."""
_PROJECT_KEYS = ("limits", "metadata_types", "undeclared_reads")
"""Configuration keys that the capsule copies from the project."""
_BELOW = ".aptui.yaml"
"""Name of the file that contains the settings of its folder."""
_HERE = "/…here…"
"""Placeholder for the folder of the capsule while `run.sh` is written; no path of a project contains this text."""


class Capsule(Struct):
    """The content of a capsule.

    `facts` is the content of `capsule.json`; `files` is {name in the capsule: path on the disk, or bytes}.
    """

    facts: CapsuleFacts
    files: dict[str, str | bytes] = field(default_factory=dict)


def pack_capsule(row: JobRow, builder: Builder, database: Reader, config: Config) -> Capsule:
    """Return the capsule of a job.

    Raises:
        UserError: the project uses a database of O3DE, or the job's source does not exist.
    """
    if config.foreign:
        raise UserError(
            "only jobs of a project with an aptui.yaml can be packed into a capsule",
            hint="to run this job by itself, use 'aptui rerun JOB'",
        )
    manifest = _manifest(row, database)
    quality = Quality.DRAFT if is_of_any_draft(manifest) else Quality.FINAL
    capsule = Capsule(_facts(row, builder, database, config, quality))
    _Inputs(database, manifest).add_to(capsule, row)
    for path in sorted((config.project_dir / "builders").rglob("*.py")):
        capsule.files[f"builders/{path.relative_to(config.project_dir / 'builders')}"] = str(path)
    capsule.files["aptui.yaml"] = _project(row, builder, config)
    if builder.command is not None and row.job_id:
        capsule.files["run.sh"] = _script(row, builder, quality)
    capsule.files[FACTS] = json.dumps(to_builtins(capsule.facts), indent=2).encode() + b"\n"
    return capsule


def _facts(row: JobRow, builder: Builder, database: Reader, config: Config, quality: Quality) -> CapsuleFacts:
    system = {"python": machine.python_version(), "system": machine.system(), "machine": machine.machine()}
    return CapsuleFacts(
        FORMAT,
        CapsuleJob(row.source, row.platform, row.job_key, not row.job_id, quality),
        _outcome(row, database),
        {"name": builder.name, "kind": builder.kind.value, "version": builder.version},
        {"aptui": __version__, **system},
        [CapsuleTool(tool.name, tool.digest) for tool in config.tools if tool.builder == builder.name],
    )


def _outcome(row: JobRow, database: Reader) -> CapsuleOutcome:
    runs = database.runs_of(row.job_id) if row.job_id else []
    products = database.products_of(row.job_id) if row.job_id and row.status == "completed" else []
    return CapsuleOutcome(
        row.status,
        row.error,
        [CapsuleProduct(one.name, one.digest.hex(), one.sub_id, one.size) for one in products],
        row.reason,
        printing.iso(row.completed_ms),
        row.duration_s,
        f"{runs[0].fingerprint & (1 << 64) - 1:016x}" if runs else "",
    )


def _manifest(row: JobRow, database: Reader) -> tuple[tuple[str, str, str], ...]:
    """Return the inputs of the job's last run; if the job never ran, return the source and its declared dependencies."""
    inputs = states[0].inputs if row.job_id and (states := database.moments_of(row.job_id)) else ()
    if any(kind == "source" for kind, _name, _digest in inputs):
        return inputs
    declared = [("dependency", edge.target.lower(), "") for edge in database.edges_of(row.source_id) if not edge.from_asset_id]
    return (("source", row.source, ""), *declared)


class _Inputs:
    """Finds the present paths of the files that a manifest names."""

    def __init__(self, database: Reader, manifest: Iterable[tuple[str, str, str]]) -> None:
        self._database = database
        self._manifest = manifest
        self._roots = database.folder_paths()

    def add_to(self, capsule: Capsule, row: JobRow) -> None:
        """Add every existing input file to the capsule.

        `capsule.facts.lacks` lists the inputs that the capsule does not have: files that were deleted since the run, and products
        of other jobs. A file that was already missing in the run is not listed.

        Raises:
            UserError: the job's source no longer exists.
        """
        for kind, name, digest in self._manifest:
            if kind in _JOBS:
                capsule.facts.lacks.append(f"the products of {name}, on which this job depends")
            elif kind in _FILES and "*" not in name:
                self._add(capsule, name, digest)
        if f"{SOURCES}/{row.source}" not in capsule.files:
            raise UserError(
                f"the source '{row.source}' no longer exists",
                hint="a capsule contains the present content of the source, so restore the file first",
            )

    def _add(self, capsule: Capsule, name: str, digest: str) -> None:
        fact = self._database.file(name)
        path = os_path(f"{self._roots.get(fact.scan_folder, '')}/{fact.rel}") if fact is not None else ""
        if fact is None or not os.path.isfile(path):
            if digest != MISSING:
                capsule.facts.lacks.append(f"'{name}', which no longer exists")
            return
        place = f"{SOURCES}/{fact.rel}"
        if place in capsule.files:
            return
        capsule.files[place] = path
        now = _digest_of(path)
        is_other = bool(digest) and digest != MISSING and not now.startswith(digest)
        capsule.facts.inputs.append(CapsuleInput(str(fact.rel), now, is_other))
        self._add_settings(capsule, self._roots[fact.scan_folder], str(fact.rel))

    @staticmethod
    def _add_settings(capsule: Capsule, root: str, rel: str) -> None:
        """Add the settings files of all folders above a file."""
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
    """Return the configuration of the capsule as JSON, which is also YAML."""
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
    """Return a script that runs the command of the last run; the products are written into `out/` beside the script."""
    assert builder.command is not None
    params = json.loads(dict(builder.platform_params).get(row.platform) or builder.params or "{}")
    source = os_path(row.source)
    values = values_of(source, row.platform, (f"{_HERE}/out", f"{_HERE}/temp"), f"{_HERE}/{SOURCES}/{source}", params)
    values["quality"] = quality.value
    values["depfile"], values["product_dependencies"] = f"{_HERE}/temp/depfile.d", f"{_HERE}/temp/product_dependencies.txt"
    try:
        command = commands.invocation(builder.command.command, values)
    except commands.CommandError as error:
        return f"#!/bin/sh\n# {printing.line(str(error))}\nexit 1\n".encode()
    quality_variables = ((QUALITY_VARIABLE, quality.value),) if builder.has_drafts else ()
    exports = [f"export {name}={_quote(value)}" for name, value in (*quality_variables, *command.environment)]

    lines = [
        "#!/bin/sh",
        "# Runs the command of this job on the sources beside this script; the products are in out/.",
        "set -eu",
        'here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)',
        'rm -rf "$here/out" "$here/temp"',
        'mkdir -p "$here/out" "$here/temp"',
        'export TMPDIR="$here/temp"',
        *exports,
        'cd "$here/temp"',
        " ".join(map(_quote, command.arguments)),
    ]
    return "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n"


def _quote(text: str) -> str:
    """Quote a word for the shell. The folder of the capsule becomes a variable, which the script sets when it runs."""
    return '"$here"'.join(shlex.quote(part) if part else "" for part in text.split(_HERE)) or "''"


# -------------------------------------------------------------------------------------------------------------------- file


def write(capsule: Capsule, file: str) -> int:
    """Write the capsule atomically, and return its size. Equal capsules give equal bytes.

    Raises:
        HostError: the capsule cannot be written, or an input cannot be read.
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
    entry = tarfile.TarInfo(f"{TOP}/{os_path(name)}")
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
"""Platform ids of jobs whose products are valid for every platform."""


def capsule_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `capsule`."""
    parser.add_argument(
        "words",
        metavar="JOB | run FILE",
        nargs="+",
        help="job to pack: #<number>, or PATH[@PLATFORM][:JOB KEY]; or 'run' and the capsule to run",
    )
    parser.add_argument("--out", metavar="FILE", help="write the capsule to FILE; by default the name of the job with .capsule.tgz")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--trust-code", action="store_true", help="run: run the code in the capsule without asking")
    parser.add_argument("--limit", metavar="SIZE", help="run: maximum size of the unpacked capsule; 1GiB by default")
    parser.epilog = """\
A capsule contains the inputs and the result of the job's last run, its builder and its
platform. For a command it also has a run.sh, which does not need aptui. It does not
contain environment variables. 'run' lists the code in a capsule and asks before it runs.
It uses the builders, platforms and limits of the capsule, and your own settings for
products, hooks and the sandbox.
  aptui capsule textures/a.png@linux      write a.png@linux.capsule.tgz
  aptui capsule run a.png@linux.capsule.tgz"""


def capsule(arguments: Namespace) -> int:
    """Write a capsule (an archive with one job and its inputs), or run the job in a capsule."""
    match arguments.words:
        case ["run", file]:
            refuse_ignored(arguments, ["out"], "has no effect with 'run'")
            return _run(file, arguments)
        case [job] if job != _RUN:
            refuse_ignored(arguments, ["trust-code", "limit"], "is an option of 'run' only")
            return _make(job, arguments)
        case _:
            raise UserError("give either one job, or 'run' and one file", hint="see 'aptui capsule --help'")


def _make(word: str, arguments: Namespace) -> int:
    config = load_config(arguments)
    with open_for_reading(arguments, config) as project:
        row = find_job(word, config, project.database)
        builder = next((one for one in all_builders(config) if one.uuid == row.builder), None)
        if builder is None:
            raise UserError("the builder of this job is no longer in the configuration", hint="'aptui builders' lists the builders")
        made = pack_capsule(row, builder, project.database, config)
    name = row.source.rpartition("/")[2]
    file = arguments.out or f"{name}@{row.platform}.capsule.tgz"
    size = write(made, file)
    if arguments.json:
        printing.say_json({**to_builtins(made.facts), "file": file, "bytes": size})
        return 0
    _print_missing(made.facts)
    inputs, expected = printing.count(len(made.facts.inputs), "input"), _describe_outcome(made.facts.expected)
    printing.say(f"{printing.line(file)}: {inputs}, {printing.size(size)}; expected result: {expected}")
    return 0


def _print_missing(facts: CapsuleFacts) -> None:
    for text in facts.lacks:
        printing.complain(f"aptui: the capsule does not contain {printing.line(text)}", "yellow")
    for one in facts.inputs:
        if one.changed_since:
            printing.complain(f"aptui: '{printing.line(one.path)}' changed since the last run", "yellow")


def _describe_outcome(outcome: CapsuleOutcome) -> str:
    if outcome.status != "completed":
        return f"{printing.line(outcome.status)}: {printing.line(outcome.error)}"
    return f"completed, {printing.count(len(outcome.products), 'product')}"


# --------------------------------------------------------------------------------------------------------------------- run


def _run(file: str, arguments: Namespace) -> int:
    with interrupt_on_signals(), scratch_folder(_FOLDER_PREFIX) as folder:
        facts, project = received_capsule.receive(file, folder, _limit_of("1GiB" if arguments.limit is None else arguments.limit))
        job, wanted = facts.job, facts.job.platform
        config = project.load(None if wanted in _NO_PLATFORM else wanted)
        _ask_for_consent(file, project, config, is_given=arguments.trust_code)
        noise = StringIO()
        with redirect_stderr(noise):
            summary = run_batch(config, RunOptions(makes_finals=job.quality != Quality.DRAFT))
        if summary.is_interrupted:
            return INTERRUPTED
        with closing(open_reader(asset_database(config.cache_dir))) as database:
            came = _find_outcome(job, database)
    differences = [*_tools(facts, config), *_differences(facts.expected, came)]
    is_same = not any(one.is_result for one in differences)
    if arguments.json:
        answer = {"job": job, "same": is_same, "expected": facts.expected, "found": came, "differences": differences}
        printing.say_json(to_builtins(answer))
        return 0 if is_same else JOBS_FAILED
    printing.say(printing.line(f"{job.source}@{job.platform}:{job.job_key}"), "bold")
    _print_missing(facts)
    printing.say(f"result: {_describe_outcome(came)}")
    for one in differences:
        printing.say(f"  {printing.line(one.what)}: {printing.line(one.found)}, not {printing.line(one.expected)}", "yellow")
    printing.say("equal to the recorded result" if is_same else "differs from the recorded result", "green" if is_same else "red")
    return 0 if is_same else JOBS_FAILED


def _limit_of(text: str) -> int:
    try:
        return nodes.byte_count(text)
    except ValueError as error:
        raise UserError(f"--limit: {error}", hint="for example --limit 4GiB") from None


def _ask_for_consent(file: str, project: ReceivedProject, config: Config, *, is_given: bool) -> None:
    """Print what the capsule would run here, and continue only if the user agrees."""
    name = f"'{printing.line(file)}'"
    if project.ignored:
        printing.complain(f"aptui: {name}: ignored settings: {printing.line(', '.join(project.ignored[:20]))}", "yellow")
    if not project.runs:
        return
    place = (
        "in a sandbox, if bubblewrap works" if config.may_use_sandbox else f"without a sandbox, because of {SANDBOX_VARIABLE}=off"
    )
    printing.complain(f"{name} contains this code, which would run on this machine {place}:", "yellow")
    for text in project.runs:
        printing.complain(f"  {text}")
    if is_given:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(
            f"{name} contains code, and there is no terminal to ask for consent", hint="read the code, then add --trust-code"
        )
    if not printing.ask_consent("run this code?", sys.stderr):
        raise UserError(f"{name} was not run", hint="to run it without a question, add --trust-code")


class CapsuleDifference(Struct, frozen=True):
    """A difference between the recorded run and the run on this machine.

    `is_result` is False for a different tool: the tool may explain why products differ, but is not part of the result.
    """

    what: str
    expected: str
    found: str
    is_result: bool = True


def _find_outcome(job: CapsuleJob, database: Reader) -> CapsuleOutcome:
    names = (job.source.lower(), job.platform, job.job_key)
    for row in database.jobs():
        if (row.source.lower(), row.platform, row.job_key) == names:
            return _outcome(row, database)
    return CapsuleOutcome("absent", "the capsule does not contain the job", [])


def _differences(expected: CapsuleOutcome, came: CapsuleOutcome) -> Iterator[CapsuleDifference]:
    if expected.status != came.status:
        yield CapsuleDifference("its outcome", _describe_outcome(expected), _describe_outcome(came))
    elif expected.error != came.error:
        yield CapsuleDifference("its error", expected.error, came.error)
    before = {one.name: one.digest for one in expected.products}
    after = {one.name: one.digest for one in came.products}
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, "none"), after.get(name, "none")
        if was != now:
            yield CapsuleDifference(name, was[:12], now[:12])


def _tools(facts: CapsuleFacts, config: Config) -> Iterator[CapsuleDifference]:
    """Yield the tools that have another digest on this machine than in the capsule."""
    here = {tool.name: tool.digest for tool in config.tools}
    for one in facts.tools:
        if here.get(one.name, "") != one.digest:
            there, now = one.digest[:12] or "none", here.get(one.name, "")[:12] or "none"
            yield CapsuleDifference(f"the tool {one.name}", there, now, is_result=False)
