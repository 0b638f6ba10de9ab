"""The worker processes of a cluster worker: the engine's pool with its limits, for calls from many threads.

A bench belongs to one configuration of one project. One thread drives its pool; whoever asks for a run waits for its result.

Tests: `tests/engine/cluster/test_task.py`.
"""

from __future__ import annotations

import itertools
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from msgspec.structs import replace

from aptui.core.orders import ProcessOrder, RunResult
from aptui.core.paths import to_text
from aptui.core.project import Builder, UndeclaredReads
from aptui.engine.cluster.environment import Toolchain, toolchains_of
from aptui.engine.cluster.messages import ClusterSetup
from aptui.engine.pool.messages import Result
from aptui.engine.pool.pool import Pool
from aptui.engine.pool.processes import PoolSettings
from aptui.engine.waking import Waker
from aptui.shared.errors import HostError
from aptui.sharing.store import Store
from aptui.worker.files import os_path

_GRACE_S = 1.0
_CLOSE_S = 10.0
_NICE = 5


class Bench:
    """Workers of one configuration on this machine.

    Args:
        setup: builders and platforms.
        folder: of its own; code and jobs lie below it.
        slots: how many jobs run at once.
        store: where the project's builder code is.

    Raises:
        HostError: the code cannot be had.
    """

    def __init__(self, setup: ClusterSetup, folder: str, slots: int, store: Store) -> None:
        self._folder, self._slots = folder, slots
        self.jobs = os.path.join(folder, "jobs")
        os.makedirs(self.jobs)
        self._builders = tuple(self._adapt_builder(builder) for builder in setup.builders)
        self._setup = setup
        _lay_out_code(setup, os.path.join(folder, "code"), store)
        self._selector = selectors.DefaultSelector()
        self._waker = Waker(self._selector)
        self._asked: deque[Callable[[Pool], None]] = deque()
        self._answers: dict[int, Future[RunResult]] = {}
        self._keys = itertools.count(1)
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name="aptui-bench", daemon=True)
        self._thread.start()

    def _adapt_builder(self, builder: Builder) -> Builder:
        """Return a builder as it runs here: its code lies here, and everything that it reads is reported."""
        origin, path = builder.origin, ""
        if origin.startswith("file:"):
            path, _, name = origin.removeprefix("file:").rpartition(":")
            origin = f"file:{self._folder}/code/{os.path.basename(path)}:{name}"
        code_files = _move_files(builder, os.path.dirname(path), f"{self._folder}/code") if path else ()
        return replace(builder, origin=origin, undeclared_reads=UndeclaredReads.ADD, code_files=code_files)

    def toolchains(self) -> dict[str, Toolchain]:
        """Return what its builders are made of here."""
        return toolchains_of(self._builders, self._setup.tools)

    def run(self, order: ProcessOrder, note_key: Callable[[int], None]) -> RunResult:
        """Do a job and wait until it ends; `note_key` is told the number by which `cancel` knows it."""
        key = next(self._keys)
        answer: Future[RunResult] = Future()
        self._answers[key] = answer
        self._ask(lambda pool: pool.send([replace(order, run_key=key)]))
        note_key(key)
        return replace(answer.result(), run_key=order.run_key)

    def cancel(self, key: int) -> None:
        """Stop a run."""
        self._ask(lambda pool: pool.kill([key]))

    def close(self) -> None:
        """End all workers; callers that wait for a run learn that it was broken off."""
        self._is_closing = True
        self._waker.wake()
        self._thread.join(_CLOSE_S)

    def _ask(self, request: Callable[[Pool], None]) -> None:
        self._asked.append(request)
        self._waker.wake()

    def _serve(self) -> None:
        settings = PoolSettings(nice=_NICE, scan_folders=(to_text(os.fsencode(self.jobs)),))
        pool = Pool(self._builders, self._setup.platforms, self._slots, self._selector, self._take, settings=settings)
        try:
            while not self._is_closing:
                self._turn(pool)
        finally:
            pool.close(_GRACE_S)
            self._waker.close()
            self._selector.close()
            for answer in list(self._answers.values()):
                if not answer.done():
                    answer.set_exception(
                        HostError("the worker ends", hint="'aptui doctor' says what belongs together; the job runs here instead")
                    )

    def _turn(self, pool: Pool) -> None:
        due_s = pool.next_deadline()
        for key, mask in self._selector.select(None if due_s is None else max(0.0, due_s - time.monotonic())):
            key.data(mask)
        pool.poll(time.monotonic())
        while self._asked:
            self._asked.popleft()(pool)

    def _take(self, results: list[Result]) -> None:
        for result in results:
            if isinstance(result, RunResult):  # nothing else is asked for
                self._answers.pop(result.run_key).set_result(result)


def _move_files(builder: Builder, there: str, here: str) -> tuple[tuple[str, str], ...]:
    """Return the files of a project's own builder where they lie here; what is installed is compared by its toolchain digest."""
    return tuple((here + path.removeprefix(there), code) for path, code in builder.code_files if path.startswith(f"{there}/"))


def _lay_out_code(setup: ClusterSetup, folder: str, store: Store) -> None:
    os.makedirs(folder)
    for file in setup.code:
        path = Path(os.path.normpath(os.path.join(folder, os_path(file.rel))))
        if not path.is_relative_to(folder):
            raise HostError(
                f"a file of builder code is called '{file.rel}'",
                hint="'aptui doctor' says what belongs together; the job runs here instead",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        digest, size = file.blob
        if not store.get_blob(digest.hex(), str(path), size):
            raise HostError(f"the builder code '{file.rel}' is not in the store", where=store.address)
