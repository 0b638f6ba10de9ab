"""`web`, and `demo --web`: the screen, and the demo's page, in a browser.

Tests: `tests/features/shipping/test_verbs.py`.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from argparse import ArgumentParser, Namespace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from aptui.shared import printing
from aptui.shared.errors import UserError, install_advice

if TYPE_CHECKING:
    from aptui.config.model import Config

_EXTRAS = {"web": "web", "web_demo": "serve"}
"""{module: what brings the libraries that it needs}."""
_DESKTOPS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def web_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `web`."""
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port of the loopback; any that is free by default")
    parser.add_argument("--theme", metavar="NAME", default="", help="instead of the one remembered")
    parser.add_argument("--read-only", action="store_true", help="only look; start no engine and ask it nothing")


def web(arguments: Namespace) -> int:
    """Show the screen to a browser until Ctrl-C."""
    from aptui.batch.options import load_config

    if not 0 <= arguments.port < 1 << 16:
        raise UserError(f"{arguments.port} is no port", hint="0 is any that is free")
    config = load_config(arguments)
    serve = _serving("web")
    command = [sys.executable, "-P", "-m", "aptui", "--project", str(config.project_dir)]
    command += ["--theme", arguments.theme] if arguments.theme else []
    command += ["--read-only"] if arguments.read_only else []
    serve.run(config, command, arguments.port, _print_screen)
    return 0


def _print_screen(address: str) -> None:
    printing.say(f"the screen is at  {address}")
    printing.say("anyone with this address has full control of the engine, as you have; Ctrl-C ends it")
    sys.stdout.flush()


def show_demo(config: Config) -> int:
    """Show the demo's page until Ctrl-C; an engine that ran before stays, one of ours ends."""
    from aptui.cli.engine_verbs import stop_engines
    from aptui.daemon import engine
    from aptui.link import places

    page = _serving("web_demo")
    is_ours = places.engine_of(config.cache_dir) is None
    if is_ours:
        engine.start(config.project_dir, config.cache_dir)
    try:
        page.run(config, lambda address: _print_page(config, address))
    finally:
        if is_ours:
            stop_engines(config.cache_dir)
    return 0


def _print_page(config: Config, address: str) -> None:
    printing.say(f"the demo's page is at  {address}")
    printing.say(f"save any file below '{printing.line(str(config.project_dir / 'assets'))}', and look; Ctrl-C ends it")
    sys.stdout.flush()
    # A text browser would take the terminal. Other users can read the arguments of a browser: this token reads products
    # and no more.
    if printing.is_terminal(sys.stdin) and printing.is_terminal(sys.stdout) and any(map(os.environ.get, _DESKTOPS)):
        webbrowser.open(address)


def _serving(name: str) -> ModuleType:
    """Return a module of the gateway's room.

    Raises:
        UserError: what it needs is not installed.
    """
    try:
        return import_module(f"aptui.features.gateway.web.{name}")
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "aptui":
            raise
        raise UserError(f"this needs '{error.name}', which is not installed", hint=install_advice(_EXTRAS[name])) from None
