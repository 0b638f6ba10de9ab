"""The EnginePort: a record for each request that a client may send to an engine, and the interface that answers them.

This module uses no socket.

A client's first request is `EngineHello`. Every request gets exactly one answer (an object whose form depends on the request) or
one refusal; notices go to clients that have sent `subscribe`. Clients read settled facts (jobs, assets, logs of finished runs,
reasons) from the database, not by requests.

Tests: `tests/link/test_engine_client.py`.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from msgspec import Struct

PROTOCOL = 4
"""Protocol version, increased when a verb or a notice changes its form; both ends send their version in the first message."""


class EngineHello(Struct, frozen=True):
    """Introduce a client to the engine.

    Answered with {protocol, version, pid, epoch, project, cache, cache_id, started_ms}; a client of another protocol gets this
    answer, too. `cache_id` is device and inode of the cache folder: a client that needs another cache hangs up.
    """

    protocol: int
    version: str
    kind: str
    pid: int
    name: str = ""


class PingEngine(Struct, frozen=True):
    """Check that the engine responds. Answered with {}."""


class Subscribe(Struct, frozen=True):
    """Receive notices from now on.

    Answered with {epoch, seq, progress, health, running: [job id, …], running_ms: [run time of each job, …], running_percent:
    [progress of each job, -1 = unknown, …]}. With `wants_all` the client also receives notices about pending and running jobs and
    their progress; otherwise only about jobs that ended. If a job ends soon after its start, only its end is reported. Every notice
    carries `epoch` and `seq`; a client that reads too slowly is dropped and may connect again.

    `is_coalesced`: the client receives, at most ten times a second, only the newest notice about each object (`notice_feed`); for
    clients that draw.
    """

    wants_all: bool = True
    is_coalesced: bool = False


class ReprocessJobs(Struct, frozen=True):
    """Run jobs again: the jobs of the sources `keys` (relative paths in lower case, or `*` patterns), or the given jobs.

    Answered with {count}.
    """

    keys: tuple[str, ...] = ()
    job_ids: tuple[int, ...] = ()


class Cancel(Struct, frozen=True):
    """Cancel these jobs; they run again only when their source changes or a client requests them. Answered with {count}."""

    job_ids: tuple[int, ...]


STATUS_URGENCY, JOBS_URGENCY, WAIT_URGENCY = 150, 100, 200
"""Values of `amount` in `EscalateJobs`, as in O3DE.

In this order, the values are for a status request, for a request for job information, and for a client that waits for an asset.
"""


class EscalateJobs(Struct, frozen=True):
    """Raise the urgency of these jobs until they have run. Answered with {count}."""

    job_ids: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    amount: int = 100


MOST_INTERESTING = 1_000
"""Maximum number of sources in one `NoteInterest`."""


class NoteInterest(Struct, frozen=True):
    """Raise the priority of the jobs of these sources for 90 s. Critical and escalated jobs still start before them.

    Answered with {count}.
    """

    keys: tuple[str, ...] = ()


class ReadRunLog(Struct, frozen=True):
    """Read the present log of a running job. `run_key` and `seen` are `run_key` and `stamp` of the previous answer.

    Answered with {run_key, stamp, records: [`LogRecord`, …]} within about a second; `run_key` 0 = the job does not run; `records`
    null = no new records. A run that has not started, or that runs on a cluster, does not have a log yet.
    """

    job_id: int
    run_key: int = 0
    seen: int = -1


class RescanSources(Struct, frozen=True):
    """Scan everything again; `is_full` reads every file's bytes. Answered with {} at once; a scan in progress ends first."""

    is_full: bool = False


class SetOption(Struct, frozen=True):
    """Change an option of the running engine (debug_output or fast_scan) until the engine ends. Answered with {name, value}."""

    name: str
    value: bool


class ReloadConfig(Struct, frozen=True):
    """Read the configuration again.

    Answered with {is_changed}; an invalid configuration is refused, and the previous configuration stays in use.
    """


class Disconnect(Struct, frozen=True):
    """Disconnect a client. Answered with {}."""

    number: int


class RestartWorker(Struct, frozen=True):
    """Stop a worker cleanly; a new worker replaces it. Answered with {}."""

    number: int


class ReadStatus(Struct, frozen=True):
    """Read the state of the engine.

    Answered with {pid, version, project, cache, cache_id, uptime_s, rss_bytes, state, progress, health, options, epoch, seq}; with
    `lists_connections` also {connections: […], workers: […], gateway} (`shared.health`, `shared.connections`; null = no gateway
    runs).
    """

    lists_connections: bool = False


class Settle(Struct, frozen=True):
    """Wait until all changes before this request are processed.

    The answer is {epoch, seq, run, failed, seconds, shared, unknown, configuration, variables}.

    `shared` are counts of results that were fetched (shared/result_store.py), {} if no results were looked up; `unknown` are
    sentences about source folders that cannot be read (their stored state is kept); `variables` is {name: digest of the value, "" =
    not set} of the environment variables that the configuration names.

    The fields of this request are the options that the client needs. An engine that runs with other options refuses the request and
    names the differing options.

    `retries`: also run failed jobs again. A scan in progress may do so already, so it is not repeated.
    """

    is_full_scan: bool = False
    platforms: tuple[str, ...] | None = None
    sets: tuple[str, ...] = ()
    debug_output: bool | None = None
    retries: bool = False


class PauseJobs(Struct, frozen=True):
    """Pause the start of runs. Answered with {is_paused: true}."""


class RunNext(Struct, frozen=True):
    """During a pause, start one more job: the job `job_id`, or the next job. Answered with {job_id}: 0 = no job is pending."""

    job_id: int = 0


class ResumeJobs(Struct, frozen=True):
    """Start runs again after `PauseJobs`. Answered with {is_paused: false}."""


class Drain(Struct, frozen=True):
    """Finish the pending work, and stop the engine if `stops` is set. Answered with {} when no work is pending.

    New changes are not processed until `ResumeJobs`.
    """

    stops: bool = False


class Hold(Struct, frozen=True):
    """Delay the processing of changes until this connection ends. Answered with {}."""

    why: str


class StopEngine(Struct, frozen=True):
    """Stop the engine cleanly; with `is_when_idle`, as soon as no work is pending. Answered with {} before it ends."""

    is_when_idle: bool = False


class FeatureRequest(Struct, frozen=True):
    """Base of requests that a feature both defines (`Feature.requests`) and answers; `wire_name` is the name on the wire."""

    wire_name: ClassVar[str]


Verb = (
    EngineHello | PingEngine | Subscribe | ReprocessJobs | Cancel | EscalateJobs | NoteInterest | ReadRunLog
    | RescanSources | SetOption | ReloadConfig | Disconnect | RestartWorker | ReadStatus | Settle | PauseJobs
    | RunNext | ResumeJobs | Drain | Hold | StopEngine | FeatureRequest
)  # fmt: skip

VERBS: dict[str, type[Verb]] = {
    "hello": EngineHello,
    "ping": PingEngine,
    "subscribe": Subscribe,
    "reprocess": ReprocessJobs,
    "cancel": Cancel,
    "escalate": EscalateJobs,
    "interest": NoteInterest,
    "read_run_log": ReadRunLog,
    "rescan": RescanSources,
    "set_option": SetOption,
    "reload_config": ReloadConfig,
    "disconnect": Disconnect,
    "restart_worker": RestartWorker,
    "status": ReadStatus,
    "settle": Settle,
    "pause": PauseJobs,
    "run_next": RunNext,
    "resume": ResumeJobs,
    "drain": Drain,
    "hold": Hold,
    "stop_engine": StopEngine,
}
"""{name in the protocol: record} of all requests except those that features add."""
_VERB_NAMES = {record: name for name, record in VERBS.items()}


def wire_name(kind: type[Verb]) -> str:
    """Return the name of a request on the wire."""
    return kind.wire_name if issubclass(kind, FeatureRequest) else _VERB_NAMES[kind]


def name_verb(verb: Verb) -> str:
    """Return the words for a verb in messages to users, such as "run next"."""
    return wire_name(type(verb)).replace("_", " ")


Answer = dict[str, object]
"""The fields of an answer in JSON. Values that are records of `aptui.core` are written as JSON objects."""


class Request(Protocol):
    """A client's request without an answer yet. A second answer, or an answer to a client that has disconnected, has no effect."""

    client: int
    """Number of the client's connection, as in `shared.health.Connection`."""
    verb: Verb

    def answer(self, **fields: object) -> None:
        """Send the answer."""

    def refuse(self, what: str, hint: str = "", code: int = 3) -> None:
        """Send a refusal.

        Args:
            code: exit code of a verb that gets the refusal: 3 = the client's mistake, 2 = trouble of the engine, 4 = busy.
        """


class Answerer(Protocol):
    """Handler of requests in the engine. Its methods are called in the engine's thread and must not block."""

    def handle(self, request: Request) -> None:
        """Handle a request; answer it now or later.

        `EngineHello`, `PingEngine`, `Subscribe`, `ReadStatus` and `Disconnect` are also passed to this method.
        """

    def forget_client(self, client: int) -> None:
        """End the delays that a disconnected client requested with `Hold`, and drop its pending requests."""
