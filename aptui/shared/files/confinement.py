"""Opens files by untrusted paths, but only files below a given folder: each path is resolved from a descriptor of this folder.

For reading, the system call `openat2` refuses symbolic links, `..` out of the folder, and absolute paths, in one step. If the
kernel (5.6) or a container's filter does not offer it, each part of the path is opened on its own, without following links. Both
methods refuse the same paths. `ConfinedTree` makes, moves and deletes files below a folder; it always opens part by part.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache

# The functions below turn a name found in content into the path of a file below the project's scan folders, or refuse the name.
#
# Content is not trusted: a model, a material or a shader may name `../../id_ed25519`, an absolute path, a link that leads out
# of the tree, a pipe or a device. So the functions resolve all links of a path before they check the path.

MOST_BYTES = 1 << 30
"""Default maximum size (bytes) of a file that content names; a builder may set another limit."""

_SCHEME = re.compile(r"file:|[A-Za-z][A-Za-z0-9+.-]*://", re.IGNORECASE)
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW


class NamedFileError(Exception):
    """Raised if an asset names a file that cannot be used; the text of the error is one line."""


class ForbiddenNameError(NamedFileError):
    """Raised if an asset names a file that it must not use. The builder must not continue; its job fails."""


def placed_name(named_by: str, name: str, *, is_uri: bool = False) -> str:
    r"""Return `name`, as found in the file `named_by`, relative to the scan folder of that file.

    A result that begins with `..` is outside the scan folder. An absolute path stays absolute. `\` separates folders, too, because
    exporters on Windows write it.

    Args:
        named_by: the file that contains the name, relative to its scan folder.
        is_uri: the name is percent-encoded, and is decoded once, as readers of URIs do.
    """
    plain = (_unquote(name) if is_uri else name).replace("\\", "/")
    if _SCHEME.match(plain):
        return plain  # a name with a scheme, such as `https:`, is not a path; `located` refuses it
    return posixpath.normpath(posixpath.join(posixpath.dirname(named_by), plain))


def located(scan_folder: str, path: str, scan_folders: Sequence[str] = (), named_by: str = "") -> str:
    """Return the absolute path, with links resolved, of the file that content names by `path`; the file need not exist.

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
            raise _forbidden(named_by, path, "which is not the path of a file of the project")
        roots = (scan_folder, *scan_folders)
        full = os.path.normpath(os.path.join(scan_folder, path))
        real = os.path.realpath(full)
    except (ValueError, OSError) as error:
        raise _forbidden(named_by, path, f"which is not a path: {error}") from None
    if not any(_is_below(full, root) or _is_below(full, _real(root)) for root in roots):
        raise _forbidden(named_by, path, "which is outside the project's scan folders")
    if not any(_is_below(real, _real(root)) for root in roots):
        raise _forbidden(named_by, path, "a link that leads out of the project's scan folders")
    return real


def _unquote(name: str) -> str:
    if "%" not in name:
        return name
    from urllib.parse import unquote

    return unquote(name)


def read_named(
    scan_folder: str, path: str, scan_folders: Sequence[str] = (), *, named_by: str = "", most_bytes: int = MOST_BYTES
) -> bytes:
    """Return the bytes of a file that content names; for the arguments see `located`.

    Raises:
        ForbiddenNameError: the file is outside, is not a regular file, or is larger than `most_bytes`.
        NamedFileError: the file is missing, or cannot be read.
    """
    real = located(scan_folder, path, scan_folders, named_by)
    try:
        # the kind of file is checked before the file is opened, because opening has an effect on some devices
        if not stat.S_ISREG(os.lstat(real).st_mode):
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
        raise _forbidden(named_by, path, f"which is larger than {most_bytes >> 20} MiB")
    return data


def _no_file(real: str, path: str, named_by: str) -> NamedFileError:
    if os.path.isdir(real):
        return NamedFileError(f"the file '{_shorten_path(path)}' cannot be read: Is a directory")
    return _forbidden(named_by, path, "which is a pipe, a socket or a device")


def same_letters(name: str) -> str:
    """Return `name` in lower case and with accents in one form, so that names which differ only in these become equal."""
    if name.isascii():
        return name.lower()
    import unicodedata

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def describe_difference(name: str, other: str) -> str:
    """Return in words how two names differ that are equal except for case and the form of accents."""
    import unicodedata

    is_form = unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)
    return "how accents are stored (NFC and NFD)" if is_form else "case"


def _describe_alike(real: str, scan_folder: str) -> str:
    """Return a hint that names an existing file whose path differs from `real` only in case or accents, "" = none."""
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
    return f"; there is '{there}', which differs only in {describe_difference(real, found)}: correct the name, or rename the file"


@lru_cache(maxsize=256)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")


def _forbidden(named_by: str, path: str, why: str) -> ForbiddenNameError:
    begin = f"{named_by} names" if named_by else "a name says"
    return ForbiddenNameError(f"{begin} '{_shorten_path(path)}', {why}")


def _shorten_path(path: str) -> str:
    return path if len(path) <= 120 else f"{path[:119]}…"


_OPENAT2 = 437
"""The number of the system call openat2, which is the same on all architectures (Linux's syscall tables)."""
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK  # without O_NONBLOCK, opening a pipe waits for a writer
_NOT_OFFERED = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL})
_TRIES = 64
"""Maximum number of retries if another program renames a file during the call (EAGAIN of openat2)."""


class ConfinementError(PermissionError):
    """Error of a path that leads out of its allowed folder. `strerror` continues a sentence that begins with the path."""


class LinkError(ConfinementError):
    """Error of a path that contains a link."""


Opener = Callable[[int, bytes], int]
"""Function that opens a path below a folder (given by its descriptor) for reading, and returns a descriptor."""


def open_confined(folder: int, path: bytes) -> int:
    """Return a descriptor for reading the file or folder at `path` below a folder; `folder` is the descriptor of this folder.

    Raises:
        FileNotFoundError, NotADirectoryError: it does not exist. PermissionError: the path leads outside, or access is denied.
        OSError: the path cannot be opened.
    """
    return _choose()(folder, path)


def open_confined_file(folder: int, path: bytes) -> tuple[int, os.stat_result]:
    """Return a descriptor of a regular file below a folder, and the file's status.

    Raises:
        OSError: as `open_confined`; IsADirectoryError, PermissionError: it is not a regular file.
    """
    descriptor = open_confined(folder, path)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(errno.EACCES, "is not a file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, found


def refuse_odd(path: bytes) -> None:
    """Raise PermissionError for a path that is empty or absolute, has a part `..`, or contains a NUL."""
    if not path or path.startswith(b"/") or b"\0" in path or b".." in path.split(b"/"):
        raise ConfinementError(errno.EACCES, "is not a path below its folder")


def open_by_kernel(folder: int, path: bytes) -> int:
    """Open with openat2(2).

    Raises:
        OSError: as `open_confined`; with ENOSYS, EPERM, E2BIG or EINVAL the kernel does not offer openat2.
    """
    import ctypes  # imported here, because an engine that only deletes does not need ctypes

    refuse_odd(path)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    # The fields of `struct open_how`: flags, mode, resolve.
    how = (ctypes.c_uint64 * 3)(_READ, 0, _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS)
    for _ in range(_TRIES):
        descriptor: int = libc.syscall(
            _OPENAT2, folder, ctypes.c_char_p(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
        )
        if descriptor >= 0:
            return descriptor
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    if code in (errno.EXDEV, errno.ELOOP):
        raise ConfinementError(errno.EACCES, "leads out of its folder, or over a link")
    raise OSError(code, os.strerror(code))


def open_by_parts(folder: int, path: bytes) -> int:
    """Open part by part, following no link.

    Raises:
        OSError: as `open_confined`.
    """
    refuse_odd(path)
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    here = folder
    try:
        for part in parts[:-1]:
            below = _open_part(part, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, here)
            if here != folder:
                os.close(here)
            here = below
        ends_in_folder = os.O_DIRECTORY if path.endswith((b"/", b"/.")) or not parts else 0
        return _open_part(parts[-1] if parts else b".", _READ | ends_in_folder, here)
    finally:
        if here != folder:
            os.close(here)


def _open_part(part: bytes, flags: int, folder: int, shown: bytes = b"") -> int:
    try:
        return os.open(part, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    except OSError as error:
        is_link = error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(part, folder))
        if is_link:
            raise LinkError(errno.EACCES, f"leads over the link '{os.fsdecode(shown or part)}'") from None
        raise


def _is_link(part: bytes, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def has_openat2(folder: int) -> bool:
    """Whether the kernel offers openat2 to this process; `folder` is any folder's descriptor."""
    try:
        os.close(open_by_kernel(folder, b"."))
    except OSError as error:
        return error.errno not in _NOT_OFFERED
    return True


@cache
def _choose() -> Opener:
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_by_kernel if has_openat2(descriptor) else open_by_parts
    finally:
        os.close(descriptor)


class ConfinedRoot:
    """A folder that is kept open, and opened again when another folder has replaced it."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._descriptor = -1
        self._identity = (0, 0)

    def open_file(self, path: bytes) -> tuple[int, os.stat_result]:
        """Return a descriptor of a file below the folder, and the file's status; raises OSError as `open_confined_file`."""
        return open_confined_file(self.descriptor(), path)

    def descriptor(self) -> int:
        """Return a descriptor of the folder, for immediate use; raises OSError if the folder does not exist."""
        found = os.stat(self._path)
        if self._descriptor < 0 or (found.st_dev, found.st_ino) != self._identity:
            self.close()
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._identity = found.st_dev, found.st_ino
        return self._descriptor

    def close(self) -> None:
        """Close the folder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_FOLDERS_OPEN = 16
"""Maximum number of folders that are kept open; nearly always higher than the number of platforms."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class ConfinedTree:
    """Reads and changes the files and folders below one folder.

    Paths are relative, in bytes. A path that is empty or absolute, that has the part `.`, `..` or "", or that leads over a link is
    refused with ConfinementError. The folders that were used last stay open, because the products of a commit are in few folders.

    Args:
        root: absolute path; a link in it is followed.
    """

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._open: dict[bytes, int] = {}
        """{folder: its descriptor}, the least recently used first."""

    def descriptor_of(self, folder: bytes) -> int:
        """Return a descriptor of `folder` ("" = the root); the descriptor is valid until the next call."""
        found = self._open.pop(folder, -1)
        if found < 0:
            if len(self._open) >= _FOLDERS_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            found = self._open_folder(folder)
        self._open[folder] = found
        return found

    def _open_folder(self, folder: bytes) -> int:
        parts = parts_of(folder) if folder else []
        here = os.open(self._root, _FOLDER)
        for count, part in enumerate(parts, 1):
            try:
                below = _open_part(part, _FOLDER, here, b"/".join(parts[:count]))
            finally:
                os.close(here)
            here = below
        return here

    def open_file(self, path: bytes, flags: int = 0) -> int:
        """Return a descriptor of a regular file, for reading by default. A pipe or a device at `path` does not block the call."""
        folder, name = _split(path)
        descriptor = _open_part(name, _READ | flags, self.descriptor_of(folder), path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise PermissionError(errno.EACCES, "is not a file")
        return descriptor

    def status(self, path: bytes) -> os.stat_result:
        """Return the status of the entry at a path, without following a link."""
        folder, name = _split(path)
        return os.stat(name, dir_fd=self.descriptor_of(folder), follow_symlinks=False)

    def touch(self, path: bytes) -> None:
        """Set the times of a file to now."""
        folder, name = _split(path)
        os.utime(name, dir_fd=self.descriptor_of(folder), follow_symlinks=False)

    def make_folder(self, path: bytes) -> bool:
        """Make a folder and the folders above it; return False if it exists."""
        try:
            self.descriptor_of(path)
        except FileNotFoundError:
            above, name = _split(path)
            if above:
                self.make_folder(above)
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.descriptor_of(above))
            self.descriptor_of(path)
            return True
        return False

    def write(self, path: bytes, data: bytes) -> None:
        """Replace a whole file in one step, without a sync; a missing folder is created."""
        folder, name = _split(path)
        if folder:
            self.make_folder(folder)
        descriptor, begun = self.descriptor_of(folder), b".%s.tmp" % os.urandom(8).hex().encode()
        try:
            with open(begun, "xb", opener=lambda file, flags: os.open(file, flags, 0o666, dir_fd=descriptor)) as file:
                file.write(data)
            os.replace(begun, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(begun, dir_fd=descriptor)
            raise

    def move(self, path: bytes, tree: ConfinedTree, target: bytes) -> None:
        """Rename an entry to a path in another tree, or in the same tree; a file at that path is replaced."""
        (folder, name), (target_folder, target_name) = _split(path), _split(target)
        self._forget(path)
        source = self.descriptor_of(folder)
        if tree is self:
            source = os.dup(source)  # copied, because the next call of `descriptor_of` may close the original descriptor
        try:
            os.replace(name, target_name, src_dir_fd=source, dst_dir_fd=tree.descriptor_of(target_folder))
        finally:
            if tree is self:
                os.close(source)

    def unlink(self, path: bytes) -> None:
        """Delete a file or a link."""
        folder, name = _split(path)
        os.unlink(name, dir_fd=self.descriptor_of(folder))

    def remove_folder(self, path: bytes) -> None:
        """Remove an empty folder."""
        folder, name = _split(path)
        self._forget(path)
        os.rmdir(name, dir_fd=self.descriptor_of(folder))

    def remove(self, path: bytes) -> None:
        """Delete the entry at a path: a file, a link, or a folder with all deletable contents."""
        folder, name = _split(path)
        self._forget(path)
        descriptor = self.descriptor_of(folder)
        if not stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=descriptor)
            return
        try:
            os.rmdir(name, dir_fd=descriptor)
        except OSError:
            import shutil  # imported here, because only folders that are not empty need this module

            shutil.rmtree(name, ignore_errors=True, dir_fd=descriptor)

    def _forget(self, path: bytes) -> None:
        """Close the descriptors of a folder and of all folders below it, because another folder may get its name."""
        for folder in [each for each in self._open if each == path or each.startswith(path + b"/")]:
            os.close(self._open.pop(folder))

    def close(self) -> None:
        """Close all folders; later calls open them again."""
        while self._open:
            os.close(self._open.popitem()[1])


def parts_of(path: bytes) -> list[bytes]:
    """Return the parts of a path; raise ConfinementError if a part is empty, `.` or `..`, or if the path has a NUL byte."""
    parts = path.split(b"/")
    if b"\0" in path or not {b"", b".", b".."}.isdisjoint(parts):
        raise ConfinementError(errno.EACCES, "is not a path below its folder")
    return parts


def _split(path: bytes) -> tuple[bytes, bytes]:
    """Return the folder and the name of a path; raise ConfinementError as `parts_of` does."""
    parts_of(path)
    folder, _, name = path.rpartition(b"/")
    return folder, name
