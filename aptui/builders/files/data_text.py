"""Reads CSV, TSV, TOML, JSON and YAML as values with their lines; the extension decides the format.

Tests: `tests/builders/test_table_builder.py`.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time
from functools import partial
from io import StringIO
from typing import Any

from msgspec import Struct

from aptui.builders.common import one_line, shorten, show_count
from aptui.builders.files.json_text import BrokenTextError, DataText, Path, decode_text, read_json, refuse_larger

DELIMITERS: Mapping[str, str] = {",": ",", ";": ";", "|": "|", "tab": "\t"}
"""{value of a parameter `delimiter`: character}."""
MOST_COLUMNS = 10_000
_MOST_CELL_CHARACTERS = 16 << 20
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_HEADER = re.compile(r"\s*\[(\[?)(.+?)\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_KEY = re.compile(r"[\w-]+|\"[^\"]*\"|'[^']*'")
_DOTTED = re.compile(r"(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:[ \t]*\.[ \t]*(?:[\w-]+|\"[^\"]*\"|'[^']*')){0,32}")
"""Matches a dotted key of TOML, or the first 33 parts of a longer key."""
_MOST_KEY_PARTS = 32
"""Maximum number of parts of a dotted key of TOML, because `tomllib` copies all earlier parts for each part."""


class CsvRow(Struct, frozen=True):
    """A row of a CSV: its first line, and its cells by column."""

    line: int
    cells: dict[str, str]


def read_data(name: str, data: bytes, *, delimiter: str = "auto", infers_types: bool = True, max_mib: int = 16) -> DataText:
    """Return the content of a file.

    Args:
        name: its extension decides the format.
        delimiter: separator of the cells of a CSV: a key of `DELIMITERS`, or auto.
        infers_types: convert columns of numbers or booleans; otherwise every cell is text.
        max_mib: larger files are refused.

    Raises:
        BrokenTextError: the file is damaged, or of another kind.
    """
    extension = os.path.splitext(name)[1].lower()
    refuse_larger(data, max_mib, "; raise max_mib")
    if extension in (".yaml", ".yml"):
        return _read_yaml(data, max_mib)
    text = decode_text(data)
    if extension == ".json":
        return read_json(text)
    if extension == ".toml":
        return _read_toml(text)
    if extension in (".csv", ".tsv"):
        return _read_table(list(read_rows(text, "tab" if extension == ".tsv" else delimiter)), infers_types=infers_types)
    raise BrokenTextError(f"'{extension}' is not a supported format of tables; use csv, tsv, json, yaml or toml")


def read_rows(text: str, delimiter: str = "auto") -> Iterator[CsvRow]:
    """Yield the rows below the header of a CSV; empty lines are left out.

    Raises:
        BrokenTextError: the CSV is damaged.
    """
    csv.field_size_limit(_MOST_CELL_CHARACTERS)
    first = text.lstrip("\r\n").partition("\n")[0]
    mark = max(DELIMITERS.values(), key=first.count) if delimiter == "auto" else DELIMITERS[delimiter]
    reader = csv.reader(StringIO(text, newline=""), delimiter=mark, strict=True)
    header: list[str] = []
    line = 1
    try:
        for cells in reader:
            if any(cells):
                if header:
                    yield CsvRow(line, _name_cells(header, cells, line))
                else:
                    header = _check_header(cells, line)
            line = reader.line_num + 1
    except csv.Error as error:
        what = 'a quotation mark (") is not closed' if "unexpected end" in str(error) else one_line(error)
        raise BrokenTextError(what, str(line)) from None
    if not header:
        raise BrokenTextError("the file is empty")


def _check_header(cells: list[str], line: int) -> list[str]:
    while cells and not cells[-1].strip():
        cells.pop()
    names = [cell.strip() for cell in cells]
    if len(names) > MOST_COLUMNS:
        raise BrokenTextError(f"the table has {len(names):,} columns; the limit is {MOST_COLUMNS:,}", str(line))
    for number, name in enumerate(names):
        if not name:
            raise BrokenTextError(f"column {number + 1} has no name", str(line))
        if name in names[:number]:
            raise BrokenTextError(f"two columns are named '{shorten(name)}'", str(line))
    return names


def _name_cells(header: list[str], cells: list[str], line: int) -> dict[str, str]:
    if any(cells[len(header) :]):
        raise BrokenTextError(
            f"the row has {len(cells)} cells, but the table has {show_count(len(header), 'column')}; put quotes around a cell "
            "that contains the delimiter",
            str(line),
        )
    return dict(zip(header, [*cells, *[""] * (len(header) - len(cells))], strict=False))


def _read_table(rows: list[CsvRow], *, infers_types: bool) -> DataText:
    columns: dict[str, Callable[[str], Any]] = {}
    for name in rows[0].cells if rows and infers_types else ():
        columns[name] = _choose_type([row.cells[name] for row in rows])
    value = [{name: columns[name](cell) if columns else cell for name, cell in row.cells.items()} for row in rows]

    def find_places(paths: Sequence[Path]) -> list[str]:
        return [_find_cell(rows, path) for path in paths]

    return DataText(value, find_places)


def _choose_type(cells: list[str]) -> Callable[[str], Any]:
    """Return the function that reads the cells of a column: as numbers, booleans, or text.

    An empty cell becomes null; in a column of text it becomes "".
    """
    present = [cell.strip() for cell in cells if cell.strip()]
    if present and all(cell.lower() in ("true", "false") for cell in present):
        return lambda cell: cell.strip().lower() == "true" if cell.strip() else None
    matches = [_NUMBER.fullmatch(cell) for cell in present]
    if not present or not all(matches) or not all(math.isfinite(float(cell)) for cell in present):
        return str
    kind = float if any(match and (match[1] or match[2]) for match in matches) else int
    return lambda cell: kind(cell) if cell.strip() else None


def _find_cell(rows: list[CsvRow], path: Path) -> str:
    if not path or not isinstance(path[0], int):
        return "1"
    line = rows[path[0]].line
    return f"{line}: column '{path[1]}'" if len(path) > 1 else str(line)


def _read_yaml(data: bytes, max_mib: int) -> DataText:
    from aptui.builders.files.yaml_text import YamlReading

    documents = YamlReading(data, max_mib, allows_tags=False).read_values()
    if len(documents) != 1:
        raise BrokenTextError(f"the file has {len(documents)} YAML documents, but a table must be a single document")
    return documents[0]


def _read_toml(text: str) -> DataText:
    import tomllib

    _check_dotted_keys(text)
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        numbers = re.findall(r"[0-9]+", place)
        at = ":".join(numbers) if numbers else f"{text.count(chr(10)) + 1}:1"
        raise BrokenTextError(shorten(one_line(what)), at) from None
    except RecursionError:
        raise BrokenTextError("the data is nested too deeply") from None
    except ValueError:  # int() refuses integers with thousands of digits
        raise BrokenTextError("an integer has too many digits") from None
    return DataText(_plain(value, (), text), partial(_find_toml_places, text))


def _check_dotted_keys(text: str) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        for key in _DOTTED.finditer(line) if line.count(".") >= _MOST_KEY_PARTS else ():
            if key[0].count(".") >= _MOST_KEY_PARTS and len(_read_keys(key[0])) > _MOST_KEY_PARTS:
                raise BrokenTextError(f"a key has more than {_MOST_KEY_PARTS} parts", str(number))


def _plain(value: Any, path: Path, text: str) -> Any:
    """Return a value of TOML in the types of JSON; dates and times become text."""
    if isinstance(value, dict):
        return {key: _plain(each, (*path, key), text) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, (*path, index), text) for index, each in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise BrokenTextError(f"{value} cannot be written as a number in JSON", _find_toml_places(text, [path])[0])
    return value.isoformat() if isinstance(value, date | time) else value


def _find_toml_places(text: str, paths: Sequence[Path]) -> list[str]:
    """Return the line of each value at `paths`.

    For a value inside a line, return the line of the nearest table or key that begins a line.
    """
    found: dict[Path, tuple[int, int]] = dict.fromkeys(paths, (0, 1))
    table: list[str | int] = []
    counts: dict[tuple[str | int, ...], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        here: list[str | int]
        if header := _HEADER.match(line):
            here = []
            for key in _read_keys(header[2]):
                here.append(key)
                if tuple(here) in counts and not (header[1] and key == _read_keys(header[2])[-1]):
                    here.append(counts[tuple(here)])
            if header[1]:
                counts[tuple(here)] = counts.get(tuple(here), -1) + 1
                here.append(counts[tuple(here)])
            table = here
        elif assignment := _ASSIGNMENT.match(line):
            here = [*table, *_read_keys(assignment[1])]
        else:
            continue
        for path, (depth, _) in found.items():
            if len(here) > depth and path[: len(here)] == tuple(here):
                found[path] = len(here), number
    return [str(found[path][1]) for path in paths]


def _read_keys(text: str) -> list[str]:
    return [key.strip("\"'") for key in _KEY.findall(text)]
