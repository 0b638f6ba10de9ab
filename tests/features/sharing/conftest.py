"""Stores of every kind: aptui's, and other servers if they are installed."""

import contextlib
import secrets
import tempfile
import threading
from pathlib import Path

import pytest
from tools import MACHINE, skip_without

from aptui.features.sharing.record import Seal
from aptui.features.sharing.stores.folder_store import FolderStore
from aptui.features.sharing.stores.local import LocalStore
from aptui.features.sharing.stores.remote_stores import HttpStore, ObjectStore
from tests.features.sharing import harness


@contextlib.contextmanager
def serving(root, **options):
    """Runs aptui's server in a thread; yields its address."""
    from aptui.features.sharing.cache_server import CacheServer, serve

    root.mkdir(parents=True, exist_ok=True)
    started, stop, addresses = threading.Event(), threading.Event(), []

    def serve_address(address):
        addresses.append(address)
        started.set()

    thread = threading.Thread(
        target=serve, args=(CacheServer(str(root), port=0, **options),), kwargs={"started": serve_address, "stop": stop.is_set}
    )
    thread.start()
    try:
        assert started.wait(10)
        yield addresses[0]
    finally:
        stop.set()
        thread.join()


KINDS = ["folder", "local", "own server", "nginx", "apache", "moto", "memory"]
_PROGRAMS = {"nginx": "nginx", "apache": "apache2"}
_SERVED = {"own server", "nginx", "apache", "moto"}


def _lane(kinds):
    """Return a pytest parameter for each kind of store. Kinds that use a socket have the mark `real`."""
    return [pytest.param(kind, marks=pytest.mark.real if kind in _SERVED else ()) for kind in kinds]


@pytest.fixture(params=_lane(KINDS))
def store(request, tmp_path):
    """A store of each kind."""
    yield from _store(request, tmp_path)


@pytest.fixture(params=_lane(["folder", "local", "own server", "memory"]))
def exact_store(request, tmp_path):
    """A store in which the first of several writers wins.

    The store of moto is omitted. It does not guarantee this, because it checks whether a name is free before it writes.
    """
    yield from _store(request, tmp_path)


def _store(request, tmp_path):
    kind = request.param
    if kind in _PROGRAMS:
        skip_without(_PROGRAMS[kind])
    if kind in {"moto", "memory"}:
        pytest.importorskip("obstore")
    if kind == "own server":
        pytest.importorskip("aiohttp")
    with contextlib.ExitStack() as stack:
        if kind == "moto":
            made = _bucket(request.getfixturevalue("moto"))
        elif kind in _PROGRAMS:
            made = HttpStore(_place(*request.getfixturevalue(kind)))
        else:
            made = _made(kind, tmp_path / "store", stack)
        yield made
        made.close()


def _made(kind, root, stack):
    root.mkdir()
    match kind:
        case "folder":
            return FolderStore(str(root))
        case "local":
            return LocalStore(str(root), Seal())
        case "own server":
            return HttpStore(stack.enter_context(serving(root, is_writable=True)))
        case "memory":
            return ObjectStore("memory:///")
    raise AssertionError(kind)


@pytest.fixture(scope="module")
def moto(tmp_path_factory):
    pytest.importorskip("moto", reason=f"{MACHINE}moto cannot be imported")
    with harness.moto(tmp_path_factory.mktemp("moto")) as address:
        yield address


@pytest.fixture(scope="module")
def nginx():
    with tempfile.TemporaryDirectory() as folder, harness.nginx(folder) as address:
        yield address, Path(folder, "www")


@pytest.fixture(scope="module")
def apache():
    # Apache's user can read neither `tmp_path` nor a folder below the TMPDIR of another test.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, harness.apache(folder) as address:
        yield address, Path(folder, "www")


_numbers = iter(range(1000))


def _place(address, root):
    """A folder for each test on a server that all tests share; not every server creates folders."""
    name = f"place{next(_numbers)}"
    for path in (root / name, root / name / "ac", root / name / "cas"):
        path.mkdir()
        path.chmod(0o777)
    return f"{address}/{name}"


def _bucket(address):
    import urllib.request

    # The name is random, because a test imports this module again, and a counter would then repeat names.
    name = f"bucket{secrets.token_hex(8)}"
    request = urllib.request.Request(f"{address}/{name}", method="PUT")
    with urllib.request.urlopen(request):
        pass
    return ObjectStore(f"s3://{name}/some/place", options=s3_options(address))


def s3_options(address):
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y", "aws_region": "us-east-1"}
    return {"endpoint": address, **keys, "client_options": {"allow_http": True}}
