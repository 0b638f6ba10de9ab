"""`aptui batch` with a running engine: asks the engine to finish its work, follows its events and reports the result.

Nothing is processed here.

Tests: `tests/batch/test_run.py`.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from aptui import __version__, feature
from aptui.batch.summary import Summary, collect
from aptui.config.merge import differing
from aptui.link import port
from aptui.link.client import EngineClient, NoEngine
from aptui.shared import printing
from aptui.shared.errors import KnownError, UserError

if TYPE_CHECKING:
    from aptui.batch.options import RunOptions
    from aptui.batch.reporter import Reporter
    from aptui.config.configuration import Config

_AT_ONCE_S = 0.05
"""Delay (seconds) before notices are read: if nothing changed, the answer arrives within milliseconds."""
_TRIES_AGAIN_S, _POLL_S = 45.0, 0.2
"""Timeout and poll interval (seconds); an engine in the state "in trouble" retries after at most 30 s."""


def client_of(config: Config) -> EngineClient | None:
    """Return a connection to the engine that holds the cache; None if no engine is running."""
    try:
        return EngineClient.of(config.cache_dir, kind="batch")
    except NoEngine:
        return None


def settle(client: EngineClient, config: Config, options: RunOptions, reporter: Reporter, began_s: float) -> Summary:
    """Have the engine that holds the cache process everything that was changed before now.

    Raises:
        BusyError: the engine does not answer. UserError: the engine runs with other options, or the configuration is wrong.
    """
    if client.hello.version != __version__:
        what = f"aptui: the running engine is aptui {client.hello.version}, and this is {__version__}: 'aptui start' replaces it"
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
            hint="correct what it says, or 'aptui stop' and start again",
        )
    builders = {builder.uuid: builder.name for builder in config.project.builders}
    summary = collect(config, reporter, int(str(answer["run"])) if answer else 0, builders)
    summary.seconds = time.monotonic() - began_s
    summary.is_interrupted = answer is None
    if answer and isinstance(unknown := answer.get("unknown"), list):
        summary.unknown = tuple(map(str, unknown))
    if answer and isinstance(mistakes := answer.get("folder_mistakes"), list):
        summary.mistakes = tuple(map(str, mistakes))
    if answer and isinstance(variables := answer.get("variables"), dict) and (others := differing(config, variables)):
        names = ", ".join(f"'{name}'" for name in others)
        printing.complain(f"the running engine was started with other values of {names}, and uses them: 'aptui stop' ends it")
    if answer and isinstance(shared := answer.get("shared"), dict) and shared:
        from aptui.shared.result_store import sum_of

        summary.take_account(sum_of(shared), is_remote=config.sharing.is_remote)
    return summary


def _wait_until_it_works(client: EngineClient) -> None:
    """Wait until an engine that refused a scan folder has retried and accepted it."""
    deadline = time.monotonic() + _TRIES_AGAIN_S
    while client.ask(port.ReadStatus())["state"] == "in trouble" and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _follow(client: EngineClient, options: RunOptions, reporter: Reporter) -> port.Answer:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.accepts_empty:
        _wait_until_it_works(client)
    if options.sources:
        client.ask(port.ReprocessJobs(keys=options.sources))
    if options.restores and (restore := feature.find_request("restore")) is not None:
        for job_id, run_key in options.restores:
            client.ask(restore(job_id, run_key))
    answers: list[port.Answer | KnownError] = []
    client.post(port.Settle(options.is_full_scan, options.platforms, options.sets, options.debug_output or None), answers.append)
    if not client.listen_until(lambda: answers, _AT_ONCE_S):
        health = client.ask(port.Subscribe(wants_all=False)).get("health")
        if isinstance(health, dict) and (holds := health.get("holds")):
            reporter.say(printing.line(f"waiting: changes are held by {', '.join(holds)}"), "yellow")
        client.listen_while_alive(lambda: answers, on_news=lambda news: reporter(news.notice))
    if isinstance(answers[0], KnownError):
        raise answers[0]
    return answers[0]
