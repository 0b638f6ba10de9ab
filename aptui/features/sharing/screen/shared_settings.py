"""The team's cache on the Shared cache screen. The user edits a draft of mode, location and patterns, and can test the draft.

The draft is saved into the project's `aptui.yaml`; unchanged text stays as it is (`config.edit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from aptui.shared.errors import KnownError
from aptui.tui.background import BackgroundTask
from aptui.tui.data.session import SessionState
from aptui.tui.frame.line import Part
from aptui.tui.terminal.safety import make_safe
from aptui.tui.widgets.menu import Menu, MenuChoice, MenuItem, Prompt

if TYPE_CHECKING:
    from aptui.config.configuration import SharedCacheSettings
    from aptui.features.sharing.namespaces import ProbeAnswer
    from aptui.shared.result_store import SharingSum
    from aptui.tui.pane import Shell

_MEANINGS = {"inactive": "not used", "client": "read", "server": "read and written"}
_KINDS = {"glob": "Wildcard", "regex": "Regex"}
_WIDE_COLUMNS = 110
_WORTH_SHOWING_MS = 50
"""Minimum saved or lost time (ms) that is displayed; a shorter time would be displayed as 0.0 s."""


class SharingRow(Struct, frozen=True):
    """A row of the table in which the user edits the patterns of the shared cache. `kind` is glob or regex.

    A new pattern has the default values of the fields.
    """

    name: str = "New Name"
    kind: str = "glob"
    text: str = "*"
    is_enabled: bool = True

    def plain(self) -> dict[str, str | bool]:
        """Return the pattern as a YAML mapping."""
        return {"name": self.name, self.kind: self.text} | ({} if self.is_enabled else {"enabled": False})


class Draft(Struct, frozen=True):
    """Edited settings of the shared cache, which can be saved: mode, location and patterns."""

    mode: str = "inactive"
    store: str = ""
    patterns: tuple[SharingRow, ...] = ()

    def with_pattern(self, at: int, row: SharingRow | None) -> Draft:
        """Return a copy of the settings with the pattern at index `at` replaced by `row`, or removed if `row` is None."""
        rows = list(self.patterns)
        rows[at : at + 1] = [] if row is None else [row]
        return replace(self, patterns=tuple(rows))


def _pattern_item(at: int, row: SharingRow) -> MenuItem:
    return MenuItem(f"pattern {at}", f"{'[x]' if row.is_enabled else '[ ]'} {row.name}   {_KINDS[row.kind]}   {row.text}")


def draft_of(sharing: SharedCacheSettings) -> Draft:
    """Return the configured settings."""
    rows = (SharingRow(each.name, each.pattern.kind.name.lower(), each.pattern.text, each.is_enabled) for each in sharing.patterns)
    return Draft(sharing.mode, sharing.store, tuple(rows))


class SharedSettings:
    """The draft of the shared cache's settings, and the menus that change the draft.

    Args:
        changed: called when the line about the team's cache must be drawn again.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self._task = BackgroundTask("aptui-cache-sharing", shell.in_ui)
        self._seen: Draft | None = None
        """The configured settings at the last check."""
        self._saved = Draft()
        self.draft = Draft()
        self.answer: ProbeAnswer | None = None
        self.account, self._has_hits = "", False
        self._sums: dict[str, SharingSum] = {}

    def close(self) -> None:
        """Cancel running work."""
        self._task.close()

    @property
    def is_dirty(self) -> bool:
        """Whether the draft differs from the saved settings."""
        return self.draft != self._saved

    def refresh_account(self) -> None:
        """Load the configured settings if they changed and the user is not editing a draft. Read how much work was saved."""
        config = self._shell.config
        if config is None:
            return
        now = draft_of(config.sharing)
        if now != self._seen and not self.is_dirty:
            self._saved = self.draft = now
        self._seen = now
        from aptui.features.sharing import totals as shared_totals  # imported on demand, so that the screen starts fast
        from aptui.shared.result_store import gain_line, total

        self._sums = shared_totals.read(self._shell.session.cache_dir).builders
        whole = total(self._sums.values())
        self.account, self._has_hits = gain_line(whole), whole.hits > 0

    # ---------------------------------------------------------------------------------------------------- the summary line

    def summary(self, width: int) -> tuple[Sequence[Part], Sequence[Part]]:
        """Return the line about the team's cache.

        The line begins with the important facts, because a narrow screen cuts the end of the line.
        """
        draft, is_news = self.draft, self.is_dirty or self.answer is not None
        left = [Part(" shared cache  ", "muted")]
        if self.answer is None or width >= _WIDE_COLUMNS:
            left.append(Part(draft.mode, "title" if draft.mode != "inactive" else "muted"))
        if self.is_dirty:
            left.append(Part("   not saved", "warning"))
        if self.answer is not None:
            left.append(Part(f"   {make_safe(self.answer.message)}", "warning" if self.answer.is_bad else "completed"))
        if draft.store:
            left.append(Part(f"   {make_safe(draft.store)}", "muted"))
        if draft.patterns:
            enabled = sum(row.is_enabled for row in draft.patterns)
            left.append(Part(f"   {enabled} of {len(draft.patterns)} patterns", "muted"))
        # The share of saved runs is shown although the shared cache is inactive now, if earlier runs have used stored results.
        has_account = self.account and (draft.mode != "inactive" or self._has_hits)
        needed = sum(part.width for part in left[:2]) + len(self.account) + 3
        shows_account = has_account and width >= (_WIDE_COLUMNS if is_news else needed)
        return left, (Part(self.account, "muted"),) if shows_account else ()

    # --------------------------------------------------------------------------------------------------------------- menus

    def open_menu(self) -> None:
        """Open the menu of the shared cache."""
        draft, can_test = self.draft, bool(self.draft.store) and not self._task.is_busy
        where = "Location: a folder, http(s)://… or s3://…"
        choices: list[MenuChoice] = [
            (MenuItem("mode", f"Mode   {draft.mode}: {_MEANINGS[draft.mode]}", "m"), self._open_modes),
            (
                MenuItem("store", f"Location   {draft.store or 'none'}", "l"),
                lambda: self._ask(where, draft.store, lambda text: replace(draft, store=text)),
            ),
            (None, bool),
            *((_pattern_item(at, row), partial(self._open_pattern, at)) for at, row in enumerate(draft.patterns)),
            (
                MenuItem("add", "Add pattern", "a"),
                lambda: self._edit(replace(draft, patterns=(*draft.patterns, SharingRow()))),
            ),
            (None, bool),
            (MenuItem("test", "Test connection", "t", is_enabled=can_test), self.test),
            (MenuItem("statistics", "Statistics", "i", is_enabled=bool(self._sums)), self._open_statistics),
            (MenuItem("save", "Save changes", "s", is_enabled=self.is_dirty), self.save),
            (MenuItem("discard", "Discard", "d", is_enabled=self.is_dirty), self.discard),
        ]
        Menu.run_one(self._shell.app, choices, title="Shared cache")

    def _open_modes(self) -> None:
        choices: list[MenuChoice] = [
            (MenuItem(mode, f"{mode.capitalize()}   {words}", mode[0]), partial(self._edit, replace(self.draft, mode=mode)))
            for mode, words in _MEANINGS.items()
        ]
        Menu.run_one(self._shell.app, choices, title="Mode")

    def _open_statistics(self) -> None:
        """Show the savings of each builder, the largest first."""
        sums = sorted(self._sums.items(), key=lambda item: -item[1].saved_ms)
        wide = max(len(name) for name, _ in sums)
        gains = _savings([one for _, one in sums])
        items = [MenuItem(f"builder {at}", f"{name:{wide}}   {gains[at]}") for at, (name, _) in enumerate(sums)]
        Menu.ask(self._shell.app, items, lambda what: self.open_menu() if what else None, title=f"All runs: {self.account}")

    def _open_pattern(self, at: int) -> None:
        row = self.draft.patterns[at]
        other = "regex" if row.kind == "glob" else "glob"

        def edit(changed: SharingRow | None) -> None:
            self._edit(self.draft.with_pattern(at, changed))

        def ask(label: str, field: str) -> None:
            value = getattr(row, field)
            self._ask(label, value, lambda text: self.draft.with_pattern(at, replace(row, **{field: text})))

        choices: list[MenuChoice] = [
            (
                MenuItem("switch", "Disable it" if row.is_enabled else "Enable it", "e"),
                lambda: edit(replace(row, is_enabled=not row.is_enabled)),
            ),
            (MenuItem("name", f"Name   {row.name}", "n"), lambda: ask("Name", "name")),
            (MenuItem("kind", f"Type   {_KINDS[row.kind]}; make it {_KINDS[other]}", "t"), lambda: edit(replace(row, kind=other))),
            (MenuItem("text", f"Pattern   {row.text}", "p"), lambda: ask("Pattern", "text")),
            (MenuItem("remove", "Remove", "r", role="warning"), lambda: edit(None)),
        ]
        Menu.run_one(self._shell.app, choices, title=row.name)

    def _ask(self, label: str, value: str, made: Callable[[str], Draft]) -> None:
        def take_answer(text: str | None) -> None:
            if text is not None:
                self._edit(made(text.strip()))

        Prompt.ask(
            self._shell.app,
            label,
            take_answer,
            value=value,
            check=lambda text: "" if text.strip() else "enter a text, or press Esc",
        )

    def _edit(self, draft: Draft) -> None:
        self.draft, self.answer = draft, None
        self._changed()
        self.open_menu()

    # --------------------------------------------------------------------------------------------------------- actions of the menu

    def discard(self) -> None:
        """Return to the configured settings."""
        self.draft, self.answer = self._saved, None
        self._changed()

    def test(self) -> None:
        """Test the store of the draft in a thread."""
        config = self._shell.config
        if config is None:
            return
        sharing = replace(config.sharing, mode=self.draft.mode, store=self.draft.store)

        def work(_task: BackgroundTask) -> ProbeAnswer:
            from aptui.features.sharing.namespaces import probe  # imported on demand, so that the screen starts fast

            return probe(sharing)

        def take_answer(answer: ProbeAnswer) -> None:
            if (self.draft.mode, self.draft.store) == (sharing.mode, sharing.store):  # the user may have changed the draft
                self.answer = answer
            self._changed()

        self._task.start(work, take_answer, self._complain)

    def save(self) -> None:
        """Save the changed settings into the project's file, in a thread."""
        draft, before = self.draft, self._saved
        if self._shell.config is None:
            return
        folder = self._shell.config.project_dir

        def work(_task: BackgroundTask) -> None:
            from aptui.config.edit import writable_files, write  # imported on demand, so that the screen starts fast

            file = writable_files(folder)[0]
            if draft.patterns != before.patterns:
                write(folder, file, "shared_cache.patterns", [row.plain() for row in draft.patterns])
            if draft.store != before.store:
                write(folder, file, "shared_cache.store", draft.store)
            if draft.mode != before.mode:  # the mode is written last, because a mode without a location is invalid
                write(folder, file, "shared_cache.mode", draft.mode)

        def take_result(_nothing: None) -> None:
            self._saved = draft
            ending = "; the engine reloads it" if self._shell.session.state is SessionState.ATTACHED else ""
            self._shell.show_toast(f"'mode: {draft.mode}' written to '{folder / 'aptui.yaml'}'{ending}", seconds=8)
            self._changed()

        if not self._task.start(work, take_result, self._complain):
            self._shell.show_toast("the shared cache is being tested; try again", "warning")

    def _complain(self, error: KnownError) -> None:
        self._shell.show_toast(str(error), "error", 10)
        self._changed()


def _savings(sums: Sequence[SharingSum]) -> list[str]:
    """Return the savings of each builder with aligned numbers; the time is left out if no time was saved or lost."""
    from aptui.shared.result_store import duration  # imported on demand, so that the screen starts fast

    sentences = []
    here, shared, made = (
        max((len(f"{getattr(one, name):,}") for one in sums), default=0) for name in ("local_hits", "remote_hits", "misses")
    )
    for one in sums:
        asked = one.hits + one.misses
        share = f"{100 * one.hits // asked:3} %" if asked else "    –"
        counts = f"{one.local_hits:{here},} here, {one.remote_hits:{shared},} shared, {one.misses:{made},} made"
        time = f"   {duration(abs(one.saved_ms))} {'saved' if one.saved_ms > 0 else 'lost'}"
        sentences.append(f"{share}   {counts}{time if abs(one.saved_ms) >= _WORTH_SHOWING_MS else ''}")
    return sentences
