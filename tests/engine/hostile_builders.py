"""Builders that do forbidden things (die, hang, flood, make false claims), and the well-behaved builder `good`.

Each builder is a class whose `process_job` calls its `act(request)`. `HOSTILE` in `test_pool.py` says how the run must
end. Worker processes load these builders from this file.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import ClassVar

from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobDescriptor,
    JobProduct,
    ProcessJobRequest,
    ProcessJobResponse,
    Result,
    SourceDependency,
)
from aptui.worker.processes import command_name

FLOOD_BYTES = 50 << 20

# A drill sets this variable to switch off the checks of products. Variables with the prefix `PYTHON` reach workers.
if os.environ.get("PYTHON_CREDULOUS"):
    from aptui.worker.outputs import products as worker_products

    worker_products._check_unique = worker_products._check_closed = lambda *_args: None
    worker_products._is_behind_link = lambda *_args: False
    worker_products.stat = type("Credulous", (), {"S_ISLNK": lambda _mode: False, "S_ISREG": lambda _mode: True})


class Base:
    """Makes one job per platform. The product is the source in upper case, unless `act` returns another response."""

    name: ClassVar[str]
    version = "1"
    patterns = ("*.txt",)

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        jobs = [JobDescriptor(self.name, platform.id, params={"p": "1"}) for platform in request.platforms]
        return CreateJobsResponse(Result.SUCCESS, jobs, [SourceDependency("other.txt")])

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        answer = self.act(request)
        if answer is not None:
            return answer
        with open(request.product_path(f"{request.stem}.out"), "wb") as file:
            file.write(request.read_source().upper())
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(f"{request.stem}.out")])

    def act(self, request: ProcessJobRequest) -> ProcessJobResponse | None:
        return None


class Good(Base):
    """A well-behaved builder."""


class Talkative(Base):
    def act(self, request):
        print("hello from print")
        print("W: mind the gap")
        sys.stderr.write("error: stubbed a toe\n")
        os.system("echo from a child")
        request.log.warning("said properly", where="here")


class Waiting(Base):
    """Prints and logs, then waits for files that let it continue; prints nothing while it waits."""

    def act(self, request):
        print("printed")
        request.log.info("begun")
        self._wait_for(request, "first")
        self._wait_for(request, "end")

    def _wait_for(self, request, name):
        while not os.path.exists(os.path.join(request.job_params["folder"], name)):
            time.sleep(0.01)
        request.log.info(name)


class Advancing(Base):
    """Reports progress in a loop and from a forked child, then waits for a file."""

    def act(self, request):
        for step in range(5000):
            request.progress(step / 10000)
        if (child := os.fork()) == 0:
            request.progress(0.9)
            os._exit(0)
        os.waitpid(child, 0)
        while not os.path.exists(os.path.join(request.job_params["folder"], "end")):
            time.sleep(0.01)


class Segv(Base):
    def act(self, request):
        print("about to crash")
        ctypes.string_at(0)


class Abort(Base):
    def act(self, request):
        os.abort()


class Exit3(Base):
    def act(self, request):
        os._exit(3)


class Raises(Base):
    def act(self, request):
        raise ValueError("bad header\nsecond line")


class Hang(Base):
    def act(self, request):
        print("hanging now")
        time.sleep(3600)


class Stubborn(Base):
    def act(self, request):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
        while True:
            time.sleep(1)


class Spin(Base):
    def act(self, request):
        while True:
            pass


class Stopped(Base):
    def act(self, request):
        os.kill(os.getpid(), signal.SIGSTOP)


class Greedy(Base):
    def act(self, request):
        held = []
        while True:
            held.append(bytearray(64 << 20))


class Gated(Base):
    """A well-behaved builder that waits for `<source>.go`, so that tests decide how long a run takes.

    The file `<source>.at` shows that the run has begun.
    """

    def act(self, request):
        _write(request.full_path + ".at")
        while not os.path.exists(request.full_path + ".go"):
            time.sleep(0.002)


class KilledOnce(Base):
    """A builder whose first run kills its own process with SIGKILL, as the kernel's out-of-memory killer would."""

    def act(self, request):
        if not os.path.exists(request.full_path + ".killed"):
            _write(request.full_path + ".killed")
            os.kill(os.getpid(), signal.SIGKILL)


class Hungry(Base):
    def act(self, request):
        len(bytearray(120 << 20).replace(b"x", b"y"))


class HungryChild(Base):
    def act(self, request):
        subprocess.run([sys.executable, "-c", "len(b'x' * (120 << 20))"], check=True)


class NativeGreedy(Base):
    """Allocates memory in C until `malloc` fails, then writes to the null pointer: a crash without a Python exception."""

    def act(self, request):
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        while True:
            place = libc.malloc(ctypes.c_size_t(64 << 20))
            ctypes.memset(place or 0, 1, 64 << 20)


class HugeFile(Base):
    def act(self, request):
        with open(os.path.join(request.temp_dir, "huge"), "wb") as file:
            file.truncate(4 << 30)
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class OneLine(Base):
    def act(self, request):
        block = b"x" * (1 << 20)
        for _ in range(FLOOD_BYTES >> 20):
            os.write(1, block)
        os.write(1, b"\nW: the end of the flood\n")


class ManyLines(Base):
    def act(self, request):
        block = b"".join(b"line %d\n" % number for number in range(10_000))
        for _ in range(30):
            os.write(1, block)


class InvalidUtf8(Base):
    def act(self, request):
        os.write(1, b"caf\xe9 \xff\xfe\x00\x01 end\n")


class Grandchild(Base):
    def act(self, request):
        subprocess.Popen(["sleep", "3600"])


class Daemon(Base):
    def act(self, request):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            pid = os.fork()
            if pid == 0:
                os.execve("/bin/sleep", ["sleep", "3601"], {})
            os.write(writer, b"%d" % pid)
            os._exit(0)
        os.wait()
        pid = int(os.read(reader, 20))
        while command_name(pid) != "sleep":  # until `execve` has run, the process has the name of this worker
            time.sleep(0.001)


class ForkMany(Base):
    def act(self, request):
        for _ in range(20):
            if os.fork() == 0:
                time.sleep(3600)


class Forks(Base):
    def act(self, request):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.map(abs, [-1]) == [1]
        subprocess.run(["true"], preexec_fn=os.getpid, check=True)


class ForkReturns(Base):
    def act(self, request):
        os.fork()


class LeaksFiles(Base):
    held: ClassVar[list[int]] = []

    def act(self, request):
        self.held += [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]


class KillsGroup(Base):
    def act(self, request):
        os.killpg(0, signal.SIGKILL)


class ReadsStdin(Base):
    def act(self, request):
        if sys.stdin.read() == "":
            raise RuntimeError("stdin is empty")


class Nothing(Base):
    def act(self, request):
        return "yes"


class Environment(Base):
    def act(self, request):
        raise RuntimeError(f"{os.environ.get('SECRET_TOKEN')} {os.environ['TMPDIR'] == request.temp_dir == os.getcwd()}")


# ------------------------------------------------------------------------------------------- false claims about products


def _made(request: ProcessJobRequest, *products: JobProduct) -> ProcessJobResponse:
    return ProcessJobResponse(Result.SUCCESS, list(products))


def _write(path: str, data: bytes = b"data") -> str:
    with open(path, "wb") as file:
        file.write(data)
    return path


class Missing(Base):
    def act(self, request):
        return _made(request, JobProduct("never-made.out"))


class Truncates(Base):
    """A builder that keeps its product file open and truncates it 0.2 s later, after the last check of the product."""

    held: ClassVar[list[object]] = []

    def act(self, request):
        file = open(request.product_path("t.out"), "wb")  # noqa: SIM115  # it stays open, that is the point
        file.write(b"data" * 1000)
        file.flush()
        self.held.append(file)
        threading.Timer(0.2, file.truncate, (3,)).start()
        return _made(request, JobProduct("t.out"))


class Absolute(Base):
    def act(self, request):
        return _made(request, JobProduct("/nowhere/at/all.out"))


class DiesAtStart(Base):
    """Crashes when its code is imported."""

    def __init__(self):
        os.abort()


class Link(Base):
    def act(self, request):
        os.symlink("/etc/hostname", request.product_path("l.out"))
        return _made(request, JobProduct("l.out"))


class BehindLink(Base):
    def act(self, request):
        os.symlink("/etc", request.product_path("d"))
        return _made(request, JobProduct("d/hostname"))


class Outside(Base):
    def act(self, request):
        _write(os.path.join(request.products_dir, "../escaped.out"))
        return _made(request, JobProduct("../escaped.out"))


class Folder(Base):
    def act(self, request):
        os.mkdir(request.product_path("f.out"))
        return _made(request, JobProduct("f.out"))


class DuplicateName(Base):
    def act(self, request):
        os.mkdir(request.product_path("x"))
        _write(request.product_path("a.out"))
        _write(request.product_path("x/A.OUT"))
        return _made(request, JobProduct("a.out", 1), JobProduct("x/A.OUT", 2))


class DuplicateSubId(Base):
    def act(self, request):
        _write(request.product_path("a.out"))
        _write(request.product_path("b.out"))
        return _made(request, JobProduct("a.out", 7), JobProduct("b.out", 7))


class Intermediate(Base):
    def act(self, request):
        return _made(request, JobProduct(_write(request.product_path("a.out")), flags=2))


class Control(Base):
    def act(self, request):
        return _made(request, JobProduct(_write(request.product_path("a\x1b[2J.out"))))


class ChangesSource(Base):
    def act(self, request):
        with open(request.full_path, "ab") as file:
            file.write(b"more")


class Elsewhere(Base):
    """A builder with allowed products outside its products folder: its source is copied, and a temporary file is moved.

    A product that has a second hard link is copied.
    """

    def act(self, request):
        os.link(request.full_path, request.product_path("hard.out"))
        temp = _write(os.path.join(request.temp_dir, "Temp.OUT"), b"temp")
        return _made(request, JobProduct(request.full_path, 1), JobProduct(temp, 2), JobProduct("hard.out", 3))


class ManyProducts(Base):
    def act(self, request):
        names = [f"p{number}.out" for number in range(int(os.environ.get("PYTHON_MANY", "2000")))]
        for name in names:
            _write(request.product_path(name))
        return _made(request, *(JobProduct(name, number) for number, name in enumerate(names)))
