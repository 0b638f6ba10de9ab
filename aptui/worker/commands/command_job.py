"""One job of a command builder: prepares the values for the template, and collects log records, dependencies and products.

Tests: `tests/test_linear_patterns.py`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.core.notices import LogLevel, LogRecord
from aptui.core.orders import ProcessOrder
from aptui.core.project import COMMON_PLATFORM, Builder, CommandRule
from aptui.core.quality import QUALITY_VARIABLE, Quality
from aptui.core.retry import EXIT, FailureKind
from aptui.sdk import JobProduct, ProductFlag
from aptui.worker.answers import AnswerRefused, read_answer_text
from aptui.worker.commands import command as commands
from aptui.worker.commands.batch import MANIFEST, SharedStarts, read_manifest
from aptui.worker.commands.command import CommandWatch
from aptui.worker.commands.persistent import FileAnswer, PersistentPrograms, place_tools
from aptui.worker.log import RunLog, valid_text
from aptui.worker.output import BoundedText, TimedLine, bound_lines, record_of
from aptui.worker.outputs.declared_dependencies import add_declared
from aptui.worker.outputs.products import ReusableWorkspace, StagingFolders, remove_tree
from aptui.worker.reads import Reads

_DEPFILE_NAME = "depfile.d"
_MOST_WARNINGS = 5
_LINKS_NAME = "product_dependencies.txt"
_NOT_FOUND = re.compile(r"(?:^|: )(?P<program>[^:\s][^:]*): (?:command )?not found$")
"""The message that a shell prints before it exits with status 127 (command not found)."""


class CommandJob(Struct):
    """Result of a command. `error` is "" if the command succeeded; `kind` is the kind of its failure (`core.retry`)."""

    command_line: str
    peak_rss_bytes: int
    error: str = ""
    kind: str = ""
    share_ms: int = 0
    """This file's share (ms) of the duration of a program that ran for several files; 0 if the program ran for this file alone."""
    products: list[JobProduct] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)


class BatchSharing(Struct, frozen=True):
    """Shared state of all runs in one worker.

    All runs use the same `folders`, which is safe because the worker does one run at a time. `watch` is called when a command has
    started, and again when the command takes long; the worker then reports the results of earlier runs. `environment` returns the
    cached variables of a builder's commands, because `os.environ` is slow. `programs` are programs that keep running between jobs.
    `starts` has the results of programs that were started once for the files of several runs.
    """

    folders: ReusableWorkspace
    watch: CommandWatch
    environment: Callable[[str], Mapping[str, str]]
    programs: PersistentPrograms = field(default_factory=PersistentPrograms)
    starts: SharedStarts = field(default_factory=SharedStarts)


def run_command(
    order: ProcessOrder,
    builder: Builder,
    folders: StagingFolders,
    source: str,
    params: Mapping[str, Any],
    log: RunLog,
    reads: Reads,
    sharing: BatchSharing | None = None,
) -> CommandJob:
    """Run the command of `builder` for one source, in the current folder; `reads` records the files that the command opens.

    If `sharing` is None, the command gets the variables of this process, and a persistent program ends after the job.

    Raises:
        AnswerRefused: the command cannot be started, or made no product.
    """
    rule, watch = builder.command or CommandRule(""), sharing.watch if sharing else None
    values = values_of(order.rel, order.platform, (folders.products, folders.temp), source, params) | {"quality": order.quality}
    try:
        values["depfile"] = os.path.join(folders.temp, commands.fill(rule.depfile or _DEPFILE_NAME, values))
        values["product_dependencies"] = os.path.join(folders.temp, commands.fill(rule.links_file or _LINKS_NAME, values))
        answer = FileAnswer()
        values["manifest"] = os.path.join(folders.temp, MANIFEST)
        command = commands.invocation(place_tools(builder), values, (source,))
        inherited = sharing.environment(builder.name) if sharing else os.environ
        environment = {**inherited, "TMPDIR": folders.temp}
        if builder.has_drafts:
            environment[QUALITY_VARIABLE] = order.quality
        output = BoundedText(commands.DEPENDENCY_OUTPUT_BYTES) if rule.dependency_regex else BoundedText()
        log.follow_output(output, partial(_records_so_far, rule, builder.name))
        shared = sharing.starts.pop(order.run_key) if sharing else None
        if shared is not None:
            shared.move_products(folders.products)
            answer = shared.answer
            kind = "" if answer.ok else FailureKind.ERROR
            ended = commands.Execution(answer.failure, shared.output, shared.peak_rss_bytes, kind)
        elif rule.is_persistent:
            request = {
                **{name: text for name, text in values.items() if "." not in name},
                "params": dict(params),
                "id": order.run_key,
            }
            ended, answer = _ask_persistent(builder, command, request, inherited, output, log, sharing)
        elif builder.traces_reads:
            ended = _run_traced(command, environment, output, folders, reads, log, watch)
        else:
            ended = commands.execute(command, environment, output, watch, order.limit_s if order.is_batched else 0.0)
            if "{manifest}" in rule.command and not ended.error:
                ended, answer = _read_own_result(values["manifest"], source, ended)
        job = CommandJob(command.line, ended.peak_rss_bytes, ended.error, ended.kind, shared.share_ms if shared else 0)
        lines = ended.output.lines() + [line for text in answer.log for line in text.splitlines()]
        if rule.dependency_regex:
            lines, job.dependencies = _split_dependencies(rule, lines, ended.output)
        log.end_output(_records(rule, builder.name, lines))
        if job.error:
            job.error += _missing_program(job.kind, lines)
            job.error = f"{job.error}: {log.first_error}" if log.first_error else job.error
            return job
        job.products = _products(rule, builder, order, folders, values, answer)
        _add_links(rule, values["product_dependencies"], job.products, log)
    except commands.CommandError as error:
        raise AnswerRefused(str(error)) from error
    job.dependencies += [*_depfile(rule, values["depfile"], log), *answer.dependencies]
    places = (folders.temp, os.path.dirname(source), source.removesuffix(f"/{order.rel}"))
    named = [_place_path(path, places) for path in dict.fromkeys(job.dependencies)]
    job.dependencies = [file for files in named for file in files]
    _warn_of_missing([files[0] for files in named], log)
    return job


def _ask_persistent(
    builder: Builder,
    command: commands.Invocation,
    request: Mapping[str, Any],
    inherited: Mapping[str, str],
    output: BoundedText,
    log: RunLog,
    sharing: BatchSharing | None,
) -> tuple[commands.Execution, FileAnswer]:
    """Let a persistent program do a job, and return its answer; if `sharing` is None, end the program afterwards."""
    programs, watch = (sharing.programs, sharing.watch) if sharing else (PersistentPrograms(), None)
    try:
        return programs.run_job(builder, command, request, inherited, output, watch, log.note_progress)
    finally:
        if sharing is None:
            programs.end()


def _read_own_result(path: str, source: str, ended: commands.Execution) -> tuple[commands.Execution, FileAnswer]:
    """Return the result of processing the file `source`, from the manifest that the command has written."""
    answer = read_manifest(path).get(source)
    if answer is None:
        raise commands.CommandError("the manifest has no result for the source")
    if answer.ok:
        return ended, answer
    return replace(ended, error=answer.failure, kind=FailureKind.ERROR), answer


def _place_path(path: str, places: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first existing file to which a relative path from a command may refer.

    The folders are searched in this order: the command's current folder, the source's folder, the scan folder.

    If none exists, the path beside the source is returned. If the file is found in the scan folder, the missing path beside the
    source is returned too, because a file that appears there would take precedence.
    """
    started, beside, far = (os.path.normpath(os.path.join(place, path)) for place in places)
    if os.path.lexists(started):
        return (started,)
    return (far, beside) if os.path.lexists(far) and not os.path.lexists(beside) else (beside,)


def _warn_of_missing(paths: list[str], log: RunLog) -> None:
    missing = [path for path in paths if not os.path.lexists(path)]
    for path in missing[:_MOST_WARNINGS]:
        log.write(LogLevel.WARNING, valid_text(f"the command reported the dependency {path!r}, but this file does not exist"))
    if len(missing) > _MOST_WARNINGS:
        log.write(LogLevel.WARNING, f"the command reported {len(missing) - _MOST_WARNINGS} more dependencies that do not exist")


def _missing_program(kind: str, lines: list[str]) -> str:
    """Return text for the error of a command: which program its shell did not find; "" for other kinds of failure."""
    if kind != f"{EXIT}127":
        return ""
    found = next((match for text in lines if (match := _NOT_FOUND.search(text))), None)
    return f" (program '{found['program']}' was not found in the PATH that aptui was started with)" if found else ""


def _run_traced(
    command: commands.Invocation,
    environment: Mapping[str, str],
    output: BoundedText,
    folders: StagingFolders,
    reads: Reads,
    log: RunLog,
    watch: CommandWatch | None,
) -> commands.Execution:
    from aptui.worker.commands import read_trace

    if fault := read_trace.fault():
        log.write(LogLevel.INFO, f"the files that the command reads cannot be recorded: {fault}")
        return commands.execute(command, environment, output, watch)
    ended = commands.execute(read_trace.trace_command(command, folders.trace), environment, output, watch)
    read_trace.note_reads(folders.trace, command.program, reads)
    remove_tree(folders.trace)
    return ended


def values_of(rel: str, platform: str, folders: tuple[str, str], source: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the placeholders of a command; `folders` are the folders for products and for temporary files."""
    name = os.path.basename(source)
    stem, ext = os.path.splitext(name)
    plain = {
        "source": source,
        "products_dir": folders[0],
        "temp_dir": folders[1],
        "stem": stem,
        "name": name,
        "ext": ext[1:],
        "platform": platform,
        "quality": Quality.FINAL.value,
        "rel": rel,
    }
    values = {f"params.{key}": str(value).lower() if isinstance(value, bool) else str(value) for key, value in params.items()}
    return {**values, **plain}


@lru_cache(maxsize=256)
def _compile_regex(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except re.error as error:
        raise AnswerRefused(f"the regular expression {regex!r} is wrong: {error}") from error


# ------------------------------------------------------------------------------------------------------------------- output


def _records_so_far(rule: CommandRule, window: str, output: BoundedText) -> Iterable[LogRecord]:
    lines = output.lines()
    if rule.dependency_regex:
        regex = _compile_regex(rule.dependency_regex)
        lines = [line for line in lines if regex.search(line) is None]
    return _records(rule, window, lines)


def _records(rule: CommandRule, window: str, lines: list[str]) -> Iterable[LogRecord]:
    time_ms = time.time_ns() // 1_000_000
    lifts = [(LogLevel.ERROR, rule.error_regex), (LogLevel.WARNING, rule.warning_regex)]
    regexes = [(level, _compile_regex(regex)) for level, regex in lifts if regex]
    for line in bound_lines(lines):
        yield _record(line, window, line.time_ms if isinstance(line, TimedLine) else time_ms, regexes)


def _record(line: str, window: str, time_ms: int, regexes: list[tuple[LogLevel, re.Pattern[str]]]) -> LogRecord:
    line = str(valid_text(line))  # convert the line to `str`, because the wire does not encode a `TimedLine`
    for level, regex in regexes:
        if found := regex.search(line):
            groups = {name: text for name, text in found.groupdict().items() if text}
            context = tuple((name, groups[name]) for name in ("file", "line") if name in groups)
            return LogRecord(level, window, groups.get("message", line), time_ms, context)
    return record_of(line, window, time_ms)


def _split_dependencies(rule: CommandRule, lines: list[str], output: BoundedText) -> tuple[list[str], list[str]]:
    """Divide the lines of the output: return (lines for the log, dependencies that the other lines name)."""
    if output.dropped_count:
        raise AnswerRefused("the output of the command is too long to find all dependencies in it")
    regex = _compile_regex(rule.dependency_regex)
    shown, found = [], []
    for line in lines:
        match = regex.search(line)
        if match is None:
            shown.append(line)
        else:
            named = match.groupdict()
            found.append((named.get("path") or named.get("file") or (match[1] if regex.groups else match[0]) or "").strip())
    return shown, [path for path in found if path]


def _depfile(rule: CommandRule, path: str, log: RunLog) -> list[str]:
    if not rule.depfile and "{depfile}" not in rule.command:
        return []
    try:
        text = read_answer_text(path)
    except FileNotFoundError:
        log.write(
            LogLevel.WARNING,
            f"the command wrote no dependency file {os.path.basename(path)!r}, so aptui does not notice "
            "changes of the files that it reads",
        )
        return []
    for line in commands.find_lines_without_colon(text)[:_MOST_WARNINGS]:
        what = f"the dependency file {os.path.basename(path)!r} has a line without a colon, which is ignored: {line[:80]!r}"
        log.write(LogLevel.WARNING, valid_text(what))
    return list(commands.parse_depfile(text))


# ----------------------------------------------------------------------------------------------------------------- products


def _products(
    rule: CommandRule,
    builder: Builder,
    order: ProcessOrder,
    folders: StagingFolders,
    values: Mapping[str, str],
    answer: FileAnswer,
) -> list[JobProduct]:
    folders.refuse_others()
    names = answer.products or commands.find_products(rule.products, folders.products, values)
    asset_type = UUID(bytes=builder.asset_type) if builder.asset_type else UUID(int=0)
    flags = ProductFlag.INTERMEDIATE if order.platform == COMMON_PLATFORM else ProductFlag.PRODUCT
    return [JobProduct(name, None, asset_type, flags, facts=answer.facts.get(name, {})) for name in names]


def _add_links(rule: CommandRule, path: str, products: list[JobProduct], log: RunLog) -> None:
    if not rule.links_file and "{product_dependencies}" not in rule.command:
        return
    if not add_declared(path, products):
        text = f"the command wrote no file {os.path.basename(path)!r}, so the run-time dependencies of its products are unknown"
        log.write(LogLevel.WARNING, text)
