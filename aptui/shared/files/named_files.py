"""Path confinement: a name found in content becomes a file below the project's scan folders, or is refused.

Content is not trusted: a model, a material or a shader may name `../../id_ed25519`, an absolute path, a link that
leads out of the tree, a pipe or a device. So a name is checked after its links are resolved, and never trusted by its
spelling.

Tests: `tests/worker/test_builder_run.py`.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Sequence
from functools import lru_cache

MOST_BYTES = 1 << 30
"""Default maximum size of a file that content names; a builder may set another."""

_SCHEME = re.compile(r"file:|[A-Za-z][A-Za-z0-9+.-]*://", re.IGNORECASE)
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW


class NamedFileError(Exception):
    """A file that content names cannot be used; the text is one line."""


class ForbiddenNameError(NamedFileError):
    """Content names a forbidden file: the builder must not continue, its job fails."""


def placed_name(named_by: str, name: str, *, is_uri: bool = False) -> str:
    r"""Return `name`, as found in the file `named_by`, relative to the scan folder of that file; a leading `..` = outside.

    An absolute path stays absolute. `\` separates folders too: exporters on Windows write it.

    Args:
        named_by: the file that contains the name, relative to its scan folder.
        name: the name in the content.
        is_uri: the name is percent-encoded, and is decoded once, as readers of URIs do.
    """
    plain = (_unquote(name) if is_uri else name).replace("\\", "/")
    if _SCHEME.match(plain):
        return plain  # not a path: `located` refuses it
    return posixpath.normpath(posixpath.join(posixpath.dirname(named_by), plain))


def located(scan_folder: str, path: str, scan_folders: Sequence[str] = (), named_by: str = "") -> str:
    """Return the absolute path, with links resolved, that `path` in content refers to; the file need not exist.

    Args:
        scan_folder: the base of a relative `path`; an absolute path is used unchanged.
        path: as `placed_name` returns it.
        scan_folders: all scan folders of the project; () = only `scan_folder`.
        named_by: the file that names it, for the message.

    Raises:
        ForbiddenNameError: the path is outside the scan folders, or is not a file path.
    """
    try:
        if "\0" in path or _SCHEME.match(path):
            raise ForbiddenNameError(f"{_who(named_by)}'{_shorten_path(path)}', which is not the path of a file of the project")
        roots = (scan_folder, *scan_folders)
        full = os.path.normpath(os.path.join(scan_folder, path))
        real = os.path.realpath(full)
    except (ValueError, OSError) as error:
        raise ForbiddenNameError(f"{_who(named_by)}'{_shorten_path(path)}', which is not a path: {error}") from None
    if not any(_is_below(full, root) or _is_below(full, _real(root)) for root in roots):
        raise ForbiddenNameError(f"{_who(named_by)}'{_shorten_path(path)}', which is outside the project's scan folders")
    if not any(_is_below(real, _real(root)) for root in roots):
        raise ForbiddenNameError(f"{_who(named_by)}'{_shorten_path(path)}', a link that leads out of the project's scan folders")
    return real


def _unquote(name: str) -> str:
    if "%" not in name:
        return name
    from urllib.parse import unquote  # noqa: PLC0415 (every worker loads this module, and most names need nothing of the kind)

    return unquote(name)


def read_named(
    scan_folder: str, path: str, scan_folders: Sequence[str] = (), *, named_by: str = "", most_bytes: int = MOST_BYTES
) -> bytes:
    """Return the bytes of a file that content names; for the arguments see `located`.

    Raises:
        ForbiddenNameError: it is outside, is not a regular file, or is larger than `most_bytes`.
        NamedFileError: it is missing, or cannot be read.
    """
    real = located(scan_folder, path, scan_folders, named_by)
    try:
        if not stat.S_ISREG(os.lstat(real).st_mode):  # before it is opened: some devices act on being opened
            raise _no_file(real, path, named_by)
        descriptor = os.open(real, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        raise NamedFileError(f"the file '{_shorten_path(path)}' is missing{_describe_alike(real, scan_folder)}") from None
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or error
        raise NamedFileError(f"the file '{_shorten_path(path)}' cannot be read: {what}") from None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _no_file(real, path, named_by)
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ForbiddenNameError(f"{_who(named_by)}'{_shorten_path(path)}', which is larger than {most_bytes >> 20} MiB")
    return data


def _no_file(real: str, path: str, named_by: str) -> NamedFileError:
    if os.path.isdir(real):
        return NamedFileError(f"the file '{_shorten_path(path)}' cannot be read: Is a directory")
    return ForbiddenNameError(f"{_who(named_by)}'{_shorten_path(path)}', which is a pipe, a socket or a device")


def same_letters(name: str) -> str:
    """Return `name` without differences of case and of the form of accents (NFC, NFD), for comparison."""
    if name.isascii():
        return name.lower()
    import unicodedata  # noqa: PLC0415 (every worker loads this module, and few names need it)

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def describe_difference(name: str, other: str) -> str:
    """Return how two names with the same letters differ."""
    import unicodedata  # noqa: PLC0415 (as above)

    is_form = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)
    return "how accents are stored (NFC and NFD)" if is_form else "case"


def _describe_alike(real: str, scan_folder: str) -> str:
    """Return a hint at a file whose name differs only in spelling, "" if no file does."""
    found, missing = real, list[str]()
    while found not in ("", "/") and not os.path.lexists(found):
        found, _, name = found.rpartition("/")
        missing.insert(0, name)
    for name in missing:
        try:
            alike = next((each for each in sorted(os.listdir(found or "/")) if same_letters(each) == same_letters(name)), "")
        except OSError:
            return ""
        if not alike:
            return ""
        found = f"{found.rstrip('/')}/{alike}"
    there = _shorten_path(os.path.relpath(found, _real(scan_folder)))
    return f"; '{there}' differs in {describe_difference(real, found)} alone: write the name as the file has it, or rename the file"


@lru_cache(maxsize=256)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")


def _who(named_by: str) -> str:
    return f"{named_by} names " if named_by else "a name says "


def _shorten_path(path: str) -> str:
    return path if len(path) <= 120 else f"{path[:119]}…"
