"""Which results are available for a project, or for a commit of it, without running a builder.

Everything is planned as in a real run; a job whose result nobody has fails there. What can be known so ends at such a job: what is
made of its products is not planned as it would be. Tools and scan folders outside the repository are looked at as they are now.

Tests: `tests/features/sharing/test_verbs.py`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from aptui.config import load
from aptui.config.dirs import asset_database
from aptui.config.model import Config
from aptui.config.own_files import own_paths
from aptui.core.notices import EngineMessage
from aptui.shared.errors import HostError, UserError
from aptui.store.queries.reader import JobRow, open_reader

_FAILED = ("failed",)
_TROUBLE = "shared cache"
"""What every sentence about one has in it (sharing/stores/reporting.py)."""


class CommitReadiness(Struct, frozen=True):
    """`found` results were there; `missing` are names of jobs, `doubts` sentences about what cannot be told."""

    found: int
    missing: tuple[str, ...]
    doubts: tuple[str, ...] = ()


def look_up(config: Config) -> CommitReadiness:
    """Look up everything that a project is owed as it is now; what is found stays in this machine's store.

    Raises:
        UserError: nothing is shared here at all.
    """
    from aptui.engine.loop.engine import Engine
    from aptui.engine.loop.opening import PreparedSession

    sharing = config.sharing
    if not (sharing.local_store or sharing.is_remote):
        raise UserError("no results are kept or shared here", hint="see 'local_store' and 'shared_cache' in aptui.yaml")
    with _private(sharing.local_store) as folder:
        dry = replace(config, cache_dir=folder / "Cache", log_dir=folder / "logs", temp_dir=folder / "temp")
        opening = PreparedSession(dry, own_paths=own_paths(config))
        opening.take()
        builders = {builder.uuid: builder.name for builder in opening.builders}
        troubles: dict[str, None] = {}
        engine = Engine(dry, [lambda notice: _note_trouble(notice, troubles)], opening=opening, runs_builders=False)
        engine.open()
        try:
            engine.start_scan()
            engine.run_until_idle()
        finally:
            engine.close()
        found = engine.runs.account.total().hits if engine.runs.account else 0
        answer = _answer(dry, found, builders)
        return replace(answer, doubts=(*answer.doubts, *troubles))


def _note_trouble(notice: object, troubles: dict[str, None]) -> None:
    """Remember messages about the shared cache: an unreachable store must not look like an empty one."""
    if isinstance(notice, EngineMessage) and _TROUBLE in notice.text:
        troubles[notice.text] = None


def look_up_commit(config: Config, commit: str, platforms: str | None = None, *, trusts_code: bool = False) -> CommitReadiness:
    """Look up everything that a commit of the project's repository is made of.

    Args:
        config: of the project as it is here.
        commit: its name.
        platforms: exactly these.
        trusts_code: the commit's own builders may run here: which jobs there are, they alone know.

    Raises:
        UserError: there is no repository, no such commit, or code in it that is not the project's own and not trusted.
    """
    top = Path(_git(config.project_dir, "rev-parse", "--show-toplevel").strip())
    _git(config.project_dir, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    inside = os.path.relpath(os.path.realpath(config.project_dir), os.path.realpath(top))
    with _private(config.sharing.local_store) as folder:
        checkout = folder / config.project_dir.name if inside == "." else folder / "checkout"
        checkout.mkdir()
        _extract(top, commit, checkout)
        if not trusts_code:
            _refuse_new_code(config, checkout / inside, commit)
        wanted = [name.strip() for name in platforms.split(",") if name.strip()] if platforms else None
        there = load.load(checkout / inside, platforms=wanted, workers=config.workers)
        return look_up(replace(there, sharing=config.sharing))


def _refuse_new_code(config: Config, there: Path, commit: str) -> None:
    """Refuse to run builders that a commit brings along: a branch is written by whoever may push it, and analyses run its code.

    Raises:
        UserError: there are some, and they differ from those of the project here.
    """
    name = os.path.join("builders", "")
    new = [
        path.relative_to(there)
        for path in sorted((there / "builders").rglob("*"))
        if _differs(path, config.project_dir / path.relative_to(there))
    ]
    if config.foreign:
        name, new = "scripts", new or [Path("project.json")]
    if new:
        raise UserError(
            f"'{commit}' contains code that would run here: {name} of it is not that of this checkout ('{new[0]}')",
            hint="look at it, then add --trust-code; in CI, only for branches whose authors may run programs there",
        )


def _differs(one: Path, other: Path) -> bool:
    """Whether `one`, which is there, is not the same file as `other`; a link never is."""
    if one.is_dir() and not one.is_symlink():
        return False
    if one.is_symlink() or other.is_symlink() or not one.is_file() or not other.is_file():
        return True
    return one.read_bytes() != other.read_bytes()


def _answer(dry: Config, found: int, builders: dict[bytes, str]) -> CommitReadiness:
    from aptui.engine.loop.dispatch import NOT_SHARED
    from aptui.features.sharing.shared_cache import SharingRules

    rules = SharingRules(dry.sharing)
    missing: list[str] = []
    doubts: dict[str, None] = {}
    database = open_reader(asset_database(dry.cache_dir))
    try:
        for row in database.jobs(statuses=_FAILED):
            builder = builders.get(row.builder, "")
            if row.error != NOT_SHARED:
                doubts[f"{_name(row)}: {row.error}"] = None
            elif rules.keeps(builder):
                missing.append(_name(row))
            else:
                doubts[f"what '{builder}' makes is never kept"] = None
    finally:
        database.close()
    return CommitReadiness(found, tuple(sorted(missing)), tuple(doubts))


def _name(row: JobRow) -> str:
    return f"{row.source}@{row.platform}:{row.job_key}"


@contextmanager
def _private(store: str) -> Iterator[Path]:
    """Make a folder that is thrown away; in the store of this machine, from where results can be linked."""
    if store:
        os.makedirs(store, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aptui-look-", dir=store or None, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=False
        )  # git is found by PATH
    except OSError as error:
        raise HostError(f"git cannot be run: {(error.strerror or str(error)).lower()}", hint="install git") from None
    if done.returncode:
        output = done.stderr.strip().splitlines()
        raise UserError(output[-1].lower() if output else f"'{words[-1].partition('^')[0]}' is no commit", where=str(folder))
    return done.stdout


def _extract(top: Path, commit: str, target: Path) -> None:
    """Write the files of a commit; large files stay the pointers that they are in it."""
    environment = {**os.environ, "GIT_LFS_SKIP_SMUDGE": "1"}
    words = ["git", "-C", str(top), "archive", "--format=tar", commit]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as archive,
        subprocess.Popen(["tar", "-x", "-C", str(target)], stdin=archive.stdout) as tar,  # as git
    ):
        assert archive.stdout is not None
        archive.stdout.close()
    if archive.returncode or tar.returncode:
        raise HostError(f"the files of '{commit}' cannot be written", where=str(target))
