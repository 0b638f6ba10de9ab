"""The `yaml` builder: checks YAML, and writes it as it is or as JSON.

The meaning of the data is checked only by a schema. `files.yaml_text` reads the source, and defines the limits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, one_job_per_platform
from aptui.builders.files.json_schema import SchemaPath, declare_schemas, validate_by_schema
from aptui.builders.files.json_text import BrokenTextError, write_json
from aptui.builders.files.yaml_text import YamlReading
from aptui.builders.json_builder import JSON_ASSET_TYPE
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    ProcessJobRequest,
    Result,
    library_versions,
)

YAML_ASSET_TYPE = UUID("d4c1f6a8-3b70-5e92-8a14-7b5e20d9cf06")
"""Asset type of YAML products; JSON products have the asset type of the `json` builder."""


class YamlParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    output: Annotated[
        Literal["copy", "json", "min"],
        Meta(description="json: JSON with an indentation of two blanks; min: JSON without blanks; copy: an unchanged copy"),
    ] = "copy"
    schema: SchemaPath = None
    tags: Annotated[
        Literal["forbid", "allow"],
        Meta(
            description="allow: the project's own tags, such as !Colour, are allowed; needs output: copy, because JSON has no tags"
        ),
    ] = "forbid"
    max_mib: Annotated[
        int, Meta(ge=1, le=64, description="maximum size of the source in MiB; if a file is larger, its job fails")
    ] = 1


class YamlBuilder(SourceBuilder):
    """Checks YAML. The job of a broken file fails with a message such as `file.yaml:12:5: what is wrong`."""

    name: ClassVar[str] = "yaml"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.yaml", "*.yml")
    analysis_fingerprint: ClassVar[str] = library_versions("ruamel.yaml")
    params_schema: ClassVar[Any] = YamlParams

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform; the schemas are source dependencies."""
        response = one_job_per_platform(request, self.name, self.analysis_fingerprint, _contradiction)
        if response.result is Result.SUCCESS:
            response.source_dependencies = declare_schemas(request)
        return response

    def build(self, request: ProcessJobRequest) -> None:
        """Check the source and write its one product."""
        options, data = request.options, request.read_source()
        reading = YamlReading(data, options.max_mib, allows_tags=options.tags == "allow")
        if options.schema:
            validate_by_schema(reading.read_values(), options.schema, request)
        name, product, asset_type = _product(reading, data, options.output, request)
        request.write_product(name, product, sub_id=0, asset_type=asset_type)


def _contradiction(params: Mapping[str, Any]) -> str:
    if params.get("tags") == "allow" and (params.get("output", "copy") != "copy" or params.get("schema")):
        return "parameter 'tags: allow' needs 'output: copy' and no schema, because JSON has no tags"
    return ""


def _product(reading: YamlReading, data: bytes, output: str, request: ProcessJobRequest) -> tuple[str, bytes, UUID]:
    """Return (file name, bytes, asset type) of the product."""
    if output == "copy":
        return os.path.basename(request.source), data, YAML_ASSET_TYPE
    if len(reading.documents) != 1:
        raise BrokenTextError(f"the file has {len(reading.documents)} YAML documents, but JSON can have only one; set output: copy")
    product = write_json(reading.plain(reading.documents[0]), indent=2 if output == "json" else None)
    return f"{request.stem}.json", product, JSON_ASSET_TYPE
