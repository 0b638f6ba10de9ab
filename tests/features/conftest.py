"""Fixtures that tests of several features need: a real database in a temporary folder, and verbs run in a project.

A test that is a coroutine runs in an event loop of its own.
"""

import asyncio
import inspect

import pytest
from verb_project import run

from tests.store.conftest import make_store, store

__all__ = ["make_store", "run", "store"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function, and return True; return None for any other test, which pytest then runs."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}))
    return True
