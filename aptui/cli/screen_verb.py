"""Opens the screen: `aptui` without a verb for the project's engine, `aptui open` for a database without an engine."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from aptui.cli.main import add_screen_options
from aptui.shared import printing
from aptui.shared.errors import MissingProjectError, UserError

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.config.trust import Trust
    from aptui.core.project import Builder
    from aptui.tui.data.session import LinkSession, Session
    from aptui.tui.frame.engine_control import TrustQuestion


def tui(arguments: Namespace) -> int:
    """Open the screen over the project's engine; start the engine if it is not running."""
    from aptui.batch.options import adopt_cache, load_config, refuse_ignored

    if arguments.read_only:
        refuse_ignored(arguments, ["adopt-cache"], "cannot be used with '--read-only'", "use only one of these options")
    try:
        config = load_config(arguments)
    except MissingProjectError as missing:
        from aptui.cli.init_verb import offer_project

        is_written = offer_project(arguments)
        if is_written is None:
            raise
        if not is_written:
            printing.say("no file was written; 'aptui init' writes an aptui.yaml, and 'aptui demo' shows an example")
            return missing.exit_code
        config = load_config(arguments)
    except UserError as broken:
        return _open_read_only(arguments, broken)
    adopt_cache(arguments, config)
    return show(config, arguments, is_read_only=arguments.read_only)


def _open_read_only(arguments: Namespace, broken: UserError) -> int:
    """Open the screen although the configuration is broken: with an engine that runs with an earlier configuration, or read-only.

    Raises:
        UserError: the error `broken`. No engine is running and `--read-only` is not given, or the cache folder is unknown.
    """
    from aptui.batch.options import last_good, platforms_of, project_dir
    from aptui.link import places

    config = last_good(project_dir(arguments), getattr(arguments, "set", ()), platforms_of(arguments))
    if config is None:
        raise broken
    if not (arguments.read_only or places.engine_of(config.cache_dir)):
        raise broken
    return show(config, arguments, is_read_only=arguments.read_only, starts_engine=False)


def show(config: Config, arguments: Namespace, *, is_read_only: bool = False, starts_engine: bool = True) -> int:
    """Open the screen for the engine of a project. If no engine is running and `starts_engine` allows it, start the engine.

    The engine of an untrusted project starts only after the user agreed.
    """
    from aptui.config import trust
    from aptui.tui.data.session import EnginePlaces, LinkSession

    state = trust.assess(config)

    def start() -> None:
        from aptui.daemon import daemon_process

        trust.require(config, "the engine")
        daemon_process.start(config.project_dir, config.cache_dir, [f"--set={text}" for text in getattr(arguments, "set", ())])

    def holder() -> int:
        from aptui.cli.read_verbs import engine_process  # imported here, because the screen calls `holder` after the first paint

        return engine_process(config) or 0

    starter = start if starts_engine and not is_read_only else None
    where = EnginePlaces(config.name, config.cache_dir, "", starter, holder, starts_at_once=state.is_given)
    session = LinkSession(where, is_read_only=is_read_only)
    return _run(config, session, arguments, None if state.is_given or starter is None else (state, session))


def open_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `open`."""
    add_screen_options(parser)
    parser.add_argument("database", metavar="PATH", help="an assetdb.sqlite (of aptui or O3DE), its folder, or a project")


def open(arguments: Namespace) -> int:  # noqa: A001  # named like the verb
    """Show the jobs in a cache without an engine."""
    from pathlib import Path  # imported here, so that the imports do not delay the first frame

    from aptui.config.dirs import DATABASE, FILE_NAME
    from aptui.store.queries.reader import open_reader
    from aptui.tui.data.session import NoSession
    from aptui.tui.terminal.skeleton import name_of_cache

    path = Path(os.path.abspath(arguments.database))
    if path.is_dir() and not (path / DATABASE).is_file() and (path / FILE_NAME).is_file():
        from aptui.config import load  # the user named a project instead of its cache

        path = load.load(path).cache_dir
    path = path / DATABASE if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"'{path}' does not exist", hint=f"give the path of an '{DATABASE}', or of its folder")
    if path.name != DATABASE:
        raise UserError(
            f"the file '{path}' must be called '{DATABASE}'",
            hint=f"copy the file into an empty folder, and name the copy '{DATABASE}'",
        )
    open_reader(path).close()  # checked now, so that an unreadable database is reported before the screen opens
    return _run(None, NoSession(name_of_cache(str(path)), path.parent), arguments)


def _run(config: Config | None, session: Session, arguments: Namespace, asked: tuple[Trust, LinkSession] | None = None) -> int:
    """Open the screen. If `asked` is given, the project is untrusted: ask for trust before the session starts the engine."""
    from aptui.tui.start import run

    if config and (reason := reason_for_lines(arguments, os.environ, is_typed=sys.stdin.isatty())):
        from aptui.cli.conversation import converse  # imported here, so that the screen is not delayed

        if asked is not None:
            _ask_in_lines(config, *asked)
        return converse(session, arguments, reason)
    complete = partial(_all_builders, config) if config else None
    return run(
        config,
        lambda: session,
        mouse=not arguments.no_mouse,
        theme=arguments.theme,
        all_builders=complete,
        engine_root=_engine_root(config),
        trust=_trust_question(config, *asked) if config is not None and asked is not None else None,
    )


def _ask_in_lines(config: Config, state: Trust, session: LinkSession) -> None:
    from aptui.cli.trust_verb import ask_in_lines, change_lines
    from aptui.link import places

    if places.engine_of(config.cache_dir) is not None:
        for text in change_lines(config, state):
            printing.complain(f"aptui: {text}", "yellow")
    elif ask_in_lines(config, state):
        session.start_engine()
    else:
        session.restrict("you have not trusted this project")


def _trust_question(config: Config, state: Trust, session: LinkSession) -> TrustQuestion:
    """Return the question whether to trust a project. If its engine is running, the screen only reports the changed files."""
    from aptui.cli import trust_verb
    from aptui.config import trust
    from aptui.link import places
    from aptui.tui.frame.engine_control import TrustQuestion

    def start() -> None:
        trust.record(config)
        session.start_engine()

    return TrustQuestion(
        trust_verb.change_lines(config, state),
        trust_verb.runnable_lines(config, trust_verb.MOST_LISTED),
        start,
        partial(session.restrict, "you have not trusted this project"),
        is_running=places.engine_of(config.cache_dir) is not None,
    )


def _engine_root(config: Config | None) -> str:
    """Return the folder of the game engine of an O3DE project, "" for any other project."""
    from aptui.batch.options import project_facts  # imported here, because the screen calls this function after the first paint

    facts = project_facts(config) if config is not None else None
    return str(facts.engine) if facts is not None else ""


def reason_for_lines(arguments: Namespace, environ: Mapping[str, str], *, is_typed: bool) -> str:
    """Return why lines are printed instead of a screen, "" if a screen can be opened."""
    if getattr(arguments, "plain", False):
        return "--plain"
    if environ.get("ACCESSIBLE", "0") not in {"", "0"}:
        return f"ACCESSIBLE={printing.line(environ['ACCESSIBLE'])}"
    if environ.get("TERM", "") in {"", "dumb", "unknown"}:
        return f"TERM={printing.line(environ.get('TERM', ''))}"
    return "" if is_typed else "the standard input is not a terminal"


def _all_builders(config: Config) -> tuple[Builder, ...]:
    from aptui.cli.read_access import all_builders, hides_code  # imported here, because builders are shown after the first paint

    return config.project.builders if hides_code(config) else all_builders(config)
