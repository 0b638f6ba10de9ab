"""Describes builder classes in a separate process: their version, their patterns, the files of their code.

The process reads a list of `ClassQuestion` as JSON from stdin, and writes a list of `ClassAnswer` to stdout. A forked process
answers each question, so that a builder that dies during its import or changes the interpreter does not affect other answers.
`engine.registry` starts the process.

Tests: `tests/builders/test_model_builder.py`.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec
from msgspec.structs import replace

from aptui.core.project import Builder
from aptui.sdk import SimpleBuilder, programs, schema_of, trusted_params
from aptui.shared.files import clocks
from aptui.shared.forms import prepare_form
from aptui.worker import builder_import
from aptui.worker.builder_import import NoSuchBuilder, find_entry_point, is_of_file, load_class, load_file, load_function
from aptui.worker.describing.questions import (
    ClassAnswer,
    ClassDescription,
    ClassQuestion,
    IncompleteClass,
    ScriptProblem,
    code_digest,
    code_files_of,
)
from aptui.worker.processes import signal_name

_MEMBERS = ("name", "patterns", "create_jobs", "process_job")
_METHODS = frozenset({"create_jobs", "process_job"})
_OBLIGATORY = frozenset({"name", *_METHODS})


def main() -> None:
    """Answer the questions on stdin."""
    questions = msgspec.json.decode(sys.stdin.buffer.read(), type=prepare_form(list[ClassQuestion]))
    answers = os.dup(1)
    os.dup2(2, 1)  # a builder may print during its import; this output must not mix with the answers
    found = [_answer_in_fork(question) for question in questions]
    with open(answers, "wb") as stream:
        stream.write(msgspec.json.encode(found))


def _answer_in_fork(question: ClassQuestion) -> ClassAnswer:
    """Answer a question in a forked process. This process has one thread, so forking is safe."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            answer = describe(question)
        except BaseException as error:  # noqa: BLE001 - the import of user code may raise anything, sys.exit included
            answer = _error(error, question)
        with open(writer, "wb") as stream:
            stream.write(msgspec.json.encode(answer))
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(pid, 0)
    if not data:
        code = os.waitstatus_to_exitcode(status)
        how = f"killed by {signal_name(-code)}" if code < 0 else f"ended with status {code}"
        return ClassAnswer(error=f"its import was {how}", kind="import")
    return msgspec.json.decode(data, type=prepare_form(ClassAnswer))


def describe(question: ClassQuestion) -> ClassAnswer:
    """Import the code that the question names and describe it."""
    if question.stand_in is not None:
        return _find_by(question.stand_in)
    if question.entry:
        target = find_entry_point(question.entry)
        origin = f"entry:{question.entry}:{target}"
        builder = load_class(origin)
        module = sys.modules[builder.__module__]
        classes, found = [builder], [_description(builder, origin)]
    else:
        module = load_file(question.path)
        classes = [value for value in _classes(module) if _list_members(value) >= _OBLIGATORY]
        found = [_description(builder, f"file:{question.path}:{builder.__name__}") for builder in classes]
    names = dict.fromkeys(name for value in classes for name in programs.names_of(value, "tools"))
    tools = {name: programs.find_program(name, ()) for name in names}
    files = [_fact(path) for path in (*_code_files(module), *filter(None, tools.values()))]
    missing = [name for name, path in tools.items() if not path]
    return ClassAnswer(found, files, incomplete=_find_incomplete(module, question), missing_tools=missing)


def _classes(module: ModuleType) -> list[type[Any]]:
    return [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]


def _list_members(builder: type[Any]) -> set[str]:
    """Return the names of the builder's members that a class defines correctly, for example `name` as a text."""
    found = {name for name in _METHODS if callable(getattr(builder, name, None))}
    if getattr(builder, "build", None) is SimpleBuilder.build:
        found.discard("process_job")
    found |= {"name"} if isinstance(getattr(builder, "name", None), str) else set()
    return found | ({"patterns"} if getattr(builder, "patterns", ()) else set())


def _find_incomplete(module: ModuleType, question: ClassQuestion) -> list[IncompleteClass]:
    """Return the classes of a file that look like builders but are incomplete.

    Helper classes are left out: bases of other classes of the file, abstract classes, and classes whose names begin with `_`. A
    builder without patterns is complete, because the configuration may define its patterns.
    """
    if not question.path:
        return []
    classes = _classes(module)
    bases = {base for value in classes for base in value.__mro__[1:]}
    found = []
    for value in classes:
        has = _list_members(value)
        is_helper = value in bases or value.__name__.startswith("_") or bool(getattr(value, "__abstractmethods__", None))
        if not is_helper and len(has) > 1 and has & _METHODS and not has >= _OBLIGATORY:
            members = tuple(name for name in _MEMBERS if name in has)
            is_simple = issubclass(value, SimpleBuilder)
            lacks = tuple("build" if is_simple and name == "process_job" else name for name in _MEMBERS if name not in has)
            found.append(IncompleteClass(value.__name__, _line_of(value), members, lacks))
    return found


def _line_of(builder: type[Any]) -> int:
    try:
        return inspect.getsourcelines(builder)[1]
    except (OSError, TypeError):  # other code, for example a decorator, created the class, so it has no source lines
        return 0


def _find_by(stand_in: Builder) -> ClassAnswer:
    builders, problems = load_function(stand_in.adapter)(stand_in)
    scripts = {script for script, _, _ in problems}.union(*(code for _, code in builders))
    facts = {path: _fact(path) for path in sorted(scripts) if os.path.isfile(path)}
    found = [_with_code(builder, [facts[path] for path in code]) for builder, code in builders]
    return ClassAnswer(found=found, files=list(facts.values()), problems=[ScriptProblem(*problem) for problem in problems])


def _with_code(builder: Builder, facts: list[tuple[str, int, int, str]]) -> Builder:
    return replace(builder, code_digest=code_digest(facts), code_files=code_files_of(facts))


def _description(builder: type[Any], origin: str) -> ClassDescription:
    patterns = getattr(builder, "patterns", ())
    if isinstance(patterns, str):
        patterns = (patterns,)
    return ClassDescription(
        name=str(builder.name),
        origin=origin,
        version=str(getattr(builder, "version", "1")),
        analysis_fingerprint=str(getattr(builder, "analysis_fingerprint", "")),
        patterns=tuple(map(str, patterns)),
        flags=tuple(sorted(map(str, getattr(builder, "flags", ())))),
        params_schema=_schema_text(schema_of(getattr(builder, "params_schema", None))),
        trusted_params=trusted_params(builder),
        line=_line_of(builder),
        packages=tuple(programs.list_package_versions(builder)),
    )


def _schema_text(schema: object) -> str:
    """Return a `params_schema` as canonical JSON, "" if it is missing or not JSON."""
    if not isinstance(schema, Mapping):
        return ""
    try:
        return json.dumps(schema, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return ""


def _code_files(module: ModuleType) -> list[str]:
    """Return the source files of a builder: its module, and the modules of the same package or folder that it imports.

    Modules that a function imports count, too, although they are not loaded yet. They are not searched for a module that is
    installed without a package, because its folder has the modules of all installed packages.
    """
    own = module.__file__ or ""
    package = f"{module.__name__.rpartition('.')[0]}." if "." in module.__name__ else ""
    folder = f"{os.path.dirname(own)}/"
    paths = {own} if own else set()
    for name, other in list(sys.modules.items()):
        path = getattr(other, "__file__", None) or ""
        if path.endswith(".py") and (name.startswith(package) if package else path.startswith(folder)):
            paths.add(path)
    root = os.path.join(os.path.normpath(os.path.join(folder, *[".."] * package.count("."))), "")
    if package:
        todo = [path for path in paths if _may_import_later(path, package.removesuffix("."))]
    else:
        todo = list(paths) if is_of_file(module) else []
    while todo:
        new = {path for path in list_imports(todo.pop(), root) if path.startswith(folder)} - paths
        paths |= new
        todo += new
    return sorted(paths)


_LATER_IMPORT = re.compile(rb"(?:[ \t\f:;]|\\\r?\n)(?:from|import)((?:\\\r?\n|[^\\\n;#])*)")
"""Matches an import that is not at the beginning of a line, and captures the rest of its statement."""
_IMPORTED = re.compile(rb"(?:\A|,)[\s\\]*([\w.]+)")
"""Captures the names of the modules in the rest of an import, and some other names."""


def _may_import_later(path: str, package: str) -> bool:
    """Whether a loaded module may import more modules of its package, for example in a function.

    This search takes a small part of the time in which a file is parsed, and few modules have such a statement.
    """
    try:
        with open(path, "rb") as file:
            found = [name for rest in _LATER_IMPORT.findall(file.read()) for name in _IMPORTED.findall(rest)]
    except OSError:
        return False
    names = [f"{name.decode('ascii', 'replace')}." for name in found]
    own = f"{package}."
    return any(name.startswith((".", own)) or own.startswith(name) for name in names)


def list_imports(path: str, folder: str) -> Iterator[str]:
    """Yield the existing files to which the `import` statements of a file may refer, also those inside functions.

    `folder` (with its slash) is the folder of the modules that the file imports by their full name.
    """
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        base, names = folder, [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            base = os.path.normpath(os.path.join(path, *[".."] * node.level)) if node.level else folder
            names = [f"{node.module}.{name}" if node.module else name for name in names]
        for parts in (name.split(".") for name in names if base != folder or not _is_elsewhere(name.partition(".")[0], folder)):
            places = [os.path.join(base, *parts[:count]) for count in range(1, len(parts) + 1)]
            yield from (file for place in places for file in (f"{place}.py", f"{place}/__init__.py") if os.path.isfile(file))


def _is_elsewhere(name: str, folder: str) -> bool:
    """Whether an import of the top module `name` finds a module outside `folder`."""
    loaded = getattr(sys.modules.get(name), "__file__", None)
    return name in sys.stdlib_module_names or (loaded is not None and not loaded.startswith(folder))


def _fact(path: str) -> tuple[str, int, int, str]:
    read_ns = time.time_ns()
    with open(path, "rb") as file:
        data = file.read()
        found = os.fstat(file.fileno())
    digest = hashlib.sha256(data).hexdigest()
    loaded = builder_import.find_loaded(path) or digest
    # The description belongs to the code that was loaded. If the file has other code by now, or may still change without a new file
    # time, the time 0 is returned, so that the next check compares bytes.
    is_known_by_time = loaded == digest and clocks.is_settled((found.st_size, found.st_mtime_ns, found.st_ctime_ns), read_ns)
    return path, found.st_size, found.st_mtime_ns if is_known_by_time else 0, loaded


def _error(error: BaseException, question: ClassQuestion) -> ClassAnswer:
    files = []
    if question.path:
        with contextlib.suppress(OSError):
            files = [_fact(question.path)]
    if isinstance(error, NoSuchBuilder):
        return ClassAnswer(error=str(error), kind="unknown", known=error.known)
    if isinstance(error, SyntaxError) and error.filename == question.path:
        return ClassAnswer(error=error.msg, kind="syntax", line=error.lineno or 0, files=files)
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno or 0 for frame in reversed(frames) if frame.filename == question.path), 0)
    text = str(error)
    return ClassAnswer(
        error=f"{type(error).__name__}: {text}" if text else type(error).__name__, kind="import", line=line, files=files
    )
