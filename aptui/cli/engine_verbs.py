"""The verbs that start, stop, list and control engines. All but `serve` send requests through the socket.

Tests: `tests/daemon/test_daemon_process.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aptui import __version__
from aptui.batch.options import (
    adopt_argument,
    adopt_cache,
    configuration_arguments,
    list_given,
    load_config,
    load_last_config,
    load_to_run,
    project_dir,
    project_facts,
)
from aptui.batch.run import INTERRUPTED
from aptui.cli.main import ENGINE_PATH
from aptui.config.configuration import Config
from aptui.config.dirs import refuse_other_user
from aptui.link import places, port
from aptui.link.engine_client import EngineClient, EngineGone, NoEngine
from aptui.shared import printing
from aptui.shared.errors import BusyError, HostError, UserError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_STOP_LIMIT_S = 30.0
"""Timeout for the end of an engine, in seconds."""
_POLL_S = 0.02
"""Interval of the checks whether an engine has ended or a gateway listens, in seconds."""
_ASK_AGAIN_S = 1.0
"""Interval (seconds) of the checks whether an engine is idle, if it has to stop as soon as it is idle."""
_GATEWAY_LIMIT_S = 10.0
"""Timeout of `start` for the gateway to listen (seconds); the engine's imports take a second on a busy machine."""


def _json_argument(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


@contextmanager
def engine_of(arguments: Namespace, config: Config | None = None) -> Iterator[EngineClient]:
    """Connect to the engine of the project that the command line names.

    Raises:
        HostError: no engine is running.
    """
    config = config or load_last_config(arguments)
    try:
        client = EngineClient.of(config.cache_dir)
    except NoEngine:
        raise HostError(f"no engine is running for '{config.project_dir}'", hint="start an engine with 'aptui start'") from None
    with client:
        yield client


# ------------------------------------------------------------------------------------------------------------ serve, start


def serve_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `serve`."""
    parser.add_argument(
        "--skip-start-scan", action="store_true", help="do not search for changes that were made while no engine was running"
    )
    configuration_arguments(parser)
    parser.add_argument("--detached", action="store_true", help="run without a terminal; SIGHUP reloads the configuration")
    adopt_argument(parser)


def serve(arguments: Namespace) -> int:
    """Run the engine in the foreground."""
    from aptui.daemon import daemon_process

    arguments.project = str(project_dir(arguments))
    config = load_to_run(arguments)
    adopt_cache(arguments, config)
    daemon_process.serve(
        config,
        lambda: load_config(arguments),
        skips_start_scan=arguments.skip_start_scan or _skips_start_scan(config),
        is_detached=arguments.detached,
        say=lambda text: printing.say_now(printing.line(text)),
        gateway_options=same_configuration(arguments),
    )
    return 0


def same_configuration(arguments: Namespace) -> list[str]:
    """Return the command-line options that make another process read the same configuration."""
    return [f"--set={text}" for text in arguments.set] + ([f"--platforms={arguments.platforms}"] if arguments.platforms else [])


def _skips_start_scan(config: Config) -> bool:
    """Return whether the user turned the first scan off in the settings of O3DE, if the project is an O3DE project."""
    facts = project_facts(config)
    return facts is not None and bool(facts.skips_start_scan)


def start_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `start`."""
    serve_arguments(parser)
    _json_argument(parser)


def start(arguments: Namespace) -> int:
    """Start the engine in the background, unless it is running already."""
    from aptui.daemon import daemon_process

    config = load_to_run(arguments)
    pid, verb = _running(config), "is already running"
    if not pid:
        adopt_cache(arguments, config)
        _forget_gateway(config)
        options = ["--skip-start-scan"] * arguments.skip_start_scan + same_configuration(arguments)
        options += [f"--workers={arguments.workers}"] if arguments.workers is not None else []
        pid, verb = daemon_process.start(config.project_dir, config.cache_dir, options), "runs"
    else:
        _report_unused(arguments)
    answer: dict[str, Any] = {"pid": pid}
    text = f"the engine of '{printing.line(str(config.project_dir))}' {verb} as process {pid}"
    if not config.serve.is_enabled:
        return printing.say_answer(arguments.json, answer, text)
    record = _gateway(config)
    answer |= {"gateway": record.url, "gateway_problem": record.problem}
    printing.say_answer(arguments.json, answer, f"{text}; the gateway {places.describe_gateway(record)}" if record.url else text)
    if record.problem:
        printing.complain(f"aptui: the gateway is not running: {record.problem}")
    return HostError.exit_code if record.problem else 0


def _report_unused(arguments: Namespace) -> None:
    """Warn about options that have no effect, because the engine is already running; a repeated `start` succeeds."""
    given = list_given(arguments, ("skip-start-scan", "platforms", "workers", "set", "adopt-cache"))
    if all(each.startswith(ENGINE_PATH) for each in arguments.set):  # the engine's folder may be necessary
        given = [name for name in given if name != "set"]
    for name in given:
        error = UserError(f"'--{name}' has no effect, because the engine is already running", hint="run 'aptui stop' first")
        printing.complain(f"aptui: {error}", "yellow")


def _forget_gateway(config: Config) -> None:
    """Remove the gateway's record that a crashed engine left, so that `start` does not take it for a new record."""
    record = places.find_gateway(config.cache_dir)
    if record is not None and not record.is_alive:
        places.retract_gateway(config.cache_dir)


def _gateway(config: Config) -> places.GatewayRecord:
    """Wait until the engine's gateway listens or fails; return the gateway's record."""
    deadline = time.monotonic() + _GATEWAY_LIMIT_S
    while time.monotonic() < deadline:
        record = places.find_gateway(config.cache_dir)
        if record is not None and (record.is_alive or record.problem):
            return record
        time.sleep(_POLL_S)
    why = f"the gateway did not begin to listen within {_GATEWAY_LIMIT_S:.0f} s; run 'aptui status' to see whether it listens now"
    return places.GatewayRecord(0, 0, "", config.serve.address, config.serve.port, "", why)


def _running(config: Config) -> int:
    """Return the process id of the running engine, 0 if no engine is running.

    If the running engine has another version, ask it to stop as soon as it is idle, wait until it has ended, and return 0.
    """
    try:
        with EngineClient.of(config.cache_dir) as client:
            welcome = client.hello
    except NoEngine:
        return 0
    if welcome.version == __version__ and welcome.protocol == port.PROTOCOL:
        return welcome.pid
    printing.complain(
        f"aptui: the running engine has version {welcome.version}; when that engine is idle, a new engine replaces it", "yellow"
    )
    stop_engines(config.cache_dir, is_when_idle=True)
    return 0


def stop_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `stop`."""
    parser.add_argument("--all", action="store_true", help="stop all engines that you have started")
    parser.add_argument("--when-idle", action="store_true", help="stop when all jobs are done")
    _json_argument(parser)


def stop(arguments: Namespace) -> int:
    """Stop the engine and wait until it has ended."""
    stopped = stop_engines(None if arguments.all else load_last_config(arguments).cache_dir, is_when_idle=arguments.when_idle)
    text = f"stopped: {', '.join(map(str, stopped))}" if stopped else "no engine is running"
    return printing.say_answer(arguments.json, {"stopped": stopped}, text)


def stop_engines(cache_dir: Path | None, *, is_when_idle: bool = False) -> list[int]:
    """Stop the engine of a cache, or every engine of this user if `cache_dir` is None. Return the ids of the ended processes.

    Raises:
        HostError: the cache belongs to another user.
    """
    if cache_dir is not None:
        refuse_other_user(cache_dir)
    found = places.engines() if cache_dir is None else filter(None, [places.engine_of(cache_dir)])
    records = [record for record in found if record.is_alive]
    return [record.pid for record in records if _stop(record, cache_dir or record.cache, is_when_idle=is_when_idle)]


def _stop(record: places.EngineRecord, cache_dir: places.Folder, *, is_when_idle: bool) -> bool:
    try:
        with EngineClient.of(cache_dir, path=record.socket) as client:
            client.ask(port.StopEngine(is_when_idle), timeout_s=5.0)
    except NoEngine:
        return False
    except EngineGone:
        pass
    except (HostError, BusyError) as error:
        if is_when_idle and isinstance(error, BusyError):
            raise
        with suppress(ProcessLookupError):  # the engine may end at this moment
            os.kill(record.pid, signal.SIGTERM)  # the engine does not answer, or has too many clients
    deadline = time.monotonic() + _STOP_LIMIT_S
    ask_at = 0.0
    while record.is_alive:
        if is_when_idle and time.monotonic() >= ask_at and (state := _engine_row(record)["state"]) != "silent":
            if state == "paused":
                what = f"the engine (process {record.pid}) is paused, so it does not become idle and does not stop"
                raise BusyError(what, hint="run 'aptui resume' to let it finish, or 'aptui stop' to stop it now")
            ask_at = time.monotonic() + _ASK_AGAIN_S
            deadline = ask_at + _STOP_LIMIT_S
        if time.monotonic() > deadline:
            raise HostError(
                f"the engine (process {record.pid}) does not end", hint=f"end it with 'kill -9 {record.pid}'; no results are lost"
            )
        time.sleep(_POLL_S)
    return True


def ps_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `ps`."""
    _json_argument(parser)


def ps(arguments: Namespace) -> int:
    """List every engine of this user."""
    rows = [_engine_row(record) for record in places.engines() if record.is_alive]
    if arguments.json:
        printing.say_json({"engines": rows})
        return 0
    printing.table(
        ("pid", "state", "up", "memory", "version", "project"),
        (
            [
                str(row["pid"]),
                str(row["state"]),
                printing.duration(float(row["uptime_s"])),
                printing.size(int(row["rss_bytes"])),
                str(row["version"]),
                printing.line(str(row["project"])),
            ]
            for row in rows
        ),
        right=(0, 2, 3),
    )
    return 0


def _engine_row(record: places.EngineRecord) -> dict[str, Any]:
    row: dict[str, Any] = {"pid": record.pid, "project": record.project, "cache": record.cache, "version": record.version}
    try:
        with EngineClient.connect(record.socket, timeout_s=1.0) as client:
            answer = client.ask(port.ReadStatus(), timeout_s=2.0)
            row.update({key: answer.get(key, "") for key in ("state", "uptime_s", "rss_bytes")})
    except (HostError, BusyError):  # BusyError: the engine has too many clients
        row.update(state="silent", uptime_s=0.0, rss_bytes=0)
    return row


# -------------------------------------------------------------------------------------------- verbs that control the queue


def _make_steering_verb(
    verb: Callable[[Namespace], port.Verb], describe: Callable[[dict[str, Any]], str]
) -> Callable[[Namespace], int]:
    """Return a verb that sends one request to the engine and prints the answer.

    Args:
        verb: returns the request for the arguments of the command line.
        describe: returns the text output for an answer.
    """

    def steer(arguments: Namespace) -> int:
        with engine_of(arguments) as client:
            answer = client.ask(verb(arguments))
        return printing.say_answer(arguments.json, answer, describe(answer))

    return steer


pause_arguments = resume_arguments = _json_argument
pause = _make_steering_verb(
    lambda _: port.PauseJobs(), lambda _: "paused; 'aptui run-next' starts one job, and 'aptui resume' ends the pause"
)
resume = _make_steering_verb(lambda _: port.ResumeJobs(), lambda _: "resumed")
run_next = _make_steering_verb(
    lambda arguments: port.RunNext(_job_id(arguments)),
    lambda answer: (
        f"#{answer['job_id']} starts: {printing.line(str(answer.get('source', '')))}" if answer["job_id"] else "no job is waiting"
    ),
)
drain = _make_steering_verb(
    lambda arguments: port.Drain(arguments.stop), lambda _: "all pending jobs are finished; new changes wait until 'aptui resume'"
)
rescan = _make_steering_verb(lambda arguments: port.RescanSources(arguments.full), lambda _: "scanning all files again")
reload = _make_steering_verb(
    lambda _: port.ReloadConfig(),
    lambda answer: "the configuration was reloaded" if answer["is_changed"] else "the configuration has not changed",
)


def run_next_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `run-next`."""
    parser.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help="job to run: #<number>, or PATH[@PLATFORM][:JOB KEY]; by default the first job in the queue",
    )
    _json_argument(parser)


def _job_id(arguments: Namespace) -> int:
    """Return the number of the job on the command line, 0 if the command line names no job."""
    if not arguments.job:
        return 0
    from aptui.cli.naming import find_job, refuse_failed_analysis
    from aptui.cli.read_access import open_for_reading

    config = load_last_config(arguments)
    with open_for_reading(arguments, config) as project:
        word = f"#{arguments.job}" if arguments.job.isdigit() else arguments.job
        row = find_job(word, config, project.database)
    refuse_failed_analysis(row, "run", "'aptui log' shows why")
    return row.job_id


def drain_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `drain`."""
    parser.add_argument("--stop", action="store_true", help="stop the engine when the pending jobs are finished")
    _json_argument(parser)
    parser.epilog = "Until 'aptui resume', changes wait, and 'batch', 'reprocess' and 'rescan' are refused (exit code 4)."


def rescan_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `rescan`."""
    parser.add_argument(
        "--full", action="store_true", help="read every file again, even if its size and modification time did not change"
    )
    _json_argument(parser)


reload_arguments = _json_argument


# -------------------------------------------------------------------------------------------------------------------- hold


def hold_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `hold`."""
    parser.add_argument("words", nargs="...", metavar="-- COMMAND", help="command to run")
    parser.epilog = (
        "While COMMAND runs, the engine does not process changes. When COMMAND has ended, the engine "
        "processes all of them together. "
        "If no engine is running, the verb only runs COMMAND."
    )


def hold(arguments: Namespace) -> int:
    """Run a command while the engine holds back changes of files; return the exit code of the command."""
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if not words:
        raise UserError("no command is given", hint="for example: aptui hold -- git checkout main")
    config = load_last_config(arguments)
    try:
        client = EngineClient.of(config.cache_dir, name="hold")
    except NoEngine:
        return _run(words)
    with client:
        client.ask(port.Hold(" ".join(words)))
        return _run(words)


def _run(words: list[str]) -> int:
    sys.stdout.flush()
    try:
        code = subprocess.run(words, check=False).returncode
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        raise UserError(
            f"'{words[0]}' cannot be run: {error.strerror}", hint="check the name, and whether the program is in the PATH"
        ) from None
    return code if code >= 0 else 128 - code
