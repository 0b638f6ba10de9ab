"""Shared parts of the tests: jobs and their results, and servers of all kinds, one of them hostile."""

import contextlib
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from waiting import until

from aptui.config.configuration import SharedCacheSettings
from aptui.core.model import LinkKind, ProductLink
from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import StagedProduct
from aptui.features.sharing.record import JobFacts, Record, base_key, decode_record

TEAM = b"a secret of the team that is long enough"


def facts(rel="a.png", digest="00" * 16, **changes):
    manifest = (("builder", "image", "11" * 16), ("source", rel, digest))
    return JobFacts(
        **{"manifest": manifest, "platform": "pc", "job_key": "Image", "builder": b"\1" * 16, "builder_name": "image"} | changes
    )


def digest_of(data):
    return hashlib.sha256(data).digest()


def product(data, name="a.png.tex", sub_id=1, **changes):
    links = (ProductLink(LinkKind.PRODUCT_FILE, "b.tex"),)
    fields = {
        "staged": "",
        "name": name,
        "sub_id": sub_id,
        "asset_type": b"\2" * 16,
        "flags": 1,
        "digest": digest_of(data),
        "hash64": 7,
    }
    return StagedProduct(**fields | {"size": len(data), "links": links} | changes)


LOG = (LogRecord(LogLevel.WARNING, "Image", "the size is odd", 12, (("Source", "a.png"),)),)


def record(of, *contents, **changes):
    products = tuple(product(data, f"{number}.tex", number) for number, data in enumerate(contents))
    fields = {"products": products, "log": LOG, "warnings": 1, "duration_ms": 2000, "builder": "image", "writer": "elsewhere"}
    fields |= {"inputs": of.known, "code": of.code}
    return Record(base_key(of), **fields | changes)


def open_record(data, seal, base):
    return decode_record(*seal.open_sealed(data), base)


def files_of(folder, *contents):
    Path(folder).mkdir(parents=True, exist_ok=True)
    found = {}
    for data in contents:
        path = Path(folder) / f"made-{digest_of(data).hex()[:8]}"
        path.write_bytes(data)
        found[digest_of(data).hex()] = str(path)
    return found


def all_here(_discovered):
    return True


def sharing(tmp_path, store="", mode="server", **changes):
    fields = {"mode": mode if store else "inactive", "store": str(store), "local_store": str(tmp_path / "local")}
    return SharedCacheSettings(**fields | {"deadline_s": 30.0} | changes)


def key_file(tmp_path, text=TEAM, name="key"):
    path = tmp_path / name
    path.write_bytes(text)
    path.chmod(0o600)
    return str(path)


def free_port():
    """Return a port for a program that opens it later.

    The kernel gives ports above 32767 to sockets without a port of their own, so another test could get such a port first.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)  # not `random`, whose seed is the same in all processes of the tests
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


# -------------------------------------------------------------------------------------------------------- a hostile server


@dataclass
class Fault:
    """A fault of an answer: `kind` is the name of a method of `_Hostile`."""

    kind: str
    on: str = "/"
    method: str = ""
    times: int = 1_000_000


LIES = ["cut", "short", "endless", "flipped", "another", "page", "packed", "redirect", "unavailable", "nonsense", "hangs_up"]
SLOW = ["silent", "trickling_head", "trickling_body"]
"""Kinds of `Fault`s: answers that are wrong or incomplete, and answers that come too late."""


@dataclass
class HostileServer:
    """An HTTP server in a thread with optional `faults`; `kept` is its content, `asked` its requests."""

    faults: list = field(default_factory=list)
    stored: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)

    def __enter__(self):
        world = self

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request, client_address):
                pass

        self.leaving = threading.Event()
        self._server = Server(("127.0.0.1", 0), type("Handler", (_Hostile,), {"world": world}))
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.leaving.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fault(self, method, path):
        for one in self.faults:
            if one.on in path and one.method in {"", method} and one.times > 0:
                one.times -= 1
                return one.kind
        return ""


class _Hostile(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._serve()

    def do_HEAD(self):
        self._serve()

    def do_PUT(self):
        self._serve()

    def _serve(self):
        self.world.asked.append((self.command, self.path))
        kind = self.world.fault(self.command, self.path)
        if kind:
            getattr(self, kind)()
        elif self.command == "PUT":
            self._take(self._body())
        else:
            self._give(self.world.stored.get(self.path))

    def _body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _take(self, data):
        if self.headers.get("If-None-Match") == "*" and self.path in self.world.stored:
            self._say(412)
            return
        self.world.stored[self.path] = data
        self._say(201)

    def _give(self, data, **headers):
        if data is None:
            self._say(404, b"<html>not here</html>")
        else:
            self._say(200, data, **headers)

    def _say(self, status, data=b"", length=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    # Faults: each of these methods sends a faulty answer.

    def unavailable(self):
        if self.command == "PUT":
            self._body()
        self._say(503, b"try later")

    def forbidden(self):
        if self.command == "PUT":
            self._body()
        self._say(403)

    def full(self):
        self.close_connection = True
        self._say(507, b"", Connection="close")

    def page(self):
        self._say(200, b"<html>please log in</html>", Content_Type="text/html")

    def redirect(self):
        self._say(302, b"", Location="/elsewhere")

    def packed(self):
        self._say(200, b"\x1f\x8b" + b"\0" * 5000, Content_Encoding="gzip")

    def cut(self):
        data = self.world.stored[self.path]
        self._say(200, data[: len(data) // 2], length=len(data))
        self.close_connection = True

    def short(self):
        self._say(200, self.world.stored[self.path][:-1])

    def endless(self):
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            while not self.world.leaving.is_set():
                self.wfile.write(b"\0" * 65536)

    def flipped(self):
        data = bytearray(self.world.stored[self.path])
        data[-1] ^= 1
        self._say(200, bytes(data))

    def another(self):
        others = [
            data for path, data in self.world.stored.items() if path != self.path and path.split("/")[1] == self.path.split("/")[1]
        ]
        self._say(200, others[0])

    def silent(self):
        self.world.leaving.wait(30)
        self.close_connection = True

    def trickling_head(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self.world.leaving.wait(0.05):
                self.wfile.write(b"a")

    def trickling_body(self):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            while not self.world.leaving.wait(0.05):
                self.wfile.write(b"a")

    def nonsense(self):
        self.wfile.write(b"\0\1\2 this is not HTTP\r\n\r\n")
        self.close_connection = True

    def hangs_up(self):
        self.close_connection = True

    def closes(self):
        """Answer correctly and close the connection, as servers do after some answers."""
        self._give(self.world.stored.get(self.path), Connection="close")
        self.close_connection = True

    def half_taken(self):
        """Store the received part of an upload, as some servers do, and close the connection."""
        self.world.stored[self.path] = self._body()[:100]
        self.close_connection = True

    def lost(self):
        """Report success and store nothing."""
        self._body()
        self._say(201)


# ----------------------------------------------------------------------------------------------- servers of other projects


@contextlib.contextmanager
def _program(command, port, log):
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        until(lambda: _listens(port) or process.poll() is not None)
        assert process.poll() is None, Path(log).read_text()
        yield
    finally:
        process.terminate()
        process.wait()
        with contextlib.suppress(ProcessLookupError):  # the server may end before its child processes do
            os.killpg(process.pid, signal.SIGKILL)


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def nginx(folder):
    port, root = free_port(), Path(folder) / "www"
    root.mkdir(parents=True)
    for name in ("tmp", "body"):
        (Path(folder) / name).mkdir()
    Path(folder, "nginx.conf").write_text(
        f"daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error;\n"
        "events { worker_connections 64; }\n"
        f"http {{ access_log off; client_max_body_size 1g; client_body_temp_path {folder}/body; proxy_temp_path {folder}/tmp;\n"
        f"fastcgi_temp_path {folder}/tmp; uwsgi_temp_path {folder}/tmp; scgi_temp_path {folder}/tmp;\n"
        f"server {{ listen 127.0.0.1:{port}; root {root}; dav_methods PUT DELETE; create_full_put_path on; }} }}\n"
    )
    with _program(["nginx", "-c", f"{folder}/nginx.conf", "-p", str(folder)], port, f"{folder}/out"):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def apache(folder):
    port, root = free_port(), Path(folder) / "www"
    for name in ("www/ac", "www/cas", "lock"):
        (Path(folder) / name).mkdir(parents=True)
    for path in (Path(folder), *Path(folder).rglob("*")):
        path.chmod(0o777)
    modules = "/usr/lib/apache2/modules"
    user = "User nobody\nGroup nogroup\n" if os.geteuid() == 0 else ""
    Path(folder, "apache.conf").write_text(
        "".join(
            f"LoadModule {name}_module {modules}/mod_{name}.so\n"
            for name in ("mpm_event", "authz_core", "dav", "dav_fs")
            if _has_module(name)
        )
        + f"ServerName localhost\nListen 127.0.0.1:{port}\nPidFile {folder}/pid\nErrorLog {folder}/error\nDocumentRoot {root}\n"
        f"{user}"
        f"StartServers 1\nDavLockDB {folder}/lock/db\n<Directory {root}>\nDav On\nRequire all granted\n</Directory>\n"
    )
    with _program(["apache2", "-f", f"{folder}/apache.conf", "-DFOREGROUND"], port, f"{folder}/out"):
        yield f"http://127.0.0.1:{port}"


def _has_module(name):
    return Path(f"/usr/lib/apache2/modules/mod_{name}.so").exists()


@contextlib.contextmanager
def moto(folder):
    port = free_port()
    with _program([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port, f"{folder}/out"):
        yield f"http://127.0.0.1:{port}"


def has(program):
    return shutil.which(program) is not None
