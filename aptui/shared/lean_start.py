"""Makes processes start faster: importing this module imports msgspec and pathlib without modules that they rarely use.

Otherwise a short command or the start of a worker would spend a fifth of its time on importing these modules:

* msgspec prefers typing_extensions to typing if both are installed. Since Python 3.11 typing has all names that msgspec needs,
  but typing_extensions imports inspect, ast and dis. So typing_extensions is hidden while msgspec is imported.
* msgspec's description of types and its JSON Schema, which few verbs use, are imported when they are called. urllib is imported
  when it is called, too, because pathlib needs it only for the URI of a path.
* uuid, which msgspec needs, imports platform to find the name of the system. That import compiles patterns that are not needed
  here, and `os.uname` gives the name, too.

The entry points of processes import this module before any module that imports msgspec or pathlib.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

import os

from aptui.shared.lean_imports import defer, substitute, without

with substitute("platform", system=lambda: os.uname().sysname):
    import uuid  # noqa: F401

with without("typing_extensions"), defer("msgspec.inspect", "msgspec._json_schema"):
    import msgspec  # noqa: F401

with defer("urllib.parse"):
    import pathlib  # noqa: F401
