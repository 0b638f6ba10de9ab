"""The commands `comparisonRules` and `compare` of `AssetBundlerBatch`: comparisons of asset lists, one step after the other.

An input of a step is a file, or the result of an earlier step by its token (`$name`). A rules file has steps without their files.

Tests: `tests/features/o3de/programs/test_asset_bundler_batch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from aptui.features.o3de.bundling import bundle_files
from aptui.features.o3de.bundling.bundle_files import (
    LIST_SUFFIX,
    ComparisonKind,
    ComparisonStep,
    ListedAsset,
    appearing,
    compare_lists,
    kind_of,
    load_list,
    matching,
)
from aptui.features.o3de.programs.bundler_project import BundlerOutput, BundlerProject, for_platform
from aptui.features.o3de.programs.bundler_switches import HELP, BundlerSwitches
from aptui.shared import printing
from aptui.shared.errors import UserError

_TOKEN = "$"
"""First character of a token, the name of a result. Alone, it stands for the input or output that the rules file names."""
_AT_RUN_TIME = "[input at runtime]"
_PATTERN_FORMS = {"0": False, "wildcard": False, "1": True, "regex": True}


# --------------------------------------------------------------------------------------------------------------- rules files


def edit_rules(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Add, remove, move or edit steps of a rules file; the number of the first step is 0. Print the steps on request."""
    path = project.path(given.need_switch("comparisonRulesFile"), bundle_files.RULES_SUFFIX)
    asked = [name for name in _EDITS if given.has(name)]
    if len(asked) > 1:
        raise UserError(
            f"only one of {_name_switches(_EDITS)} can be used in one command", hint="run the program once for each change"
        )
    if given.has("comparisonType") and not {"addComparison", "editComparison"}.intersection(asked):
        raise UserError("--comparisonType needs --addComparison or --editComparison", hint=HELP.format(given.command))
    if not asked and not given.has("print"):
        raise UserError(f"'{given.command}' needs one of {_name_switches((*_EDITS, 'print'))}", hint=HELP.format(given.command))
    steps = bundle_files.load_rules(path) if path.exists() else []
    for name in asked:
        _EDITS[name](given, steps)
    if given.has("print"):
        output.say(f"Contents of: {path}")
        for number, step in enumerate(steps):
            output.say_all(_describe_step(number, step))
    if asked:
        output.save(path, bundle_files.rules_text(steps), "Comparison Rules file")


def _add(given: BundlerSwitches, steps: list[ComparisonStep]) -> None:
    """Insert steps before the step with the given number, by default at the end."""
    added = _steps(given)
    if not added:
        raise UserError("--addComparison needs --comparisonType", hint=HELP.format(given.command))
    tokens = given.all("tokenName")
    if tokens and len(tokens) != len(added):
        raise UserError(
            f"{printing.count(len(added), 'comparison')}, but {printing.count(len(tokens), 'value')} of --tokenName",
            hint="give one name for each comparison",
        )
    for name in ("firstInput", "secondInput"):
        if given.has(name) and len(added) > 1:
            raise UserError(f"--{name} is for one comparison only", hint="add the comparisons one after the other")
    inputs = {"first": _token(given, "firstInput"), "second": _token(given, "secondInput")}
    added = [
        replace(step, **inputs, output=_as_token(token)) for step, token in zip(added, tokens or [""] * len(added), strict=True)
    ]
    at = given.number("addComparison", 0, _MOST_STEPS) if given.all("addComparison") else len(steps)
    steps[at:at] = list(map(_check_step, added))


def _remove(given: BundlerSwitches, steps: list[ComparisonStep]) -> None:
    del steps[_position(given.one("removeComparison"), steps)]


def _move(given: BundlerSwitches, steps: list[ComparisonStep]) -> None:
    numbers = given.all("moveComparison")
    if len(numbers) != 2 or not all(map(str.isdecimal, numbers)):
        raise UserError("--moveComparison needs two numbers", hint="for example --moveComparison=0,2")
    origin, target = _position(numbers[0], steps), int(numbers[1])
    steps.insert(target - (target > origin), steps.pop(origin))


def _edit(given: BundlerSwitches, steps: list[ComparisonStep]) -> None:
    """Change the given values of one step; a switch without a value clears its value."""
    at = _position(given.one("editComparison"), steps)
    step = steps[at]
    if given.has("comparisonType"):
        kind = kind_of(given.one("comparisonType"))
        step = replace(step, kind=kind, second="") if kind is ComparisonKind.FILE_PATTERN else replace(step, kind=kind, pattern="")
    if given.has("filePatternType"):
        step = replace(step, is_regex=_is_regex(given.one("filePatternType")))
    if given.has("filePattern"):
        step = replace(step, pattern=given.one("filePattern"))
    for name, field in (("firstInput", "first"), ("secondInput", "second")):
        if given.has(name):
            step = replace(step, **{field: _token(given, name)})
    if given.has("tokenName"):
        step = replace(step, output=_as_token(given.one("tokenName")))
    steps[at] = _check_step(step)


_EDITS: dict[str, Callable[[BundlerSwitches, list[ComparisonStep]], None]] = {
    "addComparison": _add,
    "removeComparison": _remove,
    "moveComparison": _move,
    "editComparison": _edit,
}
_MOST_STEPS = 1_000_000
"""Maximum number of a step that the command line can name."""


def _name_switches(names: Iterable[str]) -> str:
    return ", ".join(f"--{name}" for name in names)


def _check_step(step: ComparisonStep) -> ComparisonStep:
    """Return a step."""
    if step.kind is ComparisonKind.INTERSECTION_COUNT:
        raise UserError("intersectionCount cannot be a step of a rules file", hint="name it in the command 'compare'")
    if step.kind is not ComparisonKind.FILE_PATTERN and step.pattern:
        raise UserError("only a filePattern comparison has a file pattern", hint="add --comparisonType=filePattern")
    if step.kind is ComparisonKind.FILE_PATTERN and step.second:
        raise UserError("a filePattern comparison has only one input", hint="omit --secondInput")
    return step


def _position(text: str, steps: Sequence[ComparisonStep]) -> int:
    if not text.isdecimal() or int(text[:9]) >= len(steps):
        counted = printing.count(len(steps), "comparison")
        raise UserError(
            f"the file has {counted}, so {text} is not the number of one of them",
            hint="--print lists the comparisons from number 0",
        )
    return int(text)


def _token(given: BundlerSwitches, name: str) -> str:
    """Return the token that a switch names as the input of a step; an input of a rules file cannot be a path."""
    word = given.one(name)
    if any(character in word for character in "./\\"):
        raise UserError(f"--{name}: '{word}' is not a token", hint="the command 'compare' names files")
    return _as_token(word)


def _as_token(word: str) -> str:
    return word if not word or word.startswith(_TOKEN) else f"{_TOKEN}{word}"


def _describe_step(number: int, step: ComparisonStep) -> list[str]:
    inputs = [step.first or _AT_RUN_TIME]
    pattern = ""
    if step.kind is ComparisonKind.FILE_PATTERN:
        pattern = f'  {"regex" if step.is_regex else "wildcard"}  "{step.pattern}"'
    else:
        inputs.append(step.second or _AT_RUN_TIME)
    return [
        f"{number}  {step.kind.word}  ({', '.join(inputs)}){pattern}",
        f"   Output Token: {step.output or '[No Token Set]'}",
    ]


# ---------------------------------------------------------------------------------------------------------------- comparing


def compare(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Compare asset lists, separately for each platform."""
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
                f"comparison {at + 1} ({step.kind.word}) has too few lists",
                hint="add lists with --firstAssetFile and --secondAssetFile",
            )
    inputs = [name for step in steps for name in (*step.first.split(","), step.second) if name]
    made = {step.output for step in steps}
    platforms = project.platforms_of(*(name for name in inputs if name not in made), *made)
    runs = [_Run(platform, project, output, is_allowed=given.has("allowOverwrites")) for platform in platforms]
    for run in runs:
        run.refuse(steps)
    for run in runs:
        run.perform(steps)
        run.show(given, steps)
        run.save()


class _Run:
    """Performs the comparisons of asset lists for one platform."""

    def __init__(self, platform: str, project: BundlerProject, output: BundlerOutput, *, is_allowed: bool) -> None:
        self._platform, self._project, self._output, self._is_allowed = platform, project, output, is_allowed
        self._results: dict[str, list[ListedAsset]] = {}

    def refuse(self, steps: Sequence[ComparisonStep]) -> None:
        """Refuse to overwrite existing files."""
        outputs = [step.output for step in steps if step.output and not step.output.startswith(_TOKEN)]
        paths = [self._project.path(for_platform(name, self._platform), LIST_SUFFIX) for name in outputs]
        self._output.refuse_overwriting(paths, is_allowed=self._is_allowed)

    def perform(self, steps: Sequence[ComparisonStep]) -> None:
        """Perform the comparisons in order."""
        for step in steps:
            self._results[step.output] = self._result(step)

    def _result(self, step: ComparisonStep) -> list[ListedAsset]:
        if step.kind is ComparisonKind.INTERSECTION_COUNT:
            return appearing([self._list(name) for name in step.first.split(",")], step.count)
        first = self._list(step.first)
        if step.kind is ComparisonKind.FILE_PATTERN:
            return matching(first, step.pattern, is_regex=step.is_regex)
        return compare_lists(step.kind, first, self._list(step.second))

    def _list(self, name: str) -> list[ListedAsset]:
        if name in self._results:
            return self._results[name]
        if name.startswith(_TOKEN):
            raise UserError(
                f"no earlier comparison has the output '{name}'", hint="give this name to an earlier comparison with --output"
            )
        return load_list(self._project.asset_list(name, self._platform))

    def show(self, given: BundlerSwitches, steps: Sequence[ComparisonStep]) -> None:
        """Print the asset lists that `--print` names. If it has no names, print the result of the last comparison.

        Without `--print`, print this result only if the last comparison has no output.
        """
        if not given.has("print") and steps[-1].output:
            return
        for name in given.all("print") or (steps[-1].output,):
            assets = self._list(name)
            shown = name if name.startswith(_TOKEN) or not name else for_platform(name, self._platform)
            self._output.say(f"Printing assets from the comparison result {shown}.")
            self._output.say("-" * 42)
            self._output.say_all(f"- {item.path}" for item in assets)
            self._output.say(f"Total number of assets ({len(assets)}).")
            self._output.say("-" * 27)

    def save(self) -> None:
        """Write the results that have a file as their output."""
        files = {name: assets for name, assets in self._results.items() if name and not name.startswith(_TOKEN)}
        if not files:
            return
        self._output.say("Saving results of comparison operation...")
        paths = {name: self._project.path(for_platform(name, self._platform), LIST_SUFFIX) for name in files}
        self._output.save_lists({paths[name]: assets for name, assets in files.items()}, is_quiet=True)
        self._output.say("Save successful!")


def _steps(given: BundlerSwitches) -> list[ComparisonStep]:
    """Return the comparisons that the command line requests; their inputs and outputs are not set yet."""
    kinds = [kind_of(word) for word in given.all("comparisonType")]
    patterns, types = list(given.all("filePattern")), list(given.all("filePatternType"))
    wanted = sum(kind is ComparisonKind.FILE_PATTERN for kind in kinds)
    for name, values in (("filePattern", patterns), ("filePatternType", types)):
        if len(values) != wanted:
            raise UserError(
                f"{printing.count(wanted, 'comparison')} of type filePattern, "
                f"but {printing.count(len(values), 'value')} of --{name}",
                hint="give one value for each comparison",
            )
    if ComparisonKind.INTERSECTION_COUNT in kinds and len(kinds) > 1:
        raise UserError(
            "intersectionCount cannot be combined with another comparison", hint="run 'compare' once for each comparison"
        )
    count = given.number("intersectionCount", 1, 1_000_000) or 2
    steps = []
    for kind in kinds:
        step = ComparisonStep(kind, count=count if kind is ComparisonKind.INTERSECTION_COUNT else 0)
        if kind is ComparisonKind.FILE_PATTERN:
            step = replace(step, pattern=patterns.pop(0), is_regex=_is_regex(types.pop(0)))
        steps.append(step)
    return steps


def _is_regex(form: str) -> bool:
    found = _PATTERN_FORMS.get(form.lower())
    if found is None:
        raise UserError("--filePatternType must be 0 (wildcard) or 1 (regular expression)", hint="0 for *.png, 1 for .*[.]png")
    return found


def _with_files(steps: list[ComparisonStep], given: BundlerSwitches) -> list[ComparisonStep]:
    """Return comparisons with the files of the command line, assigned in order.

    A comparison keeps its own files if the command line has no files left for it, or `$` in their place.
    """
    firsts, seconds, outputs = (
        ["" if word == _TOKEN else word for word in given.all(name)] for name in ("firstAssetFile", "secondAssetFile", "output")
    )
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
            raise UserError(
                f"--{name} has more values than there are comparisons",
                hint="remove some values, or add comparisons to --comparisonType",
            )
    return done
