"""Formats exceptions of builders for the authors of the builders.

The error names the line in the builder's code; the traceback shows only frames of that code.

Tests: `tests/worker/test_builder_run.py`.
"""

from __future__ import annotations

import os
import traceback

import aptui
from aptui.worker.log import one_line

_PACKAGE = f"{os.path.dirname(aptui.__file__)}/"
_BUILDERS = f"{_PACKAGE}builders/"
_LIBRARIES = (f"{os.path.dirname(os.__file__)}/", "<")
_INSTALLED = ("/site-packages/", "/dist-packages/")


def describe_error(error: BaseException) -> tuple[str, list[str]]:
    """Return an exception in one line, with the place in the builder's code, and the lines of its traceback."""
    text = one_line(str(error))
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    text = "".join(f"{note}: " for note in getattr(error, "__notes__", ()) if note.startswith("step ")) + text
    shown = traceback.TracebackException.from_exception(error)
    _cut(shown)
    own = [frame for frame in shown.stack if _is_own(frame.filename)]
    place = f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""
    return f"{text}{place}", [line for part in shown.format() for line in part.splitlines()]


def _cut(shown: traceback.TracebackException) -> None:
    """Remove the frames of aptui from the tracebacks of an exception and of its causes, unless no other frames are left."""
    frames = [frame for frame in shown.stack if not frame.filename.startswith(_PACKAGE) or frame.filename.startswith(_BUILDERS)]
    shown.stack[:] = frames or shown.stack
    for other in (shown.__cause__, shown.__context__):
        if other is not None:
            _cut(other)


def _is_own(path: str) -> bool:
    """Whether a file belongs to the builder, and not to a library or to aptui."""
    is_library = path.startswith((*_LIBRARIES, _PACKAGE)) or any(part in path for part in _INSTALLED)
    return not is_library or path.startswith(_BUILDERS)
