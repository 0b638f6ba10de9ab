"""`comparisonRules` and `compare` of `AssetBundlerBatch`: comparisons in a row, of files or of results called `$name`.

Tests: `tests/features/o3de/programs/test_asset_bundler_batch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from aptui.features.o3de.bundling import asset_lists, bundle_files
from aptui.features.o3de.bundling.asset_lists import ComparisonKind, ListedAsset
from aptui.features.o3de.bundling.bundle_files import ComparisonStep
from aptui.features.o3de.programs.bundler.project import BundlerOutput, BundlerProject, for_platform
from aptui.features.o3de.programs.bundler.switches import HELP, BundlerSwitches
from aptui.shared.errors import UserError

_RULER = "-" * 42
_END = "-" * 27
_VARIABLE = "$"


def comparison_rules(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Write a rules file."""
    path = project.path(given.need_switch("comparisonRulesFile"), bundle_files.RULES_SUFFIX)
    steps = _with_files(_steps(given), given)
    if not steps:
        raise UserError("'comparisonRules' needs --comparisonType", hint=HELP.format("comparisonRules"))
    if path.exists() and given.has("addComparison") and not given.has("allowOverwrites"):
        steps = [*bundle_files.load_rules(path), *steps]
    elif not given.has("addComparison"):
        output.refuse_overwriting([path], is_allowed=given.has("allowOverwrites"))
    output.save(path, bundle_files.rules_text(steps), "Comparison Rules file")


def compare(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Compare asset lists, for each platform by itself."""
    name = given.one("comparisonRulesFile")
    ruled = bundle_files.load_rules(project.existing(name, bundle_files.RULES_SUFFIX)) if name else []
    steps = _with_files([*ruled, *_steps(given)], given)
    if not steps:
        raise UserError("'compare' needs --comparisonType or --comparisonRulesFile", hint=HELP.format("compare"))
    for at, step in enumerate(steps):
        if not step.first or (
            not step.second and step.kind not in (ComparisonKind.FILE_PATTERN, ComparisonKind.INTERSECTION_COUNT)
        ):
            raise UserError(
                f"comparison {at + 1} ({step.kind.word}) has too few lists", hint="see --firstAssetFile and --secondAssetFile"
            )
    inputs = [name for step in steps for name in (*step.first.split(","), step.second) if name]
    made = {step.output for step in steps}
    platforms = project.platforms_of(*(name for name in inputs if name not in made))
    runs = [_Run(platform, project, output, is_allowed=given.has("allowOverwrites")) for platform in platforms]
    for run in runs:
        run.refuse(steps)
    for run in runs:
        run.perform(steps)
        run.show(given, steps)
        run.save()


class _Run:
    """The comparisons of one platform."""

    def __init__(self, platform: str, project: BundlerProject, output: BundlerOutput, *, is_allowed: bool) -> None:
        self._platform, self._project, self._output, self._is_allowed = platform, project, output, is_allowed
        self._results: dict[str, list[ListedAsset]] = {}

    def refuse(self, steps: Sequence[ComparisonStep]) -> None:
        """Refuse to write over what is there."""
        outputs = [step.output for step in steps if step.output and not step.output.startswith(_VARIABLE)]
        paths = [self._project.path(for_platform(name, self._platform), asset_lists.SUFFIX) for name in outputs]
        self._output.refuse_overwriting(paths, is_allowed=self._is_allowed)

    def perform(self, steps: Sequence[ComparisonStep]) -> None:
        """Compare, in order."""
        for step in steps:
            self._results[step.output] = self._result(step)

    def _result(self, step: ComparisonStep) -> list[ListedAsset]:
        if step.kind is ComparisonKind.INTERSECTION_COUNT:
            return asset_lists.appearing([self._list(name) for name in step.first.split(",")], step.count)
        first = self._list(step.first)
        if step.kind is ComparisonKind.FILE_PATTERN:
            return asset_lists.matching(first, step.pattern, is_regex=step.is_regex)
        return asset_lists.compare_lists(step.kind, first, self._list(step.second))

    def _list(self, name: str) -> list[ListedAsset]:
        if name in self._results:
            return self._results[name]
        if name.startswith(_VARIABLE):
            raise UserError(f"no comparison before has the output '{name}'", hint="give an earlier comparison this --output")
        return asset_lists.load(self._project.asset_list(name, self._platform))

    def show(self, given: BundlerSwitches, steps: Sequence[ComparisonStep]) -> None:
        """Print what was asked for: the last result, or lists by name."""
        if not given.has("print") and steps[-1].output:
            return
        for name in given.all("print") or (steps[-1].output,):
            assets = self._list(name)
            shown = name if name.startswith(_VARIABLE) or not name else for_platform(name, self._platform)
            self._output.say(f"Printing assets from the comparison result {shown}.")
            self._output.say(_RULER)
            self._output.say_all(f"- {item.path}" for item in assets)
            self._output.say(f"Total number of assets ({len(assets)}).")
            self._output.say(_END)

    def save(self) -> None:
        """Write the results that are files."""
        files = {name: assets for name, assets in self._results.items() if name and not name.startswith(_VARIABLE)}
        if not files:
            return
        self._output.say("Saving results of comparison operation...")
        paths = {name: self._project.path(for_platform(name, self._platform), asset_lists.SUFFIX) for name in files}
        self._output.save_lists({paths[name]: assets for name, assets in files.items()}, is_quiet=True)
        self._output.say("Save successful!")


def _steps(given: BundlerSwitches) -> list[ComparisonStep]:
    """Return the comparisons that the command line names, without their files."""
    kinds = [asset_lists.kind_of(word) for word in given.all("comparisonType")]
    patterns, types = list(given.all("filePattern")), list(given.all("filePatternType"))
    wanted = sum(kind is ComparisonKind.FILE_PATTERN for kind in kinds)
    for name, values in (("filePattern", patterns), ("filePatternType", types)):
        if len(values) != wanted:
            raise UserError(
                f"there are {wanted} comparisons by filePattern, and --{name} has {len(values)} values",
                hint="give one value for each",
            )
    if any(word not in ("0", "1") for word in types):
        raise UserError("--filePatternType is 0 (wildcard) or 1 (regular expression)", hint="0 for *.png, 1 for .*[.]png")
    if ComparisonKind.INTERSECTION_COUNT in kinds and len(kinds) > 1:
        raise UserError("intersectionCount goes with no other comparison", hint="run 'compare' once for each of them")
    count = given.number("intersectionCount", 1, 1_000_000) or 2
    steps = []
    for kind in kinds:
        step = ComparisonStep(kind, count=count if kind is ComparisonKind.INTERSECTION_COUNT else 0)
        if kind is ComparisonKind.FILE_PATTERN:
            step = replace(step, pattern=patterns.pop(0), is_regex=types.pop(0) == "1")
        steps.append(step)
    return steps


def _with_files(steps: list[ComparisonStep], given: BundlerSwitches) -> list[ComparisonStep]:
    """Return comparisons with the files of the command line, in their order; what that does not say stays as it is."""
    firsts, seconds, outputs = (list(given.all(name)) for name in ("firstAssetFile", "secondAssetFile", "output"))
    done = []
    for step in steps:
        is_counting = step.kind is ComparisonKind.INTERSECTION_COUNT
        first = ",".join(firsts) if is_counting else firsts.pop(0) if firsts else ""
        takes_two = not is_counting and step.kind is not ComparisonKind.FILE_PATTERN
        second = seconds.pop(0) if seconds and takes_two else ""
        output = outputs.pop(0) if outputs else ""
        done.append(replace(step, first=first or step.first, second=second or step.second, output=output or step.output))
        firsts = [] if is_counting else firsts
    left = {"firstAssetFile": firsts, "secondAssetFile": seconds, "output": outputs}
    for name, values in left.items():
        if values:
            raise UserError(f"--{name} has more values than there are comparisons", hint="remove some, or add to --comparisonType")
    return done
