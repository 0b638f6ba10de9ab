r"""Catalogs: for each platform one file that maps asset ids to products for a runtime.

Catalogs are written from the asset database when all jobs are done. `<cache>/<platform>.catalog.jsonl` is JSON Lines in UTF-8, one
object a line, `\n` after each:

    {"format":"aptui catalog","version":1,"project":"demo","platform":"linux"}
    {"id":"{UUID}:7","path":"meshes/rock.mesh","type":"{UUID}","size":10,"digest":"<SHA-256>",
     "dependencies":[["{UUID}:0",2]],"legacy":["{UUID}:44"]}                       (one line in the file)

The first line identifies the file. Each other line describes one product. `path` is relative to the folder of the platform.
`id` is the asset id: the UUID of the source in upper case with braces, and the sub id in hexadecimal. `size` is in bytes;
`digest` is the file's SHA-256. `dependencies` are asset ids of products needed at run time, with flags; their low four bits say
when the dependency is loaded: 0 before the product, 1 right after it, 2 on demand. `legacy` are former asset ids. A dependency may
be an asset id without a product.
Intermediates are not listed. Equal databases give equal bytes.

A catalog is written to a temporary file and renamed, so that no reader gets half of it. While an engine runs, a catalog may be
older than the database, but never newer. The database stores a mark of the catalogs that agree with it (`mark_of`): the first
change of a product removes the mark (`store.db.change_log`), and saving the catalogs stores the mark of the new files.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.config.dirs import own_folder
from aptui.core.project import COMMON_PLATFORM, Project
from aptui.shared.errors import KnownError
from aptui.shared.files.replacing import replacing
from aptui.shared.repeated_work import RepeatedWork
from aptui.store.db.schema import translate_errors, uuid_text

if TYPE_CHECKING:
    from aptui.store.db.writer import Writer
    from aptui.store.queries.reader import Reader

FORMAT_VERSION = 1
SUFFIX = ".catalog.jsonl"
_LINES_AT_ONCE = 2_000


def path_of(cache_dir: Path, platform: str) -> Path:
    """Return the path of a platform's catalog."""
    return cache_dir / f"{platform}{SUFFIX}"


def platforms_of(project: Project) -> tuple[str, ...]:
    """Return the platforms that have catalogs.

    These are all platforms with products for a runtime, even if this run does not build the platform.
    """
    listed = (*(platform.id for platform in project.platforms), *project.resting_platforms)
    return tuple(platform for platform in listed if platform != COMMON_PLATFORM)


def mark_of(cache_dir: Path, project: str, platforms: Sequence[str]) -> str:
    """Return the mark of these catalogs: a text that identifies the files that are on the disk now.

    The database stores the mark of the catalogs that were written last.
    """
    seen = {platform: stamp_of(path_of(cache_dir, platform)) for platform in sorted(platforms)}
    return json.dumps([FORMAT_VERSION, project, seen], separators=(",", ":"))


def stamp_of(path: Path) -> list[int]:
    """Return the size and the modification time of a file, [] if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


class Catalogs:
    """The catalogs of one cache while its engine runs.

    Args:
        database: the asset database that `writer` writes.
        platforms: the result of `platforms_of`.
        mark: the mark that the database stores (`mark_of`).
    """

    def __init__(self, writer: Writer, database: Path, project: str, platforms: Sequence[str], mark: str | None) -> None:
        self._writer, self._database, self._project, self._platforms = writer, database, project, tuple(platforms)
        self._folder = database.parent
        self._saved: int | None = 0 if mark == mark_of(self._folder, project, platforms) else None
        """Number of product changes by this engine that the catalogs include.

        None = the catalogs on the disk do not match the database.
        """
        self._mark = mark if self._saved is not None else None
        """Mark (`mark_of`) of the catalogs on the disk, even if they are older than the database; None = contents unknown."""
        self._work = RepeatedWork("catalogs")
        self._problem = ""

    def save(self) -> None:
        """Write the catalogs that are out of date, and wait until they are written.

        Raises:
            HostError: a catalog or the database cannot be written.
        """
        changes, names = self._writer.product_changes()
        if changes == self._saved:
            return
        is_ours = self._mark == mark_of(self._folder, self._project, self._platforms)
        self._write_all(names if is_ours else None)
        self._mark = mark_of(self._folder, self._project, self._platforms)
        if self._writer.mark_catalogs(changes, self._mark):
            self._saved = changes

    def begin(self, done: Callable[[], None]) -> None:
        """Update the catalogs in a thread, which calls `done` after each update. A thread that is running updates them again."""
        self._work.request(self._update(done))

    def _update(self, done: Callable[[], None]) -> Iterator[None]:
        while True:
            try:
                self.save()
            except KnownError as error:
                self._problem = f"the catalogs cannot be written: {error}"
            done()
            yield

    def take_problem(self) -> str:
        """Return and clear the error of the thread that writes the catalogs; "" = no error."""
        problem, self._problem = self._problem, ""
        return problem

    def close(self) -> None:
        """Wait for the thread."""
        self._work.withdraw()
        self._work.join()

    # ------------------------------------------------------------------------------------------------------------- writing

    def _write_all(self, names: Collection[str] | None) -> None:
        """Replace the lines of the products `names` in the catalogs; None = write all lines."""
        from aptui.store.queries.reader import open_reader

        with translate_errors(self._database), contextlib.closing(open_reader(self._database)) as reader, reader.snapshot():
            for platform in self._platforms:
                mine = None if names is None else sorted(name for name in names if name.startswith(f"{platform}/"))
                if mine is None or mine:
                    self._write(reader, platform, mine)
            for path in self._folder.glob(f"*{SUFFIX}"):
                if path.name.removesuffix(SUFFIX) not in self._platforms:
                    path.unlink(missing_ok=True)

    def _write(self, reader: Reader, platform: str, names: Sequence[str] | None) -> None:
        path = path_of(self._folder, platform)
        with replacing(path, is_synced=False, what=f"catalog '{path}'", folder=own_folder(self._folder)) as file:
            if names is None:
                file.writelines(_parts(reader, self._project, platform))
            else:
                file.writelines(_splice(path.read_bytes(), reader, platform, names))


def _parts(reader: Reader, project: str, platform: str) -> Iterator[bytes]:
    from aptui.store.queries.dependencies import catalog_rows

    header = {"format": "aptui catalog", "version": FORMAT_VERSION, "project": project, "platform": platform}
    lines = [json.dumps(header, ensure_ascii=False, separators=(",", ":"))]
    for row in catalog_rows(reader, platform):
        lines.append(_line(*row))
        if len(lines) >= _LINES_AT_ONCE:
            yield _join(lines)
            lines = []
    yield _join(lines)


def _splice(data: bytes, reader: Reader, platform: str, names: Sequence[str]) -> Iterator[bytes]:
    """Yield the catalog `data` with the lines of the products `names` (sorted) replaced or removed."""
    from aptui.store.queries.dependencies import catalog_rows

    done = 0
    for name in names:
        start, end = _place(data, name.partition("/")[2])
        yield data[done:start]
        yield _join([_line(*row) for row in catalog_rows(reader, platform, name)])
        done = end
    yield data[done:]


def _place(data: bytes, path: str) -> tuple[int, int]:
    """Return the span of a product's line in a catalog; if the line is missing, an empty span where it belongs."""
    low, high = data.index(b"\n") + 1, len(data)
    while low < high:
        start = data.rfind(b"\n", 0, (low + high) // 2) + 1
        end = data.index(b"\n", start) + 1
        found = json.loads(data[start:end])["path"]
        if found == path:
            return start, end
        if found < path:
            low = end
        else:
            high = start
    return low, low


def _line(uuid: bytes, sub_id: int, name: str, kind: bytes, size: int, digest: bytes, needs: str | None, former: str | None) -> str:
    """Return a product's line. It is formatted by hand: `json` takes three times as long, and a project has 100,000 lines."""
    guid, path = uuid_text(uuid), encode_basestring(name.partition("/")[2])
    wanted = ",".join(_needs(needs.split())) if needs else ""
    legacy = ",".join(f'"{guid}:{int(number):x}"' for number in former.split()) if former else ""
    return (
        f'{{"id":"{guid}:{sub_id:x}","path":{path},"type":"{_type_text(kind)}","size":{size},"digest":"{digest.hex()}",'
        f'"dependencies":[{wanted}],"legacy":[{legacy}]}}'
    )


def _needs(words: list[str]) -> Iterator[str]:
    for guid, sub_id, flags in zip(words[::3], words[1::3], words[2::3], strict=True):
        yield f'["{uuid_text(bytes.fromhex(guid))}:{int(sub_id):x}",{flags}]'


_type_text = lru_cache(maxsize=256)(uuid_text)


def _join(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
