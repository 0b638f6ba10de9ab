"""The kit of builder authors: options from a record or a schema, products by name, programs with their output in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from aptui.sdk import (
    CreateJobsResponse,
    JobError,
    ParamError,
    Result,
    SimpleBuilder,
    find_missing_need,
    schema_of,
    trusted_params,
)
from aptui.sdk.parameters import read_options
from aptui.sdk.testing import BuilderBench


class Options(Struct):
    quality: Annotated[int, Meta(ge=1, le=100, description="of the encoder")] = 90
    sizes: tuple[float, ...] = (0.5, 0.25)
    tool: Annotated[str, Meta(extra_json_schema={"is_trusted_only": True})] = ""
    ratio: Annotated[float, Meta(gt=0)] = 1.0


class Shout(SimpleBuilder):
    name = "shout"
    patterns = ("*.words",)
    params_schema = Options

    def analyse(self, request):
        request.depends_on("style.txt")
        request.matching("parts/*.txt")

    def build(self, request):
        text = request.read_source().decode()
        text += "".join(Path(match.full_path).read_text() for match in request.matching("parts/*.txt"))
        if not text:
            raise JobError("there are no words")
        request.write_product(f"{request.stem}.txt", text.upper(), facts={"format": "text"})


@pytest.fixture
def bench(tmp_path):
    return BuilderBench(Shout(), tmp_path)


def test_options_record_becomes_a_schema_with_defaults_and_bounds():
    schema = schema_of(Options)

    assert schema["additionalProperties"] is False
    assert schema["properties"]["quality"] == {
        "type": "integer", "minimum": 1, "maximum": 100, "description": "of the encoder", "default": 90,
    }  # fmt: skip
    assert schema["properties"]["sizes"]["default"] == (0.5, 0.25)
    assert trusted_params(Shout) == ("tool",)


def test_options_have_the_defaults_of_a_record_or_a_schema():
    assert read_options(Options, {"quality": 5}) == Options(quality=5)
    assert read_options({"properties": {"a": {"default": 1}, "b": {}}}, {"b": 2}) == {"a": 1, "b": 2}
    assert read_options(None, {"b": 2}) == {"b": 2}


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": {"a": True}, "additionalProperties": True}])
def test_options_have_every_parameter_that_the_schema_allows(schema):
    assert read_options(schema, {"a": 1, "b": [2]}) == {"a": 1, "b": [2]}


def test_changed_options_do_not_change_the_defaults_of_later_jobs():
    schema = {"properties": {"tags": {"default": []}}}

    read_options(schema, {})["tags"].append("left over")

    assert read_options(schema, {}) == {"tags": []}


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"quality": 500}, "parameter 'quality' must be an integer from 1 to 100, not 500"),
        ({"qualty": 5}, "unknown parameter 'qualty', did you mean 'quality'?"),
        ({"ratio": 0}, "parameter 'ratio' must be a number above 0, not 0"),
    ],
)
def test_wrong_parameter_fails_the_analysis_and_the_reading_of_options(bench, params, error):
    with pytest.raises(ParamError, match=error.replace("?", r"\?")):
        read_options(Options, params)
    assert bench.analyse("a.words", params) == CreateJobsResponse(error=error)


def test_simple_builder_makes_products_by_one_job_per_platform(bench):
    bench.write("a.words", "hello ")
    bench.write("parts/b.txt", "you")

    jobs = bench.analyse("a.words").jobs

    assert [(job.job_key, job.platform) for job in jobs] == [("shout", "linux"), ("shout", "server")]
    assert bench.dependencies("a.words") == ["style.txt", "parts/*.txt"]
    assert bench.build("a.words") == {"a.txt": b"HELLO YOU"}
    assert bench.products[0].facts == {"format": "text"}


def test_job_error_fails_the_job_with_the_text_of_the_error(bench):
    bench.write("a.words", "")

    assert bench.fail("a.words") == "there are no words"


@pytest.mark.real
def test_program_output_is_logged_and_its_last_line_becomes_the_error(tmp_path):
    class Runs(SimpleBuilder):
        name = "runs"

        def build(self, request):
            request.write_product("a.out", request.run_program(["sh", "-c", request.options["line"]]).output)

    bench = BuilderBench(Runs(), tmp_path)
    bench.write("a.x", "")

    assert bench.build("a.x", line="echo one; pwd") == {"a.out": f"one\n{tmp_path}/temp1\n".encode()}
    assert [text for _severity, text in bench.lines] == ["one", f"{tmp_path}/temp1"]
    assert bench.fail("a.x", line="echo bad; exit 3") == "sh ended with status 3: bad"


@pytest.mark.parametrize(
    ("requirement", "version", "fault"),
    [
        ("thing", "1.2", ""),
        ("thing>=1.2,<2", "1.10", ""),
        ("thing~=1.2", "1.9.1", ""),
        ("thing~=3.0", "3", ""),
        ("thing == 1.2", "1.2.0", ""),
        (
            "thing>=1.10",
            "1.9",
            "the Python package 'thing>=1.10' is required, but thing 1.9 is installed; run pip install 'thing>=1.10'",
        ),
        ("thing~=1.2", "2.0", "but thing 2.0 is installed"),
        (
            "thing",
            "",
            ("the Python package 'thing' is not installed; run pip install 'thing' in the Python environment of aptui"),
        ),
        ("thing is nice", "1", "'thing is nice' in 'requires' is not the name of a package"),
    ],
)
def test_required_version_is_compared_with_the_installed_version(monkeypatch, requirement, version, fault):
    monkeypatch.setattr("aptui.sdk.programs._find_version", lambda _name: version)

    found = find_missing_need(type("B", (), {"requires": (requirement,)}))

    assert fault in found
    assert bool(found) == bool(fault)


def test_bench_fails_a_job_if_a_program_of_its_builder_is_missing(bench, monkeypatch):
    monkeypatch.setattr(Shout, "tools", ("no-such-program",), raising=False)
    bench.write("a.words", "x")

    assert bench.analyse("a.words").result is Result.FAILED
    assert bench.fail("a.words").startswith("builder 'shout': the program 'no-such-program'")
