"""Serves files to one client of O3DE's protocol, only from the cache, the project's user folder and its log folder.

Paths begin with an alias (`@products@`, `@user@`, `@usercache@`, `@log@`). A relative path is below `@products@`; an absolute path
must be below the folder of an alias. Products are read only: only the engine changes the cache. Every operation starts at a
descriptor of the alias' folder and follows no link (`shared.files.confinement`). Paths of products match in upper or lower case.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from aptui.core.paths import as_text, from_text, to_text
from aptui.features.o3de.connection.o3de_messages import O3deMessage
from aptui.features.o3de.project_facts import MARKER
from aptui.shared.files.confinement import ConfinedTree
from aptui.shared.globs import PATTERN_LIMIT, Glob

_OK, _ERROR, _NO_HANDLE = 0, 1, 2
"""Result codes of O3DE's file interface."""
_MODE_READ, _MODE_WRITE, _MODE_APPEND, _MODE_UPDATE, _MODE_CREATE_PATH = 1, 2, 4, 32, 64
_HANDLES_LIMIT = 512
_SETTINGS = ("registry", MARKER)
"""Names below the alias `@user@`, in lower case: the folder of the project's settings, and `project.json`.

The file can select another O3DE installation (`engine_path`).
"""
_READ_BYTES = 8 << 20
"""Maximum number of bytes in an answer; a client needs several requests to read more."""
_NAMES_LIMIT = 200_000
_COPY_BYTES = 1 << 20


class _Folder(Struct):
    tree: ConfinedTree
    path: str
    is_writable: bool


class _OpenFile(Struct):
    descriptor: int
    is_readable: bool
    is_writable: bool


class VirtualFiles:
    """Files of one client. Operations may run in any thread, one after the other.

    Args:
        cache_dir: the cache; `platform` is the client's first platform.
        user_dir: the project's user folder; `log_dir` is its log folder.
        is_local: whether the client runs on this machine as this user or root. Other clients must not write `@user@/Registry` and
            `@user@/project.json`, because settings there can make any folder of this machine a scan folder.
    """

    def __init__(self, cache_dir: str, platform: str, user_dir: str, log_dir: str, *, is_local: bool = False) -> None:
        self._is_local = is_local
        places = {
            "@products@": (f"{cache_dir}/{platform}", False),
            "@usercache@": (f"{user_dir}/Cache", True),
            "@log@": (log_dir, True),
            "@user@": (user_dir, True),
        }
        if "/" in platform or platform in ("", ".", ".."):
            del places["@products@"]  # the project has no products for the platform of this client
        self._folders = {
            alias: _Folder(ConfinedTree(os.fsencode(path)), os.path.normpath(as_text(path)), is_writable)
            for alias, (path, is_writable) in places.items()
        }
        self._files: dict[int, _OpenFile] = {}
        self._last_handle = 0
        self._lock, self._is_closed = threading.Lock(), False

    def close(self) -> None:
        """Close all files. If an operation still runs in a thread, it calls this method at its end."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            self._release()
            self._lock.release()

    def _release(self) -> None:
        for file in self._files.values():
            os.close(file.descriptor)
        self._files.clear()
        for folder in self._folders.values():
            folder.tree.close()

    def answer(self, request: O3deMessage) -> dict[str, Any]:
        """Perform an operation; return the values of its answer."""
        method, failed = _OPERATIONS[request.shape.name.removesuffix("Request")]
        try:
            with self._lock:
                values: dict[str, Any] = failed if self._is_closed else getattr(self, method)(request)
                return values
        except _UnknownHandle:
            return failed | ({"ResultCode": _NO_HANDLE} if "ResultCode" in failed else {})
        except (OSError, ValueError, OverflowError):
            return failed
        finally:
            if self._is_closed:  # checked without the lock: `close` gives up while the lock is held
                self.close()

    # --------------------------------------------------------------------------------------------------------------- paths

    def _find(self, path: str, *, to_write: bool = False) -> tuple[_Folder, bytes, str]:
        """Return (folder, path below the folder, alias of the folder).

        Raise PermissionError if the path is not below the folder of an alias. If `to_write` is set, also raise it if the folder is
        read-only, or if a client that is not local would write settings (`_SETTINGS`).
        """
        text = path.replace("\\", "/")
        alias, rest = next(((each, text[len(each) :]) for each in self._folders if text.lower().startswith(each)), ("", text))
        if not alias and text.startswith("/"):
            below = [each for each, folder in self._folders.items() if f"{text}/".startswith(f"{folder.path}/")]
            alias = max(below, key=lambda each: len(self._folders[each].path), default="")
            rest = text[len(self._folders[alias].path) :] if alias else text
        elif not alias:
            alias = "@products@"
        parts = [part for part in rest.split("/") if part not in ("", ".")]
        folder = self._folders.get(alias)
        if folder is None or ".." in parts or (text.startswith("@") and not text.lower().startswith(alias)):
            raise PermissionError(errno.EACCES, "the path is not below @products@, @user@, @usercache@ or @log@")
        if to_write and not folder.is_writable:
            raise PermissionError(errno.EROFS, "products are read-only")
        if to_write and alias == "@user@" and not self._is_local and parts[:1] and parts[0].lower() in _SETTINGS:
            raise PermissionError(errno.EROFS, "the settings of the project are read-only")
        if to_write:
            os.makedirs(from_text(folder.path), exist_ok=True)
        below_it = "/".join(parts)
        return folder, from_text(below_it.lower() if alias == "@products@" else below_it), alias

    def _status(self, path: str) -> os.stat_result:
        folder, below, _alias = self._find(path)
        return folder.tree.status(below) if below else os.fstat(folder.tree.descriptor_of(b""))

    def _find_file(self, handle: int) -> _OpenFile:
        found = self._files.get(handle)
        if found is None:
            raise _UnknownHandle
        return found

    # ---------------------------------------------------------------------------------------------------------- open files

    def _open(self, request: O3deMessage) -> dict[str, Any]:
        mode = request["Mode"]
        to_write = bool(mode & (_MODE_WRITE | _MODE_APPEND | _MODE_UPDATE))
        if not (to_write or mode & _MODE_READ) or len(self._files) >= _HANDLES_LIMIT:
            raise PermissionError(errno.EACCES, "the file cannot be opened in this mode, or too many files are open")
        folder, below, _alias = self._find(request["FilePath"], to_write=to_write)
        reads = bool(mode & (_MODE_READ | _MODE_UPDATE)) or not to_write
        flags = 0 if not to_write else os.O_RDWR if reads else os.O_WRONLY
        if mode & _MODE_WRITE:
            flags |= os.O_CREAT
        elif mode & _MODE_APPEND:
            flags |= os.O_CREAT | os.O_APPEND
        if mode & _MODE_CREATE_PATH and b"/" in below and flags & os.O_CREAT:
            folder.tree.make_folder(below.rpartition(b"/")[0])
        descriptor = folder.tree.open_file(below, flags)
        if mode & _MODE_WRITE:
            os.ftruncate(descriptor, 0)  # truncate only now, after `open_file` has checked that the file is regular
        self._last_handle += 1
        self._files[self._last_handle] = _OpenFile(descriptor, reads, to_write)
        return {"FileHandle": self._last_handle, "ResultCode": _OK}

    def _close(self, request: O3deMessage) -> dict[str, Any]:
        file = self._files.pop(request["FileHandle"], None)
        if file is not None:
            os.close(file.descriptor)
        return {}

    def _read(self, request: O3deMessage) -> dict[str, Any]:
        file, wanted = self._find_file(request["FileHandle"]), request["BytesToRead"]
        if not file.is_readable or (request["FailOnFewerRead"] and wanted > _READ_BYTES):
            raise PermissionError(errno.EACCES, "the file was not opened for reading")
        before = os.lseek(file.descriptor, 0, os.SEEK_CUR)
        data = os.pread(file.descriptor, min(wanted, _READ_BYTES), before)
        os.lseek(file.descriptor, before + len(data), os.SEEK_SET)
        return {"ResultCode": _ERROR if request["FailOnFewerRead"] and len(data) < wanted else _OK, "Data": data}

    def _write(self, request: O3deMessage) -> dict[str, Any]:
        file, data = self._find_file(request["FileHandle"]), memoryview(request["Data"])
        if not file.is_writable:
            raise PermissionError(errno.EACCES, "the file was not opened for writing")
        count = 0
        while count < len(data):
            count += os.write(file.descriptor, data[count:])
        return {"ResultCode": _OK, "BytesWritten": count}

    def _read_offset(self, request: O3deMessage) -> dict[str, Any]:
        return {"ResultCode": _OK, "Offset": os.lseek(self._find_file(request["FileHandle"]).descriptor, 0, os.SEEK_CUR)}

    def _seek(self, request: O3deMessage) -> dict[str, Any]:
        file, origin = self._find_file(request["FileHandle"]), request["Mode"]
        if origin > os.SEEK_END:
            raise ValueError(origin)
        os.lseek(file.descriptor, request["Offset"], origin)
        return {"ResultCode": _OK}

    def _flush(self, request: O3deMessage) -> dict[str, Any]:
        self._find_file(request["FileHandle"])  # nothing to flush, because this process does not buffer writes
        return {"ResultCode": _OK}

    # --------------------------------------------------------------------------------------------------------------- facts

    def _is_read_only(self, request: O3deMessage) -> dict[str, Any]:
        folder, _below, _alias = self._find(request["FilePath"])
        return {"IsReadOnly": not (folder.is_writable and self._status(request["FilePath"]).st_mode & stat.S_IWUSR)}

    def _is_directory(self, request: O3deMessage) -> dict[str, Any]:
        return {"IsDirectory": stat.S_ISDIR(self._status(request["Path"]).st_mode)}

    def _size(self, request: O3deMessage) -> dict[str, Any]:
        found = self._status(request["FilePath"])
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(errno.EACCES, "the path is not a file")
        return {"ResultCode": _OK, "Size": found.st_size}

    def _read_time(self, request: O3deMessage) -> dict[str, Any]:
        return {"ModTime": max(0, int(self._status(request["FilePath"]).st_mtime))}  # O3DE's type cannot hold times before 1970

    def _exists(self, request: O3deMessage) -> dict[str, Any]:
        mode = self._status(request["FilePath"]).st_mode
        return {"Exists": stat.S_ISREG(mode) or stat.S_ISDIR(mode)}

    # -------------------------------------------------------------------------------------------------------------- changes

    def _make_path(self, request: O3deMessage) -> dict[str, Any]:
        folder, below, _alias = self._find(request["Path"], to_write=True)
        if below:
            folder.tree.make_folder(below)
        return {"ResultCode": _OK}

    def _remove_path(self, request: O3deMessage) -> dict[str, Any]:
        folder, below, _alias = self._find(request["Path"], to_write=True)
        if not stat.S_ISDIR(folder.tree.status(below).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "the path is not a folder")
        folder.tree.remove(below)
        return {"ResultCode": _OK}

    def _remove(self, request: O3deMessage) -> dict[str, Any]:
        folder, below, _alias = self._find(request["FilePath"], to_write=True)
        folder.tree.unlink(below)
        return {"ResultCode": _OK}

    def _copy(self, request: O3deMessage) -> dict[str, Any]:
        source, from_path, _alias = self._find(request["SourcePath"])
        target, to_path, _alias = self._find(request["DestPath"], to_write=True)
        with (
            open(source.tree.open_file(from_path), "rb") as read,
            open(target.tree.open_file(to_path, os.O_WRONLY | os.O_CREAT), "wb") as written,
        ):
            if os.path.sameopenfile(read.fileno(), written.fileno()):
                raise PermissionError(errno.EACCES, "source and destination are the same file")
            written.truncate(0)
            shutil.copyfileobj(read, written, _COPY_BYTES)
        return {"ResultCode": _OK}

    def _rename(self, request: O3deMessage) -> dict[str, Any]:
        source, from_path, _alias = self._find(request["SourcePath"], to_write=True)
        target, to_path, _alias = self._find(request["DestPath"], to_write=True)
        source.tree.move(from_path, target.tree, to_path)
        return {"ResultCode": _OK}

    # --------------------------------------------------------------------------------------------------------------- lists

    def _list(self, folder: _Folder, below: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield (path below the alias, whether it is a folder) of the files and folders in a folder, sorted by name."""
        with os.scandir(folder.tree.descriptor_of(below)) as entries:
            found = sorted((os.fsencode(each.name), each.is_dir(follow_symlinks=False), each.is_symlink()) for each in entries)
        for name, is_folder, is_link in found:
            if not is_link:
                yield (below + b"/" + name if below else name), is_folder

    def _find_files(self, request: O3deMessage) -> dict[str, Any]:
        folder, below, alias = self._find(request["Path"])
        wanted = Glob(request["Filter"][:PATTERN_LIMIT])  # the filter is untrusted, and `Glob` matches in linear time
        names = [path for path, _is_folder in self._list(folder, below) if wanted.matches(to_text(path.rpartition(b"/")[2]))]
        return {"ResultCode": _OK, "Files": [f"{alias}/{to_text(path)}" for path in names[:_NAMES_LIMIT]]}

    def _tree(self, _request: O3deMessage) -> dict[str, Any]:
        files: list[str] = []
        folders: list[str] = []
        for alias, folder in self._folders.items():
            if not os.path.isdir(from_text(folder.path)):
                continue
            folders.append(alias)
            todo = [b""]
            while todo:
                for path, is_folder in self._list(folder, todo.pop()):
                    (folders if is_folder else files).append(f"{alias}/{to_text(path)}")
                    todo += [path] if is_folder else []
                if len(files) + len(folders) > _NAMES_LIMIT:
                    raise OverflowError
        return {"ResultCode": _OK, "Files": files, "Folders": folders}


class _UnknownHandle(Exception):
    """No open file has this handle."""


_FAILED = {"ResultCode": _ERROR}
_OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "FileOpen": ("_open", _FAILED),
    "FileClose": ("_close", {}),
    "FileRead": ("_read", _FAILED),
    "FileWrite": ("_write", _FAILED),
    "FileTell": ("_read_offset", _FAILED),
    "FileSeek": ("_seek", _FAILED),
    "FileFlush": ("_flush", _FAILED),
    "FileIsReadOnly": ("_is_read_only", {}),
    "PathIsDirectory": ("_is_directory", {}),
    "FileSize": ("_size", _FAILED),
    "FileModTime": ("_read_time", {}),
    "FileExists": ("_exists", {}),
    "PathCreate": ("_make_path", _FAILED),
    "PathDestroy": ("_remove_path", _FAILED),
    "FileRemove": ("_remove", _FAILED),
    "FileCopy": ("_copy", _FAILED),
    "FileRename": ("_rename", _FAILED),
    "FindFiles": ("_find_files", _FAILED),
    "FileTree": ("_tree", _FAILED),
}
"""{name of a request without the suffix `Request`: (name of its method, values of the answer if the method fails)}."""
NAMES = frozenset(f"{name}Request" for name in _OPERATIONS)
