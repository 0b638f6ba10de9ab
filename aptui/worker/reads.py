"""Observes which files a builder's call reads, and which line of its code reads each file, by an audit hook of Python.

It also observes which missing paths a call checked and which folders it listed, because a stored result depends on them. Functions
such as `os.path.exists` do not raise an audit event, so the worker replaces `os.stat`, `os.lstat` and `os.access`.

Only files that Python itself opens are observed: `open`, `os.open` and all code built on them (Pillow, for example). Not observed
are files that C libraries open, reads by programs or forked processes of the builder, and data that the builder kept from an
earlier call or from its import.

An audit hook cannot be removed, so one hook serves all calls. Between calls, the hook costs one check of a variable.
"""

from __future__ import annotations

import linecache
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from types import FrameType
from typing import Any

import aptui
from aptui.core.orders import Read
from aptui.core.paths import as_text
from aptui.core.patterns import below_matcher
from aptui.core.run_report import Stamp, UsedFile
from aptui.shared.files import lfs
from aptui.worker import file_access

# Finds files outside the project that were opened because the content of a source names them. Such a job must fail, no matter which
# process opened the file.
#
# Shipped builders use the SDK to open a file that content names, and the SDK refuses files outside the project. Other builders may
# open any path. Their own files (libraries, settings) are allowed. A job fails only if the path of an opened file occurs in the
# source, or in another file of the project that the job read.

_INSTALLED = ("/site-packages/", "/dist-packages/")
_PACKAGES = {path for path in sys.path if f"{path}/".endswith(_INSTALLED)}
"""Folders of installed packages; not all are below `sys.prefix`, for example those of `pip install --user`."""
_PACKAGE = os.path.dirname(aptui.__file__) + "/"
_OWN = tuple(
    f"{path.rstrip('/')}/" for path in {"/usr", "/lib", "/lib64", "/sys", sys.prefix, sys.base_prefix, _PACKAGE, *_PACKAGES}
)
_MOST_BYTES = 4 << 20
"""Maximum number of bytes of a file that are searched for names of other files."""
_LONGEST = 4096
"""Maximum length (bytes) of a file name that is found in the text of a file. Linux limits a path to this length."""
_MOST_NAMES = 10_000
"""Maximum number of different names that are compared with one path."""
_QUOTES = tuple(bytes([mark]) for mark in b"\r\n\0\"'`<>|")
_ENDS = (_QUOTES, (*_QUOTES, *(bytes([mark]) for mark in b" \t()[]{},;=")))
"""(bytes that end a quoted file name, bytes that end a file name without quotes) in the text of a file."""


def is_of_the_system(path: str) -> bool:
    """Whether a file belongs to the system, to Python or to a Python package.

    The content of a source may name any of these files, because they contain no secrets.
    """
    return path.startswith(_OWN)


def find_named_by_content(opened: Iterable[str], content: Sequence[str], roots: Sequence[str]) -> tuple[str, str]:
    """Return (a path of `opened`, the file that names it), ("", "") if no file names any of these paths.

    Args:
        opened: absolute paths outside the project.
        content: absolute paths of the source and of the project's files that were read with it.
        roots: folders that a name may be relative to, besides the folder of the file that contains the name.
    """
    wanted = dict.fromkeys(os.path.normpath(path) for path in opened)
    if not wanted:
        return "", ""
    for file in content:
        texts = list(_texts(file))
        for path in wanted:
            bases = (os.path.dirname(file), *roots)
            if any(_means(name, path, bases) for text in texts for name in _names(text, os.fsencode(os.path.basename(path)))):
                return path, file
    return "", ""


def _texts(file: str) -> Iterator[bytes]:
    try:
        with open(file, "rb") as found:
            data = found.read(_MOST_BYTES)
    except OSError:
        return
    data = data.replace(b"\\", b"/")
    yield data
    if b"%" in data:
        from urllib.parse import unquote_to_bytes

        yield unquote_to_bytes(data).replace(b"\\", b"/")


def _names(text: bytes, last: bytes) -> Iterator[bytes]:
    """Yield each possible file name in `text` that ends with `last`, once."""
    for ends in _ENDS:
        known: set[bytes] = set()
        begin = seen = 0
        at = text.find(last)
        while last and at >= 0 and len(known) < _MOST_NAMES:
            end = at + len(last)
            begin = max((text.rfind(mark, seen, at) + 1 for mark in ends), default=0) or begin
            seen = at
            if (end == len(text) or text[end] in b"".join(ends)) and at - begin < _LONGEST:
                name = text[begin:end]
                if name not in known:
                    known.add(name)
                    yield name
            at = text.find(last, at + 1)


def _means(name: bytes, path: str, bases: Sequence[str]) -> bool:
    """Whether `name`, relative to one of `bases`, is `path`."""
    text = os.fsdecode(name).strip()
    if text.lower().startswith("file:"):
        text = text[5:]
        text = text[2:] if text.startswith("///") else text
    return any(os.path.normpath(os.path.join(base, text)) == path for base in bases)


_NO_CONTENT = os.O_DIRECTORY | getattr(os, "O_PATH", 0)
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + "/"
_BUILDERS = _PACKAGE + "builders/"
_CALLS_BUILDERS = _PACKAGE + "worker/builder_run.py"
"""The file that calls builders. Its frame ends the search for the builder's code in a stack.

Other frames of aptui only open files for a builder, so they are skipped.
"""
_IMPORT = "<frozen importlib"


def is_code_of_aptui(file: str) -> bool:
    """Whether a file of Python code belongs to aptui, and not to a builder that aptui ships."""
    return file.startswith(_PACKAGE) and not file.startswith(_BUILDERS)


def is_code_of_builder(file: str) -> bool:
    """Whether a file of Python code belongs to a builder, and not to a library or to aptui."""
    is_library = file.startswith((_STANDARD_LIBRARY, "<", _PACKAGE)) or any(part in file for part in _INSTALLED)
    return not is_library or file.startswith(_BUILDERS)


class Reads:
    """Files that one call of a builder reads.

    Args:
        source: absolute path of the source, which the call may read without a declaration.
        own: the run's own folder, whose files are not recorded; "" = no folder.
    """

    def __init__(self, source: str, own: str = "") -> None:
        self._source = source
        self._own = f"{own}/" if own else "\0"
        self._found: dict[str, str] = {}
        self._stamps: dict[str, Stamp] = {}
        self._written: set[str] = set()
        self._outside: dict[str, None] = {}
        self._absent: dict[str, str] = {}
        self._listed: dict[str, str] = {}
        self.is_source_read = False

    def note(self, path: str, where: Callable[[], str], flags: int = 0, *, is_before: bool = False) -> None:
        """Record that `path` (absolute, or relative to the current folder) is opened; `where` returns its place in the code.

        Args:
            is_before: whether the call comes before the file is opened. If so, the file's current state is recorded as the state
                that is read.
        """
        path = _absolute(path)
        self.is_source_read = self.is_source_read or path == self._source
        if not path.startswith(_roots):
            self._note_outside(path, flags)
            return
        if path == self._source or path.startswith(self._own) or flags & _NO_CONTENT:
            return
        if flags & os.O_ACCMODE == os.O_WRONLY or flags & os.O_TRUNC:
            self._written.add(path)
        elif path not in self._found:
            if is_before:
                self._stamps.setdefault(path, stamp_of(path))
            place = where()
            if place:
                self._found[path] = place

    def note_absent(self, path: str, where: Callable[[], str]) -> None:
        """Record that the builder searched for `path`, which does not exist; `where` returns the line of the builder's code."""
        path = _absolute(path)
        if path.startswith(_roots) and not path.startswith(self._own) and path not in self._absent:
            self._absent[path] = where()

    def note_listed(self, path: str) -> None:
        """Record that the folder `path` is listed."""
        path = _absolute(path)
        if f"{path}/".startswith(_roots) and not f"{path}/".startswith(self._own) and path not in self._listed:
            self._listed[path] = file_access.digest_listing(path)

    def find_probed(self) -> tuple[tuple[str, str], ...]:
        """Return (absolute path, "") of each missing file, and (folder + `/*`, digest of its names) of each listed folder.

        Files that the call itself made are left out.
        """
        opened = (path for path in self._found if self._stamps.get(path, stamp_of(path)) == () and not os.path.isdir(path))
        absent = dict.fromkeys((*self._absent, *opened))
        listed = ((_text(f"{path}/*"), digest) for path, digest in self._listed.items())
        return (*((_text(path), "") for path in absent if path not in self._written), *listed)

    def _note_outside(self, path: str, flags: int) -> None:
        is_read = not (flags & os.O_ACCMODE == os.O_WRONLY or flags & (os.O_TRUNC | _NO_CONTENT))
        if is_read and not path.startswith(self._own) and path != self._source and len(self._outside) < _MOST_OUTSIDE:
            self._outside[path] = None

    def find_outside_read(self) -> str:
        """Return an error if the job read a file outside the scan folders, and an input file of the job names it; else ""."""
        opened = [path for path in self._outside if not is_of_the_system(path) and os.path.isfile(path)]
        path, file = find_named_by_content(opened, (self._source, *self._found), _folders)
        if not path:
            return ""
        rel = next((file[len(root) :] for root in _roots if file.startswith(root)), file)
        return f"the job read {_text(path)!r}, which is outside the project's scan folders; '{as_text(rel)}' names this file"

    def find_read(self, digest_of: Callable[[str], str], *, adds: bool) -> tuple[Read, ...]:
        """Return the files that were read and not written.

        Args:
            digest_of: returns the digest of a file, "" for a missing file.
            adds: whether every file that was read may become a dependency. If False, missing files are left out, and existing
                files have no digests. Files that possibly are not sources (`_is_hidden`) are always returned with digests.
        """
        reads = []
        probed = {path: where for path, where in self._absent.items() if _is_hidden(_as_configured(path))}
        for path, where in {**probed, **self._found}.items():
            path = _as_configured(path)  # noqa: PLW2901  # the path of the same file in the configured scan folder
            if path in self._written or path == self._source or os.path.isdir(path):
                continue
            is_there, is_hidden = os.path.isfile(path), _is_hidden(path)
            if adds or is_there or is_hidden:
                digest = digest_of(path) if adds or is_hidden else ""
                reads.append(Read(as_text(path), where, digest, is_hidden))
        return tuple(reads)

    def find_changed(self) -> tuple[str, ...]:
        """Return the opened files that have changed since they were opened, except files that the builder's call itself wrote."""
        return tuple(_text(path) for path, stamp in self._stamps.items() if path not in self._written and stamp_of(path) != stamp)

    def list_used(self) -> tuple[UsedFile, ...]:
        """Return the opened files with their stamps at the time of opening."""
        return tuple(UsedFile(_text(path), stamp) for path, stamp in self._stamps.items() if path not in self._written)

    def pointer(self) -> str:
        """Return the path of an opened file that is a Git LFS pointer, "" if no opened file is one."""
        found = (path for path, stamp in self._stamps.items() if path not in self._written and _is_pointer(path, stamp))
        return next(found, "")


_MOST_OUTSIDE = 10_000
"""Maximum number of files outside the scan folders that are recorded while a builder analyses a source or runs a job."""
MOST_PROBED = 1000
"""Maximum number of missing files and listed folders of a stored result; a run with more is not stored."""
_pointers: dict[str, tuple[Stamp, bool]] = {}
"""{path: (stamp, whether the file is a Git LFS pointer)}."""
_MOST_POINTERS = 20_000


def _is_pointer(path: str, stamp: Stamp) -> bool:
    if not stamp or stamp[0] >= lfs.LONGEST_POINTER_BYTES:
        return False
    known = _pointers.get(path)
    if known is None or known[0] != stamp:
        if len(_pointers) >= _MOST_POINTERS:
            _pointers.clear()
        known = _pointers[path] = stamp, file_access.is_pointer(path, stamp[0])
    return known[1]


def stamp_of(path: str) -> Stamp:
    """Return the stamp of a file, () if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return () if stat.S_ISDIR(found.st_mode) else file_access.stat_key(found)


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        path = f"{os.getcwd()}/{path}"
    return os.path.normpath(path) if "/." in path or "//" in path else path


def _text(path: str) -> str:
    return as_text(_as_configured(path))


_roots: tuple[str, ...] = ()
_aliases: tuple[tuple[str, str], ...] = ()
_folders: tuple[str, ...] = ()
_reads: Reads | None = None
_is_installed = False
_is_ignored: Callable[[str], bool] = bool
"""Whether a relative path, or a folder above it, is ignored."""


def watch(scan_folders: Sequence[str], ignore_regex: str = "") -> None:
    """Set the folders and the ignore rules, and install the hook at the first call."""
    global _roots, _aliases, _folders, _is_installed, _is_ignored  # noqa: PLW0603  # a hook belongs to the process
    _is_ignored = lru_cache(maxsize=4096)(below_matcher(ignore_regex))
    _folders = tuple(scan_folders)
    real = [(os.path.realpath(folder) + "/", folder + "/") for folder in scan_folders]
    _aliases = tuple((there, here) for there, here in real if there != here)
    _roots = tuple({*(folder + "/" for folder in scan_folders), *(there for there, _here in _aliases)})
    if _roots and not _is_installed:
        sys.addaudithook(_hook)
        for name in ("stat", "lstat", "access"):
            _watch_probes(name)
        _is_installed = True


def scan_folders() -> tuple[str, ...]:
    """Return the scan folders of the project, none before `watch` has set them."""
    return _folders


@contextmanager
def listening(reads: Reads | None) -> Iterator[None]:
    """Record in `reads` the files that this process opens."""
    global _reads  # noqa: PLW0603  # one call at a time
    _reads = reads if _roots else None
    try:
        yield
    finally:
        _reads = None


def _watch_probes(name: str) -> None:
    """Replace a function of `os` by a function that also records the paths that it does not find."""
    real = getattr(os, name)

    @wraps(real)
    def probe(path: Any, *arguments: Any, **options: Any) -> Any:
        try:
            found = real(path, *arguments, **options)
        except (FileNotFoundError, NotADirectoryError):
            _note_absent(path, options)
            raise
        if found is False:
            _note_absent(path, options)
        return found

    for functions in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if real in functions:
            functions.add(probe)
    setattr(os, name, probe)


def _note_absent(path: Any, options: Mapping[str, Any]) -> None:
    reads = _reads
    if reads is not None and not isinstance(path, int) and options.get("dir_fd") is None:
        with suppress(Exception):  # an error here must not change the result of the replaced function of `os`
            reads.note_absent(os.fsdecode(path), _place)


def _note_listing(reads: Reads, path: Any) -> None:
    global _reads  # noqa: PLW0603  # unset it, because reading the names of the folder raises the same audit event again
    if isinstance(path, int):
        return
    _reads = None
    try:
        reads.note_listed("." if path is None else os.fsdecode(path))
    except Exception:  # noqa: BLE001, S110  # ignored: the builder's own call to list the folder raises the error
        pass
    finally:
        _reads = reads


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    reads = _reads
    if reads is None:
        return
    if event in ("os.listdir", "os.scandir"):
        _note_listing(reads, arguments[0])
    if event != "open":
        return
    try:
        path, _mode, flags = arguments
        if isinstance(path, int):
            return
        reads.note(path if type(path) is str else os.fsdecode(path), _place, flags if isinstance(flags, int) else 0, is_before=True)  # type: ignore[arg-type]  # fsdecode refuses the rest
    except Exception:  # noqa: BLE001, S110  # ignored: an exception would reach the builder, and `open` itself raises the error
        pass


def find_ignored(rel: str, root: str) -> tuple[str, ...]:
    """Return the absolute paths to which an ignored relative path may refer, () if the project does not ignore the path.

    If a scan folder has a file of this path, the first such file is returned; otherwise the path in every scan folder, the source's
    scan folder first.
    """
    if not _is_ignored(as_text(rel)):
        return ()
    paths = [f"{folder}/{rel}" for folder in dict.fromkeys((root, *_folders))]
    there = [path for path in (f"{folder}/{rel}" for folder in _folders) if os.path.isfile(path)]
    return tuple(there[:1] or paths)


def _is_hidden(path: str) -> bool:
    """Whether a file is ignored, or another scan folder has a file of the same relative path, which may be the source instead.

    For an existing file, all other scan folders are checked; the engine decides which of the files is the source. For a missing
    file, only earlier scan folders are checked. A missing file that no earlier folder has becomes the source when it appears, and
    the jobs that depend on its path run again.
    """
    if any(path.startswith(f"{folder}/") and _is_ignored(as_text(path[len(folder) + 1 :])) for folder in _folders):
        return True
    is_there = os.path.lexists(path)
    for at, folder in enumerate(_folders):
        others = (*_folders[:at], *(_folders[at + 1 :] if is_there else ()))
        if path.startswith(f"{folder}/") and any(os.path.lexists(f"{other}/{path[len(folder) + 1 :]}") for other in others):
            return True
    return False


def _as_configured(path: str) -> str:
    for there, here in _aliases:
        if path.startswith(there):
            return here + path[len(there) :]
    return path


def _place() -> str:
    """Return "file:line" of the builder's code that opens a file.

    The result is "" if Python opens the file to load code, because fingerprints cover code. The place is the innermost frame
    outside libraries. For a builder that is installed as a library, it is the builder's outermost frame.
    """
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001  # `inspect` would read source files
    if frame is not None and frame.f_code.co_filename.startswith(_IMPORT):
        return ""
    outermost = frame
    while frame is not None:
        file = frame.f_code.co_filename
        if file == linecache.__file__:  # Python opened the file to show a line of code in a warning or a traceback
            return ""
        if is_code_of_aptui(file):
            if file == _CALLS_BUILDERS:
                break
            frame = frame.f_back
            continue
        if is_code_of_builder(file):
            return _place_of_frame(frame)
        outermost, frame = frame, frame.f_back
    return _place_of_frame(outermost) if outermost else "?"


def _place_of_frame(frame: FrameType) -> str:
    name = os.path.basename(frame.f_code.co_filename).encode("utf-8", "backslashreplace").decode("utf-8")
    return f"{name}:{frame.f_lineno}"
