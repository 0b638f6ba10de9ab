"""The registry of Python builders: completes configured builders from their classes, and finds builders in `builders/` folders.

No builder code runs in the engine: a short-lived process describes the classes (`worker.describing.describe`). A JSON file stores
the result with the size and time of every source file. If no file changed, this needs only a few `stat`s: no process, no import, no
metadata of packages.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from aptui.config import packing
from aptui.config.configuration import Config, ConfigErrors, ToolSettings
from aptui.core import run_report
from aptui.core.paths import builder_uuid
from aptui.core.patterns import leave_out, wildcard_regex
from aptui.core.project import Builder, BuilderKind, Pattern, PatternKind
from aptui.core.settings import place_key
from aptui.shared.errors import KnownError, UserError
from aptui.shared.files import clocks
from aptui.shared.files.replacing import read_regular, replace_bytes
from aptui.shared.forms import prepare_form
from aptui.shared.param_schema import mistakes
from aptui.worker.describing.questions import (
    ClassAnswer,
    ClassDescription,
    ClassQuestion,
    IncompleteClass,
    code_files_of,
)

if TYPE_CHECKING:
    import ast

    from aptui.engine.pool.sandbox import Sandbox


FOLDER = "builders"
_HELPER = "if the file is a helper module, rename it to '_NAME.py'"
_LIMIT_S = 120.0
_VERSION_LIMIT_S = 10.0
_MOST_VERSION_CHARACTERS = 1000
_ENTRY = "entry:"
_NO_VERSION = Builder(b"", "", BuilderKind.PYTHON).version
_OF_THE_PROJECT = (
    "platforms", "analyse_limit_s", "process_limit_s", "memory_limit_bytes", "undeclared_reads", "variables", "retry",
)  # fmt: skip
"""Fields that the project's settings determine for a builder that has no entry in the configuration."""


class _RegistryCache(Struct):
    """The contents of the file that stores the registry's answers about builders.

    `signature` changes if the interpreter or an installed package changes. `entries`: {name of an entry
    point: answer}. `files`: {path: answer}. `adapted`: {adapter and its environment: answer}. `versions`: {path, digest and
    version command of a tool: the version that the tool printed}.
    """

    signature: str = ""
    entries: dict[str, ClassAnswer] = field(default_factory=dict)
    files: dict[str, ClassAnswer] = field(default_factory=dict)
    adapted: dict[str, ClassAnswer] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def complete(
    config: Config, cache_file: Path, notify: Callable[[str], None] = lambda _sentence: None, *, asks_versions: bool = False
) -> tuple[Builder, ...]:
    """Return the configured builders, completed from their classes, and the builders of the `builders/` folder.

    A class adds its version, its patterns, its fingerprint and the digest of its code.

    A builder with an adapter and no origin is replaced by the builders that its adapter finds. A builder with the origin
    `entry:NAME` may also name a class in the project's `builders/` folder; such a class is not added a second time. Patterns in the
    configuration replace the patterns of the class. A file in `builders/` whose name starts with `_` is a helper, not a builder.

    Args:
        cache_file: the registry's file; may be absent, unreadable or unwritable.
        notify: called with errors of scripts that adapters run; other builders continue to work.
        asks_versions: whether to run the version commands of tools; otherwise the stored versions are used.

    Raises:
        UserError: a builder does not exist, a file lost its builders, two builders have the same name, or a file cannot be imported
            and its builders are unknown. If its builders are known, only their jobs fail (`Builder.fault`); if a version command
            fails, only the jobs of builders with its tool fail.
        HostError: the project requires a sandbox, and it cannot be started.
    """
    builders, project_dir, unlisted = config.project.builders, config.project_dir, config.project.unlisted_builder
    paths = _list_builder_files(project_dir)
    has_classes = bool(paths) or any(builder.kind is BuilderKind.PYTHON for builder in builders)
    if not has_classes and not any(tool.version for tool in config.tools):
        return builders
    memory = _read_remembered(cache_file)
    versions, failures = _ask_versions(config) if asks_versions else (memory.versions, {})
    builders, adapted = _adapt_builders(config, memory, notify)
    files = _answers({path: ClassQuestion(path=path) for path in paths}, memory.files, config)
    for path, answer in files.items():
        if answer.incomplete:
            raise ConfigErrors([_incomplete_error(each, path) for each in answer.incomplete])
        if answer.error:
            files[path] = _keep_classes(answer, path, memory.files.get(path))
            notify(f"{_describe_fault(answer, path)}; its jobs fail until the error is fixed")
    own = {found.name: (found, path) for path in paths for found in files[path].classes}
    _check_own_names(files, paths)
    _check_lost(files, memory.files, set(own), notify)
    names = {name for builder in builders if builder.kind is BuilderKind.PYTHON for name in _entry_names(builder)}
    entries = _answers({name: ClassQuestion(entry=name) for name in sorted(names - own.keys())}, memory.entries, config)
    for path in paths:
        if not files[path].classes:
            name = f"{FOLDER}/{os.path.basename(path)}"
            notify(f"'{name}' has no builder, which is a class with name, patterns, create_jobs and process_job; {_HELPER}")
    _check_entries(builders, own, entries, config.places)
    builders = tuple(_add_versions(builder, config, versions, failures) for builder in builders)
    completed = [_complete_builder(builder, own, files, entries) for builder in builders]
    used = {origin for builder in completed for origin in (builder.origin, *(step.origin for step in builder.steps))}
    added = [_add_found(found, files[path], unlisted) for found, path in own.values() if found.origin not in used]
    _check_names([*completed, *added])
    _check_patterns([*completed, *added], own.values(), config.places)
    _remember(cache_file, _RegistryCache(_signature(), entries, files, adapted, versions), memory)
    return (*completed, *added)


def _list_builder_files(project_dir: Path) -> list[str]:
    """Return the files in the project's folder of builders that may have builders, sorted.

    Raises:
        UserError: an entry is a pipe, a device or a folder; the import of a pipe might never end.
    """
    paths = [path for path in sorted((project_dir.resolve() / FOLDER).glob("*.py")) if not path.name.startswith("_")]
    if special := next((path for path in paths if path.exists() and not path.is_file()), None):
        raise UserError(f"'{special}' is not a regular file", hint=f"remove it from the folder '{FOLDER}'")
    return list(map(str, paths))


# ------------------------------------------------------------------------------------------------------------------ adapters


def _adapt_builders(
    config: Config, memory: _RegistryCache, notify: Callable[[str], None]
) -> tuple[tuple[Builder, ...], dict[str, ClassAnswer]]:
    """Return the configured builders and the adapters' answers.

    A configured builder with an adapter and no origin is replaced by the builders that its adapter finds.
    """
    builders = config.project.builders
    questions = {_adapter_key(builder): ClassQuestion(stand_in=builder) for builder in builders if _is_stand_in(builder)}
    if not questions:
        return builders, {}
    answers = _answers(questions, memory.adapted, config)
    known = [builder for answer in memory.adapted.values() for builder in answer.found]
    taken = {builder.name for builder in builders}
    completed: list[Builder] = []
    for builder in builders:
        if not _is_stand_in(builder):
            completed.append(builder)
            continue
        answer = answers[_adapter_key(builder)]
        _check_adapted(answer, builder, known, notify)
        for found in answer.found:
            if found.name in taken:
                notify(f"'{_script_of(found)}': the builder {found.name!r} is left out, because another builder has this name")
            else:
                taken.add(found.name)
                completed.append(_make_unlisted(found, builder))
    return tuple(completed), answers


def find_adapted_folders(cache_file: Path) -> list[str]:
    """Return the folders of the code that adapters found the last time, sorted.

    A change in these folders is a change of builders.
    """
    answers = _read_remembered(cache_file).adapted.values()
    return sorted({os.path.dirname(path) for answer in answers for path, *_ in answer.files})


def code_files(cache_file: Path) -> dict[str, list[str]]:
    """Return {module in a project's `builders/` folder: this module, and the modules of the folder that it imports}.

    The data are from the last description of the builders.
    """
    return {path: [name for name, *_ in answer.files] for path, answer in _read_remembered(cache_file).files.items()}


def read_remembered_names(cache_file: Path) -> dict[bytes, str]:
    """Return {uuid: name} of the builders that the last complete description found in code."""
    memory = _read_remembered(cache_file)
    names = {builder_uuid(found.name): found.name for answer in memory.files.values() for found in answer.classes}
    return names | {builder.uuid: builder.name for answer in memory.adapted.values() for builder in answer.found}


def _check_adapted(answer: ClassAnswer, stand_in: Builder, known: Iterable[Builder], notify: Callable[[str], None]) -> None:
    if answer.error:
        raise UserError(
            f"{stand_in.name} cannot be loaded: {answer.error}", hint="correct the file in this message; 'aptui doctor' prints more"
        )
    found = {builder.uuid for builder in answer.found}
    for problem in answer.problems:
        lost = sorted(builder.name for builder in known if _script_of(builder) == problem.script and builder.uuid not in found)
        if lost:
            # A source without its builder loses its products, and a mistake in a script must not cause that.
            raise UserError(
                problem.text, hint=f"correct or remove the script, which earlier registered {', '.join(map(repr, lost))}"
            )
        notify(problem.text)


def _is_stand_in(builder: Builder) -> bool:
    return bool(builder.adapter) and not builder.origin


def _adapter_key(builder: Builder) -> str:
    return f"{builder.adapter}\n{builder.environment}"


def _script_of(builder: Builder) -> str:
    return builder.origin.removeprefix("file:").rpartition(":")[0]


# ------------------------------------------------------------------------------------------------------------------ builders


def _entry_names(builder: Builder) -> tuple[str, ...]:
    """Return the names after `uses:` of a builder or of its steps."""
    origins = [each.origin for each in builder.steps or (builder,)]
    return tuple(origin.removeprefix(_ENTRY).partition(":")[0] for origin in origins if origin.startswith(_ENTRY))


def _complete_builder(
    builder: Builder, own: dict[str, tuple[ClassDescription, str]], files: dict[str, ClassAnswer], entries: dict[str, ClassAnswer]
) -> Builder:
    names = _entry_names(builder)
    if builder.kind is not BuilderKind.PYTHON or not names:
        return builder
    parts = []
    for name in names:
        answer = files[own[name][1]] if name in own else entries[name]
        parts.append((own[name][0] if name in own else answer.classes[0], answer))
    return _fill_steps(builder, parts) if builder.steps else _fill(builder, *parts[0])


def _fill(builder: Builder, found: ClassDescription, answer: ClassAnswer) -> Builder:
    files = (*code_files_of(answer.files), *builder.code_files)
    return replace(
        builder,
        version=_describe_version(found) + (f", {builder.version}" if builder.version != _NO_VERSION else ""),
        analysis_fingerprint=found.analysis_fingerprint,
        patterns=builder.patterns or leave_out(_patterns(found), builder.exclude),
        origin=found.origin,
        code_digest=run_report.code_digest(files),
        code_files=files,
        deletes_products_on_failure=builder.deletes_products_on_failure or "delete_products_on_failure" in found.flags,
        params_schema=found.params_schema,
        reads_debug_output="reads_debug_output" in found.flags,
        trusted_params=tuple(sorted({*builder.trusted_params, *found.trusted_params})),
        fault=_describe_fault(answer, found.origin) if answer.error else "",
    )


def _describe_version(found: ClassDescription) -> str:
    return f"{found.version} ({', '.join(found.packages)})" if found.packages else found.version


def _fill_steps(builder: Builder, parts: Sequence[tuple[ClassDescription, ClassAnswer]]) -> Builder:
    """Fill in the fields of a builder with steps from its steps' classes. Its fingerprint and parameters cover all steps."""
    names = [step.name for step in builder.steps]
    steps = tuple(
        replace(step, origin=found.origin, patterns=step.patterns or _patterns(found))
        for step, (found, _answer) in zip(builder.steps, parts, strict=True)
    )
    schemas = [json.loads(found.params_schema or "{}") for found, _answer in parts]
    # a later step is planned only while the job runs, so every parameter of the step can change the products
    for each in schemas[1:]:
        for rule in each.get("properties", {}).values():
            rule.pop("is_planning_only", None)
    properties = {
        f"{name}.{key}": rule
        for name, schema in zip(names, schemas, strict=True)
        for key, rule in schema.get("properties", {}).items()
    }
    schema: dict[str, object] = {"properties": properties}
    if all(each.get("additionalProperties") is False for each in schemas):
        schema["additionalProperties"] = False
    named = [(name, found) for name, (found, _answer) in zip(names, parts, strict=True)]
    whole = ClassDescription(
        name=builder.name,
        origin=builder.origin,
        version=", ".join(f"{name} {_describe_version(found)}" for name, found in named),
        analysis_fingerprint="\n".join(
            f"{name} {found.analysis_fingerprint}" for name, found in named if found.analysis_fingerprint
        ),
        patterns=parts[0][0].patterns,
        flags=tuple({flag for found, _answer in parts for flag in found.flags}),
        params_schema=json.dumps(schema, sort_keys=True),
        trusted_params=tuple(f"{name}.{param}" for name, found in named for param in found.trusted_params),
        line=0,
        packages=(),
    )
    code = {fact[0]: fact for _found, answer in parts for fact in answer.files}
    filled = _fill(builder, whole, ClassAnswer(files=list(code.values())))
    fault = next((_describe_fault(answer, found.origin) for found, answer in parts if answer.error), "")
    return replace(filled, steps=steps, fault=fault)


def _make_unlisted(builder: Builder, unlisted: Builder) -> Builder:
    """Return `builder`, which the configuration does not list, with the project's settings for unlisted builders."""
    return replace(builder, **{name: getattr(unlisted, name) for name in _OF_THE_PROJECT})


def _add_found(found: ClassDescription, answer: ClassAnswer, unlisted: Builder) -> Builder:
    builder = Builder(builder_uuid(found.name), found.name, BuilderKind.PYTHON)
    return _fill(_make_unlisted(builder, unlisted), found, answer)


def _patterns(found: ClassDescription) -> tuple[Pattern, ...]:
    return tuple(Pattern(PatternKind.GLOB, text, wildcard_regex(text)) for text in found.patterns)


def forget_times(cache_file: Path) -> None:
    """Forget the stored times of all code, so that the next check compares bytes."""
    memory = _read_remembered(cache_file)
    answers = [*memory.entries.values(), *memory.files.values(), *memory.adapted.values()]
    before = replace(memory, signature="")
    for answer in answers:
        answer.files = [(path, size, 0, code) for path, size, _mtime_ns, code in answer.files]
    _remember(cache_file, memory, before)


def describe_again(config: Config, cache_file: Path) -> tuple[Config, tuple[Builder, ...]]:
    """Return (`config` with the present state of its tools, builders). The bytes of the builders' files are read again.

    Raises:
        UserError: a builder cannot be loaded.
    """
    forget_times(cache_file)
    now = packing.refresh_tools(config)
    return now, complete(now, cache_file)


def code_of(builders: tuple[Builder, ...]) -> dict[str, tuple[bytes, tuple[tuple[str, str], ...]]]:
    """Return {builder: (digest of its code, (path, digest) of its files)}."""
    return {builder.name: (builder.code_digest, builder.code_files) for builder in builders}


# ------------------------------------------------------------------------------------------------------------------ versions


def _add_versions(builder: Builder, config: Config, versions: Mapping[str, str], failures: Mapping[str, str]) -> Builder:
    """Return a builder whose version also names the printed versions of its tools.

    If the version command of a tool failed, the jobs of this builder fail.
    """
    tools = {_version_key(tool): tool for tool in config.tools if tool.builder == builder.name and tool.version}
    if texts := [f"{tool.name}: {versions[key]}" for key, tool in tools.items() if key in versions]:
        builder = replace(builder, version=f"{builder.version} ({', '.join(texts)})")
    faults = [_describe_version_failure(tool, failures[key]) for key, tool in tools.items() if key in failures]
    return replace(builder, fault=faults[0]) if faults and not builder.fault else builder


def _describe_version_failure(tool: ToolSettings, why: str) -> str:
    what = f"builder '{tool.builder}': the version command '{tool.version}' of tool '{tool.name}' {why}"
    return f"{what}; correct the command, so that it prints a version in the folder of the project"


def _version_key(tool: ToolSettings) -> str:
    return f"{tool.path}\n{tool.digest}\n{tool.version}"


def _ask_versions(config: Config) -> tuple[dict[str, str], dict[str, str]]:
    """Run each version command once, in the sandbox of the project's programs.

    Return {`_version_key` of a tool: the output as one line}, and {`_version_key` of a tool: why its command failed}. No earlier
    output is reused, because the tool's file may be a script that starts another program, and this program may have changed.
    """
    tools = {_version_key(tool): tool for tool in config.tools if tool.version and tool.path}
    found: dict[str, str] = {}
    failures: dict[str, str] = {}
    if not tools:
        return found, failures
    import shlex
    import subprocess

    from aptui.engine.pool.sandbox import sandbox_of
    from aptui.engine.pool.spawning import python_environment

    sandbox, folder = sandbox_of(config, stages=False), str(config.project_dir)
    for key, tool in tools.items():
        output = ""
        try:
            words = shlex.split(tool.version)
            ended = subprocess.run(
                words if sandbox is None else sandbox.command(words, folder),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_VERSION_LIMIT_S,
                check=False,
                cwd=folder,
                env=python_environment(),
                start_new_session=True,
            )
            output = " ".join(ended.stdout.decode("utf-8", "replace").split())[:_MOST_VERSION_CHARACTERS]
            why = "" if output else "printed nothing"
            if ended.returncode:
                why = f"ended with status {ended.returncode}" + (f": {output}" if output else "")
        except subprocess.TimeoutExpired:
            why = f"took more than {_VERSION_LIMIT_S:g} s"
        except (OSError, ValueError) as error:
            why = f"cannot be started: {error}"
        if why:
            failures[key] = why
        else:
            found[key] = output
    return found, failures


# -------------------------------------------------------------------------------------------------------------------- errors


def _keep_classes(answer: ClassAnswer, path: str, known: ClassAnswer | None) -> ClassAnswer:
    """Return the answer for a file that cannot be imported. Its builders are those of the stored answer or of the file's text.

    The answer has the present digests of the files, so that the jobs of builders with unchanged code do not run again.

    Raises:
        UserError: it is unknown which builders the file has. Without these builders, their sources would lose their products.
    """
    if known is not None and known.classes:
        files = [(name, 0, 0, _digest_of(name)) for name, *_ in known.files if os.path.isfile(name)]
        return replace(answer, classes=known.classes, files=files)
    classes = read_classes(path)
    if not classes:
        where = f"{path}:{answer.line}" if answer.line else path
        hint = f"to keep aptui from loading a file in '{FOLDER}/', begin its name with '_'"
        raise UserError(_describe_error(answer), where=where, hint=hint)
    return replace(answer, classes=classes)


def _describe_error(answer: ClassAnswer) -> str:
    return answer.error if answer.kind == "syntax" else f"the builder cannot be loaded: {answer.error}"


def _describe_fault(answer: ClassAnswer, path: str) -> str:
    """Return the reason why a file in `builders/` cannot be imported, with the position of the error.

    Args:
        path: the path of the file, or the origin of its builder (`file:` and the path).
    """
    name = os.path.basename(path.removeprefix("file:").partition(".py")[0])
    return f"{FOLDER}/{name}.py:{answer.line or 1}: {_describe_error(answer)}"


def read_classes(path: str) -> list[ClassDescription]:
    """Return the builders in the text of a file, without running the file: classes whose name and patterns are literals.

    After a syntax error, only the text before the error is read.
    """
    import ast

    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    while lines:
        try:
            tree = ast.parse("\n".join(lines))
            break
        except SyntaxError as error:
            lines = lines[: min(len(lines) - 1, (error.lineno or len(lines)) - 1)]
        except ValueError:
            return []
    else:
        return []
    return [found for node in tree.body if isinstance(node, ast.ClassDef) and (found := _read_class(node, path)) is not None]


def _read_class(node: ast.ClassDef, path: str) -> ClassDescription | None:
    import ast

    values: dict[str, object] = {}
    for line in node.body:
        targets = line.targets if isinstance(line, ast.Assign) else [line.target] if isinstance(line, ast.AnnAssign) else []
        for target in targets:
            try:
                values[target.id] = ast.literal_eval(line.value)  # type: ignore[attr-defined]  # other targets raise
            except (ValueError, AttributeError, TypeError):
                continue
    name, patterns = values.get("name"), values.get("patterns", ())
    patterns = (patterns,) if isinstance(patterns, str) else patterns
    if not isinstance(name, str) or not isinstance(patterns, tuple | list):
        return None
    version, analysis = str(values.get("version", "1")), str(values.get("analysis_fingerprint", ""))
    return ClassDescription(
        name, f"file:{path}:{node.name}", version, analysis, tuple(map(str, patterns)), (), "", (), node.lineno, ()
    )


def _incomplete_error(found: IncompleteClass, path: str) -> UserError:
    what = f"class {found.name} has {_enumerate(found.has)}, but no {' and no '.join(found.lacks)}"
    return UserError(
        what, where=f"{path}:{found.line}", hint="complete the builder; if the class is a helper, begin its name with '_'"
    )


def _enumerate(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _check_lost(
    files: Mapping[str, ClassAnswer], before: Mapping[str, ClassAnswer], names: set[str], notify: Callable[[str], None]
) -> None:
    """Refuse a file without builders if a builder that it had is lost. If a file lost only some of its builders, report them.

    A builder that is found in another file is not lost.

    A source without its builder loses its products, and a mistake in a file must not cause that.
    """
    for path, answer in files.items():
        known = before[path].classes if path in before else []
        lost = sorted(found.name for found in known if found.name not in names)
        if not lost:
            continue
        listed = _enumerate([repr(name) for name in lost])
        if not answer.classes:
            hint = "restore the builder; or remove the file, and the products of the builder are deleted"
            raise UserError(f"the file no longer has a builder; it had {listed}", where=path, hint=hint)
        new = _enumerate([repr(found.name) for found in answer.classes])
        subject, owner = (f"builder {listed} was", "its") if len(lost) == 1 else (f"builders {listed} were", "their")
        notify(
            f"{subject} removed from '{FOLDER}/{os.path.basename(path)}', so {owner} products are deleted; the file now has {new}"
        )


def _check_patterns(builders: Iterable[Builder], own: Iterable[tuple[ClassDescription, str]], places: Mapping[str, str]) -> None:
    """Refuse builders without patterns in their class and in the configuration: their sources would lose their products."""
    known, wrong = {found.origin: (found, path) for found, path in own}, []
    for builder in builders:
        if builder.kind is not BuilderKind.PYTHON or builder.patterns or builder.adapter:
            continue
        if builder.origin in known:
            found, path = known[builder.origin]
            name = found.origin.rpartition(":")[2]
            what, where = f"class {name} has name, create_jobs and process_job, but no patterns", f"{path}:{found.line}"
        else:
            what, where = f"builder {builder.name!r} has no patterns", places.get(builder.name, "")
        wrong.append(UserError(what, where=where, hint="add the patterns of its sources: patterns = ('*.ext',)"))
    if wrong:
        raise ConfigErrors(wrong)


def _check_entries(
    builders: Iterable[Builder], own: Mapping[str, object], entries: Mapping[str, ClassAnswer], places: Mapping[str, str]
) -> None:
    """Raise all mistakes in the configured builders at once."""
    wrong = []
    for builder in builders:
        names = _entry_names(builder) if builder.kind is BuilderKind.PYTHON else ()
        steps = [step.name for step in builder.steps] or [builder.name]
        for name, step in zip(names, steps, strict=False):
            if name not in own and entries[name].error:
                where = places.get(place_key((builder.name, "steps", step)), places.get(builder.name, ""))
                wrong.append(_entry_error(entries[name], name, builder, (*entries[name].known, *own), where))
    if wrong:
        raise ConfigErrors(wrong)


def _entry_error(answer: ClassAnswer, name: str, builder: Builder, known: Iterable[str], where: str) -> UserError:
    if answer.kind != "unknown":
        return UserError(f"builder {name!r} cannot be loaded: {answer.error}", where=where)
    names = sorted(set(known))
    import difflib  # imported here, because the module is needed only after a mistake

    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}" if near else f"the builders are: {', '.join(map(repr, names)) or 'none'}"
    return UserError(f"{answer.error} (used by {builder.name!r})", where=where, hint=hint)


def _check_own_names(files: dict[str, ClassAnswer], paths: list[str]) -> None:
    seen: dict[str, str] = {}
    for path in paths:
        for found in files[path].classes:
            if not re.fullmatch(r"[^\s\x00-\x1f/:]+", found.name):
                raise UserError(f"the builder name {found.name!r} must not contain spaces, slashes or colons", where=path)
            if found.name in seen:
                raise UserError(
                    f"there is also a builder {found.name!r} in {seen[found.name]!r}",
                    where=path,
                    hint="rename one of these builders",
                )
            seen[found.name] = path


def _check_names(builders: list[Builder]) -> None:
    seen: dict[str, Builder] = {}
    for builder in builders:
        if builder.name in seen:
            where = _script_of(builder) if builder.origin.startswith("file:") else ""
            raise UserError(f"two builders have the name {builder.name!r}", where=where, hint="rename one of these builders")
        seen[builder.name] = builder


# ------------------------------------------------------------------------------------------------------------ stored answers


def _answers(questions: dict[str, ClassQuestion], known: dict[str, ClassAnswer], config: Config) -> dict[str, ClassAnswer]:
    """Return the answer to each question. If its stored answer is not valid, a new process in the sandbox answers it."""
    fresh = {key: answer for key in questions if key in known and (answer := _current(known[key])) is not None}
    missing = [key for key in questions if key not in fresh]
    if missing:
        from aptui.engine.pool.sandbox import sandbox_of  # imported here, because the module is not needed if no code has changed

        asked = [questions[key] for key in missing]
        fresh.update(zip(missing, ask_child(asked, sandbox_of(config, stages=False)), strict=True))
    return {key: fresh[key] for key in questions}


def _current(answer: ClassAnswer) -> ClassAnswer | None:
    """Return the stored answer, with the present times of its files, if no code file has changed; otherwise None."""
    if answer.error or not answer.files or not all(problem.is_lasting for problem in answer.problems):
        return None
    if any(shutil.which(tool) for tool in answer.missing_tools):
        return None
    current, read_ns = [], time.time_ns()
    for path, size, mtime_ns, digest in answer.files:
        try:
            found = os.stat(path)
            is_same = (found.st_size, found.st_mtime_ns) == (size, mtime_ns)
            is_settled = clocks.is_settled((size, found.st_mtime_ns, found.st_ctime_ns), read_ns)
            if not is_same and _digest_of(path) != digest:
                return None
        except OSError:
            return None
        # A stored time of 0 makes the next check compare bytes again, because the present bytes were read too soon after a change.
        current.append((path, found.st_size, found.st_mtime_ns if is_same or is_settled else 0, digest))
    return replace(answer, files=current)


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ask_child(questions: list[ClassQuestion], sandbox: Sandbox | None) -> list[ClassAnswer]:
    """Import builders in a child process, which runs in `sandbox` if there is one, and return their descriptions.

    Raises:
        UserError: the process hangs, or its answer cannot be read.
    """
    import subprocess

    from aptui.engine.pool.spawning import python_command, python_environment

    try:
        command = python_command("--describe")
        ended = subprocess.run(
            command if sandbox is None else sandbox.command(command),
            input=msgspec.json.encode(questions),
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            env=python_environment(),
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        names = ", ".join(repr(each.entry or each.path or (each.stand_in.name if each.stand_in else "")) for each in questions)
        raise UserError(
            f"the builders were not loaded within {_LIMIT_S:.0f} s, because the import of one of these files does not end: {names}",
            hint="check what these files do when they are imported",
        ) from None
    try:
        return msgspec.json.decode(ended.stdout, type=prepare_form(list[ClassAnswer]))
    except msgspec.MsgspecError:
        text = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise UserError(
            f"the builders cannot be loaded: {text[-1] if text else f'status {ended.returncode}'}",
            hint="correct the file in this message; 'aptui doctor' prints more",
        ) from None


def _signature() -> str:
    """Return a value that changes with the interpreter, the folder of aptui (a clone may be one of several) and the packages.

    `pip` changes the time of its target folder.
    """
    parts = [sys.version, sys.executable, os.path.dirname(os.path.dirname(__file__))]
    for folder in sys.path:
        if folder.endswith(("site-packages", "dist-packages")):
            try:
                parts.append(f"{folder}:{os.stat(folder).st_mtime_ns}")
            except OSError:
                continue
    return "\n".join(parts)


def _read_remembered(cache_file: Path) -> _RegistryCache:
    try:
        memory = msgspec.json.decode(read_regular(cache_file), type=prepare_form(_RegistryCache))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _RegistryCache()
    # The cache may come from another machine, and must not choose the file whose code is loaded.
    memory.files = {path: each for path, each in memory.files.items() if _list_places(each) <= {f"file:{path}"}}
    memory.entries = {
        name: each
        for name, each in memory.entries.items()
        if all(text.startswith(f"{_ENTRY}{name}:") for text in _list_places(each))
    }
    if memory.signature == _signature():
        return memory
    for answer in memory.files.values():
        if any(found.packages for found in answer.classes):
            answer.files = []  # drop the answer, because another version of a required package may be installed now
    return _RegistryCache(memory.signature, {}, memory.files, memory.adapted, memory.versions)


def _list_places(answer: ClassAnswer) -> set[str]:
    """Return the modules or files of the builder classes in a stored answer: each origin without the class name."""
    return {found.origin.rpartition(":")[0] for found in answer.classes}


def _remember(cache_file: Path, memory: _RegistryCache, before: _RegistryCache) -> None:
    """Write the registry's file if its contents changed. If it cannot be written, the next start only takes longer."""
    if memory == before:
        return
    with contextlib.suppress(OSError, KnownError):
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(cache_file, msgspec.json.encode(memory), is_synced=False)


# Checks of builders' parameters against their classes' `params_schema`, before anything runs.
#
# `core.settings` checks the parameters in `.aptui.yaml`.


def complete_checked(config: Config, memory: Path, notify: Callable[[str], None] = lambda _sentence: None) -> tuple[Builder, ...]:
    """Return the builders of a configuration as `registry.complete` does, with checked parameters and versions of tools.

    Only an engine calls this function, because it runs commands of the project.

    Args:
        memory: the cache file of the registry.
        notify: called with an error in a script that an adapter runs.

    Raises:
        UserError: as `registry.complete`; or a parameter is unknown or has a wrong value: the error lists each wrong parameter with
            its place.
    """
    builders = complete(config, memory, notify, asks_versions=True)
    wrong = {str(error): error for builder in builders if builder.params_schema for error in _mistakes(builder, config.places)}
    if wrong:
        raise ConfigErrors(list(wrong.values()))
    return builders


def _mistakes(builder: Builder, places: Mapping[str, str]) -> Iterator[UserError]:
    schema = json.loads(builder.params_schema)
    rules = ((f"rules {number}", rule.params) for number, rule in enumerate(builder.rules))
    for part, params in (("params", builder.params), *rules, *builder.platform_params):
        for mistake in mistakes(schema, json.loads(params)):
            where = places.get(place_key((builder.name, part, mistake.name))) or places.get(builder.name, "")
            yield UserError(f"{mistake.what} (builder '{builder.name}')", where=where, hint=mistake.hint)
