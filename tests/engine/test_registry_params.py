"""Parameters are checked against the schema of their builder before anything runs: one error per mistake, with its place."""

from __future__ import annotations

import pytest
from disk_project import Project

from aptui.config.configuration import ConfigErrors
from aptui.shared.param_schema import mistakes

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{{name: game, path: assets}}]
builders:
  - {{name: tex, uses: json, patterns: ["*.json"], {rest}}}
"""
OWN = """
from aptui.sdk import CreateJobsResponse, JobDescriptor, ProcessJobResponse, Result
class Own:
    name = "own"
    version = "1"
    patterns = ("*.own",)
    params_schema = {"properties": {"depth": {"type": "integer", "maximum": 3}, "any": {"oneOf": [1]}}}
    def create_jobs(self, request):
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("own", each.id) for each in request.platforms])
    def process_job(self, request):
        return ProcessJobResponse(Result.SUCCESS)
"""

WRONG = {
    "unknown": ("params: {minfy: true}", "4:60: unknown parameter 'minfy' (builder 'tex'); did you mean 'minify'?"),
    "value": ("params: {minify: yess}", "4:60: parameter 'minify' must be true or false, not 'yess' (builder 'tex')"),
    "platform": ("platforms: {'*': {indnt: 2}}", "4:69: unknown parameter 'indnt' (builder 'tex'); did you mean 'indent'?"),
}


def refused(project: Project) -> list[str]:
    """Return the lines of the refusal, without the project's folder."""
    with pytest.raises(ConfigErrors) as raised:
        project.engine_run()
    assert raised.value.exit_code == 3
    return str(raised.value).replace(f"{project.root}/aptui.yaml:", "").splitlines()


@pytest.mark.parametrize("name", WRONG)
def test_wrong_parameter_is_reported_once_for_all_sources(tmp_path, name):
    rest, expected = WRONG[name]
    project = Project(tmp_path, SETTINGS.format(rest=rest))
    for number in range(3):
        project.write(f"assets/{number}.json", "{}")

    assert refused(project) == [expected]


def test_all_wrong_parameters_are_reported_together(tmp_path):
    project = Project(tmp_path, SETTINGS.format(rest="params: {minfy: true, indent: x}"))

    assert [line.partition(": ")[0] for line in refused(project)] == ["4:73", "4:60"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("uses: jsn", "4:23: 'jsn' is not a builder (used by 'tex'); did you mean 'json'"),
        ("steps: [{uses: json}, {uses: xnl}]", "4:46: 'xnl' is not a builder (used by 'tex'); did you mean 'xml'"),
    ],
)
def test_error_about_an_unknown_builder_has_its_line_and_column(tmp_path, given, error):
    assert refused(Project(tmp_path, SETTINGS.format(rest="").replace("uses: json", given))) == [error]


@pytest.mark.parametrize(
    ("steps", "rest", "error"),
    [
        ("{uses: json, params: {minfy: true}}", "", "unknown parameter 'json.minfy' (builder 'tex'); did you mean 'json.minify'?"),
        ("{uses: json}", "params: {minify: true}", "unknown parameter 'minify' (builder 'tex'); did you mean 'json.minify'?"),
        (
            "{uses: json, name: j}",
            "platforms: {'*': {j.indent: 99}}",
            "parameter 'j.indent' must be an integer from 0 to 16 or null, not 99 (builder 'tex')",
        ),
    ],
)
def test_parameters_of_steps_are_checked(tmp_path, steps, rest, error):
    settings = SETTINGS.format(rest="").replace("uses: json", f"steps: [{steps}, {{uses: xml}}], {rest}".rstrip(", "))
    project = Project(tmp_path, settings)

    (found,) = refused(project)

    assert found.partition(": ")[2] == error


@pytest.mark.parametrize("form", ["uses: json", "steps: [{uses: json}, {uses: json, name: again}]"])
def test_new_version_in_the_configuration_runs_the_jobs_of_a_builder_again(tmp_path, form):
    settings = SETTINGS.format(rest="").replace("uses: json", form)
    project = Project(tmp_path, settings)
    project.write("assets/a.json", "{}")
    project.engine_run()
    project.config(settings.replace("name: tex", "name: tex, version: 2"))

    assert sum(project.engine_run().runs.values()) == 1


def test_parameters_of_a_project_builder_are_checked_by_its_schema(tmp_path):
    project = Project(tmp_path, SETTINGS.format(rest="").replace("uses: json", "uses: own, params: {depth: 4, any: 2, other: 1}"))
    project.write("builders/own.py", OWN)

    assert refused(project) == ["4:37: parameter 'depth' must be an integer to 3, not 4 (builder 'tex')"]


def test_parameters_in_folder_settings_are_checked_by_the_builder_schema(tmp_path):
    project = Project(tmp_path, SETTINGS.format(rest=""))
    project.engine_run({"assets/a.json": "{}", "assets/.aptui.yaml": "builders:\n  tex: {params: {minfy: true}}\n"})

    (error,) = set(project.errors().values())
    assert error == ".aptui.yaml:2:18: unknown parameter 'minfy'; did you mean 'minify'?"


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": {"a": True}}, {"properties": {"a": {"$ref": "#/x"}}}])
def test_parameter_schema_with_only_unknown_keywords_allows_every_value(schema):
    assert list(mistakes(schema, {"a": 1, "b": [2]})) == []


@pytest.mark.parametrize(
    ("value", "is_allowed"), [(1, False), (2, False), (3, True), (6.5, True), (7, False), (8, False), (float("nan"), False)]
)
def test_number_must_be_within_its_inclusive_and_its_exclusive_bounds(value, is_allowed):
    rule = {"type": "number", "minimum": 0, "exclusiveMinimum": 2, "maximum": 9, "exclusiveMaximum": 7}

    assert (list(mistakes({"properties": {"a": rule}}, {"a": value})) == []) is is_allowed
