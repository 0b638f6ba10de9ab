"""Simulation: after any history of users, workers and crashes, the settled cache equals that of a clean build.

`compare` accepts these differences, because correct engines with different histories may end in different states:

* *Failed and cancelled jobs keep their last products* (`keeps_products`), which a clean build does not have. Jobs that depend
  on these jobs may differ (`excused_jobs`), and so may jobs with these products as input (`excused_chains`).
* *Cycles of job dependencies*: no job in a cycle waits, so the order of runs decides (`excused_jobs`); the engine warns of each
  cycle.
* *A broken settings file above a source* (`World.misled_jobs`): the source keeps its last valid includes, which a clean build
  does not have.
* *Jobs whose analysis failed after an earlier analysis had planned them* (`orphans`) stay. In a clean build the analysis usually
  fails at once, so these jobs do not exist. They exist if the analysis succeeds first and fails after another source gets the UUID.
* *Chains that depend on their own products* are ended after some rounds; the order of runs decides in which job and with which
  products (`endless_jobs`).
* *Cancelled jobs* stay cancelled until their inputs change.
* *Jobs of platforms that are not requested* stay unchanged, whatever happens to their sources.
* *Two jobs that make one product*: one job fails. Which job fails may depend on the products that a failed job keeps
  (`is_conflict`). The simulation always checks that one job owns the product, and that the cache has exactly the owned products.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from fake_world import Script, World, name_of
from fakes import MADE, Setup, copier, glob, meta, meta_uuid, scripter, sha
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aptui.core.model import ANALYSIS_KEY, Job, JobState, RelPath
from aptui.core.orders import Outcome
from aptui.core.paths import key_of, path_uuid
from aptui.core.project import COMMON_PLATFORM, Companion
from aptui.core.retry import RetryRule
from aptui.core.settings import file_key, is_settings
from aptui.core.state.stale_results import StaleResultCheck

pytestmark = pytest.mark.slow

RELS = ("a.s", "b.s", "sub/c.s", "sub/d.s", "sub/D.s", "e.txt", "sub/f.txt", "a.s.note", "m.s")
NAMES = ("a.s", "b.s", "sub/c.s", "sub/d.s", "e.txt", "sub/f.txt", "gone.s", "m.s", "sub/n.s", "m.txt")
MADE_NAMES = ("m.s", "m.s", "sub/n.s", "sub/n.s", "m.txt", "a.s", "sub/d.s", "e.txt")
METAS = ("a.s.meta", "b.s.meta", "sub/c.s.meta", "sub/D.s.meta", "e.txt.meta", "sub/f.txt.meta", "m.s.meta")
UUIDS = (meta_uuid("one"), meta_uuid("two"), path_uuid("m.s"), path_uuid("a.s"))
IDENTITIES = st.one_of(
    st.tuples(
        st.sampled_from(("one", "one", "two", "three")),
        st.sampled_from((*NAMES[:6], "m.s")),
        st.lists(st.sampled_from(("one", "two", "three")), max_size=1),
        st.sampled_from((10, 20, 30)),
    ).map(lambda fields: meta(fields[0], fields[1], *fields[2], created_ms=fields[3])),
    st.sampled_from(("", "damaged")),
)
STAGE_TEXTS = st.one_of(
    st.sampled_from(("x", "y", "FAIL", "extra 1", "FAIL ANALYSIS", "make same.bin", "glob sub/*", "include a.s", "after b.s:main")),
    st.tuples(
        st.sampled_from(("stage", "stage+")), st.sampled_from(MADE_NAMES), st.sampled_from(("x", "stage m.s=x", "stage+ sub/n.s=y"))
    ).map(lambda parts: f"{parts[0]} {parts[1]}={parts[2]}"),
)
LINES = st.one_of(
    st.sampled_from(
        (
            "FAIL",
            "FAIL ANALYSIS",
            "WARN",
            "critical",
            "extra 1",
            "job two",
            "job two linux",
            "info x",
            "make same.bin",
            "make linux.bin",
        )
    ),
    st.sampled_from(NAMES).flatmap(lambda name: st.sampled_from((f"include {name}", f"read {name}", f"jobs-from {name}"))),
    st.sampled_from(("glob sub/*", "glob *.txt", "glob *", "glob m*", *(f"uuid {uuid.hex()}" for uuid in UUIDS))),
    st.tuples(st.sampled_from(("stage", "stage+")), st.sampled_from(MADE_NAMES), STAGE_TEXTS).map(
        lambda parts: f"{parts[0]} {parts[1]}={parts[2]}"
    ),
    st.tuples(
        st.sampled_from(("after", "after", "print", "once", "only")), st.sampled_from(NAMES), st.sampled_from(("main", "two"))
    ).map(lambda parts: f"{parts[0]} {parts[1]}:{parts[2]}"),
    st.sampled_from(("after b.s:main#1", "after sub/c.s:main#0", "after e.txt:data", "print sub/f.txt:data")),
    st.sampled_from(
        ("after m.s:main", "print sub/n.s:main", "after m.txt:data", "only a.s:chain@common", "after b.s:chain@common")
    ),
    st.sampled_from(("x", "y")),
)
TEXTS = st.lists(LINES, max_size=3, unique=True).map("\n".join)
SETTINGS = ("", "sub")
ADJUSTMENTS = st.sampled_from(
    (
        '{"script": {"params": {"look": 1}}}',
        '{"script": {"params": {"look": 2, "more": 1}}}',
        '{"script": {"params": {"job": "two"}, "platforms": {"server": {"look": 3}}}}',
        '{"script": {"platforms": {"server": "skip"}}, "data": {"platforms": {"linux": "skip"}}}',
        '{"script": {"platforms": {"server": {}}}, "data": {"platforms": {"*": "skip"}}}',
        '{"script": {"platforms": {"*": "skip"}}}',
        '{"scrpt": {}}',
        "{}",
        "broken",
    )
)
SETUPS = Setup(
    builders=(copier(platforms=("linux", "server")), scripter(platforms=("linux", "server"), resources=("gpu",))),
    platforms=("linux", "server"),
    resources=(("gpu", 2),),
    retry=RetryRule(2, ("timeout", "crash")),
)
FATES: list[Outcome | str] = [*list(Outcome)[1:5], "timeout", "crash", "exit 1"]
USES = ("read e.txt", "include e.txt", "jobs-from e.txt", "glob e*")
FILES = ("file", "file of a job", "file that is seen", "new file")
TRIED = re.compile(r" \(tried \d+ times\)$")
ENDLESS = "check whether it depends on its own products"
HOST_ERRORS = re.compile("its worker process died|cannot be placed|it was ")


class Simulation(RuleBasedStateMachine):
    """Random actions: users edit files, workers die, engines are killed. Then the settled cache is compared with a clean build."""

    blind = ""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(SETUPS)
        self.world.tool, self.world.blind = "1", self.blind
        self.world.copies_on_reading = None
        self.world.boot()
        self.needs_restart = False
        self.serial = 0

    # --------------------------------------------------------------------------------------------------- actions of users

    @initialize(files=st.dictionaries(st.sampled_from(RELS[:4]), TEXTS, min_size=1, max_size=4))
    def begin(self, files: dict[str, str]) -> None:
        for rel, text in files.items():
            self.world.write(rel, text)

    @rule(rel=st.sampled_from(RELS), text=TEXTS, folder=st.sampled_from(("game", "game", "shared")))
    def write(self, rel: str, text: str, folder: str) -> None:
        self.world.write(rel, text, folder)

    @rule(rel=st.sampled_from(METAS), text=IDENTITIES, folder=st.sampled_from(("game", "game", "shared")))
    def identify(self, rel: str, text: str, folder: str) -> None:
        self.world.write(rel, text, folder)

    @rule(place=st.sampled_from(SETTINGS), says=ADJUSTMENTS, folder=st.sampled_from(("game", "game", "shared")))
    def adjust(self, place: str, says: str, folder: str) -> None:
        self.world.write(file_key(place), says, folder)

    def places(self) -> list[tuple[str, str]]:
        """Return (scan folder, path) of every file that users have made."""
        return [(folder, rel) for folder, files in self.world.disk.files.items() if folder != MADE for rel in files]

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        places = self.places()
        if places:
            folder, rel = data.draw(st.sampled_from(places))
            self.world.delete(rel, folder)

    @rule(
        data=st.data(),
        to=st.sampled_from(RELS),
        into=st.sampled_from(("game", "shared")),
        is_copy=st.booleans(),
        has_identity=st.booleans(),
    )
    def move(self, data: st.DataObject, to: str, into: str, is_copy: bool, has_identity: bool) -> None:
        places = self.places()
        if places:
            folder, rel = data.draw(st.sampled_from(places))
            files = self.world.disk.files[folder]
            moved = [(rel, to)]
            if has_identity and f"{rel}.meta" in files:
                moved.append((f"{rel}.meta", f"{to}.meta"))
            for name, other in moved:
                text = files[name].text
                if not is_copy:
                    self.world.delete(name, folder)
                self.world.write(other, text, into)

    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        places = self.places()
        if places:
            folder, rel = data.draw(st.sampled_from(places))
            self.world.touch(rel, folder)

    @rule(
        builders=st.sampled_from(("both", "both", "copy", "script", "two", "clash")),
        version=st.sampled_from(("1", "1", "2")),
        platforms=st.sampled_from((("linux", "server"), ("linux",))),
        resting=st.booleans(),
        folders=st.sampled_from((("game",), ("game", "shared"), ("shared", "game"))),
        has_companion=st.booleans(),
        metadata_types=st.sampled_from(((), (), (".s",), (".txt",))),
        has_drafts=st.booleans(),
        makes_finals=st.sampled_from((True, True, False)),
    )
    def configure(
        self,
        builders: str,
        version: str,
        platforms: tuple[str, ...],
        resting: bool,
        folders: tuple[str, ...],
        has_companion: bool,
        metadata_types: tuple[str, ...],
        has_drafts: bool,
        makes_finals: bool,
    ) -> None:
        copy, script = copier(platforms=platforms), scripter(version=version, platforms=platforms, has_drafts=has_drafts)
        other = copier("other", "*.s", platforms=platforms)
        second = scripter("twin", platforms=platforms)
        chosen = {
            "both": (copy, script),
            "copy": (copy,),
            "script": (script,),
            "two": (other, copy, script),
            "clash": (script, second),
        }
        self.world.configure(
            builders=chosen[builders],
            platforms=platforms,
            resting=("server",) if resting and "server" not in platforms else (),
            folders=folders,
            companions=(Companion(glob("*.s"), "note"),) if has_companion else (),
            metadata_types=metadata_types,
            makes_finals=makes_finals,
        )
        self.needs_restart = True

    @rule(data=st.data())
    def lose_a_product(self, data: st.DataObject) -> None:
        if self.world.cache:
            self.world.lose(data.draw(st.sampled_from(sorted(self.world.cache))))

    @rule(rel=st.sampled_from(RELS), fates=st.lists(st.sampled_from(FATES), min_size=1, max_size=4))
    def misfortune(self, rel: str, fates: list[Outcome | str]) -> None:
        self.world.fates[f"{rel}@linux:main" if rel.endswith(".s") else f"{rel}@linux:data"] = fates
        self.world.fates[f"{rel}:analyse"] = fates[1:]

    @rule(rel=st.sampled_from(RELS), placed=st.integers(0, 1))
    def failing_commit(self, rel: str, placed: int) -> None:
        self.world.commit_fates[f"{rel}@linux:main"] = [placed]

    @rule(rel=st.sampled_from(RELS), times=st.integers(1, 2))
    def restless_file(self, rel: str, times: int) -> None:
        self.world.shy[rel] = times

    @rule(rel=st.sampled_from(NAMES), verb=st.sampled_from(("reprocess", "cancel")))
    def ask(self, rel: str, verb: str) -> None:
        self.world.post_request(verb, keys=(rel,), names=(f"{rel}@linux:main",))

    # --------------------------------------------------------------------------------- actions of the engine and its host

    @rule(seed=st.integers(0, 999), restart=st.booleans(), is_full=st.booleans(), fuse=st.one_of(st.none(), st.integers(0, 80)))
    def settle(self, seed: int, restart: bool, is_full: bool, fuse: int | None) -> None:
        self.world.rng = random.Random(seed)
        self.world.fuse = fuse
        self.world.settle(restart=restart or self.needs_restart, is_full=is_full)
        self.world.fuse = None
        self.needs_restart = False
        self.compare()

    @rule(
        seed=st.integers(0, 999),
        steps=st.integers(1, 40),
        edit=st.one_of(
            st.tuples(st.sampled_from(RELS[:4]), TEXTS), st.tuples(st.sampled_from(SETTINGS).map(file_key), ADJUSTMENTS)
        ),
        crashes=st.booleans(),
        back_after=st.one_of(st.none(), st.integers(0, 10)),
        code=st.sampled_from((None, None, "1", "2")),
        is_double=st.booleans(),
        missed=st.one_of(st.none(), st.integers(0, 9)),
    )
    def edit_while_it_works(
        self,
        seed: int,
        steps: int,
        edit: tuple[str, str],
        crashes: bool,
        back_after: int | None,
        code: str | None,
        is_double: bool,
        missed: int | None,
    ) -> None:
        rel, text = edit
        self.world.rng = random.Random(seed)
        self.serial += 1
        if self.needs_restart:
            self.world.restart()
            self.needs_restart = False
        self.world.scan()
        self.step(steps)
        before, code_before = self.world.disk.files.get("game", {}).get(rel), self.world.code
        save = self.world.save_twice if is_double and not is_settings(rel) else self.world.write
        save(rel, text if is_settings(rel) else f"{text}\nedit {self.serial}")
        if missed is not None and self.world.cache:
            self.world.delete_product(sorted(self.world.cache)[missed % len(self.world.cache)])
        self.world.code = code or code_before
        if back_after is not None:
            self.step(back_after)
            if before is not None:
                self.world.write(rel, before.text)
            self.world.code = code_before
        if crashes:
            self.world.crash()
        else:
            self.world.run()
        self.world.settle(restart=code is not None)
        self.compare()

    @rule(data=st.data(), text=TEXTS, seed=st.integers(0, 999), steps=st.one_of(st.none(), st.integers(0, 30)))
    def save_alone(self, data: st.DataObject, text: str, seed: int, steps: int | None) -> None:
        """Edit an existing file, and request a check of this file only, not of its folder.

        If `steps` is None, run until the engine is idle; otherwise crash the engine after this number of actions.
        """
        places = [(folder, rel) for folder, rel in self.places() if not is_settings(rel)]
        if not places or self.needs_restart:
            return
        folder, rel = data.draw(st.sampled_from(places))
        self.world.rng = random.Random(seed)
        self.serial += 1
        if self.world.save_alone(rel, f"{text}\nedit {self.serial}", folder):
            if steps is None:
                self.world.run()
            else:
                self.step(steps)
                self.world.crash()

    @rule(
        seed=st.integers(0, 999),
        what=st.sampled_from(("code", "tool", "file", "file of a job", "file that is seen", "new file")),
        is_back=st.booleans(),
        data=st.data(),
    )
    def change_under_a_run(self, seed: int, what: str, is_back: bool, data: st.DataObject) -> None:
        """Change files that a run of a randomly selected script uses (`under_a_run`)."""
        scripts = [(folder, rel) for folder, rel in self.places() if rel.endswith(".s")]
        if scripts:
            folder, rel = data.draw(st.sampled_from(scripts))
            self.under_a_run(seed, what, is_back, rel, folder, data.draw(st.sampled_from(USES)))
            self.world.observes = True

    def under_a_run(self, seed: int, what: str, is_back: bool, rel: str, folder: str, text: str) -> None:
        """Change files that a run uses, after the run was planned and before it reads them.

        Optionally change them back before the run ends.
        """
        world = self.world
        world.rng = random.Random(seed)
        if self.needs_restart:
            world.restart()
            self.needs_restart = False
        self.serial += 1
        world.observes = bool(seed % 2) or what == "new file"
        if what != "new file":
            world.write("e.txt", f"before {self.serial}", "game")
        elif ("game", "e.txt") in self.places():
            world.delete("e.txt", "game")
        world.write(rel, f"{text}\nedit {self.serial}", folder)
        world.scan()
        self.step_until(lambda: self.is_ready(rel) if what != "file" else bool(self.unread(rel)))
        before = world.code, world.tool, world.text("e.txt")
        if what in ("file of a job", "new file"):
            self.step_until(lambda: bool(self.unread(rel)))
        if what in FILES:
            world.write("e.txt", f"under it {self.serial}", "game")
            if (
                what == "file that is seen"
            ):  # the scan reports the change, so the engine also reads the file, before or after the run begins
                world.scan()
                world.run_scan_only()
                self.step_until(lambda: bool(self.unread(rel)))
        else:
            world.code, world.tool = ("other", world.tool) if what == "code" else (world.code, "other")
            self.step_until(lambda: bool(self.unread(rel)))
        begun = set(self.unread(rel))
        self.step_until(lambda: not begun.intersection(self.unread(rel)))
        if is_back:
            world.code, world.tool = before[:2]
            if what == "new file":
                world.delete("e.txt", "game")
            else:
                world.write("e.txt", before[2] or "", "game")
        world.run()
        world.settle(restart=True)
        self.compare()

    def is_ready(self, rel: str) -> bool:
        """Whether a job of a source (not an analysis) is planned and has not started."""
        return any(job.source.rel == rel and not job.is_analysis for job in self.world.pipeline.jobs.ready)

    def unread(self, rel: str) -> list[int]:
        """Return the keys of runs of a source that are under way and have not read anything yet."""
        running = self.world.running.items()
        return [key for key, (order, _text) in running if getattr(order, "rel", "") == rel and key not in self.world.read]

    def step_until(self, is_true: Callable[[], bool]) -> None:
        for _step in range(200):
            moves = self.world._moves()
            if is_true() or not moves:
                return
            self.world.rng.choice(moves)()

    def step(self, count: int) -> None:
        for _step in range(count):
            moves = self.world._moves()
            if moves:
                self.world.rng.choice(moves)()

    # -------------------------------------------------------------------------------------- comparison with a clean build

    def compare(self) -> None:
        """Compare the jobs and products with those of a clean build. First retry the jobs that failed because of the host."""
        world = self.world
        world.fates.clear()
        world.commit_fates.clear()
        self.check_rest()
        if not world.setup.makes_finals:
            self.make_finals()
        if any(HOST_ERRORS.search(job.error) for job in world.live_jobs().values() if job.state is JobState.FAILED):
            world.settle()
            self.check_rest()
        clean = world.clean(makes_finals=True)
        jobs, wanted = world.live_jobs(), clean.live_jobs()
        resting = {name for name, job in jobs.items() if job.platform in world.setup.resting}
        orphaned = orphans(jobs)
        unplanned = orphans(wanted)  # their analysis failed after they were planned: another source got the UUID of their source
        excused = excused_jobs(jobs) | excused_jobs(wanted) | endless_jobs(jobs) | endless_jobs(wanted) | world.misled_jobs()
        chained = excused_chains(world, clean, excused)
        planned = wanted.keys() - unplanned - chained
        assert jobs.keys() - resting - orphaned - chained == planned, "the jobs differ from those of a clean build"
        for name, job in wanted.items():
            if name not in planned or name in excused or jobs[name].state is JobState.CANCELLED:
                continue
            if is_conflict(jobs[name]) and any(keeps_products(other) for other in jobs.values()):
                continue
            assert (jobs[name].state, error_of(jobs[name])) == (job.state, error_of(job)), name
            if job.state is JobState.COMPLETED and not job.is_analysis:
                assert contents(jobs[name]) == contents(job), name
                assert not jobs[name].is_draft, name
        owned = {product.name: product.digest for job in jobs.values() for product in job.products}
        assert sum(len(job.products) for job in jobs.values()) == len(owned), "two jobs own one product"
        unrequested = tuple(f"{platform}/" for platform in world.setup.resting)
        owned = {name: digest for name, digest in owned.items() if not name.startswith(unrequested)}
        cache = {name: digest for name, digest in world.cache.items() if not name.startswith(unrequested)}
        assert cache == owned, "the products in the cache differ from the rows of the database"

    def make_finals(self) -> None:
        """Make the final products of all jobs. Until then a job may have draft products, which a clean build replaces."""
        self.world.configure(makes_finals=True)
        self.world.settle(restart=True)
        self.world.configure(makes_finals=False)
        self.needs_restart = True
        self.check_rest()

    def check_rest(self) -> None:
        world, memory = self.world, self.world.pipeline.jobs.memory
        assert world.is_idle()
        assert not world.contradictions
        assert not world.running
        assert not world.pipeline.jobs.running
        assert not memory.sources, [
            name_of(job) + f" {job.state}" for source in memory.sources.values() for job in source.jobs.values()
        ]
        assert not memory.folders
        stale = [key for key, fact in memory.newer.facts.items() if sha(world.text(key) or "") != fact.digest]
        assert not stale, "a recorded digest differs from the file on the disk"
        assert not memory.unstable
        assert not len(world.pipeline.jobs.ready)

    @invariant()
    def states_are_known(self) -> None:
        assert all(job.state is not None for job in self.world.live_jobs().values())


def orphans(jobs: dict[str, Job]) -> set[str]:
    """Return the names of jobs whose analysis failed after an earlier analysis had planned them."""
    return {name for name, job in jobs.items() if not job.is_analysis and analysis_failed(job)}


def analysis_failed(job: Job) -> bool:
    """Whether the analysis of the job failed after an earlier analysis had planned the job."""
    analysis = job.source.jobs.get((job.builder, "", ANALYSIS_KEY))
    return analysis is not None and analysis.state is JobState.FAILED


def is_conflict(job: Job) -> bool:
    """Whether the job failed because another job also makes one of its products."""
    return job.state is JobState.FAILED and "made by" in job.error


def keeps_products(job: Job) -> bool:
    """Whether the job keeps its last products; in a clean build their names may belong to other jobs."""
    is_bad = job.state in (JobState.FAILED, JobState.CANCELLED) and not is_conflict(job)
    return not job.is_analysis and (is_bad or analysis_failed(job))


def error_of(job: Job) -> str:
    """Return the error of a job without the parts that depend on the order of runs or on the number of retries."""
    return "a product is made by others too" if is_conflict(job) else TRIED.sub("", job.error)


def contents(job: Job) -> dict[str, bytes]:
    """Return {product: digest}."""
    return {product.name: product.digest for product in job.products}


def excused_jobs(jobs: dict[str, Job]) -> set[str]:
    """Return the jobs that may differ from a clean build.

    These are the jobs in a cycle, and the jobs that depend on a failed or cancelled job or on a job in a cycle.
    """
    edges = {
        name: {f"{item.source}@{item.platform}:{item.key}" for item in job.plan.job_dependencies} if job.plan else set()
        for name, job in jobs.items()
    }
    keys = {f"{job.source.key}@{job.platform}:{job.key}": name for name, job in jobs.items()}
    edges = {name: {keys[item] for item in found if item in keys} for name, found in edges.items()}
    bad = {name for name, job in jobs.items() if job.state in (JobState.FAILED, JobState.CANCELLED) or analysis_failed(job)}
    reached: dict[str, set[str]] = {}
    for name in jobs:
        todo = list(edges[name])
        found = reached.setdefault(name, set())
        while todo:
            other = todo.pop()
            if other not in found:
                found.add(other)
                todo.extend(edges[other])
    bad |= {name for name in jobs if name in reached[name]}
    return {name for name in jobs if name in reached[name] or reached[name] & bad}


def endless_jobs(jobs: dict[str, Job]) -> set[str]:
    """Return the names of jobs that were ended because they depend on their own products."""
    return {name for name, job in jobs.items() if ENDLESS in job.error}


def excused_chains(world: World, clean: World, excused: set[str]) -> set[str]:
    """Return the jobs with an unreliable input: an intermediate that may differ in the clean build, or be missing in one build.

    Unreliable products are made by failed or cancelled jobs, which keep their last products, by jobs that lost a product name to
    another job, and by `excused` jobs. A job with an unreliable input makes unreliable products too.
    """
    jobs, wanted = world.live_jobs(), clean.live_jobs()
    suspects = {name for name, job in jobs.items() if keeps_products(job) or is_conflict(job)} | excused
    needs = {
        (id(each), name): needs_of(each, job) for each, found in ((world, jobs), (clean, wanted)) for name, job in found.items()
    }
    chained: set[str] = set()
    while True:
        made = {key for found in (jobs, wanted) for name in (suspects | chained) & found.keys() for key in made_by(found[name])}
        sources = {f"job {found[name].source.key}" for found in (jobs, wanted) for name in chained & found.keys()}
        more = {name for (_world, name), keys in needs.items() if keys & (made | sources)}
        if more <= chained:
            return chained
        chained |= more


def made_by(job: Job) -> set[str]:
    """Return the keys of the intermediates that a job made."""
    prefix = f"{COMMON_PLATFORM}/"
    return {product.name.removeprefix(prefix) for product in job.products if product.name.startswith(prefix)}


def needs_of(world: World, job: Job) -> set[str]:
    """Return the keys of all input files of a job, and "job <source key>" for each source whose jobs this job depends on."""
    text = world.text(job.source.rel) or ""
    script = Script.parse(text)
    keys = {key_of(rel) for rel, _text in world._closure(job.source.rel, script)}
    for _kind, path, *_rest in script.dependencies:
        keys |= {key_of(RelPath(path)), f"job {key_of(RelPath(path))}"}
    return {*keys, *map(key_of, script.reads), *script.includes, *script.jobs_from, key_of(job.source.rel)}


Simulation.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
test_nothing_diverges_from_a_clean_build = Simulation.TestCase


MUTANTS = {
    "code": "code", "tool": "tool", "find_changed": "new file", "_unproven_of": "file that is seen", "_find_appeared": "new file",
    "_is_matched": "new file",
}  # fmt: skip
"""{check to disable: kind of change that the engine then misses}.

The checks find changed code, a changed tool, and files that changed during a run, were being read when the run began, or were
created during the run.
"""


CHANGES = [
    (seed, what, is_back, text)
    for what, seeds in (("code", 5), ("tool", 5), ("file", 6), ("file of a job", 6), ("file that is seen", 10), ("new file", 6))
    for seed in range(seeds)
    for is_back in (False, True)
    for text in USES
]


def change_under_runs(first: str = "") -> None:
    """Make each change of `CHANGES` between the plan and the commit of a run, in a new simulation. Begin with the kind `first`."""
    for seed, what, is_back, text in sorted(CHANGES, key=lambda change: change[1] != first):
        machine = Simulation()
        machine.under_a_run(seed, what, is_back, "a.s", "game", text)
        machine.teardown()


def test_change_of_files_between_plan_and_commit_is_detected() -> None:
    change_under_runs()


@pytest.mark.parametrize("seed", [1, 3, 8])
def test_chain_that_depends_on_its_own_products_stops_after_some_rounds(seed: int) -> None:
    machine = Simulation()
    machine.begin(files={})
    machine.settle(seed=seed, restart=False, is_full=False, fuse=None)
    machine.under_a_run(seed, "code", True, "b.s", "game", "after m.s:two\nstage+ a.s=y\nglob *")
    machine.teardown()

    assert "check whether it depends on its own products" in machine.world.live_jobs()["b.s@common:chain"].error


@pytest.mark.parametrize("mutant", MUTANTS)
def test_simulation_detects_the_absence_of_each_check_of_changed_files(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant in ("code", "tool"):
        monkeypatch.setattr(Simulation, "blind", mutant)
    else:
        monkeypatch.setattr(StaleResultCheck, mutant, lambda *_args: ())

    with pytest.raises(AssertionError, match=r"clean build|s@|txt@|file on the disk"):
        change_under_runs(MUTANTS[mutant])
