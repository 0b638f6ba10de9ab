"""Opens the screen on a terminal: sets up signals and the garbage collector, and runs the app. A dumb terminal gets plain lines."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aptui.config.dirs import asset_database
from aptui.link.places import state_dir
from aptui.shared.errors import UserError
from aptui.shared.lean_imports import defer, import_numpy, substitute, use_one_heap, without

if TYPE_CHECKING:
    from pathlib import Path

    from aptui.config.configuration import Config
    from aptui.core.project import Builder
    from aptui.tui.app import AptuiApp
    from aptui.tui.data.early_read import EarlyRead
    from aptui.tui.data.session import Session
    from aptui.tui.frame.engine_control import TrustQuestion
    from aptui.tui.preferences.state import UiMemory


def run(
    config: Config | None,
    session_factory: Callable[[], Session],
    *,
    mouse: bool = True,
    theme: str = "",
    all_builders: Callable[[], Sequence[Builder]] | None = None,
    engine_root: str = "",
    trust: TrustQuestion | None = None,
) -> int:
    """Show the screen until the user quits; return the exit code.

    Args:
        config: configuration of the project; None = only a database exists (`aptui open`).
        session_factory: makes the session; the session is opened later.
        mouse: False = leave the mouse to the terminal.
        theme: name of a theme, "" = the remembered one.
        all_builders: returns the builders with the values that their classes declare. The call may take a while.
        engine_root: the engine of an O3DE project, for the info sheet.
        trust: the question to the user before an engine starts, None if the project is trusted.

    Raises:
        UserError: there is no terminal.
    """
    gc.disable()
    use_one_heap()
    from aptui.tui.preferences import state  # imported here to start faster

    session, folder = session_factory(), state_dir()
    memory = state.project_memory(folder, session.cache_dir)
    early = _read_early(session.cache_dir, memory)
    _import_libraries()
    # Imported here, so that another thread can read the jobs during these slow imports.
    from aptui.tui.terminal import driver, safety, skeleton

    if not driver.is_possible():
        early.close()
        gc.enable()
        skeleton.hide()
        from aptui.tui.plain import run_plain  # imported here to start faster

        if sys.stdout.isatty() or sys.stdin.isatty():
            return run_plain(session)
        raise UserError("the screen needs a terminal", hint="run 'aptui status' or 'aptui jobs', which need no terminal")
    from aptui.tui.app import AptuiApp  # imported here to start faster

    safety.install(safety.prepare_terminal(os.environ))
    person = state.person_memory(folder)
    has_mouse = mouse and person.get("mouse", True)
    app = AptuiApp(session, config, memory=memory, person=person, theme=theme, driver=driver.Terminal)
    app.terminal.has_mouse, app.all_builders, app.engine_root = has_mouse, all_builders, engine_root
    app.early, app.trust = early, trust
    _prepare_signals(app, folder)
    app.run(mouse=has_mouse)
    return app.return_code or 0


def _read_early(cache_dir: Path, memory: UiMemory) -> EarlyRead:
    """Begin to read the jobs; reading 100,000 jobs takes a quarter of a second, during which Textual is imported.

    The jobs of the first rows are read before the others if the screen will use the default order without a filter.
    """
    from aptui.tui.data.early_read import EarlyRead

    is_default = memory.get("jobs.sort", ["failed", False]) == ["failed", False] and not memory.get("jobs.filter", "")
    return EarlyRead(asset_database(cache_dir), wants_first=is_default)


_COMMANDS = dict.fromkeys(
    ("CommandListItem", "CommandPalette", "DiscoveryHit", "Hit", "Hits", "Provider", "SimpleProvider"), object
)
"""Names that Textual's app imports from `textual.command`, a module that imports a tenth of Textual's code.

The app gets `object` in their place. When the palette first opens, `aptui.tui.frame.palette` imports the real module.
"""


def _import_libraries() -> None:
    """Import the large libraries without the modules that the screen does not need for the first rows."""
    with without("ssl"):  # asyncio needs `ssl` only for connections with TLS
        import_module("asyncio")
    with defer("mimetypes", "platformdirs"):
        try:
            with substitute("textual.command", **_COMMANDS):
                import_module("textual.app")
        except ImportError:  # another version of Textual imports other names from `textual.command`
            import_module("textual.app")
    import_numpy()


def _prepare_signals(app: AptuiApp, folder: Any) -> None:
    """Set signal handlers.

    SIGHUP (the terminal is gone): save and end. SIGTERM: quit. SIGUSR1: write the stacks of all threads, even of a hanging process.
    """
    import faulthandler  # imported here to start faster

    def hung_up(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        app.memory.save()
        app.person.save()
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGHUP, hung_up)
    signal.signal(signal.SIGTERM, lambda *_: app.in_ui(app.exit))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # The descriptor stays open, because faulthandler cannot open a file when a signal arrives.
        faulthandler.register(
            signal.SIGUSR1, file=os.open(folder / "threads.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), all_threads=True
        )
    except OSError:
        return
