"""`aptui batch`: runs the engine until no work is pending, with a reporter, a summary and an exit code.

If an engine is already running, this process only asks that engine to finish its work (`settle`). Other verbs that need an engine
(`reprocess`, `verify --repair`, `demo`) call `run`, so that all these verbs behave the same.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aptui import __version__, feature
from aptui.batch.options import (
    STOPPED_EARLY,
    FailureCounter,
    RunOptions,
    adopt_argument,
    adopt_cache,
    engine_arguments,
    knows_all_jobs,
    load_to_run,
    options_of,
    report_arguments,
    stop_after,
)
from aptui.batch.reporter import Reporter
from aptui.batch.summary import Summary, collect, complete
from aptui.config import configuration, load, own_files
from aptui.config.dirs import engine_record, own_folder
from aptui.config.packing import differing, variables_of
from aptui.shared import printing, trace
from aptui.shared.errors import BusyError, HostError, KnownError, UserError
from aptui.shared.files.replacing import refuse_unwritable

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from aptui.config.configuration import Config
    from aptui.engine.loop.opening import PreparedSession
    from aptui.link import port
    from aptui.link.engine_client import EngineClient


INTERRUPTED, JOBS_FAILED = 130, 1
"""Exit codes of a run that a signal stopped, and of a run with failed jobs."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE_S = 0.05
"""Time (seconds) to wait for the engine's answer before its state is queried: if nothing changed, the answer arrives within
milliseconds."""
_ACCEPTANCE_LIMIT_S, _POLL_S = 45.0, 0.2
"""Timeout and poll interval (seconds) of waiting until an engine accepts a scan folder; an engine in the state "in trouble" retries
after at most 30 s."""


def batch_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `batch`."""
    engine_arguments(parser)
    report_arguments(parser)
    parser.add_argument(
        "--full-scan", action="store_true", help="read every file again, even if its size and modification time did not change"
    )
    parser.add_argument(
        "--accept-empty", action="append", default=[], metavar="NAME",
        help="accept scan folder NAME although it is empty, is on another device, or lacks most of its files; "
        "products of missing sources are deleted",
    )  # fmt: skip
    adopt_argument(parser)
    parser.add_argument(
        "--trace", metavar="FILE", help="write to FILE how the run spent its time, as a trace for Perfetto or Chrome"
    )
    parser.add_argument(
        "--stop-after",
        metavar="N[:same-cause]",
        help="stop after N failures, or after N failures with the same cause; the other jobs do not run, and "
        f"the exit code is {STOPPED_EARLY}",
    )
    parser.add_argument("--remove", action="store_true", help="delete the products of platforms that are not enabled")


def batch(arguments: Namespace) -> int:
    """Process all pending work; return the exit code."""
    config, options = load_to_run(arguments), options_of(arguments, is_full_scan=arguments.full_scan)
    if arguments.remove:
        config, options = load.without_disabled(config), replace(options, removes_disabled=True)
    if arguments.stop_after is not None:
        options = replace(options, stop_after=stop_after(arguments.stop_after))
    with own_files.writing(arguments.trace), trace.write_trace_to(arguments.trace):
        _, code = run_and_report(arguments, config, options)
    return code


def run_and_report(arguments: Namespace, config: configuration.Config, options: RunOptions) -> tuple[Summary, int]:
    """Run the engine with the options of `engine_arguments`, report the result, and return it with the exit code."""
    if arguments.junit:
        refuse_unwritable(arguments.junit)
        own_files.note_written(arguments.junit)  # the report of an earlier run must not become a source of this run
    adopt_cache(arguments, config)
    began_ms = time.time_ns() // 1_000_000
    with _accept_scan_folders(config, options.accepts_empty):
        summary = run(config, options)
    complete(summary, config, arguments, began_ms)
    code = exit_code(summary, arguments.fail_on)
    for text in summary.mistakes:
        printing.complain(f"aptui: {printing.line(text)}")
    try:
        if arguments.junit:
            from aptui.batch.junit import write_junit

            write_junit(arguments.junit, config, summary, arguments.fail_on)
        if arguments.json:
            printing.say_json(summary.to_json())
        else:
            summary.print_summary()
        sys.stdout.flush()
    except BrokenPipeError:
        printing.silence_stdout()
    return summary, code


def run(config: configuration.Config, options: RunOptions) -> Summary:
    """Run the engine until no work is pending or a signal stops it; if an engine is running, ask that engine."""
    began_s = time.monotonic()
    summary = _run(config, options)
    summary.seconds = time.monotonic() - began_s
    return summary


def _run(config: configuration.Config, options: RunOptions) -> Summary:
    if options.debug_output:
        config = replace(config, project=replace(config.project, debug_output=True))
    if not options.makes_finals:
        config = replace(config, project=replace(config.project, makes_finals=False))
    reporter = Reporter(sys.stderr)
    if os.path.lexists(engine_record(config.cache_dir)) and (summary := _run_by_engine(config, options, reporter)) is not None:
        return summary
    # imported here, because the module is not needed by verbs that only read, or if a running engine does the work
    from aptui.engine.loop.opening import PreparedSession

    opening = PreparedSession(config, trusts_times=not options.is_full_scan, starts_worker=True)
    try:
        opening.acquire()
    except BusyError as busy:
        summary = _run_by_engine(config, options, reporter)
        if summary is None:
            reporter.close()
            raise busy from None
        return summary
    builders = {builder.uuid: builder.name for builder in opening.builders}
    if opening.is_current and not options.sources and not options.restores:
        opening.close()
        for sentence in (*opening.sentences, *(opening.walk.sentences if opening.walk else ())):
            reporter.say(sentence)
        reporter.close()
        summary = collect(config, reporter, 0, builders)
        summary.mistakes = opening.mistakes
        return summary
    return _run_engine(config, options, opening, reporter, builders)


def _run_by_engine(config: configuration.Config, options: RunOptions, reporter: Reporter) -> Summary | None:
    """Let the running engine do the work, and return the summary; return None if no engine answers."""
    from aptui.link.engine_client import EngineClient, NoEngine

    try:
        client = EngineClient.of(config.cache_dir, kind="batch")
    except NoEngine:
        return None
    with client:
        _refuse_beside_engine(options)
        return settle(client, config, options, reporter)


def settle(client: EngineClient, config: Config, options: RunOptions, reporter: Reporter) -> Summary:
    """Make the engine that owns the cache process all changes up to now.

    Raises:
        BusyError: the engine does not answer. UserError: the engine runs with other options, or the configuration is wrong.
    """
    if client.hello.version != __version__:
        what = (
            f"aptui: the running engine has version {client.hello.version}, and this is version {__version__}; "
            "run 'aptui start' to replace the engine"
        )
        printing.complain(what, "yellow")
    answer = None
    try:
        answer = _follow(client, options, reporter)
    except KeyboardInterrupt:
        pass
    finally:
        reporter.close()
    if answer and answer.get("configuration"):
        raise UserError(
            f"the running engine did not reload the configuration: {answer['configuration']}",
            hint="correct the configuration; or run 'aptui stop', then this command again",
        )
    builders = {builder.uuid: builder.name for builder in config.project.builders}
    jobs_run = int(str(answer["run"])) if answer else 0
    # The reporter received no notices of runs that ended before it subscribed. The engine's answer also counts these runs, whose
    # jobs would otherwise be counted as skipped.
    reporter.jobs_run = max(reporter.jobs_run, jobs_run)
    summary = collect(config, reporter, jobs_run, builders)
    if answer is None:
        summary.is_interrupted = True
        return summary
    if isinstance(unknown := answer.get("unknown"), list):
        summary.unknown = tuple(map(str, unknown))
    if isinstance(mistakes := answer.get("folder_mistakes"), list):
        summary.mistakes = tuple(map(str, mistakes))
    if isinstance(variables := answer.get("variables"), dict) and (others := differing(config, variables)):
        mine = variables_of(config)
        texts = "; ".join(_describe_difference(name, mine[name], str(variables[name])) for name in others)
        printing.complain(
            f"the running engine keeps the environment variables that it was started with: {texts}; to use your values, "
            "run 'aptui stop', then this command again"
        )
    if isinstance(shared := answer.get("shared"), dict) and shared:
        from aptui.shared.result_store import sum_of

        summary.set_account(sum_of(shared), is_remote=config.sharing.is_remote)
    return summary


def _describe_difference(name: str, mine: str, engines: str) -> str:
    """Describe how an environment variable differs between this process and the engine.

    The text does not contain the values, because they may be secret.

    Args:
        mine: digest of its value in this process, "" = not set.
        engines: digest of its value in the engine, "" = not set.
    """
    if not mine:
        return f"'{name}' is set in the engine, but not in this command"
    if not engines:
        return f"'{name}' is set in this command, but not in the engine"
    return f"'{name}' differs between this command and the engine"


def _await_acceptance(client: EngineClient) -> None:
    """Wait until an engine that refused a scan folder has retried and accepted the folder."""
    from aptui.link import port

    deadline = time.monotonic() + _ACCEPTANCE_LIMIT_S
    while client.ask(port.ReadStatus())["state"] == "in trouble" and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _follow(client: EngineClient, options: RunOptions, reporter: Reporter) -> port.Answer:
    """Send the requests of a run to the engine, report the run's progress, and return the engine's answer to `Settle`."""
    from aptui.link import port

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.accepts_empty:
        _await_acceptance(client)
    if options.sources:
        client.ask(port.ReprocessJobs(keys=options.sources))
    if options.restores and (restore := feature.find_request("restore")) is not None:
        for job_id, run_key in options.restores:
            client.ask(restore(job_id, run_key))
    answers: list[port.Answer | KnownError] = []
    retries = not options.sources and not options.restores
    settle_request = port.Settle(options.is_full_scan, options.platforms, options.sets, options.debug_output or None, retries)
    client.post(settle_request, answers.append)
    if not client.listen_until(lambda: answers, _AT_ONCE_S):
        health = client.ask(port.Subscribe(wants_all=False)).get("health")
        if isinstance(health, dict) and (holds := health.get("holds")):
            reporter.say(printing.line(f"waiting, because changes are held by {', '.join(holds)}"), "yellow")
        client.listen_while_alive(lambda: answers, on_news=lambda news: reporter(news.notice))
    if isinstance(answers[0], KnownError):
        raise answers[0]
    return answers[0]


def _refuse_beside_engine(options: RunOptions) -> None:
    """Raise an error if an option needs an engine of its own, but an engine is running already."""
    what, hint = "cannot be used while an engine is running", "run 'aptui stop' first"
    if options.removes_disabled:
        raise UserError(f"'--remove' {what}", hint=hint)
    if trace.active is not None:
        hint = f"to trace the engine, start it with the environment variable {trace.VARIABLE}=FILE"
        raise UserError(f"'--trace' {what}", hint=hint)
    for option, is_used in (("--draft", not options.makes_finals), ("--stop-after", options.stop_after is not None)):
        if is_used:
            raise UserError(f"'{option}' {what}, because the engine may have other clients", hint=hint)


def _run_engine(
    config: configuration.Config,
    options: RunOptions,
    opening: PreparedSession,
    reporter: Reporter,
    builders: dict[bytes, str],
) -> Summary:
    from aptui.engine.loop.engine import Engine  # this module is imported here, because only a run with pending work needs it

    observers = _observers(config)
    engine = Engine(config, [reporter, *observers], is_full_scan=options.is_full_scan, opening=opening)
    counter = FailureCounter(options.stop_after, engine.stop) if options.stop_after is not None else None
    if counter is not None:
        engine.news.listeners.append(counter)

    def stop() -> None:
        reporter.say("stopping when the running jobs have ended; press Ctrl+C again to stop at once")
        engine.stop()

    with stop_on_signals(stop):
        engine.open()
        try:
            engine.start_scan()
            if options.sources:
                engine.ask("reprocess", keys=options.sources)
            for job_id, run_key in options.restores:
                engine.restore(job_id, run_key)
            engine.run_until_idle()
        finally:
            reporter.close()
            engine.close()
            for each in observers:
                each.close(has_rested=not engine.is_stopping)
    summary = collect(config, reporter, engine.pipeline.status().run, builders)
    summary.stopped_after = counter.why if counter is not None else ""
    summary.is_count_partial = bool(summary.stopped_after) and not knows_all_jobs(engine.pipeline.status())
    summary.is_interrupted = engine.is_stopping and not summary.stopped_after
    summary.unknown = tuple(engine.scans.unknown.values())
    summary.mistakes = engine.pipeline.jobs.settings.problems
    if engine.runs.account is not None:
        summary.set_account(engine.runs.account.total(), is_remote=config.sharing.is_remote)
    return summary


def _observers(config: configuration.Config) -> list[Any]:
    """Return the observers of features (extension point `observer`); a project without alerts does not load them."""
    return [observe(lambda: config, printing.complain) for observe in feature.load_all("observer")] if config.on.alerts else []


def exit_code(summary: Summary, fail_on: str | None) -> int:
    """Return the exit code of a run; it depends on the state of the whole database, so that a second run returns the same code."""
    if summary.is_interrupted:
        return INTERRUPTED
    if summary.unknown:
        return HostError.exit_code
    if summary.mistakes:
        return UserError.exit_code
    if summary.stopped_after:
        return STOPPED_EARLY
    is_bad = summary.jobs_failed > 0 or summary.is_too_slow or summary.is_too_flaky or summary.is_unfinished or summary.is_refused
    if fail_on is not None:
        is_bad = is_bad or summary.errors > 0 or (fail_on == "warning" and summary.warnings > 0)
    return JOBS_FAILED if is_bad else 0


@contextmanager
def _accept_scan_folders(config: configuration.Config, names: tuple[str, ...]) -> Iterator[None]:
    """Accept the present state of these scan folders until the run ends, both for this process and for a running engine."""
    if not names:
        yield
        return
    from aptui.engine.scan import walk

    folders = {folder.name: folder for folder in config.project.scan_folders}
    for name in names:
        if name not in folders:
            raise UserError(
                f"--accept-empty: '{name}' is not a scan folder", hint=f"the scan folders are: {', '.join(sorted(folders))}"
            )
    own = str(own_folder(config.cache_dir))
    try:
        for name in names:
            walk.accept(own, folders[name])
        yield
    finally:
        walk.forget_accepted(own)


@contextmanager
def stop_on_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Let the first signal call `stop`, which ends the work cleanly, and the second signal end the program.

    Files on disk stay valid in both cases.
    """
    previous: dict[int, object] = {}

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop()

    with suppress(ValueError):  # only the main thread can handle signals; in another thread, the calling program handles them
        # A signal that is already ignored stays ignored, because nohup, or a shell without job control, ignores it on purpose.
        for wanted in [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]:
            previous[wanted] = signal.signal(wanted, handle)
        # The kernel sends SIGIO when another program opens a file on which this process holds a lease.
        previous[signal.SIGIO] = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from signal.signal
