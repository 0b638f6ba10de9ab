"""The `table` builder: data in CSV, TSV, TOML, JSON or YAML becomes JSON or MessagePack, checked by a JSON Schema.

The `json` and `yaml` builders keep the text of their sources; this builder keeps only the values.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, shorten
from aptui.builders.files.data_text import read_data
from aptui.builders.files.json_schema import declare_schemas, validate_by_schema
from aptui.builders.files.json_text import HALF_PAIR, BrokenTextError, DataText, write_json
from aptui.builders.json_builder import JSON_ASSET_TYPE
from aptui.sdk import CreateJobsRequest, ProcessJobRequest

MSGPACK_ASSET_TYPE = UUID("8f4d5f5a-5a0e-5d0b-9a3c-6f1c2b7d1e02")
"""Asset type of a table in MessagePack; tables in JSON have the asset type of the `json` builder."""


class TableParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    output: Annotated[
        Literal["json", "min", "msgpack"],
        Meta(description="json: JSON with an indentation of two blanks; min: JSON without blanks; msgpack: MessagePack"),
    ] = "min"
    schema: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[None, Meta(description="path of a JSON Schema (relative to the scan folder) to which the table must conform")]
    ) = None
    key: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[
            None,
            Meta(
                description="column or field whose values become keys; the product is then an object with one row for each "
                "key, not a "
                "list of rows"
            ),
        ]
    ) = None
    types: Annotated[
        Literal["auto", "text"],
        Meta(
            description="auto: a CSV column that has only numbers, or only true and false, becomes numbers or booleans; text: all "
            "cells stay text"
        ),
    ] = "auto"
    delimiter: Annotated[
        Literal["auto", ",", ";", "|", "tab"],
        Meta(description="character between the cells of a CSV; auto: the most frequent of these characters in the first line"),
    ] = "auto"
    max_mib: Annotated[
        int, Meta(ge=1, le=64, description="maximum size of the source in MiB; if a file is larger, its job fails")
    ] = 16


class TableBuilder(SourceBuilder):
    """Makes `<stem>.json` or `<stem>.msgpack` of a table; the job of a broken file fails with `items.csv:12: what is wrong`."""

    name: ClassVar[str] = "table"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.csv", "*.tsv", "*.toml")
    params_schema: ClassVar[Any] = TableParams
    requires: ClassVar[tuple[str, ...]] = ("ruamel.yaml",)

    def analyse(self, request: CreateJobsRequest) -> None:
        """Declare the schemas as dependencies."""
        request.source_dependencies += declare_schemas(request)

    def build(self, request: ProcessJobRequest) -> None:
        """Convert one table."""
        options: TableParams = request.options
        table = read_data(
            request.source, request.read_source(), delimiter=options.delimiter,
            infers_types=options.types == "auto", max_mib=options.max_mib,
        )  # fmt: skip
        if options.schema:
            validate_by_schema([table], options.schema, request)
        value = table.value if options.key is None else index_rows(table, options.key)
        name, product, asset_type = _encode(value, request.stem, options.output)
        request.write_product(name, product, asset_type=asset_type)


def index_rows(table: DataText, key: str) -> dict[str, Any]:
    """Return a list of rows as {value of the field `key`: row without this field}.

    Raises:
        BrokenTextError: the data is not a list of rows, or the key of a row is missing or used twice.
    """
    if not isinstance(table.value, list):
        raise BrokenTextError("the parameter 'key' needs a table that is a list of rows")
    found: dict[str, Any] = {}
    first: dict[str, int] = {}
    for number, row in enumerate(table.value):
        if not isinstance(row, dict) or row.get(key) in (None, ""):
            raise BrokenTextError(
                f"a row has no value for '{key}', which the parameter 'key' names", table.find_places([(number,)])[0]
            )
        name = str(row[key])
        if name in found:
            here, before = table.find_places([(number,), (first[name],)])
            raise BrokenTextError(
                f"'{key}' has the value '{shorten(name)}' in two rows; the first is on line {before.split(':')[0]}", here
            )
        found[name], first[name] = {field: each for field, each in row.items() if field != key}, number
    return found


def _encode(value: Any, stem: str, output: str) -> tuple[str, bytes, UUID]:
    """Return (name, bytes, asset type) of the product."""
    if output != "msgpack":
        return f"{stem}.json", write_json(value, indent=2 if output == "json" else None), JSON_ASSET_TYPE
    try:
        return f"{stem}.msgpack", msgspec.msgpack.encode(value), MSGPACK_ASSET_TYPE
    except UnicodeEncodeError:
        raise BrokenTextError(HALF_PAIR) from None
    except OverflowError:
        raise BrokenTextError("an integer has more than 64 bits, which MessagePack does not support; set output: json") from None
