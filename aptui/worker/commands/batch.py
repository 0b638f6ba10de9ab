"""Commands with `batch`: the program is started once for the files of several runs.

Then each run gets the products of its file.

The products of a file are those that match the globs `products`, filled in with the file's values; by default, all products with
the stem of the file. Alternatively, the program writes a manifest with one line of JSON for each file. The results of a start are
used only if the program succeeded and each product belongs to exactly one file. Otherwise the program is started again for each
half of the files, so that one bad file does not make other files fail. A single file is processed as without `batch`, with the same
products, errors and log.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from aptui.core.orders import ProcessOrder
from aptui.core.paths import os_path
from aptui.core.project import Builder, CommandRule
from aptui.core.quality import QUALITY_VARIABLE
from aptui.shared.forms import json_decoder
from aptui.worker.answers import AnswerRefused, read_answer_text
from aptui.worker.commands import command as commands
from aptui.worker.commands.command import CommandError, Execution
from aptui.worker.commands.persistent import FileAnswer, place_tools
from aptui.worker.output import BoundedText, TimedLine
from aptui.worker.outputs.products import PREFIX, StagingFolders, discard
from aptui.worker.processes import end_children

MANIFEST = "manifest.jsonl"
_BY_STEM = ("**/{stem}", "**/{stem}.*")


class _ManifestLine(FileAnswer, frozen=True, kw_only=True):
    """Line of a manifest, in which a program reports the result of processing the file `source`."""

    source: str


class FileResult(Struct):
    """Result of one file when a program was started once for several files.

    `names` has the file's products below `folder`, `output` its output lines, `share_ms` its share of the duration.
    """

    folder: str
    names: list[str]
    answer: FileAnswer
    output: BoundedText
    peak_rss_bytes: int
    share_ms: int

    def move_products(self, folder: str) -> None:
        """Move the products that the program made from this file into `folder`, the folder of the file's run."""
        for name in self.names:
            target = os.path.join(folder, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(os.path.join(self.folder, name), target)


class SharedStarts:
    """Starts a program once for the files of several runs, and stores each result until its run uses it."""

    def __init__(self) -> None:
        self._results: dict[int, FileResult] = {}
        self._folders: list[StagingFolders] = []
        self._known: set[int] = set()
        self._count = 0

    def knows(self, run_key: int) -> bool:
        """Whether the program was started for this run since the last call of `clear`."""
        return run_key in self._known

    def pop(self, run_key: int) -> FileResult | None:
        """Return and remove the result for a run, None if the run has to start the program itself."""
        return self._results.pop(run_key, None)

    def start(
        self, orders: Sequence[ProcessOrder], builder: Builder, values: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        """Start the program for the files of several runs that differ only in their sources.

        Args:
            values: values of placeholders that are equal for all files.
        """
        self._known.update(order.run_key for order in orders)
        if len(orders) < 2:
            return
        found = self._start_once(orders, builder, values, environment)
        if found is None:
            half = len(orders) // 2
            self.start(orders[:half], builder, values, environment)
            self.start(orders[half:], builder, values, environment)
        else:
            self._results |= found

    def clear(self) -> None:
        """Remove the folders of all program starts."""
        self._results.clear()
        self._known.clear()
        while self._folders:
            discard(self._folders.pop().staging)

    def _start_once(
        self, orders: Sequence[ProcessOrder], builder: Builder, values: Mapping[str, str], environment: Mapping[str, str]
    ) -> dict[int, FileResult] | None:
        """Start the program once for all `orders`, and return {run key: result}.

        Return None if the start failed, or if it is not clear which file a product belongs to.
        """
        rule = builder.command or CommandRule("")
        sources = {source_of(order): order for order in orders}
        self._count += 1
        parent = os.path.dirname(os_path(orders[0].staging))
        folders = StagingFolders(f"{parent}/{PREFIX}{os.getpid()}-start{self._count}")
        self._folders.append(folders)
        folders.make()
        values = {**values, "products_dir": folders.products, "temp_dir": folders.temp, "manifest": f"{folders.temp}/{MANIFEST}"}
        more = {QUALITY_VARIABLE: orders[0].quality} if builder.has_drafts else {}
        began_s = time.monotonic()
        os.chdir(folders.temp)
        try:
            command = commands.invocation(place_tools(builder), values, tuple(sources))
            ended = commands.execute(command, {**environment, "TMPDIR": folders.temp, **more}, limit_s=orders[0].limit_s)
        except CommandError:
            return None
        finally:
            os.chdir("/")
        if end_children() or ended.error:
            return None
        share_ms = int(1000 * (time.monotonic() - began_s)) // len(orders)
        try:
            answers = read_manifest(values["manifest"]) if "{manifest}" in rule.command else {}
            names = {path: _find_names(rule, folders.products, path, values, answers) for path in sources}
        except (AnswerRefused, CommandError, OSError, ValueError):
            return None
        is_listed = bool(rule.products) or (bool(answers) and all(each.products or not each.ok for each in answers.values()))
        if answers.keys() - sources.keys() or not _are_unambiguous(folders.products, names.values(), is_listed=is_listed):
            return None
        lines = _sort_lines(ended, list(sources))
        found = {}
        for path, order in sources.items():
            answer = answers.get(path, FileAnswer())
            # a file without products gets no result here; its own run starts the program again and reports the reason
            if names[path] or not answer.ok:
                peak_bytes = ended.peak_rss_bytes
                found[order.run_key] = FileResult(folders.products, names[path], answer, lines[path], peak_bytes, share_ms)
        return found


def source_of(order: ProcessOrder) -> str:
    """Return the absolute path of the source of a run."""
    return os.path.join(os_path(order.root), os_path(order.rel))


def group_key(order: ProcessOrder) -> tuple[str, ...]:
    """Return the values that must be equal in all runs that share one program start."""
    return order.builder, order.platform, order.params, order.settings, order.quality


def read_manifest(path: str) -> Mapping[str, FileAnswer]:
    """Return {path of a source: its answer} of a manifest.

    Raises:
        CommandError: a line is wrong, or names a source that an earlier line names.
    """
    answers: dict[str, _ManifestLine] = {}
    try:
        text = read_answer_text(path)
    except FileNotFoundError:
        raise CommandError("the command wrote no manifest") from None
    for number, line in enumerate(io.StringIO(text), 1):  # unlike `splitlines`, it ends lines only at line feeds
        try:
            found: _ManifestLine = json_decoder(_ManifestLine).decode(line.encode("utf-8", "surrogateescape"))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CommandError(f"line {number} of the manifest is not a result in JSON: {error}") from None
        if found.source in answers:
            raise CommandError(f"line {number} of the manifest repeats the source '{found.source}' of an earlier line")
        answers[found.source] = found
    return answers


def _find_names(
    rule: CommandRule, folder: str, source: str, values: Mapping[str, str], answers: Mapping[str, FileAnswer]
) -> list[str]:
    """Return the names of the products of a source, [] if no product was found."""
    answer = answers.get(source)
    if answer is not None and (answer.products or not answer.ok):
        return [os.path.normpath(name) for name in answer.products if answer.ok]
    if answers and answer is None:
        return []
    name = os.path.basename(source)
    own = {**values, "stem": os.path.splitext(name)[0], "name": name}
    try:
        return commands.find_products(rule.products or _BY_STEM, folder, own)
    except CommandError:
        return []


def _are_unambiguous(folder: str, products: Iterable[Sequence[str]], *, is_listed: bool) -> bool:
    """Whether each product belongs to one source and is a regular file.

    If neither the configuration nor the manifest names the products (not `is_listed`), each file in `folder` must be a product.
    """
    names = [name for each in products for name in each]
    if len(set(names)) < len(names):
        return False
    made = {
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, files in os.walk(folder)
        for name in files
        if not os.path.islink(os.path.join(place, name))
    }
    return made.issuperset(names) and (is_listed or len(made) == len(names))


def _sort_lines(ended: Execution, sources: Sequence[str]) -> dict[str, BoundedText]:
    """Return {source: lines of the output that name it}; lines that do not name exactly one source belong to the first source."""
    outputs = {path: BoundedText() for path in sources}
    names = {path: os.path.basename(path) for path in sources}
    for line in ended.output.lines():
        named = [path for path in sources if path in line] or [path for path in sources if names[path] in line]
        target = named[0] if len(named) == 1 else sources[0]
        time_ms = line.time_ms if isinstance(line, TimedLine) else time.time_ns() // 1_000_000
        outputs[target].add(line.encode("utf-8", "surrogateescape") + b"\n", time_ms)
    return outputs
