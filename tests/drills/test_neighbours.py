"""Another user of this machine, who may look around: nothing of an engine can be read, locked, connected to or ordered by them."""

import selectors
import tempfile
import threading
from pathlib import Path

import pytest

from aptui.engine.cache.cache import Cache
from aptui.link.server import LinkServer
from aptui.o3de_programs.control import ControlChannel
from aptui.store.db import schema

from . import neighbours

pytestmark = pytest.mark.skipif(not neighbours.can_be_somebody_else(), reason="needs root and setpriv")


class Quiet:
    """A processor that only ever waits."""

    def is_idle(self):
        return False


@pytest.fixture
def place():
    """A folder that others can enter, as a project on a shared disk is."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        cache = Cache(Path(folder, "Cache"), ["linux"])
        cache.take()
        schema.prepare(cache.root / "assetdb.sqlite")
        yield cache
        cache.close()


@pytest.mark.real
@pytest.mark.parametrize(("mutant", "is_missed"), [("", False), ("open-files", True)])
def test_nothing_of_an_engine_is_open_to_others(place, mutant, is_missed):
    with selectors.DefaultSelector() as selector:
        server = LinkServer(str(place.root.parent / "run" / "socket"), selector, None, version="1")
        server.listen()
        control = ControlChannel(selector, Quiet())
        over = threading.Event()

        def turn():
            while not over.is_set():
                for key, mask in selector.select(0.02):
                    key.data(mask)

        thread = threading.Thread(target=turn)
        thread.start()
        try:
            report = neighbours.attacked(place.root, server.path, control.port, mutant=mutant)
        finally:
            over.set()
            thread.join()
            control.close()
            server.close()

    assert report.faults >= 6
    assert bool(report.violations) == is_missed
