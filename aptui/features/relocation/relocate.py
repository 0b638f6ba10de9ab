"""Relocation of sources: the preview of a move or a deletion, then its steps in order; all is checked before anything is done.

A source moves after its metadata, so that wherever it is seen its `.meta` is there already; where one of the two fails, the
other goes back. The first failure ends it: what is done is done, what is not is left, and the report says which. References
are repaired last, and only to what really moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from msgspec.structs import replace

from aptui.config.dirs import asset_database
from aptui.config.model import Config
from aptui.engine.cache.cache import Cache
from aptui.features.relocation import journal, moved_files, references
from aptui.features.relocation import mentions as relocate_mentions
from aptui.features.relocation import plan as relocate_plan
from aptui.features.relocation.journal import Journal, Rewrite
from aptui.features.relocation.model import Mention, Plan
from aptui.features.relocation.moved_files import native
from aptui.features.relocation.references import UnreadableError
from aptui.features.relocation.relocation_records import (
    Relocate,
    RelocationAction,
    RelocationItem,
    RelocationReport,
    Update,
    count_report,
)
from aptui.shared.errors import UserError
from aptui.store.queries.reader import open_reader


def preview(order: Relocate, config: Config) -> RelocationReport:
    """Say what would happen.

    Raises:
        RelocationError: the source or the destination does not say what to do. UserError: nothing was processed yet.
    """
    return _plan(order, config).report()


def relocate(order: Relocate, config: Config) -> RelocationReport:
    """Move or delete, if it is confirmed and nothing stands against it; else say what would happen.

    Raises:
        RelocationError: the source or the destination does not say what to do. UserError: nothing was processed yet.
    """
    finished = journal.complete(config) if order.is_confirmed else None
    if finished is not None and finished.order == order:
        return finished
    plan = _plan(order, config)
    if plan.refusals or not order.is_confirmed:
        return plan.report()
    with journal.keep_journal(config.cache_dir, _as_journal(plan)):
        return _RelocationSteps(plan).perform()


def list_touched(report: RelocationReport) -> list[str]:
    """Return the absolute paths that are not what they were, in text form."""
    moved = [
        path for item in report.items if item.action is RelocationAction.DONE for path in (item.old_file, item.new_file) if path
    ]
    return [*moved, *(update.file for update in report.updates if update.action is RelocationAction.DONE), *report.removed]


def _plan(order: Relocate, config: Config) -> Plan:
    path = asset_database(config.cache_dir)
    if not path.is_file():
        raise UserError(f"nothing was processed yet: there is no '{path}'", hint="'aptui batch' processes the project")
    with closing(open_reader(path)) as reader, reader.snapshot():
        return relocate_plan.make(order, config, reader)


def _as_journal(plan: Plan) -> Journal:
    groups = relocate_plan.groups(plan.items)
    items = [plan.items[at] for group in groups for at in _in_order(plan, group)]
    mentions = {mention.new_file: mention for mention in plan.mentions}
    rewrites = []
    for update in plan.updates:
        mention = mentions[update.file]
        if update.count:
            renames = tuple(relocate_mentions.renames(plan, mention, mention.targets))
            rewrites.append(Rewrite(mention.file, mention.new_file, journal.digest_of(mention.file), renames, update))
    return Journal(
        replace(plan.report(), items=tuple(items)),
        tuple(journal.stamp_of(item.old_file) for item in items),
        tuple(rewrites),
        {folder.name: folder.path for folder in plan.tree.folders},
        tuple(relocate_mentions.prefixes(plan)),
    )


def _in_order(plan: Plan, group: list[int]) -> list[int]:
    """Return the items of a group as they move: metadata leaves first and goes last, so that no source is ever without it."""
    return group if plan.order.is_delete else group[::-1]


class _RelocationSteps:
    """One operation that is under way."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._items = plan, plan.items
        self._is_over = False
        self._places = {item.old_file: at for at, item in enumerate(self._items)}

    def perform(self) -> RelocationReport:
        """Do it all, as far as it goes."""
        for group in relocate_plan.groups(self._items):
            order = _in_order(self._plan, group)
            if self._is_over:
                self._mark(order, RelocationAction.LEFT)
            else:
                self._perform_group(order)
        removed = [] if self._plan.order.leaves_empty_folders else list(self._remove_empty())
        updates = tuple(self._updates())
        report = replace(self._plan.report(), updates=updates, removed=tuple(removed), is_performed=True)
        return count_report(report)

    def _perform_group(self, order: list[int]) -> None:
        for place, at in enumerate(order):
            try:
                self._perform(self._items[at])
            except OSError as error:
                self._is_over = True
                self._items[at] = replace(self._items[at], action=RelocationAction.FAILED, problem=error.strerror or str(error))
                self._mark(order[place + 1 :], RelocationAction.LEFT)
                if not self._plan.order.is_delete:
                    self._take_back(order[:place])
                return
            self._items[at] = replace(self._items[at], action=RelocationAction.DONE)

    def _perform(self, item: RelocationItem) -> None:
        git = self._plan.git if item.old_file in self._plan.tracked else None
        if self._plan.order.is_delete:
            (git.delete if git else moved_files.delete)(item.old_file)
        elif git:
            git.move(item.old_file, item.new_file)
        else:
            moved_files.move(item.old_file, item.new_file)

    def _take_back(self, moved: list[int]) -> None:
        for at in reversed(moved):
            item = self._items[at]
            try:
                self._perform(replace(item, old_file=item.new_file, new_file=item.old_file))
                self._items[at] = replace(item, action=RelocationAction.LEFT)
            except OSError as error:
                self._items[at] = replace(item, problem=f"it moved alone, and does not come back: {error.strerror}")

    def _mark(self, indices: list[int], action: RelocationAction) -> None:
        for at in indices:
            self._items[at] = replace(self._items[at], action=action)

    def _remove_empty(self) -> Iterator[str]:
        roots = {folder.name: folder.path for folder in self._plan.tree.folders}
        roots_in_order = list(roots.values())
        left = {
            (item.old_file.rpartition("/")[0], roots[item.folder]) for item in self._items if item.action is RelocationAction.DONE
        }
        for folder, root in sorted(left, key=lambda pair: -len(pair[0])):
            yield from moved_files.remove_empty(folder, root, roots_in_order)

    # ------------------------------------------------------------------------------------------------------------ references

    def _updates(self) -> Iterator[Update]:
        mentions = {mention.new_file: mention for mention in self._plan.mentions}
        for update in self._plan.updates:
            yield self._update(update, mentions[update.file])

    def _update(self, update: Update, mention: Mention) -> Update:
        """Mend one dependant, wherever it is now."""
        moved = [at for at in mention.targets if self._items[at].action is RelocationAction.DONE]
        place = self._where(mention)
        if not moved and place.new_file == mention.file:
            return replace(update, action=RelocationAction.LEFT, problem="what it names did not move")
        if not update.count:
            return replace(update, action=RelocationAction.FAILED, problem=update.problem or "the old name is not in its text")
        path = native(place.new_file)
        try:
            mended = references.mend(
                references.read(path),
                relocate_mentions.renames(self._plan, place, moved),
                relocate_mentions.prefixes(self._plan),
            )
            if mended.count:
                references.rewrite(path, mended.data)
        except UnreadableError as error:
            return replace(update, action=RelocationAction.FAILED, problem=str(error))
        return replace(update, file=place.new_file, path=place.new_path, count=mended.count, action=RelocationAction.DONE)

    def _where(self, mention: Mention) -> Mention:
        """Return a mention as it really is: a dependant that was to move too may have stayed."""
        mover = self._places.get(mention.file)
        if mover is None or self._items[mover].action is RelocationAction.DONE:
            return mention
        return replace(mention, new_file=mention.file, new_path=mention.path)


@contextmanager
def hold_engines_off(config: Config) -> Iterator[None]:
    """Keep engines away while files move: one that starts now would see half of it.

    Raises:
        BusyError: an engine runs already, and is to be asked.
    """
    platforms = [platform.id for platform in config.project.platforms]
    cache = Cache(config.cache_dir, [*platforms, *config.project.resting_platforms])
    cache.take()
    try:
        yield
    finally:
        cache.close()
