"""`aptui capsule`: a job in a file that others can run, and such a file run and compared with what is said in it."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aptui.batch.options import RunOptions, load_config
from aptui.batch.run import JOBS_FAILED
from aptui.batch.run import run as run_batch
from aptui.config import load
from aptui.config.dirs import asset_database
from aptui.config.model import Config, SharedCacheSettings
from aptui.core.project import COMMON_PLATFORM
from aptui.core.results.quality import Quality
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.reader import JobRow, Reader, open_reader
from aptui.verbs.naming import find_job
from aptui.verbs.opening import all_builders, open_for_reading
from aptui.verbs.sessions import capsule_file

_RUN = "run"
_NO_PLATFORM = (COMMON_PLATFORM, "all")
"""Of jobs that work for every platform."""


def capsule_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `capsule`."""
    parser.add_argument(
        "words", metavar="JOB | run FILE", nargs="+", help="#<number>, or PATH[@PLATFORM][:JOB KEY]; or a capsule to run"
    )
    parser.add_argument("--out", metavar="FILE", help="where the capsule goes; JOB's name and .capsule.tgz by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = """\
A capsule has the inputs of the job's last run, its builder and platform, what it
came to, and for commands a run.sh that needs no aptui. The environment does not
travel. Running one runs the code in it: take it from people you trust.
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
        made = capsule_file.pack_capsule(row, builder, project.database, config)
    name = row.source.rpartition("/")[2]
    file = arguments.out or f"{name}@{row.platform}.capsule.tgz"
    size = capsule_file.write(made, file)
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
    with tempfile.TemporaryDirectory(prefix="aptui-capsule-") as folder:
        facts = capsule_file.unpack(file, Path(folder))
        wanted = facts["job"]["platform"]
        loaded = load.load(Path(folder) / "capsule", platforms=None if wanted in _NO_PLATFORM else [wanted])
        config = replace(loaded, sharing=SharedCacheSettings())
        noise = StringIO()
        with redirect_stderr(noise):
            run_batch(config, RunOptions(makes_finals=facts["job"].get("quality") != Quality.DRAFT))
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


def _outcome(job: dict[str, Any], database: Reader) -> dict[str, Any]:
    row = next((row for row in database.jobs() if _is(row, job)), None)
    if row is None:
        return {"status": "absent", "error": "there is no such job in it", "products": []}
    products = database.products_of(row.job_id) if row.job_id and row.status == "completed" else []
    listed = [{"name": one.name, "sub_id": one.sub_id, "bytes": one.size, "digest": one.digest.hex()} for one in products]
    return {"status": row.status, "error": row.error, "products": listed}


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
