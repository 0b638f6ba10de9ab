"""The YAML side of the configuration: bounded reading with places, the schema and its messages, small values.

What the values add up to is in `config.compiler`.
The only module that imports ruamel.yaml, jsonschema and pathspec: nothing here is loaded while the configuration is unchanged.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from msgspec import Struct
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern
from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError

from aptui.core.model import SHARE_OF_MEMORY, Pattern, PatternKind
from aptui.core.patterns import wildcard_regex
from aptui.shared.errors import UserError

MAX_BYTES = 1 << 20
MAX_DEPTH = 50
_SHOWN = 60
"""Characters of a value in a message."""


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Node(Struct, eq=False):
    """A YAML value with its place: `value` is a scalar, or a list or dict of nodes; `key_where` is the place of its key.

    `span` are the characters it was read from, for `config.edit`; `is_flow`: it is written in brackets or braces.
    """

    value: Any
    where: str
    key_where: str = ""
    span: tuple[int, int] = (0, 0)
    is_flow: bool = False

    def __eq__(self, other: object) -> bool:
        """Tell whether values and places are the same, however they are written."""
        if not isinstance(other, Node):
            return NotImplemented
        return (self.value, self.where, self.key_where) == (other.value, other.where, other.key_where)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def get(self, key: str) -> Node | None:
        """Return the child named `key`, if this is a mapping that has it."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def at(self, path: Iterable[str | int]) -> Node:
        """Return the node at `path`, a way of keys and indices."""
        node = self
        for step in path:
            node = node.value[step]
        return node


def read_yaml(data: bytes, name: str) -> Node:
    """Parse one YAML document; refuse what is too large or too deep, anchors, aliases, tags and duplicate keys.

    Args:
        name: what stands in front of `:line:column` in every message.

    Raises:
        UserError: at the first mistake.
    """
    if len(data) > MAX_BYTES:
        raise UserError(f"larger than {MAX_BYTES >> 20} MiB", where=f"{name}:1:1", hint="a configuration is much smaller than that")
    text = _decode(data, name)
    try:
        return _YamlReader(text, name).document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else f"{name}:1:1"
        raise UserError(f"not valid YAML: {error.problem or error.context}", where=where) from None
    except ReaderError as error:
        where = _place(text[: error.position], name)
        raise UserError("not valid YAML: a control character that YAML does not allow", where=where) from None
    except YAMLError as error:
        raise UserError(f"not valid YAML: {' '.join(str(error).split())}", where=f"{name}:1:1") from None


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = _place(data[: error.start].decode("utf-8", "replace"), name)
        raise UserError(f"byte 0x{data[error.start]:02x} is not UTF-8", where=where, hint="save the file as UTF-8") from None


def _place(before: str, name: str) -> str:
    return f"{name}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


class _YamlReader:
    """Nodes straight from the event stream: nothing is expanded before it is checked, and every node knows its place."""

    def __init__(self, text: str, name: str) -> None:
        self._yaml = YAML(typ="safe", pure=True)
        self._events: Iterator[Any] = iter(self._yaml.parse(text))
        self._name = name
        self._last: Any = None
        """The event that ended the last list or mapping."""

    def document(self) -> Node:
        """Read the only document; a file without one is an empty mapping."""
        next(self._events)
        if isinstance(next(self._events), events.StreamEndEvent):
            return Node({}, f"{self._name}:1:1")
        node = self._node(next(self._events), 1)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, events.StreamEndEvent):
            raise UserError("a second document", where=self._where(after), hint="keep one document a file")
        return node

    def _where(self, event: Any) -> str:
        return f"{self._name}:{event.start_mark.line + 1}:{event.start_mark.column + 1}"

    def _node(self, event: Any, depth: int) -> Node:
        where = self._where(event)
        self._refuse(event, depth, where)
        match event:
            case events.MappingStartEvent():
                return self._collection(event, self._mapping(depth), where)
            case events.SequenceStartEvent():
                items = []
                while not isinstance(child := next(self._events), events.SequenceEndEvent):
                    items.append(self._node(child, depth + 1))
                self._last = child
                return self._collection(event, items, where)
            case _:
                return Node(self._scalar(event, where), where, span=(event.start_mark.index, event.end_mark.index))

    def _collection(self, event: Any, value: Any, where: str) -> Node:
        """Return a list or mapping; one in block style ends with its last value, not where the next token begins."""
        if event.flow_style:
            end = self._last.end_mark.index
        else:
            end = max((child.span[1] for child in (value.values() if isinstance(value, dict) else value)), default=0)
        return Node(value, where, span=(event.start_mark.index, end), is_flow=bool(event.flow_style))

    def _refuse(self, event: Any, depth: int, where: str) -> None:
        if isinstance(event, events.AliasEvent) or event.anchor is not None:
            raise UserError("anchors and aliases are not allowed", where=where, hint="write the value out")
        if event.tag is not None:
            raise UserError(f"tags like {event.tag} are not allowed", where=where, hint="write the plain value")
        if depth > MAX_DEPTH:
            raise UserError(f"nested deeper than {MAX_DEPTH} levels", where=where)

    def _mapping(self, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        while not isinstance(event := next(self._events), events.MappingEndEvent):
            where = self._where(event)
            self._refuse(event, depth, where)
            if not isinstance(event, events.ScalarEvent):
                raise UserError("a key must be plain text", where=where)
            key = self._text(event, where)
            node = self._node(next(self._events), depth + 1)
            if key in found:
                raise UserError(f"key '{key}' is given twice, first at {found[key].key_where.rpartition('/')[2]}", where=where)
            node.key_where = where
            if node.value is None:  # an empty value stands where the next token begins
                node.where = where
            found[key] = node
        self._last = event
        return found

    def _scalar(self, event: Any, where: str) -> str | int | float | bool | None:
        if not event.implicit[0]:
            return self._text(event, where)
        tag = self._yaml.resolver.resolve(ScalarNode, event.value, (True, False))
        if str(tag).rpartition(":")[2] not in ("int", "float", "bool", "null"):
            return self._text(event, where)
        value: int | float | bool | None = self._yaml.constructor.construct_object(ScalarNode(tag, event.value))
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{event.value} is not a number to count with", where=where)
        return value

    def _text(self, event: Any, where: str) -> str:
        text = str(event.value)
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UserError("half a character (a lone surrogate)", where=where, hint="write the character itself")
        return text


NAMED_LISTS = ("builders", "scan_folders")


# ── the schema: `title` says what is expected, for messages; `description` is for editors ─────────────

_Schema = dict[str, Any]
_PLATFORM = r"^[a-z0-9][a-z0-9_-]*(?!\n)$"
_DURATION = r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)\s*$"
_SIZE = r"^\s*(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*$"
_NAME = r"^[^\x00-\x1f\x7f]+(?!\n)$"  # `$` alone lets a newline through


def _text(title: str, description: str = "", **more: Any) -> _Schema:
    return {"type": "string", "minLength": 1, "title": title, **({"description": description} if description else {}), **more}


def _list(items: _Schema, title: str, description: str = "") -> _Schema:
    return {"type": "array", "items": items, "title": title, **({"description": description} if description else {})}


def _record(title: str, required: tuple[str, ...] = (), **properties: _Schema) -> _Schema:
    base: _Schema = {"type": "object", "title": title, "additionalProperties": False, "properties": properties}
    return base | ({"required": list(required)} if required else {})


def _flag(description: str) -> _Schema:
    return {"type": "boolean", "title": "true or false", "description": description}


def _duration(description: str) -> _Schema:
    title = "a duration like 30s, 5m or 1h"
    return {"type": ["string", "number"], "pattern": _DURATION, "exclusiveMinimum": 0, "title": title, "description": description}


def _size(description: str, *, may_be_auto: bool = False) -> _Schema:
    title = "a size like 512MiB or 2GiB, or 0 for no limit"
    if may_be_auto:
        title = "auto, a size like 512MiB or 2GiB, or 0 for no limit"
        return {
            "type": ["string", "integer"],
            "pattern": f"{_SIZE}|^auto$",
            "minimum": 0,
            "title": title,
            "description": description,
        }
    return {"type": ["string", "integer"], "pattern": _SIZE, "minimum": 0, "title": title, "description": description}


_REFS = "a list of platform ids or tags"
_REF = _text("a platform id or tag")
_PATTERN: _Schema = _record("a glob, or a mapping like {regex: '…'}", ("regex",), regex=_text("a regular expression"))
_PATTERN = {**_PATTERN, "type": ["string", "object"], "minLength": 1}
_WANTED: _Schema = {
    **_PATTERN,
    "properties": {
        **_PATTERN["properties"],
        "absolute": _flag("Whether it must match the absolute path instead of the relative one."),
    },
}
_PATTERNS = _list(
    _WANTED, "a list of patterns", "Files it works on: `*` is any text, also across `/`; `?` one character; or {regex: …}."
)
_REGEX = _text("a regular expression", "Named groups: file, line, message.")
_COMPANION: _Schema = _record(
    "a suffix, or {suffix: …, replaces: …}",
    suffix=_text("a suffix"),
    replaces=_text("an extension"),
    file=_text("a relative path", "One file that is the companion of all of them."),
)
_COMPANION = {**_COMPANION, "type": ["string", "object"], "minLength": 1}
_PARAMS: _Schema = {"type": "object", "title": "a mapping of parameters", "description": "What the builder is told."}
_UUID = r"^\{?[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\}?$"


_UNDECLARED: _Schema = {
    "enum": ["ignore", "warn", "add"],
    "title": "ignore, warn or add",
    "description": "Sources that a job reads and its builder did not declare: nothing, a warning in its log, or a dependency.",
}

_VARIABLES = _list(
    _text("the name of an environment variable, not TMPDIR, not APTUI_…", pattern=r"^(?!APTUI_|TMPDIR$)[A-Za-z_]\w*(?!\n)$"),
    "a list of names",
    "Environment variables that builders get besides the few they always have; their values decide about products.",
)

_REFERENCE = _record(
    "a regular expression, or a mapping like {regex: …, path: …}",
    ("regex",),
    regex=_text("a regular expression", "What finds a path in the text; its group `path`, or its only group, is the path."),
    path=_text("a path", "What to make of a match: text with its groups in braces; may have `*`, and `!` before it."),
    kind={"enum": ["source", "product"], "title": "source or product", "description": "What the path names."},
    load={
        "enum": ["pre", "queue", "none"],
        "title": "pre, queue or none",
        "description": "When the runtime loads it: before the product is ready, right after it, or when asked.",
    },
    relative_to={
        "enum": ["root", "source"],
        "title": "root or source",
        "description": "Where the path begins: at the scan folders, or in the folder of the source.",
    },
    look_in={
        "enum": ["product", "source"],
        "title": "product or source",
        "description": "Which text is searched: of each product for itself, or of the source for all of them.",
    },
)
_REFERENCE = {**_REFERENCE, "type": ["string", "object"], "minLength": 1}

_BUILDER = _record(
    "a mapping that describes a builder",
    ("name",),
    name=_text("a name", "Unique; part of every job's identity.", pattern=_NAME),
    copy=_list(_WANTED, "a list of patterns", "First form: copy these files as they are."),
    uses=_text("the name of a builder", "Second form: a Python builder: shipped, installed, or in the project's builders/ folder."),
    command=_text("a command line", "Third form: a program; {source} {products_dir} {stem} {platform} {depfile} are filled in."),
    patterns=_PATTERNS,
    params=_PARAMS,
    trusted_params=_list(
        _text("the name of a parameter"),
        "a list of names of parameters",
        "Parameters that no folder's .aptui.yaml may set, beside those that the builder itself marks so.",
    ),
    platforms={
        "type": "object",
        "title": "a mapping from platform id or tag to skip or parameters",
        "description": "Per platform id, tag or `*`: `skip`, or parameters that override. An id beats a tag, a tag beats `*`.",
        "additionalProperties": {
            "type": ["string", "object"],
            "pattern": "^skip$",
            "title": "skip, or a mapping of parameters",
        },
    },
    version={"type": ["string", "number"], "minLength": 1, "title": "a version", "description": "A new one re-runs its jobs."},
    priority={"type": "integer", "title": "a whole number", "description": "Higher first; 0 unless said otherwise."},
    critical=_flag("Its jobs come before all others."),
    time_limit=_duration("A job that takes longer fails."),
    memory_limit=_size("A job that takes more fails.", may_be_auto=True),
    on_failure={
        "enum": ["keep", "delete"],
        "title": "keep or delete",
        "description": "What becomes of the last good products.",
    },
    asset_type=_text("a UUID", "Asset type of its products.", pattern=_UUID),
    products=_list(_text("a glob"), "a list of globs", "Command: which files in {products_dir} are products."),
    depfile=_text("a file name", "Command: a Makefile-style list of what was read; relative to the temp folder."),
    dependencies=_text("a regular expression", "Command: lifts what was read out of its output; group `file`, or its only group."),
    warnings=_REGEX,
    errors=_REGEX,
    product_dependencies=_text(
        "a file name", "Command: a file it writes that says what its products need at run time; relative to the temp folder."
    ),
    references=_list(
        _REFERENCE,
        "a list of regular expressions",
        "How the text of its products names other assets, which these need at run time: product dependencies.",
    ),
    tools=_list(_text("a program", pattern=_NAME), "a list of programs", "Command: programs whose upgrade re-runs its jobs."),
    environment=_VARIABLES,
    undeclared_reads=_UNDECLARED,
    intermediate=_flag("Command: what it makes are sources of other builders, the same for all platforms."),
    trace_reads=_flag("Command: run it under strace, to learn which sources it reads; costs time."),
    needs=_list(
        _text("a tag", pattern=_NAME),
        "a list of tags",
        "What a machine of a cluster must have to do its jobs: a tool, a GPU, a licence.",
    ),
    at_most={
        "type": "integer",
        "minimum": 1,
        "title": "a whole number above 0",
        "description": "So many of its jobs a cluster does at once.",
    },
)
_SCAN_FOLDER = _record(
    "a mapping that describes a scan folder",
    ("name", "path"),
    name=_text("a name", "Unique; identifies the folder even if it moves.", pattern=_NAME),
    path=_text("a path", "Relative to aptui.yaml, or absolute.", pattern=_NAME),
    order={"type": "integer", "title": "a whole number", "description": "Lower wins where two folders have the same path."},
    recursive=_flag("Whether folders below are looked at."),
    include=_list(_REF, _REFS, "Only these platforms."),
    exclude=_list(_REF, _REFS, "Not these platforms."),
)
_SHARED = _record(
    "a mapping with name and glob or regex",
    ("name",),
    name=_text("a name", "For people.", pattern=_NAME),
    glob=_text("a glob", "`*` is any text, also across `/`; on the relative path."),
    regex=_text("a regular expression", "Must match the whole relative path."),
    enabled=_flag("Whether it counts."),
)
_PLATFORM_ENTRY = _record(
    "a mapping with tags and enabled",
    tags=_list(_text("a tag", pattern=_NAME), "a list of tags", "Words that builders and scan folders can refer to."),
    enabled=_flag("Whether products are made for it; the host's platform is always on."),
)
_IDS = {
    "pattern": _PLATFORM,
    "not": {"enum": ["common", "fence"]},
    "title": "a free name of lower-case letters, digits, _ and -",
}
_COMPANIONS = {**_COMPANION, "type": ["string", "object", "array"], "items": _COMPANION}
_NUMBER_OF_PORT: _Schema = {
    "type": "integer",
    "minimum": 0,
    "maximum": 65535,
    "title": "a port",
    "description": "Where to; 0 is any that is free.",
}
_DIAL = _record(
    "a mapping with id, address and port",
    ("id", "address", "port"),
    id=_text("a name", "Unique; what people call it.", pattern=_NAME),
    address=_text("an address", "Host name or address."),
    port=_NUMBER_OF_PORT,
    auto=_flag("Whether it is dialled whenever it is not connected."),
)
_SERVE = _record(
    "a mapping of settings of the gateway",
    enabled=_flag("Whether the engine starts the gateway: HTTP and WebSocket for editors, games and devices."),
    address=_text("an address", "Where it listens; any but the loopback needs TLS and a token."),
    port=_NUMBER_OF_PORT,
    tls_cert=_text("a path", "Certificate chain (PEM)."),
    tls_key=_text("a path", "Its key (PEM)."),
    dial_ca=_text("a path", "Authority (PEM) that signs the certificates of devices that are dialled."),
    dial_fingerprints=_list(
        _text("a fingerprint", pattern=r"^(sha256:)?([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$"),
        "a list of fingerprints",
        "SHA-256 of the certificates of devices that are dialled; where there are any, they decide alone.",
    ),
    clients_limit={
        "type": "integer",
        "minimum": 1,
        "title": "a whole number above 0",
        "description": "WebSockets that may be open.",
    },
    hosts=_list(_text("a host name"), "a list of host names", "Names by which clients may call it; the loopback's always may."),
    origins=_list(
        _text("an origin", pattern=r"^https?://[^/]+$"), "a list of origins like https://name", "Web pages that may use it."
    ),
    proxies={
        "type": "object",
        "title": "a mapping from name to URL",
        "description": "Services that requests are forwarded to, under /v1/proxy/NAME/; tcp://host:port for raw bytes.",
        "additionalProperties": _text("a URL", pattern=r"^(https?|tcp)://"),
    },
    allowed=_list(_text("an address"), "a list of host names, addresses and ranges", "Who may connect, beside this machine."),
    rejected=_list(_text("an address"), "a list of host names, addresses and ranges", "Who may not, whatever else is said."),
    allow_list=_flag("Whether only this machine and who is `allowed` may connect."),
    connections=_list(_DIAL, "a list of connections", "Devices and editors that the gateway dials."),
)
_TOP = _record(
    "a mapping of settings",
    name=_text("a name", "The project's; its folder's name unless said otherwise.", pattern=_NAME),
    platforms={"type": "object", "title": "a mapping of platforms", "propertyNames": _IDS, "additionalProperties": _PLATFORM_ENTRY},
    scan_folders=_list(_SCAN_FOLDER, "a list of scan folders", "Where sources are."),
    ignore=_list(_PATTERN, "a list of patterns", "Files and folders that are not looked at, as in .gitignore; or {regex: …}."),
    linked_folders=_list(
        _text("a path"), "a list of folders", "Where symbolic links to files may lead, besides the scan folders; / is anywhere."
    ),
    shipped_ignore=_flag("Whether the rules shipped with aptui apply as well."),
    builders=_list(_BUILDER, "a list of builders", "What is done with sources."),
    companions={"type": "object", "title": "a mapping from glob to suffix", "additionalProperties": _COMPANIONS},
    metadata_types=_list(
        _text("an extension like .png", pattern=r"^\.[^/]+$"),
        "a list of extensions",
        "Sources whose identity is kept in a `.meta` file beside them, so that it survives when they are moved.",
    ),
    meta_delay=_duration("How long a live engine waits for the `.meta` file of a new source before it writes one."),
    workers={
        "type": "integer",
        "minimum": 0,
        "title": "a whole number, 0 for one per core",
        "description": "Worker processes.",
    },
    limits=_record(
        "a mapping of limits",
        analyse=_duration("Of one analysis."),
        process=_duration("Of one job."),
        memory=_size("Of a worker; auto is three quarters of the machine's for Python builders.", may_be_auto=True),
        all_memory=_size("Of all jobs that run together; 0 is what the machine has left."),
    ),
    environment=_VARIABLES,
    undeclared_reads=_UNDECLARED,
    products=_record(
        "a mapping about products",
        touch_unchanged=_flag("Whether a product that is made again with the same bytes gets a new time."),
    ),
    lfs_pointers={
        "enum": ["fail", "copy"],
        "title": "fail or copy",
        "description": "What copy rules do with the pointer of a file that Git LFS has not fetched.",
    },
    sandbox={
        "enum": ["auto", "require", "off"],
        "title": "auto, require or off",
        "description": "Whether workers run in bubblewrap: where it is at hand; or nothing runs; or not.",
    },
    sandbox_paths=_list(_text("a path"), "a list of paths", "What workers in the sandbox see besides the project."),
    shared_cache=_record(
        "a mapping that describes the shared cache",
        mode={
            "enum": ["inactive", "client", "server"],
            "title": "inactive, client or server",
            "description": "Not used; read; read and written.",
        },
        store=_text("a folder or a URL", "Where results are: a folder, http(s)://… or s3://…"),
        namespace=_text(
            "a name", "Results of others than `trusted` are read by nobody else.", pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$"
        ),
        team_key_file=_text("a path", "A file with the team's secret: a result without its seal is not used."),
        signing_key_file=_text("a path", "A file with the private ed25519 key that results are signed with, 64 hex digits."),
        writers=_list(
            _text("a public key: 64 hex digits", pattern="^[0-9a-fA-F]{64}$"),
            "a list of public keys",
            "ed25519 keys: a result that none of them signed is not used.",
        ),
        trust={
            "enum": ["sealed", "unsealed"],
            "title": "sealed or unsealed",
            "description": "Whether results need the seal of team_key_file or writers; unsealed believes whoever can write to the "
            "store.",
        },
        patterns=_list(_SHARED, "a list of patterns", "Which sources take part; all unless something is said."),
        builders={
            "type": "object",
            "title": "a mapping from a builder's name to true or false",
            "description": "Whether its jobs take part, whatever the patterns say.",
            "additionalProperties": {"type": "boolean", "title": "true or false"},
        },
        deadline=_duration("What the shared cache is waited for before a job runs here."),
        upload={
            "enum": ["background", "complete"],
            "title": "background or complete",
            "description": "Whether a run ends without waiting for uploads, or when all is uploaded.",
        },
    ),
    local_store=_record(
        "a mapping that describes this machine's store",
        enabled=_flag("Whether results are kept for other checkouts on this machine."),
        path=_text("a path", "Where; $XDG_CACHE_HOME/aptui/store unless said otherwise.", pattern=_NAME),
        size_limit=_size("What was not used for the longest time goes when it is larger."),
        links={
            "enum": ["never", "hard"],
            "title": "never or hard",
            "description": "Whether products may be hard links into it, where the file system cannot share bytes otherwise.",
        },
    ),
    serve=_SERVE,
    pool=_record(
        "a mapping that describes where jobs run besides this machine",
        kind={
            "enum": ["local", "dask"],
            "title": "local or dask",
            "description": "On this machine alone; on a Dask cluster as well.",
        },
        scheduler=_text("an address", "Dask's scheduler: tls://host:8786; tcp:// on the loopback alone, with insecure: true."),
        insecure=_flag("Whether plain tcp:// may be spoken, by which every user of this machine can run programs as you."),
        tls_ca=_text("a path", "Certificate (PEM) of the authority that the cluster's certificates are signed by."),
        tls_cert=_text("a path", "This machine's certificate (PEM)."),
        tls_key=_text("a path", "Its key (PEM)."),
        share={
            "type": "integer",
            "minimum": 0,
            "title": "a whole number",
            "description": "So many slots of the cluster at most; 0 is all.",
        },
        store=_text("a folder or a URL", "Through which files travel; the shared cache's store unless said otherwise."),
        tags=_list(_text("a tag", pattern=_NAME), "a list of tags", "What this machine has, of what builders need."),
    ),
    cache=_text("a path", "Where products and the asset database go.", pattern=_NAME),
    logs=_text("a path", "Where logs go; .aptui/logs in the cache unless said otherwise.", pattern=_NAME),
)


_ADJUSTED = _record("a mapping with params and platforms", params=_PARAMS, platforms=_BUILDER["properties"]["platforms"])
_FOLDER = _record(
    "a mapping of folder settings",
    builders={
        "type": "object",
        "title": "a mapping from a builder's name to what is adjusted",
        "additionalProperties": _ADJUSTED,
    },
)


def schema() -> _Schema:
    """Return the JSON Schema of `aptui.yaml`; config/aptui.schema.json is this, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | _TOP


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the hint for a word that is not known: the nearest one, or all when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6) or [name for name in names if name.lower() == word.lower()]
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known here: {', '.join(names)}" if names else ""


def check(root: Node, *, is_partial: bool = False) -> list[UserError]:
    """Return every way in which a layer breaks the schema, in its order; a partial layer changes entries of others."""
    if not isinstance(root.value, dict):
        return [UserError("a configuration is a mapping of settings", where=root.where, hint="see 'aptui init'")]
    found = [error for error in Draft202012Validator(schema()).iter_errors(root.plain()) if not (is_partial and _lacks_path(error))]
    return _in_order(found, root) or list(_twins(root))


def check_folder(root: Node) -> list[UserError]:
    """Return every way in which a folder's `.aptui.yaml` breaks its schema, in its order."""
    if not isinstance(root.value, dict):
        return [
            UserError("folder settings are a mapping", where=root.where, hint="for example builders: {textures: {params: {…}}}")
        ]
    return _in_order(list(Draft202012Validator(_FOLDER).iter_errors(root.plain())), root)


def _in_order(errors: list[ValidationError], root: Node) -> list[UserError]:
    mistakes = {str(mistake): mistake for error in errors for mistake in _mistakes(error, root)}
    return sorted(
        mistakes.values(), key=lambda mistake: [int(part) if part.isdigit() else 0 for part in mistake.where.rsplit(":", 2)[1:]]
    )


def _lacks_path(error: ValidationError) -> bool:
    return error.validator == "required" and "path" in error.validator_value and "name" in error.instance


def _twins(root: Node) -> Iterator[UserError]:
    for key in NAMED_LISTS:
        seen: dict[str, Node] = {}
        items = root.get(key)
        for node in items.value if items else ():
            name = node.value["name"]
            if name.value in seen:
                first = seen[name.value].where.rpartition("/")[2]
                yield UserError(f"'{name.value}' is already the name of another in '{key}', at {first}", where=name.where)
            seen.setdefault(name.value, name)


def _mistakes(error: ValidationError, root: Node) -> Iterator[UserError]:
    path = list(error.absolute_path)
    node = root.at(path)
    label = _label(path, root)
    if "propertyNames" in error.absolute_schema_path:
        key = error.instance
        yield UserError(f"platform '{key}' must be {_expected(error)}", where=node.value[key].key_where)
    elif error.validator == "additionalProperties":
        known = error.schema["properties"]
        for key in error.instance.keys() - known.keys():
            place = f" in '{label}'" if label else ""
            yield UserError(f"unknown key '{key}'{place}", where=node.value[key].key_where, hint=nearest(key, known))
    elif error.validator == "required":
        for key in [key for key in error.validator_value if key not in error.instance]:
            yield UserError(f"'{key}' is missing in '{label}'", where=node.where)
    else:
        hint = (
            nearest(error.instance, error.validator_value) if error.validator == "enum" and isinstance(error.instance, str) else ""
        )
        yield UserError(f"'{label}' must be {_expected(error)}, not {shown(node)}", where=node.where, hint=hint)


def _expected(error: ValidationError) -> str:
    schema_part = error.schema if "title" in error.schema else error.parent.schema if error.parent else error.schema
    title: str = schema_part.get("title", "something else")
    return title


def _label(path: list[str | int], root: Node) -> str:
    """Return a path for people: `builders.textures.params`, the list entry by its name where it has one."""
    words = []
    for depth, step in enumerate(path):
        name = root.at(path[: depth + 1]).get("name") if isinstance(step, int) else None
        words.append(str(name.value) if name and isinstance(name.value, str) else str(step + 1 if isinstance(step, int) else step))
    return ".".join(words)


def shown(node: Node) -> str:
    """Return a value for a message: short, on one line."""
    if isinstance(node.value, dict | list):
        return "a mapping" if isinstance(node.value, dict) else "a list"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    text = repr(node.value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]}…'"


# ── small values ──────────────────────────────────────────────────────────────────────────────────────────────────────

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}


def seconds(value: str | float) -> float:
    """Return a duration that passed the schema in seconds; a bare number is seconds."""
    found = re.match(_DURATION, value) if isinstance(value, str) else None
    return float(found[1]) * _SECONDS[found[2]] if found else float(value)


def byte_count(value: str | int) -> int:
    """Return a size that passed the schema in bytes; that of `auto` is `SHARE_OF_MEMORY`."""
    if value == "auto":
        return SHARE_OF_MEMORY
    found = re.match(_SIZE, value) if isinstance(value, str) else None
    return int(float(found[1]) * _BYTES[found[2]]) if found else int(value)


def checked_regex(node: Node) -> re.Pattern[str]:
    """Compile a regular expression of the user's."""
    try:
        return re.compile(node.value, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        where = f" at character {error.pos + 1}" if isinstance(error, re.error) and error.pos is not None else ""
        problem = error.msg if isinstance(error, re.error) else str(error)
        raise UserError(f"not a regular expression: {problem}{where}: {shown(node)}", where=node.where) from None


def pattern_of(node: Node) -> Pattern:
    """Translate a builder's pattern."""
    if isinstance(node.value, dict):
        regex, absolute = node.value["regex"], node.value.get("absolute")
        is_absolute = absolute is not None and bool(absolute.value)
        return Pattern(PatternKind.REGEX, regex.value, checked_regex(regex).pattern, is_absolute)
    if node.value.startswith("/") or "\\" in node.value:
        raise UserError(f"pattern {shown(node)} must be relative, with '/' between folders", where=node.where)
    text = node.value.removeprefix("./")
    return Pattern(PatternKind.GLOB, text, wildcard_regex(text))


def ignore_regex(node: Node) -> str:
    """Translate an ignore rule: what it matches and, if that is a folder, all below. Globs mean what they mean in .gitignore."""
    if isinstance(node.value, dict):
        regex = node.value["regex"]
        found = checked_regex(regex)
        if found.groupindex or re.search(r"\\[1-9]|\(\?\(", found.pattern) or re.match(r"\(\?[a-zA-Z]+\)", found.pattern):
            raise UserError("named groups, back references and global flags are not allowed in ignore rules", where=regex.where)
        return f"(?:{found.pattern})(?s:/.*)?"
    try:
        text, is_ignoring = GitIgnoreSpecPattern.pattern_to_regex(node.value)
    except GitIgnorePatternError:
        text, is_ignoring = None, None
    if text is None or not is_ignoring:
        hint = "exceptions (!) are not supported" if node.value.startswith("!") else "quote it as in .gitignore"
        raise UserError(f"{shown(node)} is not an ignore rule", where=node.where, hint=hint)
    return f"(?s:{re.sub(r'[(][?]P<[^>]*>', '(?:', str(text))}.*)"


def joined(rules: Iterable[str]) -> str:
    """Join ignore rules; those for a name at any depth share their beginning, which makes matching three times as fast."""
    start = "(?s:^(?:.+/)?"
    unique = list(dict.fromkeys(rules))
    names = [rule.removeprefix(start)[:-1] for rule in unique if rule.startswith(start)]
    shared = [f"{start}(?:{'|'.join(names)}))"] if names else []
    return "|".join(shared + [rule for rule in unique if not rule.startswith(start)])
