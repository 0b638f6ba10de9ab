"""The verbs `gateway`, `token`, `client`, `changes` and `web`, and the gateway's lines of `doctor` and `config --explain`.

Tests: `tests/features/gateway/test_client_verbs.py`, `tests/features/gateway/test_changes_verb.py`,
`tests/features/shipping/test_verbs.py`, `tests/config/test_settings.py`.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
import webbrowser
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from aptui.batch.options import load_config, load_last_config, refuse_ignored
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database
from aptui.config.load import ConfigMessage
from aptui.features.gateway.peers import peer_settings
from aptui.link import places
from aptui.link.engine_client import EngineClient, NoEngine
from aptui.shared import printing
from aptui.shared.errors import KnownError, UserError, install_advice
from aptui.shared.files.replacing import read_private, replace_bytes
from aptui.shared.health import DoctorCheck

if TYPE_CHECKING:
    from ssl import SSLContext

    from aptui.features.gateway.client import Client, ClientNotice
    from aptui.store.queries.change_tail import ChangeTail, Record


_TOKEN_VARIABLE = "APTUI_TOKEN"
_TOKEN_LIMIT = 4_096
_TOKEN_HELP = (
    f"other users can see this option in the list of processes, so set ${_TOKEN_VARIABLE} instead; the gateway of your own "
    "project needs no token"
)
_SCOPES = "read,escalate"
_DAY_MS = 86_400_000
_MOST_DAYS = 36_500
_PEM_BEGIN, _PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_WATCH_S = 3_600.0
"""Timeout of reconnecting in `aptui client watch`, in seconds."""


def _need_aiohttp() -> None:
    if find_spec("aiohttp") is None:
        raise UserError("the gateway and its clients need aiohttp, which is not installed", hint=install_advice("serve"))


# ---------------------------------------------------------------------------------------------------------------- gateway


def gateway_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `gateway`."""
    parser.add_argument("--platforms", metavar="A,B", help="only these platforms")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the configuration")
    parser.add_argument("--supervised", action="store_true", help=SUPPRESS)


def gateway(arguments: Namespace) -> int:
    """Listen for editors, games and devices until a signal arrives."""
    _need_aiohttp()
    from aptui.cli.engine_verbs import stop_engines
    from aptui.features.gateway import gateway as serving

    config = load_config(arguments)
    has_started = False
    if not arguments.supervised:
        _refuse_second(config)
        has_started = _start_engine(config, arguments)
    try:
        serving.run(
            config,
            say=lambda text: printing.say(printing.line(text)),
            reread=lambda: load_config(arguments),
            ends_with_input=arguments.supervised,
        )
    except KnownError:
        if has_started:
            printing.say(f"the engine that this command started was stopped: {', '.join(map(str, stop_engines(config.cache_dir)))}")
        raise
    return 0


def _refuse_second(config: Config) -> None:
    found = places.find_gateway(config.cache_dir)
    if found is not None and found.is_alive:
        raise UserError(
            f"a gateway of this project already listens at {found.url} (process {found.pid})",
            hint="use this gateway, or stop it first",
        )


def _start_engine(config: Config, arguments: Namespace) -> bool:
    """Start an engine without its own gateway if no engine is running; return whether an engine was started."""
    from aptui.cli.engine_verbs import same_configuration
    from aptui.daemon import daemon_process

    try:
        EngineClient.of(config.cache_dir).close()
    except NoEngine:
        options = [*same_configuration(arguments), "--set=serve.enabled=false"]
        pid = daemon_process.start(config.project_dir, config.cache_dir, options)
        printing.say(f"the engine runs as process {pid}")
        return True
    return False


# ------------------------------------------------------------------------------------------------------------------ tokens


def token_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `token`."""
    parser.add_argument("action", choices=("add", "list", "revoke"), help="what to do")
    parser.add_argument("name", nargs="?", default="", help="name of the token")
    parser.add_argument("--scopes", metavar="A,B", help=f"read, escalate, control, shutdown; {_SCOPES} by default")
    parser.add_argument(
        "--days",
        type=_days,
        metavar="N",
        help="number of days after which the token expires; by default it never expires",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object; with 'list', a JSON list")


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days <= _MOST_DAYS:
        raise ArgumentTypeError(f"'{printing.line(text)}' is not a number of days from 0 to {_MOST_DAYS:,}")
    return days


def token(arguments: Namespace) -> int:
    """Make, list or revoke tokens of this user's gateways."""
    from aptui.features.gateway.access import tokens
    from aptui.features.gateway.wire_codec import Scope

    file = tokens.path()
    if arguments.action != "add":
        refuse_ignored(arguments, ["scopes", "days"], f"has no effect with '{arguments.action}'")
    if arguments.action == "list":
        if arguments.name:
            raise UserError("'list' does not use the name of a token", hint="remove it: all tokens are listed")
        return _list_tokens(tokens.read(file), is_json=arguments.json)
    if not arguments.name:
        raise UserError("the name of the token is missing", hint=f"run 'aptui token {arguments.action} NAME'")
    if arguments.action == "revoke":
        tokens.revoke(file, arguments.name)
        return printing.say_answer(arguments.json, {"name": arguments.name}, f"'{printing.line(arguments.name)}' is revoked")
    words = [word.strip() for word in (_SCOPES if arguments.scopes is None else arguments.scopes).split(",") if word.strip()]
    unknown = [word for word in words if word not in {scope.value for scope in Scope}]
    if unknown or not words:
        raise UserError(f"'{(unknown or [''])[0]}' is not a scope", hint=f"the scopes are {', '.join(Scope)}")
    lasts_ms = int((arguments.days or 0) * _DAY_MS)
    made = tokens.add(file, arguments.name, [Scope(word) for word in words], lasts_ms=lasts_ms)
    printing.say_answer(arguments.json, {"name": arguments.name, "token": made, "scopes": words}, made)
    printing.complain("save the token now, because it is not shown again")
    return 0


def _list_tokens(tokens: list[Any], *, is_json: bool) -> int:
    if is_json:
        printing.say_json_list(
            {"name": each.name, "scopes": sorted(each.scopes), "created_ms": each.created_ms, "expires_ms": each.expires_ms}
            for each in tokens
        )
        return 0
    for each in tokens:
        until = f"  {'expired' if each.is_over else 'until'} {printing.minute(each.expires_ms)}" if each.expires_ms else ""
        scopes = ",".join(sorted(each.scopes))
        printing.say(f"{printing.line(each.name):<24} {scopes:<32} {printing.minute(each.created_ms)}{until}")
    return 0


# ------------------------------------------------------------------------------------------------------------------ client

_NEED_TERM = {"status": "asset_status", "wait": "wait_ready"}
"""{action of `aptui client` that needs the name of an asset: name of the request}."""
_ACTIONS = "watch, catalog, get PATH, status TERM, wait TERM, or the name of any request with field=value …"


def client_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `client`."""
    parser.add_argument("action", metavar="WHAT", help=_ACTIONS)
    parser.add_argument("words", nargs="*", metavar="WORD", help="arguments of the request")
    parser.add_argument("--url", default="", help="address of a gateway; by default the gateway of this project")
    parser.add_argument("--token", default="", help=f"token for the gateway; '-' reads it from standard input; {_TOKEN_HELP}")
    parser.add_argument(
        "--token-file", default="", metavar="FILE", help="file that contains the token, and that only its owner can read"
    )
    parser.add_argument("--ca", default="", metavar="FILE", help="certificate (PEM) of the gateway or its authority")
    parser.add_argument("--platform", default="", help="only this platform")
    parser.add_argument("--notices", default="", metavar="A,B", help="with watch: only these notifications")
    parser.add_argument("--output", default="", metavar="FILE", help="with get: write to this file instead of standard output")
    parser.add_argument("--json", action="store_true", help="print JSON")


def client(arguments: Namespace) -> int:
    """Send a request to a gateway, watch notifications, or fetch a product."""
    actions: dict[str, Callable[[Client, Namespace], int]] = {"watch": _watch, "catalog": _catalog, "get": _get}
    action = actions.get(arguments.action, _ask)
    _refuse_unused(arguments, is_request=action is _ask)
    _need_aiohttp()
    with _connect(arguments, wants_catalog=action is _catalog) as connected:
        return action(connected, arguments)


def _refuse_unused(arguments: Namespace, *, is_request: bool) -> None:
    """Refuse options and words that the action does not use."""
    for option, action in (("notices", "watch"), ("output", "get")):
        if arguments.action != action:
            refuse_ignored(arguments, [option], f"is an option of '{action}' only")
    if arguments.action == "get":
        refuse_ignored(arguments, ["json"], "has no effect with 'get'")
    elif arguments.words and not is_request:
        raise UserError(f"'{arguments.action}' does not use the word '{printing.line(arguments.words[0])}'", hint="remove it")
    if arguments.token:
        refuse_ignored(arguments, ["token-file"], "has no effect with '--token'", "use only one of these options")


def _connect(arguments: Namespace, *, wants_catalog: bool) -> Client:
    from aptui.features.gateway.client import Client, local

    url, token, tls = arguments.url, _token(arguments), _tls_context(arguments.ca) if arguments.ca else None
    place = None
    if not url:
        config = load_config(arguments)
        cache, tls = config.cache_dir, tls or _own_tls_context(config.serve.tls_cert)
        place = (lambda: (local(cache)[0], token)) if token else (lambda: local(cache))
        url, token = place()
    if not token:
        raise UserError("a token is missing", hint=f"add '--token-file FILE', or set ${_TOKEN_VARIABLE}")
    names = tuple(filter(None, arguments.notices.split(","))) if arguments.action == "watch" else ()
    return Client.connect(
        url,
        token=token,
        tls=tls,
        place=place,
        reconnect_s=_WATCH_S if arguments.action == "watch" else 0.0,
        client="aptui client",
        platforms=(arguments.platform,) if arguments.platform else (),
        wants_catalog=wants_catalog,
        notices=names,
    )


def _token(arguments: Namespace) -> str:
    """Return the token of the command line or environment, "" = no token was given.

    Raises:
        UserError: the file cannot be read, or other users can read it.
    """
    if arguments.token == "-":
        return sys.stdin.readline(_TOKEN_LIMIT).strip()
    if arguments.token:
        printing.complain(f"'--token' shows the token to other users of this machine; '--token-file' and ${_TOKEN_VARIABLE} do not")
        return str(arguments.token)
    if not arguments.token_file:
        return os.environ.get(_TOKEN_VARIABLE, "")
    return read_private(arguments.token_file, "this token", _TOKEN_LIMIT).decode("ascii", "replace").strip()


def _tls_context(file: str) -> SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise UserError(f"'{file}' is not a certificate: {error.strerror or error}", hint="name a PEM file") from None


def _own_tls_context(certificate: str) -> SSLContext | None:
    """Return a TLS context that trusts only this certificate, for any host name; None = the certificate cannot be read."""
    import ssl

    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        text = Path(certificate).read_text(encoding="ascii", errors="replace")
        leaf, found, _chain = text[text.index(_PEM_BEGIN) :].partition(_PEM_END)
        context.load_verify_locations(cadata=leaf + found)
    except (OSError, ValueError):
        return None
    return context


def _watch(connected: Client, arguments: Namespace) -> int:
    """Print notifications until interrupted."""
    for received in connected.notices():
        if arguments.json:
            printing.say_json({"epoch": received.epoch, "seq": received.seq, **to_builtins(received.notice)})
        else:
            now = time.time()
            clock = time.strftime("%H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03}"
            printing.say(f"{clock} {printing.line(_notice_text(received))}")
        sys.stdout.flush()
    return 0


def _notice_text(received: ClientNotice) -> str:
    """Return a notification as one line: its name, then its fields. Empty fields and lists are left out."""
    plain = to_builtins(received.notice)
    name = plain.pop("notice")
    about = plain.get("asset") or plain.get("job") or plain
    shown = [
        f"{key}={value}" for key, value in about.items() if value not in ("", (), [], None) and not isinstance(value, (list, tuple))
    ]
    return f"{name:<16} {' '.join(shown)}"


def _catalog(connected: Client, arguments: Namespace) -> int:
    """Print each asset of the catalog."""
    from aptui.features.gateway.wire_records import Catalog

    for received in connected.notices():
        if not isinstance(received.notice, Catalog):
            continue
        for asset in received.notice.assets:
            if arguments.json:
                printing.say_json(to_builtins(asset))
            else:
                printing.say(f"{asset.id}  {asset.size:>10}  {asset.platform}/{printing.line(asset.path)}")
        if received.notice.is_last:
            return 0
    return 0


def _get(connected: Client, arguments: Namespace) -> int:
    """Write the bytes of a product."""
    if len(arguments.words) != 1:
        raise UserError("'get' needs one product: a path or an asset id", hint="for example 'aptui client get textures/hero.webp'")
    word = arguments.words[0]
    data = connected.read_product(platform=arguments.platform, **{"asset" if word.startswith("{") else "path": word})
    if arguments.output:
        replace_bytes(Path(arguments.output), data, what=f"'{arguments.output}'")
    else:
        sys.stdout.buffer.write(data)
    return 0


def _ask(connected: Client, arguments: Namespace) -> int:
    """Send one request and print the answer."""
    from aptui.features.gateway.wire_codec import REQUESTS, RequestMistake, as_record

    name, words = _NEED_TERM.get(arguments.action, arguments.action), list(arguments.words)
    if arguments.action in _NEED_TERM:
        words = [word if "=" in word else f"term={word}" for word in words]
    if name not in REQUESTS:
        raise UserError(f"'{printing.line(name)}' is not a request", hint=f"{_ACTIONS}: {', '.join(REQUESTS)}")
    record = REQUESTS[name].request
    if arguments.action in _NEED_TERM and not words:
        raise UserError(
            f"'{arguments.action}' needs the name of an asset",
            hint=f"for example 'aptui client {arguments.action} textures/hero.png'",
        )
    given = dict(_pairs(words))
    if arguments.platform and "platform" in record.__struct_fields__:
        given.setdefault("platform", arguments.platform)
    known = set(record.__struct_fields__)
    unknown = sorted(given.keys() - known)
    if unknown:
        raise UserError(
            f"'{name}' has no field '{unknown[0]}'",
            hint=f"the fields are {', '.join(sorted(known))}" if known else "it has no fields",
        )
    try:
        request = as_record(given, record)
    except RequestMistake as mistake:
        raise UserError(
            f"the request is invalid: {mistake.what}", hint="run 'aptui client --help' to see the form of requests"
        ) from None
    printing.say_json(to_builtins(connected.ask(request)))
    return 0


def _pairs(words: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the field and the value of each `field=value`. Numbers, lists, `true` and `false` are read as JSON."""
    for word in words:
        key, found, text = word.partition("=")
        if not found:
            raise UserError(f"'{printing.line(word)}' is not field=value", hint="for example term=hero.png")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        yield key, value if isinstance(value, (bool, int, float, list)) else text


# -------------------------------------------------------------------------------------------------------------- changes

POLL_S = 0.05
"""Interval of checks for changes, in seconds. Each check is cheap, because it reads memory that SQLite shares between processes."""
_EPILOG = """\
A record is {seq, kind, id, name, digest, size, type}; records of sources have no size and type. A removed source or
product is {seq, kind, id, name, removed}. Without --since everything is listed first, then {seq, kind: "listed"} follows.
{seq, kind: "resync"} means that SEQ is too old: list everything, then continue from that seq. SEQ 0 is before the first change."""


def changes_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `changes`."""
    parser.add_argument(
        "--since",
        type=_number,
        metavar="SEQ",
        help="number of the last change that you know; by default all sources and products are listed first",
    )
    parser.add_argument("--follow", action="store_true", help="print new changes as they happen, until you press Ctrl-C")
    parser.add_argument("--jsonl", action="store_true", help="print one JSON object a line")
    parser.epilog = _EPILOG


def _number(text: str) -> int:
    from aptui.store.queries.change_tail import parse_number

    number = parse_number(text)
    if number is None:
        raise UserError(f"'{text}' is not the number of a change", hint="write 0, or a 'seq' that 'aptui changes --jsonl' printed")
    return number


def changes(arguments: Namespace) -> int:
    """Print the changes; no engine is needed."""
    from aptui.store.queries.change_tail import ChangeTail

    config = load_last_config(arguments)
    path = asset_database(config.cache_dir)
    print_record = printing.say_json if arguments.jsonl else _print
    with closing(ChangeTail(path, arguments.since)) as tail:
        for record in _records(tail, follows=arguments.follow):
            print_record(record)
    return 0


def _records(tail: ChangeTail, *, follows: bool) -> Iterator[Record]:
    while True:
        while page := tail.page():
            yield from page
        if not follows:
            return
        sys.stdout.flush()
        while not tail.is_news():
            time.sleep(POLL_S)


def _print(record: Record) -> None:
    """Print a record as text. The text begins with the number of the change, which the user can pass to `--since`."""
    from aptui.store.queries.change_tail import LISTED, RESYNC

    seq, kind = record.get("seq", ""), record["kind"]
    if kind == LISTED:
        printing.say(f"{seq}  the listing is complete; new changes follow", "bold")
    elif kind == RESYNC:
        printing.say(f"{seq}  resync: earlier changes are not stored; list everything, then continue from this number", "yellow")
    else:
        mark, colour = ("-", "red") if record.get("removed") else ("+", "")
        number = f"{seq}  " if seq else ""
        printing.say(f"{number}{mark} {kind:<7}  {printing.line(str(record['name']))}  {record['id']}", colour)


# ------------------------------------------------------------------------------------------------------------------ web

_DESKTOPS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def web_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `web`."""
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port on this machine (127.0.0.1); by default any free port"
    )
    parser.add_argument("--theme", metavar="NAME", default="", help="theme to use instead of the saved one")
    parser.add_argument("--read-only", action="store_true", help="do not start, query or change an engine")


def web(arguments: Namespace) -> int:
    """Show the screen in a browser until Ctrl-C."""
    import asyncio

    config = load_config(arguments)
    serve = _load_web("web")
    command = [sys.executable, "-P", "-m", "aptui", "--project", str(config.project_dir)]
    command += ["--theme", arguments.theme] if arguments.theme else []
    command += ["--read-only"] if arguments.read_only else []
    asyncio.run(serve.run(config, command, arguments.port, _print_screen))
    return 0


def _print_screen(address: str) -> None:
    printing.say(f"the screen is at  {address}")
    printing.say_now("this address gives full control of the engine, so keep it secret; press Ctrl-C to stop the server")


def show_demo(config: Config) -> int:
    """Show the demo's page until Ctrl-C; then stop the engine if this verb started it."""
    import asyncio

    from aptui.cli.engine_verbs import stop_engines
    from aptui.daemon import daemon_process

    page = _load_web("serve")
    is_ours = places.engine_of(config.cache_dir) is None
    if is_ours:
        daemon_process.start(config.project_dir, config.cache_dir)
    try:
        asyncio.run(page.run_demo(config, lambda address: _print_page(config, address), draw_texture))
    finally:
        if is_ours:
            stop_engines(config.cache_dir)
    return 0


def draw_texture(path: str, name: str) -> tuple[str, bytes] | str:
    """Return (size and format of a texture as text, PNG), or the reason why the texture cannot be drawn.

    The process of the screen's preview decodes the texture.
    """
    from PIL import Image

    from aptui.tui.pictures import decoding
    from aptui.tui.pictures.decoder import PictureView

    with open(path, "rb") as file:
        facts = decoding.image_facts(file.read(decoding.HEAD_BYTES), name)
    if facts is None:
        return "this is not a texture"
    if why := decoding.objection(facts, os.path.getsize(path)):
        return why
    pixels = decoding.decode(path, PictureView(facts.form), threading.Event())
    if isinstance(pixels, str):
        return pixels
    stream = io.BytesIO()
    Image.frombytes("RGBA", (pixels.width, pixels.height), pixels.data).save(stream, "PNG")
    return f"{facts.width} x {facts.height}, {facts.more}", stream.getvalue()


def _print_page(config: Config, address: str) -> None:
    printing.say(f"the demo's page is at  {address}")
    printing.say_now(
        f"save any file below '{printing.line(str(config.project_dir / 'assets'))}' and watch the page change; press "
        "Ctrl-C to stop the demo"
    )
    # The browser is opened on a desktop only, because a text browser would use this terminal. Other users can read the address in
    # the browser's arguments; this is acceptable, because the token in the address allows only reading products.
    if printing.is_terminal(sys.stdin) and printing.is_terminal(sys.stdout) and any(map(os.environ.get, _DESKTOPS)):
        webbrowser.open(address)


def _load_web(extra: str) -> ModuleType:
    """Import the module for pages in a browser."""
    try:
        return import_module("aptui.features.gateway.web.web_screen")
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "aptui":
            raise
        raise UserError(f"this needs '{error.name}', which is not installed", hint=install_advice(extra)) from None


# --------------------------------------------------------------------------------------------------------------- doctor


def doctor_lines(config: Config) -> Iterator[DoctorCheck]:
    """Yield the lines of `aptui doctor`."""
    yield _check_gateway(config)
    yield _check_lists(config)


def _check_gateway(config: Config) -> DoctorCheck:
    from aptui.cli.read_verbs import engine_process

    found = places.find_gateway(config.cache_dir)
    if not config.serve.is_enabled and found is None:
        return DoctorCheck("gateway", "ok", "off: 'serve.enabled' is false")
    if find_spec("aiohttp") is None:
        return DoctorCheck("gateway", "warn", "aiohttp is not installed", install_advice("serve"))
    if found is None and not engine_process(config):
        return DoctorCheck("gateway", "ok", "the gateway starts with the engine, which is not running")
    if found is None or not found.is_alive:
        return DoctorCheck("gateway", "warn", places.describe_gateway(found), "run 'aptui gateway' to see the reason")
    return DoctorCheck("gateway", "ok", places.describe_gateway(found))


def _check_lists(config: Config) -> DoctorCheck:
    """Check whether the configured allowed and rejected lists are in effect."""
    changed = _find_changed(config)
    if changed:
        message = f"{', '.join(changed)} differ from the configuration, because they were changed on the Connections screen"
        file = config.cache_dir / peer_settings.PLACE
        advice = f"run 'aptui config --explain KEY' to see both values, or delete '{file}' to use the configuration again"
        return DoctorCheck("connections", "warn", message, advice)
    return DoctorCheck("connections", "ok", "as configured")


def _find_changed(config: Config) -> dict[str, Any]:
    """Return {key below `serve`: its value} of the keys that were changed on the Connections screen."""
    configured = peer_settings.read_peer_settings(config.serve)
    settings = peer_settings.read_stored(config.cache_dir / peer_settings.PLACE, puts_aside=False).effective_settings(configured)
    return peer_settings.overridden(settings, configured)


def explain(key: str, load: Callable[[], Config]) -> Iterator[ConfigMessage]:
    """Yield the value of a key that was changed on the Connections screen and overrides the configuration."""
    if not key.startswith("serve."):
        return
    config = load()
    changed = _find_changed(config)
    if key in changed:
        file = config.cache_dir / peer_settings.PLACE
        yield ConfigMessage(f"{file} (changed on the Connections screen)", json.dumps(changed[key], ensure_ascii=False))
