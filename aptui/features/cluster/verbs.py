"""`aptui worker`: runs this machine as a worker of a Dask cluster, with a nanny that restarts it.

Dask's own command works, too: `dask worker ADDRESS --preload aptui.features.cluster.task` (`CLUSTER.md`).

Tests: `tests/features/cluster/test_scheduler.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Coroutine, Iterator
from typing import Any

from aptui.config import dirs, settings
from aptui.config.configuration import Config
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError, install_advice
from aptui.shared.files.scratch import scratch_folder
from aptui.shared.health import DoctorCheck

_PRELOAD = "aptui.features.cluster.task"
_FOLDER_PREFIX = "aptui-worker-"
_START_S = 60.0
"""Timeout for joining the cluster, in seconds."""
_AGAIN_S = 2.0
"""Delay before the first attempt to join the cluster again, in seconds; the delay grows with each attempt."""
_MOST_AGAIN_S = 30.0
"""Maximum delay before an attempt to join the cluster again, in seconds."""
_MEMORY_SHARE = 0.8
"""Default share of the machine's memory for all jobs."""


def worker_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `worker`."""
    parser.add_argument(
        "--scheduler",
        required=True,
        metavar="ADDRESS",
        help="address of Dask's scheduler: tls://HOST:8786; on this machine also tcp://127.0.0.1:8786, with --insecure",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="allow tcp:// without encryption; every user of this machine can then run programs as you",
    )
    parser.add_argument("--tls-ca", default="", metavar="FILE", help="certificate of the cluster's authority (PEM)")
    parser.add_argument("--tls-cert", default="", metavar="FILE", help="certificate of this machine (PEM)")
    parser.add_argument("--tls-key", default="", metavar="FILE", help="private key of --tls-cert (PEM)")
    parser.add_argument(
        "--slots", type=_slots, default=0, metavar="N", help="maximum number of jobs at a time; one per core by default"
    )
    parser.add_argument(
        "--tags",
        type=_tags,
        default={},
        metavar="A,B=N",
        help="tags of this machine; with =N, at most N jobs use a tag at a time, for example a licence",
    )
    parser.add_argument(
        "--store",
        default="",
        metavar="PLACE",
        help="path or URL of the store on this machine, if it differs from that in aptui.yaml",
    )
    parser.add_argument(
        "--memory",
        type=_gib,
        default=0,
        metavar="GIB",
        help="memory limit of all jobs together, in GiB; 80 %% of the machine's memory by default",
    )
    parser.add_argument("--name", default=None, metavar="NAME", help="name of this worker in the cluster")
    parser.add_argument(
        "--host",
        default=None,
        metavar="ADDRESS",
        help="address to listen on; 127.0.0.1 by default if the scheduler's address is tcp://",
    )


def worker(arguments: Namespace) -> int:
    """Work until interrupted."""
    has_certificates = bool(arguments.tls_ca and arguments.tls_cert and arguments.tls_key)
    settings.check_address(arguments.scheduler, has_certificates=has_certificates, is_insecure=arguments.insecure)
    try:
        import distributed  # noqa: F401  # reports a missing package early
    except ImportError:
        raise UserError("a worker needs the package 'distributed'", hint=install_advice("dask")) from None
    if arguments.store:
        from aptui.features.cluster.cluster_messages import STORE_VARIABLE

        place = arguments.store
        os.environ[STORE_VARIABLE] = place if "://" in place else os.path.abspath(os.path.expanduser(place))
    logging.getLogger("distributed").setLevel(logging.WARNING)
    return asyncio.run(_work(arguments))


async def _work(arguments: Namespace) -> int:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    with scratch_folder(_FOLDER_PREFIX) as folder:
        await _join(arguments, str(folder), ended)
        pause_s = _AGAIN_S
        while not ended.is_set():
            printing.complain(f"the connection to the cluster at {arguments.scheduler} was lost; connecting again")
            await _either(ended.wait(), asyncio.sleep(pause_s))
            pause_s = min(2 * pause_s, _MOST_AGAIN_S)
            with contextlib.suppress(HostError):
                await _join(arguments, str(folder), ended)
                pause_s = _AGAIN_S
    return 0


async def _join(arguments: Namespace, folder: str, ended: asyncio.Event) -> None:
    """Join the cluster, and work until the user interrupts the command or the scheduler is gone.

    Dask's own workers end with their scheduler, or after a timeout.
    """
    if ended.is_set():
        return
    nanny = _nanny(arguments, folder)
    try:
        await asyncio.wait_for(nanny, _START_S)
    except (OSError, TimeoutError, RuntimeError) as error:  # Dask raises RuntimeError if a worker failed to start
        await nanny.close()
        raise HostError(
            f"the worker cannot join the cluster: {error.__cause__ or error or 'no answer'}", where=arguments.scheduler
        ) from None
    slots, tags = nanny.nthreads, ", ".join(sorted(arguments.tags)) or "none"
    printing.say_now(f"connected to {arguments.scheduler} as worker {nanny.worker_address}: {slots} slots, tags: {tags}")
    await _either(nanny.finished(), ended.wait())
    await nanny.close()


async def _either(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of the coroutines has ended; cancel the others."""
    tasks = [asyncio.get_running_loop().create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _nanny(arguments: Namespace, folder: str) -> Any:
    from distributed import Nanny

    from aptui.features.cluster.scheduler import MEMORY, security_of

    slots = arguments.slots or dirs.core_count()
    resources = {tag: float(count or slots) for tag, count in arguments.tags.items()}
    resources[MEMORY] = float(arguments.memory or int((os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) * _MEMORY_SHARE))
    ca, cert, key = (os.path.abspath(path) if path else "" for path in (arguments.tls_ca, arguments.tls_cert, arguments.tls_key))
    place = settings.ClusterSettings("dask", arguments.scheduler, ca, cert, key)
    is_plain = arguments.scheduler.startswith("tcp://")
    return Nanny(
        arguments.scheduler,
        nthreads=slots,
        name=arguments.name,
        host=arguments.host or ("127.0.0.1" if is_plain else None),
        security=security_of(place),
        resources=resources,
        memory_limit=0,  # 0 = no limit for this process, because jobs run in aptui's worker processes, which have limits
        local_directory=folder,
        preload=[_PRELOAD],
        preload_argv=[],
        config={"distributed.worker.profile.enabled": False},  # Dask's profiler would inspect each thread 100 times per second
        silence_logs=logging.WARNING,
    )


def _slots(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise ArgumentTypeError(f"'{text}' is not a number of slots")
    return int(text)


def _gib(text: str) -> int:
    try:
        return int(float(text) * (1 << 30))
    except (ValueError, OverflowError):
        raise ArgumentTypeError(f"'{text}' is not a number of GiB") from None


def _tags(text: str) -> dict[str, int]:
    found = {}
    for word in filter(None, text.split(",")):
        tag, equals, count = word.partition("=")
        if not tag or (equals and not count.isdigit()):
            raise ArgumentTypeError(f"'{word}' is neither a tag nor TAG=NUMBER")
        found[tag.strip().lower()] = int(count) if equals else 0
    return found


def doctor_lines(config: Config) -> Iterator[DoctorCheck]:
    """Yield the line of `aptui doctor` (extension point `doctor`): which users or machines can run programs on the cluster."""
    cluster = config.cluster
    if not cluster.is_used:
        yield DoctorCheck("cluster", "ok", "none")
    elif cluster.insecure and cluster.scheduler.startswith("tcp://"):
        message = f"'{cluster.scheduler}' is not encrypted, so every user of this machine can run programs as you"
        yield DoctorCheck("cluster", "warn", message, "use tls:// with certificates, and remove 'pool.insecure'")
    else:
        yield DoctorCheck(
            "cluster", "ok", f"{cluster.scheduler}: only machines with a certificate of '{cluster.tls_ca}' can run programs"
        )
