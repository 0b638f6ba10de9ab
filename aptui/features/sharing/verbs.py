"""The verbs `cache` and `restore`, and the lines of `doctor` about shared results. Only `cache verify --rebuild` runs jobs.

Tests: `tests/features/sharing/test_verbs.py`, `tests/features/sharing/test_restore_verb.py`.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from aptui.batch.options import engine_arguments, load_config, load_to_run, options_of, refuse_ignored
from aptui.config import trust
from aptui.config.dirs import user_file
from aptui.shared import printing
from aptui.shared.errors import HostError, KnownError, UserError, install_advice
from aptui.shared.files.replacing import describe_unwritable, read_private
from aptui.shared.health import DoctorCheck

if TYPE_CHECKING:
    from aptui.config.configuration import Config, SharedCacheSettings
    from aptui.features.sharing.stores.local import StoreMaintenance
    from aptui.shared.result_store import SharingSum


INCOMPLETE = 1
"""Exit code of an action of `cache` that found missing or damaged results."""
_PORT = 8089
"""Default port of `cache serve`."""
_TOKENS_LIMIT_BYTES = 1 << 20
"""Maximum size of a file with tokens."""
CACHE_ACTIONS = {
    "init": "create the team's key for the shared cache and print what teammates need",
    "stats": "show stored results and saved time for each builder",
    "gc": "remove the least recently used results, down to the size limit",
    "verify": "read all results stored on this machine and delete damaged results; --rebuild also deletes results that differ "
    "from a new build",
    "test": "connect to the shared cache and read from it; in mode 'server' also write",
    "prefetch": "fetch all results for the current state of this project; run no builder",
    "ready": "check whether the shared cache has all results of a commit; this runs the analyses of the commit's builders",
    "serve": "serve this machine's results over HTTP",
}


def cache_arguments(parser: ArgumentParser, action: str = "") -> None:
    """Declare the options of `cache`, or of one of its actions."""
    actions = "; ".join(f"{name}: {text}" for name, text in CACHE_ACTIONS.items())
    if not action:
        parser.add_argument("action", choices=list(CACHE_ACTIONS), metavar="ACTION", help=actions)
    if action in ("", "ready"):
        parser.add_argument(
            "commit", metavar="COMMIT", nargs="?", default="", help="for 'ready': a commit, branch or tag of the repository"
        )
        parser.add_argument(
            "--trust-code",
            action="store_true",
            help="for 'ready': allow the commit's builder code and the version commands of its tools to run on this machine",
        )
    if action in ("", "ready", "prefetch"):
        parser.add_argument("--platforms", metavar="A,B", help="for 'ready' and 'prefetch': only these platforms")
    if action in ("", "verify"):
        _rebuild_arguments(parser)
    if action in ("", "gc", "serve"):
        parser.add_argument("--limit", metavar="SIZE", help="size limit to use instead of the configured one, for example 5GiB")
    if action in ("", "gc", "verify", "serve"):
        parser.add_argument(
            "--store", metavar="DIR", help="folder of the store; without this option, the 'local_store' of the project"
        )
    if action != "serve":
        parser.add_argument("--json", action="store_true", help="print one JSON object")
    if action in ("", "serve"):
        _serve_arguments(parser.add_argument_group("serve"))


def _rebuild_arguments(parser: ArgumentParser) -> None:
    from aptui.cli.verify_verb import share

    parser.add_argument(
        "--rebuild",
        type=share,
        metavar="SHARE",
        help="with verify: build a share of this project's stored results (5%%, for example) twice in a temporary folder, "
        "and compare",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="NUMBER",
        help="with --rebuild: number that selects the sample; the same number selects the same results",
    )


def _serve_arguments(parser: _ArgumentGroup) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; by default only this machine")
    parser.add_argument("--port", type=int, default=_PORT, help=f"port to listen on; {_PORT} by default, 0 = any free port")
    parser.add_argument("--writable", action="store_true", help="allow every client on this machine to write")
    parser.add_argument(
        "--read-token-file",
        metavar="FILE",
        help="file of tokens for reading, one per line; by default clients on this machine need no token, and others need "
        "a write token",
    )
    parser.add_argument(
        "--write-token-file", metavar="FILE", help="file of tokens for writing, one per line, each with an optional namespace"
    )
    parser.add_argument("--certificate", metavar="FILE", help="certificate for TLS (PEM)")
    parser.add_argument("--key", metavar="FILE", help="private key of the certificate")
    parser.add_argument("--plain", action="store_true", help="do not use TLS, because a proxy in front of the server provides it")


def cache(arguments: Namespace) -> int:
    """Run an action; return the exit code."""
    actions: dict[str, Callable[[Namespace], int]] = {
        "init": _init,
        "stats": _stats,
        "gc": gc,
        "verify": _verify,
        "test": _test,
        "prefetch": _prefetch,
        "ready": _ready,
        "serve": _serve,
    }
    if bool(arguments.commit) != (arguments.action == "ready"):
        raise UserError("'ready' needs a commit; no other action has this argument", hint="for example 'aptui cache ready main'")
    _refuse_options_of_others(arguments)
    return actions[arguments.action](arguments)


def _refuse_options_of_others(arguments: Namespace) -> None:
    """Refuse options that only other actions have, and options of `verify` that have no effect together."""
    own, every = ArgumentParser(), ArgumentParser()
    cache_arguments(own, arguments.action)
    cache_arguments(every)
    names = vars(own.parse_args([]))
    for name, default in vars(every.parse_args([arguments.action])).items():
        if name != "action" and name not in names and getattr(arguments, name) != default:
            option, verb = name.replace("_", "-"), f"cache {arguments.action}"
            raise UserError(f"'--{option}' is not an option of '{verb}'", hint=f"remove it; 'aptui help {verb}' lists the options")
    if arguments.action == "verify":
        if arguments.rebuild:
            refuse_ignored(arguments, ["store"], "has no effect with '--rebuild'", "set 'local_store.path' instead")
        else:
            refuse_ignored(arguments, ["seed"], "has no effect without '--rebuild'", "add for example '--rebuild 5%', or remove it")


# --------------------------------------------------------------------------------------------------- this machine's store


def _store_of(arguments: Namespace, config: Config | None = None) -> tuple[str, int]:
    """Return the folder of the store and its size limit (bytes, 0 = no limit): those of the options, else of the configuration."""
    from aptui.config.edit import mistake_in, value_of
    from aptui.config.yaml.nodes import byte_count

    size_limit = value_of(arguments.limit or "0")
    if mistake_in("local_store.size_limit", size_limit):
        raise UserError(f"'{arguments.limit}' is not a size", hint="write for example --limit 5GiB")
    limit_bytes: int = byte_count(size_limit)  # type: ignore[arg-type]  # the schema checks it
    if arguments.store:
        return os.path.abspath(arguments.store), limit_bytes
    sharing = (config or load_config(arguments)).sharing
    if not sharing.local_store:
        raise UserError("this machine stores no results: 'local_store.enabled' is false", hint="set 'local_store.enabled' to true")
    return sharing.local_store, limit_bytes if arguments.limit else sharing.local_limit_bytes


def gc(arguments: Namespace) -> int:
    """Remove the results that were not used for the longest time."""
    from aptui.features.sharing.stores import local

    path, limit = _store_of(arguments)
    done = local.gc(path, limit) if os.path.isdir(path) else local.StoreMaintenance()
    if arguments.json:
        printing.say_json({"store": path, "limit_bytes": limit, **to_builtins(done)})
    elif done.is_busy:
        printing.say("another process is already removing results from the store")
    else:
        removed = f"{printing.count(done.removed, 'file')} removed, {printing.size(done.freed_bytes)} freed"
        size = printing.size(done.size_bytes)
        printing.say(f"{removed}; {f'{size} of {printing.size(limit)}' if limit else size} remain")
        if limit and done.size_bytes > limit:
            minutes = round(local.GRACE_S / 60)
            printing.say(f"results of the last {minutes} minutes stay, because an engine or a server uses the store", "yellow")
    return 0


def _verify(arguments: Namespace) -> int:
    from aptui.features.sharing.stores import local

    config = load_to_run(arguments) if arguments.rebuild else None
    path, _limit = _store_of(arguments, config)
    if config is not None:
        from aptui.cli.read_access import open_for_reading
        from aptui.features.sharing.store_checks import rebuild_store

        with open_for_reading(arguments, config) as project:
            return rebuild_store(config, project, arguments.rebuild, arguments.seed, as_json=arguments.json)
    found = local.verify(path) if os.path.isdir(path) else local.StoreMaintenance()
    if arguments.json:
        printing.say_json({"store": path, **to_builtins(found)})
    else:
        for name in found.damaged:
            printing.say(f"damaged, and removed: {printing.line(name)}", "red")
        printing.say(f"undamaged: {_describe_held(found)}", "yellow" if found.damaged else "green")
    return INCOMPLETE if found.damaged else 0


def _describe_held(found: StoreMaintenance) -> str:
    return f"{printing.count(found.records, 'result')}, {printing.count(found.blobs, 'product')}, {printing.size(found.size_bytes)}"


def _stats(arguments: Namespace) -> int:
    from aptui.features.sharing import totals as shared_totals
    from aptui.features.sharing.stores import local

    config = load_config(arguments)
    sharing, path = config.sharing, config.sharing.local_store
    held = local.count(path) if path and os.path.isdir(path) else local.StoreMaintenance()
    totals = shared_totals.read(config.cache_dir)
    if arguments.json:
        printing.say_json(
            {
                "mode": sharing.mode,
                "shared_store": sharing.store,
                "local_store": path,
                "limit_bytes": sharing.local_limit_bytes,
                "records": held.records,
                "blobs": held.blobs,
                "size_bytes": held.size_bytes,
                "since": printing.iso(totals.since_ms),
                "last_run": {name: to_builtins(one) for name, one in totals.last.items()},
                "builders": {name: to_builtins(one) for name, one in totals.builders.items()},
            }
        )
        return 0
    limit = f" of {printing.size(sharing.local_limit_bytes)}" if sharing.local_limit_bytes else ""
    printing.say(
        f"this machine: {printing.line(path)}: {_describe_held(held)}{limit}" if path else "this machine stores no results"
    )
    where = f"shared cache: {sharing.mode}, {printing.line(sharing.store)}" if sharing.store else "shared cache: inactive"
    printing.say(where)
    _print_totals(totals.builders, totals.since_ms)
    return 0


def _print_totals(builders: Mapping[str, SharingSum], since_ms: int) -> None:
    from aptui.shared.result_store import duration, line, total

    if not builders:
        printing.say("no stored result was requested yet")
        return
    printing.say(f"since {printing.when(since_ms)}: {line(total(builders.values()))}", "bold")
    rows = []
    for name, one in sorted(builders.items(), key=lambda item: -item[1].saved_ms):
        asked = one.hits + one.misses
        share = f"{100 * one.hits // asked} %" if asked else ""
        lost = duration(-one.saved_ms)
        saved = f"-{lost}" if one.saved_ms < 0 and lost != duration(0) else duration(max(one.saved_ms, 0))
        counts = (one.local_hits, one.remote_hits, one.misses)
        sizes = (printing.size(one.fetched_bytes), printing.size(one.uploaded_bytes))
        rows.append([printing.line(name), share, *map(str, counts), saved, *sizes, str(one.unusable), str(one.differences)])
    heads = ["builder", "hits", "here", "shared", "misses", "saved", "fetched", "sent", "unusable", "different"]
    printing.table(heads, rows, right=range(1, len(heads)), spare=(9, 8, 7, 6))


# ------------------------------------------------------------------------------------------------------- the shared cache


def _init(arguments: Namespace) -> int:
    """Make the key that seals results, unless it exists, and print how teammates use it."""
    from aptui.features.sharing.record import make_key, read_key

    # A configuration that requires the team's key cannot be loaded before `cache init` makes the key. This setting removes the
    # requirement.
    arguments.set = [*(getattr(arguments, "set", None) or ()), "shared_cache.trust=unsealed"]
    config = load_config(arguments)
    path = config.sharing.team_key_file or str(user_file().with_name("team.key"))
    is_new = make_key(path)
    read_key(path)
    if arguments.json:
        printing.say_json({"team_key_file": path, "is_new": is_new, "store": config.sharing.store})
        return 0
    printing.say(f"{'created' if is_new else 'exists already'}: {printing.line(path)}", "green")
    printing.say("in aptui.yaml of the project:")
    store, home = config.sharing.store or "/PLACE/OF/THE/STORE", os.path.join(os.path.expanduser("~"), "")
    place = f"~/{path.removeprefix(home)}" if path.startswith(home) else path
    given = f"store: '{printing.line(store)}', team_key_file: '{printing.line(place)}'"
    printing.say(f"  shared_cache: {{mode: server, {given}}}")
    if not config.sharing.store:
        printing.say(
            "replace /PLACE/OF/THE/STORE with a folder that the whole team can write to, or the URL of 'aptui cache serve'"
        )
    printing.say("Each teammate needs a copy of the key at that path, readable by its owner only (chmod 600).")
    printing.say(
        "Send the key like a password, and do not store it in the project. Results that were shared without the key are no longer "
        "used."
    )
    printing.say(
        "The same key signs and checks results. For machines that only read, set 'mode: client', a token for reading, and "
        "'writers'; the writers need 'signing_key_file'."
    )
    return 0


def _test(arguments: Namespace) -> int:
    from aptui.features.sharing.namespaces import probe

    sharing = load_config(arguments).sharing
    if not sharing.store:
        raise UserError("no shared cache is configured", hint="write 'shared_cache: {mode: client, store: …}' in aptui.yaml")
    answer = probe(sharing)
    if arguments.json:
        printing.say_json(to_builtins(answer))
    else:
        printing.say(f"{printing.line(answer.address)}: {printing.line(answer.message)}", "red" if answer.is_bad else "green")
    return INCOMPLETE if answer.is_bad else 0


def _prefetch(arguments: Namespace) -> int:
    from aptui.features.sharing.store_checks import look_up

    config = load_config(arguments)
    trust.require_for_start(config, "cache prefetch")
    return _print_found(arguments, look_up(config), "this project")


def _ready(arguments: Namespace) -> int:
    from aptui.features.sharing.store_checks import look_up_commit

    config = load_config(arguments)
    trust.require_for_start(config, "cache ready")
    return _print_found(
        arguments, look_up_commit(config, arguments.commit, arguments.platforms, trusts_code=arguments.trust_code), arguments.commit
    )


def _print_found(arguments: Namespace, found: Any, what: str) -> int:
    if arguments.json:
        printing.say_json(to_builtins(found))
        return INCOMPLETE if found.missing else 0
    for name in found.missing:
        printing.say(f"  missing: {printing.line(name)}", "yellow")
    for text in found.doubts:
        printing.say(f"  {printing.line(text)}", "yellow")
    is_all = not found.missing and not found.doubts
    printing.say(
        f"{printing.line(what)}: {found.found:,} of {printing.count(found.found + len(found.missing), 'result')} found",
        "green" if is_all else "yellow",
    )
    return 0 if is_all else INCOMPLETE


def _serve(arguments: Namespace) -> int:
    try:
        from aptui.features.sharing.cache_server import CacheServer, serve
    except ImportError:
        raise UserError("serving needs the package 'aiohttp'", hint=install_advice("serve")) from None
    path, limit_bytes = _store_of(arguments)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise HostError(f"the folder of the store cannot be made: {error.strerror}", where=path) from None
    serving = CacheServer(
        path,
        arguments.host,
        arguments.port,
        read_tokens=tuple(_tokens(arguments.read_token_file)),
        write_tokens=_tokens(arguments.write_token_file),
        is_writable=arguments.writable,
        certificate=arguments.certificate or "",
        private_key=arguments.key or "",
        is_plain=arguments.plain,
        limit_bytes=limit_bytes,
    )
    serve(serving, started=lambda address: printing.complain(f"serving '{printing.line(path)}' at {address}"))
    return 0


def _tokens(file: str | None) -> dict[str, str]:
    """Read {token: the namespace that it may write} from a file.

    Each line has one token and an optional namespace, by default `trusted`.
    """
    from aptui.features.sharing.record import TRUSTED

    if not file:
        return {}
    text = read_private(file, "these tokens", _TOKENS_LIMIT_BYTES).decode("utf-8", "replace")
    lines = [words for line in text.splitlines() if (words := line.split()) and not line.startswith("#")]
    return {words[0]: words[1] if len(words) > 1 else TRUSTED for words in lines}


# -------------------------------------------------------------------------------------------------------------- restore

NOT_RESTORED = 1
"""Exit code of `restore` if the products were not restored."""


def restore_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `restore`."""
    parser.add_argument("job", metavar="JOB", help="#<number>, or PATH[@PLATFORM][:JOB KEY]")
    parser.add_argument(
        "--run", type=int, required=True, metavar="N", help="number of the run: 1 is the last run, 2 the run before; see below"
    )
    engine_arguments(parser)
    parser.epilog = """\
'aptui log JOB --history' lists the runs. The restored products stay until an input
of the job changes (its source, its builder) or 'aptui reprocess' names the job;
restarts and full scans keep them, and 'aptui jobs' shows the job as restored."""


def restore(arguments: Namespace) -> int:
    """Restore the products of a run and print them."""
    from aptui.batch.run import run
    from aptui.cli.naming import find_job, refuse_failed_analysis, refuse_unknown_run
    from aptui.cli.read_access import open_for_reading
    from aptui.features.sharing.job_results import find_stored_run

    config = load_to_run(arguments)
    with open_for_reading(arguments, config) as project:
        row = find_job(arguments.job, config, project.database)
        refuse_failed_analysis(row, "restore", "run 'aptui log' to see the error, and fix it")
        runs = project.database.runs_of(row.job_id)
        refuse_unknown_run(arguments.run, len(runs))
        chosen = runs[arguments.run - 1]
    stored = find_stored_run(config, row.job_id, chosen.run_key)
    options = options_of(arguments)
    options.restores = ((row.job_id, chosen.run_key),)
    run(config, options)
    with open_for_reading(arguments, config) as project:
        now = project.database.job(row.job_id)
    is_done = now is not None and now.status == "completed" and now.origin == stored.origin
    name = f"{row.source}@{row.platform}:{row.job_key}"
    if arguments.json:
        products = [{"name": product.row.name, "digest": product.digest} for product in stored.products]
        printing.say_json({"job": name, "job_id": row.job_id, "restored": is_done, "origin": stored.origin, "products": products})
    elif is_done:
        printing.say(f"{printing.line(name)}: its result is {stored.origin}", "green")
        for product in stored.products:
            printing.say(f"  {printing.line(product.row.name)}")
    else:
        why = printing.line(now.error) if now is not None and now.error else "the job ran again in the meantime"
        printing.say(f"{printing.line(name)} was not restored: {why}", "red")
    return 0 if is_done else NOT_RESTORED


# ------------------------------------------------------------------------------------------------------------------ doctor


def doctor_lines(config: Config) -> Iterator[DoctorCheck]:
    """Yield the lines of `aptui doctor` about shared results; this function implements the extension point `doctor`."""
    yield _check_shared_cache(config)
    yield _check_local_store(config)


def _check_shared_cache(config: Config) -> DoctorCheck:
    """Check whether the shared cache can be used, and whether its users could put products of their own into this project's cache.

    Nothing is written. The store that an untrusted project names is not contacted.
    """
    from aptui.config.trust import risks_of

    sharing = config.sharing
    is_sealed = bool(sharing.team_key_file or sharing.writers)
    risks = risks_of(sharing.store, is_used=sharing.is_remote, is_sealed=is_sealed)
    if sharing.team_key_file and sharing.is_remote:
        from aptui.features.sharing.record import read_key

        try:
            read_key(sharing.team_key_file)
        except KnownError as error:
            advice = (
                "copy the team's key to this path (chmod 600); only one member of a team makes the key, with 'aptui cache init'"
            )
            return DoctorCheck("shared cache", "fail", str(error), advice)
    if sharing.is_remote and trust.is_trusted(config) and (problem := _describe_unusable(sharing)):
        advice = "check the address, the network and the permissions; 'aptui cache test' repeats this check"
        return DoctorCheck("shared cache", "fail", "; ".join((problem, *risks)), advice)
    if risks:
        return DoctorCheck(
            "shared cache",
            "warn",
            "; ".join(risks),
            "run 'aptui cache init' to make a key, and use https:// to encrypt the connection",
        )
    message = f"{sharing.mode}, {'sealed' if is_sealed else 'a store of your own'}" if sharing.is_remote else "inactive"
    return DoctorCheck("shared cache", "ok", message)


def _describe_unusable(sharing: SharedCacheSettings) -> str:
    """Return why the shared cache cannot be read, or, if it is a folder that this machine writes to, why it cannot be written."""
    from aptui.features.sharing.namespaces import probe

    answer = probe(replace(sharing, mode="client"))
    if answer.is_bad:
        return f"{answer.address}: {answer.message}"
    return describe_unwritable(sharing.store) if sharing.writes and "://" not in sharing.store else ""


def _check_local_store(config: Config) -> DoctorCheck:
    """Check whether the store can be written. Warn if checkouts share files by hard links."""
    path = config.sharing.local_store
    if path and (problem := describe_unwritable(path)):
        advice = "correct its permissions, or choose another folder as 'local_store.path'"
        return DoctorCheck("local store", "fail", f"{problem}, so results are not stored", advice)
    if config.sharing.local_store and config.sharing.links:
        message = "with 'local_store.links: hard', a program that writes into a product changes it in every checkout"
        return DoctorCheck(
            "local store", "warn", message, "remove 'links' from the configuration, unless saving disk space is more important"
        )
    return DoctorCheck("local store", "ok", config.sharing.local_store or "off")
