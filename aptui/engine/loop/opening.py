"""The prepared session, the first and cheap half of opening an engine: lock the cache, check the database, builders and sources.

If nothing is pending, the second half (`loop.engine`) is never imported.

Tests: `tests/engine/loop/test_after_runs.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui import feature
from aptui.config import own_files
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database, builders_record, own_folder, recovery_folder, refuse_other_user
from aptui.config.own_files import OwnFiles
from aptui.core.project import COMMON_PLATFORM, INTERMEDIATES, Builder, Platform, Project, ScanFolder
from aptui.engine.cache.cache import Cache
from aptui.engine.cache.catalog import mark_of, platforms_of
from aptui.engine.scan.up_to_date import PLATFORMS_STATE, SettledPlatforms, UpToDateCheck, are_unchanged, check, signature
from aptui.engine.scan.walk import ROOTS_STATE, RootGuard, Walk
from aptui.shared.errors import UserError
from aptui.store.db import schema
from aptui.store.db.last_run import LastRun

if TYPE_CHECKING:
    from aptui.engine.pool.spawning import EarlyWorker

_FEW_FOLDERS = 4
"""Maximum number of changed folders whose files the engine reads itself instead of starting workers."""


def with_intermediates(project: Project, cache: str) -> Project:
    """Return `project` with the platform of intermediates and with their scan folder. Every cache has both."""
    platforms = tuple(platform.id for platform in project.platforms)
    folder = ScanFolder(0, INTERMEDIATES, f"{cache}/{INTERMEDIATES}", -1, True, platforms, is_intermediate=True)
    return replace(project, platforms=(*project.platforms, Platform(COMMON_PLATFORM)), scan_folders=(*project.scan_folders, folder))


class PreparedSession:
    """A project whose cache this process has locked, but whose engine is not open yet.

    Args:
        trusts_times: whether a file with the remembered size and times counts as unchanged; otherwise its bytes are read.
        own_paths: absolute paths that are not sources, besides aptui's own files of this configuration.
        starts_worker: start a worker as soon as it is known that there is something to do.
        platforms: check only these enabled platforms, even if the last run processed other platforms. The session then only
            answers questions, and an engine must not open it. None = check all platforms that a run of `config` would process.
    """

    def __init__(
        self,
        config: Config,
        *,
        trusts_times: bool = True,
        own_paths: tuple[str, ...] = (),
        starts_worker: bool = False,
        platforms: Collection[str] | None = None,
    ) -> None:
        self.guard = RootGuard(str(own_folder(config.cache_dir)))
        self.config = config
        self.own = OwnFiles((*own_files.own_paths(config), *own_paths))
        self._trusts_times = trusts_times
        self._starts_worker = starts_worker
        self.asked = platforms
        self.early: EarlyWorker | None = None
        self.project: Project = with_intermediates(config.project, str(config.cache_dir))
        names = [platform.id for platform in self.project.platforms]
        self.cache = Cache(config.cache_dir, [*names, *config.project.resting_platforms])
        self.database = asset_database(config.cache_dir)
        self.sentences: list[str] = []
        self.builders: tuple[Builder, ...] = ()
        self.signature = ""
        self.walk: Walk | None = None
        self.check: UpToDateCheck | None = None
        self.is_current = False
        self.mistakes: tuple[str, ...] = ()
        """Errors in `.aptui.yaml` files, for a project that is up to date. Otherwise the engine finds these errors."""
        self._closing = contextlib.ExitStack()

    def acquire(self) -> None:
        """Lock the cache and find out whether work is pending."""
        refuse_other_user(self.config.cache_dir)
        for path in (str(self.config.cache_dir), *(folder.path for folder in self.config.project.scan_folders)):
            if not path.isprintable() and any("\udc80" <= character <= "\udcff" for character in path):
                raise UserError(
                    f"the path {path!r} is not valid UTF-8, so the asset database cannot store it", hint="rename the folder"
                )
        with schema.translate_errors(self.database):
            schema.refuse_foreign(self.database)
        self.cache.acquire()
        self._closing.callback(self.cache.close)
        self._closing.callback(lambda: schema.note_left(self.database))
        try:
            with schema.translate_errors(self.database):
                self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        config = self.config
        self.cache.refuse_full_disk()
        is_new = not self.database.exists()
        note = schema.prepare(self.database, self.cache.throw_away_products)
        if note:
            self.sentences.append(note)
        self._recover()
        if is_new and self.config.has_code:
            self._start_worker()  # the worker starts while another process describes the builders
        self.builders = self._complete_builders()
        self.sentences += [
            f"{each.fault}; until this is corrected, its jobs fail" for each in config.project.builders if each.fault
        ]
        self.signature = signature(config.project, self.builders)
        if not is_new and not note:
            self._check_up_to_date()
        if not self.is_current and not self.is_small_build:
            self._start_worker()

    def _start_worker(self) -> None:
        if self._starts_worker and self.early is None:
            # imported here, because an engine without work does not need the module
            from aptui.engine.pool.spawning import EarlyWorker

            self.early = EarlyWorker(self.config)
            self._closing.callback(self.early.close)

    @property
    def is_small_build(self) -> bool:
        """Whether the engine itself reads and copies changed files: if all builders are plain copies, and few folders changed."""
        are_copies = all(builder.is_plain_copy for builder in self.builders)
        return are_copies and self.check is not None and len(self.check.differing) <= _FEW_FOLDERS

    def _recover(self) -> None:
        """Let features complete interrupted operations before sources are read."""
        folder = recovery_folder(self.config.cache_dir)
        if folder.is_dir() and any(folder.iterdir()):
            self.sentences += [sentence for complete in feature.load_all("recovery") if (sentence := complete(self.config))]

    def _complete_builders(self) -> tuple[Builder, ...]:
        if not self.config.has_code:
            return self.config.project.builders
        from aptui.engine import registry  # imported here, because projects without Python builders do not need the module

        return registry.complete_checked(self.config, builders_record(self.config.cache_dir), self.sentences.append)

    def _check_up_to_date(self) -> None:
        archive = LastRun(self.database, {}, self.project.metadata_types)
        try:
            ids = archive.scan_folder_ids()
            is_known = archive.state("signature") == self.signature or self._are_settled(archive)
            self.guard = RootGuard(str(self.cache.own), archive.state(ROOTS_STATE) or "")
            folders = tuple(
                replace(folder, id=ids.get(folder.name.lower(), 0))
                for folder in self.project.scan_folders
                if self.asked is None or set(folder.platforms).intersection(self.asked)
            )
            if not is_known or any(folder.id == 0 for folder in folders):
                return
            for folder in folders:
                self.guard.check(folder, lambda: archive.folders)
            digests, files = archive.folders.folder_digests(), archive.estimate_sources()
            if self.asked is not None:
                wanted = {folder.id for folder in folders}
                parts = {name: tuple(part for part in found if part[0] in wanted) for name, found in digests.items()}
                digests = {name: found for name, found in parts.items() if found}
            is_settled = not archive.list_unfinished(self.asked) and not archive.has_intents()
            is_settled = is_settled and not self.cache.is_touched(archive.products, self.asked, trusts_times=self._trusts_times)
            is_settled = is_settled and not (self.project.makes_finals and archive.drafts(self.asked))
            is_settled = is_settled and (self.asked is not None or self._has_catalogs(archive.state(schema.CATALOG_STATE)))
            known = archive.outside() if is_settled else {}
            is_settled = is_settled and (not known or (self._trusts_times and are_unchanged(known)))
            texts = archive.settings() if is_settled else {}
        finally:
            archive.close()
        self.walk = Walk(replace(self.project, scan_folders=folders), self.own)
        opens = contextlib.nullcontext if self._trusts_times else self._open_digests
        self.check = check(self.walk, digests, opens, files)
        self.is_current = is_settled and self.check is not None and self.check.is_clean
        if texts and self.is_current:
            from aptui.core.settings import SettingsTree  # imported here, because few projects have settings in their folders

            self.mistakes = SettingsTree(replace(self.project, builders=self.builders), texts).problems

    def _are_settled(self, archive: LastRun) -> bool:
        """Whether each platform in `asked` was last processed with this configuration, and no run found a change since then."""
        if self.asked is None:
            return False
        stored = archive.state(PLATFORMS_STATE)
        return SettledPlatforms(self.config.project, self.config.project_dir, self.builders, stored).include(self.asked)

    def _open_digests(self) -> contextlib.closing[LastRun]:
        return contextlib.closing(LastRun(self.database, {}))

    def _has_catalogs(self, mark: str | None) -> bool:
        platforms = platforms_of(self.config.project)
        if mark != mark_of(self.config.cache_dir, self.config.name, platforms):
            return False
        others = feature.load_first("catalogs") if self.config.foreign else None
        return others is None or others.is_current(self.config.cache_dir, platforms)

    def close(self) -> None:
        """Release the cache."""
        self._closing.close()
