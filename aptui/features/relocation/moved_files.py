"""Operations on files for relocations: find, move and delete files of scan folders (also with Git), rewrite references.

Files outside the scan folders are not changed.

Tests: `tests/features/relocation/test_relocate.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from aptui.config.configuration import Config
from aptui.config.own_files import own_paths
from aptui.core.paths import as_text, from_text, is_below, os_path
from aptui.core.patterns import ignore_matcher
from aptui.core.project import ScanFolder
from aptui.shared.errors import KnownError, UserError
from aptui.shared.files.git import run_git
from aptui.shared.files.replacing import replacing

# A rewrite replaces old paths and UUIDs in the text of a file. All other bytes of the file stay as they are.
#
# A path may be spelled with `/`, `\`, `\\` or `\/`, in upper or lower case, and with `%20` in a URL. The path may begin with the
# scan folder's path or with an alias such as `@projectroot@`, or be relative to the folder of the file that contains the reference.
# A UUID may be spelled with or without dashes and braces, in upper or lower case.

LIMIT_BYTES = 64 << 20
"""Maximum size of a file whose references are updated; hand-written files are smaller."""
_SEPARATOR = r"(?:\\\\|\\/|[\\/])"
_ANY_SEPARATOR = re.compile(_SEPARATOR)
_NO_PATH = re.compile(r"""[\s"'<>|=,;:()\[\]{}]""")
_NAME_CHARACTER = re.compile(r"[\w.%-]")
_VARIABLE = re.compile(r"\$(?:\{\w+\}|\(\w+\))/\Z")
_ALIAS = re.compile(r"@\w+@/")
_WINDOW = 256
"""Number of characters before a name that are searched for an alias or a variable. References in long lines take little time."""
_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class UnreadableError(Exception):
    """The file is not text, is too large, or cannot be read or written."""


class Rename(Struct, frozen=True):
    """One path or UUID that changes. `target` is the index of the moved item that has the path or UUID, or `plan.OWN`.

    `is_seen_from_here`: `old` and `new` are relative to the folder of the file that contains the reference. Paths are written with
    `/`, UUIDs as 32 hex digits in lower case.
    """

    old: str
    new: str
    target: int
    is_uuid: bool = False
    is_seen_from_here: bool = False


class Mended(Struct, frozen=True):
    """A text with replaced names.

    `changed` has the indices of the renamed items (`Rename.target`) whose old names were replaced. `same` has the indices of found
    items whose old and new names are equal.
    """

    data: bytes
    count: int
    changed: frozenset[int]
    same: frozenset[int]


def write_as_seen_from(folder: str, path: str) -> str:
    """Return `path` relative to `folder`; both are relative to the scan folder."""
    here, there = (folder.split("/") if folder else []), path.split("/")
    common = 0
    while common < min(len(here), len(there) - 1) and here[common].lower() == there[common].lower():
        common += 1
    return "/".join([".."] * (len(here) - common) + there[common:])


# ------------------------------------------------------------------------------------------------------------------- texts


def replace_names(data: bytes, renames: Sequence[Rename], prefixes: Iterable[str]) -> Mended:
    """Replace every old name in `data`.

    Args:
        renames: of two renames with the same spelling, the first is used.
        prefixes: possible prefixes of a path: paths of scan folders with a final slash.

    Raises:
        UnreadableError: `data` is not text.
    """
    encoding, mark, body = _encoding(data)
    errors = "surrogateescape" if encoding == "utf-8" else "surrogatepass"
    try:
        text = body.decode(encoding, errors)
    except UnicodeDecodeError:
        raise UnreadableError("the file is not text") from None
    mending = _Mending(text, renames, tuple(prefix.lower() for prefix in prefixes))
    changed = mending.run()
    done = mark + changed.encode(encoding, errors) if mending.count else data
    return Mended(done, mending.count, frozenset(mending.changed), frozenset(mending.same))


def _encoding(data: bytes) -> tuple[str, bytes, bytes]:
    codec = _UTF_16.get(data[:2])
    if codec is not None:
        return codec, data[:2], data[2:]
    if b"\0" in data:
        raise UnreadableError("the file is not text")
    return "utf-8", b"", data


class _Mending:
    """Replaces the old names in one text; its fields collect the results for `Mended`."""

    def __init__(self, text: str, renames: Sequence[Rename], prefixes: tuple[str, ...]) -> None:
        self._text, self._prefixes = text, prefixes
        self._window = _WINDOW + 2 * max(map(len, prefixes), default=0)  # each slash may be written as `\\\\`
        self._paths: dict[str, list[Rename]] = {}
        self._uuids: dict[str, Rename] = {}
        for rename in renames:
            if rename.is_uuid:
                self._uuids.setdefault(rename.old, rename)
            else:
                for old in {os_path(rename.old), _quote_path(rename.old)}:
                    self._paths.setdefault(old.lower(), []).append(rename)
        self.count = 0
        self.changed: set[int] = set()
        self.same: set[int] = set()

    def run(self) -> str:
        pieces = []
        if self._paths:
            pieces.append(rf"(?P<path>(?<![\w.%-]){_paths_regex(self._paths)}(?![\w%-]|\.\w|[\\/]))")
        if self._uuids:
            spellings = [_uuid_regex(digits) for digits in self._uuids]
            pieces.append(rf"(?P<uuid>(?<![0-9A-Za-z])(?:{'|'.join(spellings)})(?![0-9A-Za-z]))")
        return re.sub("|".join(pieces), self._replace, self._text, flags=re.IGNORECASE) if pieces else self._text

    def _replace(self, match: re.Match[str]) -> str:
        found = match[0]
        if match.lastgroup == "uuid":
            rename: Rename | None = self._uuids[found.replace("-", "").lower()]
        else:
            rename = self._find_rename(_ANY_SEPARATOR.sub("/", found).lower(), match.start())
        if rename is None:
            return found
        if rename.old == rename.new:
            self.same.add(rename.target)
            return found
        new = _like_uuid(rename.new, found) if rename.is_uuid else _like_path(rename, found)
        (self.same if new == found else self.changed).add(rename.target)
        self.count += new != found
        return new

    def _find_rename(self, path: str, start: int) -> Rename | None:
        """Return the rename of the file that the text refers to at `start`, None if that file is not renamed.

        The text contains `path` at `start`. The text before `start` decides whether `path` is only the end of another path.
        """
        piece = self._piece(start)
        before = _folders_in(piece)
        # `re` regards a few letters as equal whose lower case differs, for example "i" without a dot and "i". These are two names.
        for rename in self._paths.get(path, ()):
            if not before or (before == "./" and rename.is_seen_from_here):
                return rename
            if rename.is_seen_from_here:
                continue
            if before == "/" or _ALIAS.fullmatch(before) or self._is_scan_folder(piece):
                return rename
        return None

    def _is_scan_folder(self, piece: str) -> bool:
        """Whether a text ends with one of the prefixes, which may contain blanks and brackets, and not with a longer name."""
        return any(
            prefix.startswith("/") or not _NAME_CHARACTER.match(piece[: -len(prefix)][-1:])
            for prefix in filter(piece.endswith, self._prefixes)
        )

    def _piece(self, start: int) -> str:
        """Return the text before `start` in lower case and with `/` for all slashes, "" if it does not end with a slash."""
        if not start or self._text[start - 1] not in "/\\":
            return ""
        return _ANY_SEPARATOR.sub("/", self._text[max(0, start - self._window) : start]).lower()


def _folders_in(piece: str) -> str:
    """Return the folders at the end of a text, each with a final slash; "" if the text does not end with a folder."""
    if piece.endswith((")/", "]/", "}/")) and not _VARIABLE.search(piece):
        return piece[-2:]  # "Props (old)/" is a folder, "${ROOT}/" is not
    return _NO_PATH.split(piece)[-1]


def _paths_regex(paths: Iterable[str]) -> str:
    """Return a regex for any of some paths, the longest first.

    The regex is a tree of common prefixes. A flat list of thousands of paths would be tried at every letter of the text.
    """
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for character in path:
            node = node.setdefault(character, {})
        node[""] = {}
    return _tree_regex(tree)


def _tree_regex(node: dict[str, Any]) -> str:
    branches = []
    for character, child in node.items():
        text, below = _character_regex(character), child
        while character and len(below) == 1 and "" not in below:  # a run of characters without alternatives needs no regex group
            ((next_character, below),) = below.items()
            text += _character_regex(next_character)
        if character:
            branches.append(text + (_tree_regex(below) if below.keys() != {""} else ""))
    inner = branches[0] if len(branches) == 1 and "" not in node else f"(?:{'|'.join(branches)})"
    return f"(?:{inner})?" if "" in node else inner


def _character_regex(character: str) -> str:
    return _SEPARATOR if character == "/" else re.escape(character)


def _uuid_regex(digits: str) -> str:
    dashed = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return f"{digits}|{dashed}"


def _quote_path(path: str) -> str:
    return quote(from_text(path))


def _like_uuid(digits: str, found: str) -> str:
    text = _uuid_regex(digits).rpartition("|")[2] if "-" in found else digits
    return text if found != found.upper() else text.upper()


def _like_path(rename: Rename, found: str) -> str:
    """Return the new path in the style of the old path: the same slashes, lower case and `%20` if the old path has them."""
    plain, quoted = os_path(rename.old).lower(), _quote_path(rename.old).lower()
    is_quoted = plain != quoted and _ANY_SEPARATOR.sub("/", found).lower() == quoted
    new = _quote_path(rename.new) if is_quoted else os_path(rename.new)
    if found == found.lower() and rename.old != rename.old.lower():
        new = new.lower()
    separator = _ANY_SEPARATOR.search(found)
    return new.replace("/", separator[0]) if separator else new


# ------------------------------------------------------------------------------------------------------------------- files


def read(path: str) -> bytes:
    """Return the bytes of a file for a search.

    Raises:
        UnreadableError: the file cannot be read, or has more than `LIMIT_BYTES`.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnreadableError("the path is not a file")
        with open(path, "rb") as file:
            data = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise UnreadableError(f"the file cannot be read: {error.strerror}") from error
    if len(data) > LIMIT_BYTES:
        raise UnreadableError("the file is too large")
    return data


def why_not_writable(path: str) -> str:
    """Return why a file cannot be rewritten, "" if it can."""
    try:
        seen = os.lstat(path)
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"
    if not stat.S_ISREG(seen.st_mode):
        return "the path is a link" if stat.S_ISLNK(seen.st_mode) else "the path is not a file"
    return "the file is read-only" if is_read_only(path, seen) else ""


def is_read_only(path: str, seen: os.stat_result) -> bool:
    """Whether a file is read-only: the owner's write bit decides, as in O3DE, for every user including root."""
    return not seen.st_mode & stat.S_IWUSR or not os.access(path, os.W_OK)


def rewrite(path: str, data: bytes) -> None:
    """Replace the bytes of a file atomically; the file's mode does not change.

    Raises:
        UnreadableError: the file cannot be written; its bytes are unchanged.
    """
    why = why_not_writable(path)
    if why:
        raise UnreadableError(why)
    try:
        seen = os.stat(path)
        with replacing(Path(path), what="it") as file:
            file.write(data)
            os.fchmod(file.fileno(), stat.S_IMODE(seen.st_mode))
            with contextlib.suppress(OSError):
                os.fchown(file.fileno(), seen.st_uid, seen.st_gid)
    except OSError as error:
        raise UnreadableError(f"the file cannot be written: {error.strerror}") from error
    except KnownError as error:
        raise UnreadableError(error.what) from error


BEGUN = ".aptui-tmp"
"""Suffix of the temporary name of a file that is being moved to another file system."""


class DiskTree:
    """The scan folders of a project on disk; paths are in text form.

    Scan folders in the cache and aptui's own files cannot be moved.
    """

    def __init__(self, config: Config) -> None:
        self._own = (str(config.cache_dir), str(config.log_dir), *own_paths(config))
        self.folders = tuple(folder for folder in config.project.scan_folders if not self._is_ours(folder.path))
        """The project's scan folders that are not in the cache, in order of priority."""
        self.is_ignored = ignore_matcher(config.project.ignore_regex)
        self._listed: dict[str, tuple[list[str], list[str]]] = {}

    def _is_ours(self, path: str) -> bool:
        return any(path == own or is_below(path, own) for own in self._own)

    def owner(self, path: str) -> tuple[ScanFolder, str] | None:
        """Return the scan folder that contains an absolute path, and the path relative to that folder.

        The result is None if no scan folder contains the path.
        """
        if self._is_ours(path) or ".." in path.split("/"):
            return None
        for folder in self.folders:
            rel = path[len(folder.path) + 1 :]
            if is_below(path, folder.path) and (folder.recursive or "/" not in rel):
                return folder, rel
        return None

    def exists(self, path: str) -> bool:
        """Whether an absolute path exists; links are not followed."""
        return os.path.lexists(os_path(path))

    def is_folder(self, path: str) -> bool:
        """Whether an absolute path is a folder or a link to a folder."""
        return os.path.isdir(os_path(path))

    def names(self, folder: ScanFolder, rel: str) -> tuple[Sequence[str], Sequence[str]]:
        """Return the names of (folders, files) directly in a relative folder of `folder`; links to folders are omitted."""
        path = f"{folder.path}/{rel}" if rel else folder.path
        folders, files = self._list(path)
        owned = [
            name for name in folders if not self._is_ours(f"{path}/{name}") and not self.is_ignored(f"{rel}/{name}".lstrip("/"))
        ]
        return owned, [name for name in files if (found := self.owner(f"{path}/{name}")) is not None and found[0] is folder]

    def names_with_blanks(self, folder: ScanFolder, rel: str) -> list[str]:
        """Return the names of the files directly in a relative folder of `folder` that contain a blank."""
        return [name for name in self._list(f"{folder.path}/{rel}" if rel else folder.path)[1] if " " in name]

    def like(self, path: str) -> list[str]:
        """Return the files in the same folder whose absolute path is `path` or differs only in case."""
        above, _, name = path.rpartition("/")
        folders, files = self._list(above)
        return [f"{above}/{other}" for other in (*files, *folders) if other.lower() == name.lower()]

    def spell(self, rel: str) -> str:
        """Return `rel` (relative to the scan folders) in the upper and lower case of the disk; "" if it does not exist."""
        for folder in self.folders:
            path = folder.path
            for part in rel.split("/"):
                exact = f"{path}/{part}"
                path = next(iter(sorted(self.like(exact), key=lambda other: other != exact)), "")
                if not path:
                    break
            else:
                return path[len(folder.path) + 1 :]
        return ""

    def _list(self, path: str) -> tuple[list[str], list[str]]:
        known = self._listed.get(path)
        if known is None:
            known = self._listed[path] = ([], [])
            with contextlib.suppress(OSError), os.scandir(os_path(path)) as found:
                for entry in sorted(found, key=lambda entry: entry.name):
                    if entry.is_dir(follow_symlinks=False):
                        known[0].append(as_text(entry.name))
                    elif not (entry.is_symlink() and entry.is_dir()):
                        known[1].append(as_text(entry.name))
        return known

    # ------------------------------------------------------------------------------------------------------------- objections

    def why_not_ours(self, path: str) -> str:
        """Return why an absolute path is not a movable file of a scan folder, "" if it is."""
        found = self.owner(path)
        if found is None:
            return "the file is outside the scan folders"
        link = _link_above(found[0].path, found[1])
        return f"'{link}' is a link" if link else ""

    def why_not_from(self, path: str, *, ignores_mode: bool = False) -> str:
        """Return why a file cannot be moved or deleted, "" if it can."""
        why = self.why_not_ours(path)
        if why:
            return why
        name = os_path(path)
        try:
            seen = os.lstat(name)
        except OSError as error:
            return f"the file cannot be read: {error.strerror}"
        if not (stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode)):
            return "the path is not a file"
        if stat.S_ISREG(seen.st_mode) and not ignores_mode and is_read_only(name, seen):
            return "the file is read-only"
        return "" if os.access(os.path.dirname(name), os.W_OK) else f"the folder '{os.path.dirname(path)}' is read-only"

    def why_not_to(self, old: str, new: str) -> str:
        """Return why the file `old` cannot be moved to `new`, "" if it can."""
        found = self.owner(new)
        if found is None:
            return "the destination is outside the scan folders"
        link = _link_above(found[0].path, found[1])
        if link:
            return f"the path of the destination leads over the link '{link}'"
        there = self.like(new)
        if there and self.is_folder(there[0]):
            return "the destination is a folder; end it with '/' to move the file into it"
        if there:
            return "the destination exists" if new in there else f"the destination exists as '{there[0]}'"
        name = os_path(old)
        if os.path.islink(name) and not os.path.isabs(Path(name).readlink()) and os.path.dirname(old) != os.path.dirname(new):
            return "the file is a link with a relative target, which would break"
        return self._why_not_in(os.path.dirname(new))

    def _why_not_in(self, folder: str) -> str:
        while not os.path.lexists(os_path(folder)):
            folder = os.path.dirname(folder)
        if not os.path.isdir(os_path(folder)):
            return f"'{folder}' is not a folder"
        return "" if os.access(os_path(folder), os.W_OK) else f"the folder '{folder}' is read-only"

    def why_not_scanned(self, folder: ScanFolder, rel: str) -> str:
        """Return why a file with this relative path cannot be a source of `folder`, "" if the scan does not skip it."""
        parts = rel.split("/")
        if any(self.is_ignored("/".join(parts[: at + 1])) for at in range(len(parts))):
            return "the configuration ignores this path"
        other = self.overridden_by(folder, rel)
        return f"it is overridden by '{other}'" if other else ""

    def overridden_by(self, folder: ScanFolder, rel: str) -> str:
        """Return the file of a scan folder with higher priority that overrides `rel` of `folder`, "" if no file overrides it."""
        for other in self.folders:
            if other is folder:
                return ""
            found = [path for path in self.like(f"{other.path}/{rel}") if (owner := self.owner(path)) and owner[0] is other]
            if found:
                return found[0]
        return ""


def _link_above(root: str, rel: str) -> str:
    """Return the first link among the folders between a scan folder and a file, "" if all are real folders."""
    path = root
    for part in rel.split("/")[:-1]:
        path = f"{path}/{part}"
        if os.path.islink(os_path(path)):
            return path
    return ""


# ----------------------------------------------------------------------------------------------------------------- actions


def move(old: str, new: str) -> None:
    """Move one file to a free path, and make the folders of this path.

    Raises:
        OSError: the file was not moved.
    """
    source, target = os_path(old), os_path(new)
    made = _make_folders(os.path.dirname(target))
    try:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        try:
            Path(source).rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _carry(source, target)
    except OSError:
        for folder in made:
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        raise


def _carry(source: str, target: str) -> None:
    """Move a file to another file system; the target appears only when its content is complete."""
    made = f"{target}{BEGUN}"
    try:
        shutil.copy2(source, made, follow_symlinks=False)
        Path(made).rename(target)
        made = target
        Path(source).unlink(missing_ok=True)  # without an error, because the target would then be the only copy
    except OSError:
        with contextlib.suppress(OSError):
            Path(made).unlink()
        raise


def _make_folders(folder: str) -> list[str]:
    """Make a folder and its parents; return the new folders."""
    made: list[str] = []
    while not os.path.isdir(folder):
        made.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(made):
        Path(path).mkdir(exist_ok=True)
    return made


def delete(path: str) -> None:
    """Delete one file.

    Raises:
        OSError: the file was not deleted.
    """
    Path(os_path(path)).unlink()


def remove_empty(folder: str, root: str, keeps: Sequence[str]) -> list[str]:
    """Remove an empty folder and its parents below `root` that become empty; return the removed folders.

    The folders in `keeps` (scan folders) and their parents are not removed.
    """
    gone: list[str] = []
    while is_below(folder, root) and folder not in keeps:
        try:
            Path(os_path(folder)).rmdir()
        except OSError:
            break
        gone.append(folder)
        folder = os.path.dirname(folder)
    return gone


# If the user requests it, files that Git tracks are moved with `git mv` and deleted with `git rm`.

_LIMIT_S = 120.0


class Git:
    """The Git work tree that contains a folder. If the folder is outside all work trees, no file counts as tracked.

    Args:
        runs_filters: whether Git may run filters, which the configuration of the repository can name.

    Raises:
        UserError: the program `git` is not installed.
    """

    def __init__(self, folder: str, *, runs_filters: bool = True) -> None:
        self._folder, self._runs_filters = os_path(folder), runs_filters
        code, output = self._run("rev-parse", "--show-toplevel")
        self.top = "" if code else output.rstrip("\n")

    def list_tracked(self) -> set[str]:
        """Return the absolute paths of all tracked files in the folder."""
        code, output = self._run("ls-files", "-z") if self.top else (1, "")
        folder = as_text(self._folder)
        return set() if code else {f"{folder}/{as_text(name)}" for name in output.split("\0") if name}

    def move(self, old: str, new: str) -> None:
        """Move a tracked file.

        Raises:
            OSError: Git refuses; the file was not moved.
        """
        os.makedirs(os.path.dirname(os_path(new)), exist_ok=True)
        self._do("mv", "--", os_path(old), os_path(new))

    def delete(self, path: str) -> None:
        """Delete a tracked file.

        Raises:
            OSError: Git refuses; the file was not deleted.
        """
        self._do("rm", "--quiet", "--", os_path(path))

    def _do(self, *words: str) -> None:
        code, output = self._run(*words)
        if code:
            raise OSError(code, f"git reports: {' '.join(output.split())}")

    def _run(self, *words: str) -> tuple[int, str]:
        try:
            done = run_git(self._folder, *words, limit_s=_LIMIT_S, runs_filters=self._runs_filters)
        except FileNotFoundError:
            raise UserError("'git' is not installed", hint="install git, or leave out --scm") from None
        except subprocess.TimeoutExpired:
            return 1, "timeout"
        return done.returncode, os.fsdecode(done.stdout if not done.returncode else done.stderr)
