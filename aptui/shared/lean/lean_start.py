"""A lean start: importing this imports msgspec and pathlib without what they hardly ever use; nothing else is here.

A fifth of what a short command or the start of a worker takes would go into modules that are imported for a function or two:

* msgspec prefers typing_extensions to typing where that is installed. What it takes from there typing has itself since Python
  3.11; but with it come inspect, ast and dis. So while msgspec is imported typing_extensions is not to be found.
* msgspec's description of types and its JSON Schema, which few verbs ask for, and urllib, which pathlib asks for the URI of a
  path alone, are imported when they are called.
* uuid, which msgspec needs, asks platform for the name of the system, which the system says itself; platform is patterns for
  all that it can be asked besides.

The entries of processes import this module before any that does so.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

import os

from aptui.shared.lean.imports import defer, substitute, without

with substitute("platform", system=lambda: os.uname().sysname):
    import uuid  # noqa: F401

with without("typing_extensions"), defer("msgspec.inspect", "msgspec._json_schema"):
    import msgspec  # noqa: F401

with defer("urllib.parse"):
    import pathlib  # noqa: F401
