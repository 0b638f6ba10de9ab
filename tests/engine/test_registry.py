"""The builders of a project: completed from their classes, found in the project, stored; errors name the builder and the place."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from homes import own_project
from msgspec.structs import replace

from aptui.config import load
from aptui.config.configuration import Config
from aptui.core.paths import builder_uuid
from aptui.core.project import Builder, BuilderKind, Pattern, PatternKind, Platform, Project
from aptui.engine import registry
from aptui.engine.registry import complete, complete_checked
from aptui.shared.errors import UserError
from aptui.worker.describing import describe

pytestmark = pytest.mark.real

CODE = """
class {name}:
    name = "{called}"
    version = "7"
    patterns = ("*.mesh", "x/*.obj")
    analysis_fingerprint = "f1"
    flags = {{"delete_products_on_failure"}}
    def create_jobs(self, request): ...
    def process_job(self, request): ...
"""


class Place:
    """A project folder and its configuration."""

    def __init__(self, folder):
        self.folder, self.cache = folder / "project", folder / "state/builders.json"
        (self.folder / "builders").mkdir(parents=True)

    def write(self, name, called="mesh", code=CODE):
        path = self.folder / "builders" / name
        path.write_text(code.format(name="Made", called=called))
        return path

    def complete(self, *builders):
        return complete(self.config(*builders), self.cache)

    def config(self, *builders):
        unlisted = Builder(b"", "", BuilderKind.PYTHON, platforms=("linux",))
        project = Project((Platform("linux"),), "linux", (), builders, unlisted_builder=unlisted)
        return Config(self.folder, "project", self.folder, self.folder, self.folder, project)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def no_process(monkeypatch):
    def start():
        def refused(*_arguments, **_more):
            raise AssertionError("a process was started")

        monkeypatch.setattr(subprocess, "run", refused)

    return start


def entry(name, called="mine", **more):
    return Builder(builder_uuid(called), called, BuilderKind.PYTHON, origin=f"entry:{name}", **more)


def test_project_without_python_builders_starts_no_describing_process(place, no_process):
    no_process()
    copy = Builder(builder_uuid("copy"), "copy", BuilderKind.COPY)

    assert place.complete(copy) == (copy,)
    assert not place.cache.exists()


def test_builder_of_an_entry_point_is_completed_from_its_class(place):
    from aptui.builders.json_builder import JsonBuilder

    (found,) = place.complete(entry("json", params='{"a":1}'))

    assert (found.name, found.params, found.origin) == ("mine", '{"a":1}', "entry:json:aptui.builders.json_builder:JsonBuilder")
    assert (found.version, found.analysis_fingerprint) == (JsonBuilder.version, JsonBuilder.analysis_fingerprint)
    assert [(pattern.kind, pattern.text) for pattern in found.patterns] == [
        (PatternKind.GLOB, text) for text in JsonBuilder.patterns
    ]
    assert len(found.code_digest) == 32


def test_patterns_of_the_configuration_replace_the_patterns_of_the_class(place):
    pattern = Pattern(PatternKind.GLOB, "*.cfg", r".*\.cfg")

    (found,) = place.complete(entry("json", patterns=(pattern,)))

    assert found.patterns == (pattern,)


def test_project_builders_are_found_but_helper_modules_are_not(place):
    path = place.write("mesh.py")
    place.write("_helper.py", "helper")
    place.write("notes.txt", "text")

    (found,) = place.complete()

    assert (found.uuid, found.name, found.kind) == (builder_uuid("mesh"), "mesh", BuilderKind.PYTHON)
    assert (found.version, found.analysis_fingerprint, found.platforms) == ("7", "f1", ("linux",))
    assert [pattern.text for pattern in found.patterns] == ["*.mesh", "x/*.obj"]
    assert found.origin == f"file:{path}:Made"
    assert found.deletes_products_on_failure
    assert not (place.folder / "builders/__pycache__").exists()


def test_project_builder_with_a_configuration_entry_is_listed_once(place):
    path = place.write("mesh.py")

    (found,) = place.complete(entry("mesh", "my-mesh"))

    assert (found.name, found.version, found.origin) == ("my-mesh", "7", f"file:{path}:Made")


def test_digest_of_builder_code_changes_with_the_bytes_of_the_code(place):
    path = place.write("mesh.py", code="import _helper\n" + CODE)
    place.write("_helper.py", code="X = 1\n")
    (first,) = place.complete()
    os.utime(path, ns=(1, 1))
    (touched,) = place.complete()

    place.write("_helper.py", code="X = 22\n")
    (helped,) = place.complete()
    place.write("mesh.py", code="import _helper\n" + CODE.replace('"7"', '"8"'))
    (changed,) = place.complete()

    assert touched == first
    assert helped.code_digest != first.code_digest
    assert changed.code_digest not in {first.code_digest, helped.code_digest}
    assert changed.version == "8"


@pytest.mark.parametrize("statement", ["import _helper", "from _tools import deep", "import _tools.deep as other", "import _chain"])
def test_digest_of_builder_code_covers_modules_that_a_method_imports(place, statement):
    place.write("mesh.py", code=f"{CODE}    def late(self):\n        import json\n        {statement}\n")
    place.write("_chain.py", code="def late():\n    import _helper\n")
    (place.folder / "builders/_tools").mkdir()
    place.write("_tools/__init__.py", code="")
    place.write("_tools/deep.py", code="def late():\n    from .. import _helper\n    from . import deeper\n")
    for name in ("_helper.py", "_tools/deeper.py", "json.py"):
        place.write(name, code="X = 1\n")
    (first,) = place.complete()

    place.write("_tools/deeper.py" if "_tools" in statement else "_helper.py", code="X = 22\n")
    (changed,) = place.complete()
    place.write("json.py", code="X = 22\n")
    (same,) = place.complete()

    assert changed.code_digest != first.code_digest
    assert same == changed


def test_code_of_an_installed_builder_includes_the_modules_of_its_package_that_functions_import(place):
    (found,) = place.complete(entry("texture"))

    names = {path.partition("/builders/")[2] for path, _digest in found.code_files}
    assert {"texture_builder.py", "files/mips.py", "files/colour_blocks.py"} <= names
    assert "" not in names


@pytest.mark.parametrize(
    ("statement", "is_parsed"),
    [
        ("from package import deep", True),
        ("from . import deep", True),
        ("import package.deep", True),
        ("import json", False),
        ("from \\\n        package import deep", True),
        ("import \\\r\n package.deep", True),
        ("if json: \\\nimport package.deep", True),
        ("import json, package.deep", True),
        ("import json as written, \\\n        package.deep as deep", True),
        ("from json import loads, dumps", False),
        ("import json; loads('package.deep')", False),
    ],
)
def test_module_of_an_installed_builder_is_parsed_only_if_it_may_import_its_package_later(
    tmp_path, monkeypatch, statement, is_parsed
):
    parsed = []
    monkeypatch.setattr(describe, "list_imports", lambda path, _folder: parsed.append(path) or ())
    module = ModuleType("package.builder")
    module.__file__ = str(tmp_path / "package/builder.py")
    (tmp_path / "package").mkdir()
    Path(module.__file__).write_text(f"import package\ndef build():\n    {statement}\n")

    assert describe._code_files(module) == [module.__file__]
    assert len(parsed) == is_parsed


def test_stored_description_of_a_builder_starts_no_process(place, no_process):
    place.write("mesh.py")
    before = place.complete(entry("json"))
    written = place.cache.stat().st_mtime_ns
    no_process()

    assert place.complete(entry("json")) == before
    assert place.cache.stat().st_mtime_ns == written


def test_stored_descriptions_of_another_clone_of_aptui_are_not_used(place, no_process, monkeypatch):
    """Workers run the builders of the present clone, so the digests of the other clone's files would never match."""
    place.complete(entry("json"))
    monkeypatch.setattr(registry, "__file__", "/clone/aptui/engine/registry.py")
    no_process()

    with pytest.raises(AssertionError, match="a process was started"):
        place.complete(entry("json"))


def test_stored_description_with_another_file_as_origin_is_not_used(place):
    path, other = place.write("mesh.py"), place.folder / "asset.dat"
    (before,) = place.complete()
    place.cache.write_text(place.cache.read_text().replace(f"file:{path}:", f"file:{other}:"))
    assert f"file:{other}:" in place.cache.read_text()

    (after,) = place.complete()

    assert after.origin == before.origin == f"file:{path}:Made"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"files": 5}'])
def test_damaged_registry_file_is_replaced(place, damage):
    place.write("mesh.py")
    before = place.complete()
    place.cache.write_bytes(damage)

    assert place.complete() == before
    assert place.cache.read_bytes() not in {b"", damage}


def test_registry_file_that_cannot_be_written_causes_no_error(place):
    place.write("mesh.py")
    place.cache.parent.write_text("in the way")

    (found,) = place.complete()

    assert found.name == "mesh"


def test_syntax_error_is_reported_with_file_and_line(place):
    path = place.write("mesh.py", code="x = 1\n\ndef f(:\n")

    with pytest.raises(UserError) as raised:
        place.complete()

    assert raised.value.where == f"{path}:3"
    assert "begin its name with '_'" in raised.value.hint


@pytest.mark.parametrize(
    ("code", "what", "line"),
    [
        ("x = 1\nimport no_such_module_here\n", "ModuleNotFoundError: No module named 'no_such_module_here'", ":2"),
        ("\n\nraise SystemExit(3)\n", "SystemExit: 3", ":3"),
        ("import os\nos._exit(3)\n", "its import was ended with status 3", ""),
        ("import os\nos.abort()\n", "its import was killed by SIGABRT", ""),
    ],
)
def test_builder_that_cannot_be_imported_is_reported_with_place_and_reason(place, code, what, line):
    path = place.write("mesh.py", code=code)
    place.write("good.py", "good")

    with pytest.raises(UserError) as raised:
        place.complete()

    assert raised.value.where == f"{path}{line}"
    assert what in raised.value.what


def test_pipe_in_place_of_a_builder_file_is_refused(place, no_process):
    no_process()
    os.mkfifo(place.folder / "builders/a.py")

    with pytest.raises(UserError, match=r"a\.py' is not a regular file"):
        place.complete()


def test_corrected_builder_file_is_loaded_after_an_error(place):
    place.write("mesh.py", code="def")
    with pytest.raises(UserError):
        place.complete()
    place.write("mesh.py")

    assert [found.name for found in place.complete()] == ["mesh"]


def test_text_that_a_builder_prints_during_its_import_is_ignored(place):
    place.write("mesh.py", code="print('hello')\nimport os\nos.write(1, b'more')\n" + CODE)

    assert [found.name for found in place.complete()] == ["mesh"]


@pytest.mark.parametrize(
    ("name", "hint"), [("jsn", "did you mean 'json'"), ("mehs", "did you mean 'mesh'"), ("zzzzzz", "the builders are: '")]
)
def test_error_about_an_unknown_builder_suggests_the_nearest_name(place, name, hint):
    place.write("mesh.py")

    with pytest.raises(UserError) as raised:
        place.complete(entry(name))

    assert raised.value.what == f"{name!r} is not a builder (used by 'mine')"
    assert raised.value.hint.startswith(hint)


def test_two_builder_files_with_the_same_builder_name_are_refused(place):
    first, second = place.write("a.py"), place.write("b.py")

    with pytest.raises(UserError) as raised:
        place.complete()

    assert (raised.value.what, raised.value.where) == (f"there is also a builder 'mesh' in {str(first)!r}", str(second))


def test_project_builder_with_the_name_of_a_configured_builder_is_refused(place):
    path = place.write("mesh.py")

    with pytest.raises(UserError) as raised:
        place.complete(entry("json", "mesh"))

    assert (raised.value.what, raised.value.where) == ("two builders have the name 'mesh'", str(path))


@pytest.mark.parametrize("name", ["two words", "a/b", "a:b"])
def test_builder_name_with_blanks_or_separators_is_refused(place, name):
    place.write("mesh.py", name)

    with pytest.raises(UserError, match="spaces, slashes or colons"):
        place.complete()


def test_registry_lists_the_parameters_that_only_the_project_may_set(place):
    marked = CODE + (
        '    params_schema = {{"properties": {{"tool": {{"is_trusted_only": True}}, "size": {{}},'
        ' "env": {{"is_trusted_only": True}}}}}}\n'
    )
    place.write("mesh.py", "mesh", marked)

    found = place.complete(entry("mesh", trusted_params=("size",)))

    assert found[0].trusted_params == ("env", "size", "tool")


@pytest.mark.parametrize(("name", "params"), [("shader", ("compiler",)), ("lua", ("luac",)), ("image", ("max_megapixels",))])
def test_shipped_builders_list_the_parameters_that_choose_programs(place, name, params):
    assert place.complete(entry(name))[0].trusted_params == params


LACKING = {
    "patterns": ('    patterns = ("*.mesh", "x/*.obj")\n', "name, create_jobs and process_job, but no patterns"),
    "name": ('    name = "{called}"\n', "patterns, create_jobs and process_job, but no name"),
    "process_job": ("    def process_job(self, request): ...\n", "name, patterns and create_jobs, but no process_job"),
    "create_jobs": ("    def create_jobs(self, request): ...\n", "name, patterns and process_job, but no create_jobs"),
}


@pytest.mark.parametrize("is_known", [True, False], ids=["known builder", "unknown builder"])
@pytest.mark.parametrize(("line", "what"), LACKING.values(), ids=LACKING)
def test_error_for_a_builder_class_without_a_needed_member_names_its_line(place, line, what, is_known):
    assert line in CODE
    if is_known:
        place.write("mesh.py")
        place.complete()
    path = place.write("mesh.py", code=CODE.replace(line, ""))

    with pytest.raises(UserError) as raised:
        place.complete()
    with pytest.raises(UserError) as again:
        place.complete()

    assert (raised.value.what, raised.value.where) == (f"class Made has {what}", f"{path}:2")
    assert again.value.what == raised.value.what
    place.write("mesh.py")
    assert [found.name for found in place.complete()] == ["mesh"]


def test_builder_class_may_lack_patterns_if_the_configuration_has_patterns(place):
    place.write("mesh.py", code=CODE.replace(LACKING["patterns"][0], ""))
    pattern = Pattern(PatternKind.GLOB, "*.m", "m")

    assert place.complete(entry("mesh", patterns=(pattern,)))[0].patterns == (pattern,)


def test_helper_classes_in_a_builder_file_are_not_treated_as_builders(place):
    helpers = (
        "class Base:\n    patterns = ('*.x',)\n    def create_jobs(self, request): ...\n"
        "class _Mixin:\n    patterns = ('*.x',)\n    def create_jobs(self, request): ...\n"
        "class Other:\n    name = 'x'\n    patterns = ()\n"
    )
    place.write("mesh.py", code=helpers + CODE.replace("class {name}:", "class {name}(Base):"))

    assert [found.name for found in place.complete()] == ["mesh"]


def test_builder_file_that_no_longer_has_a_builder_is_refused(place):
    path = place.write("mesh.py")
    place.complete()
    place.write("mesh.py", code="x = 1\n")

    with pytest.raises(UserError) as raised:
        place.complete()

    assert (raised.value.what, raised.value.where) == ("the file no longer has a builder; it had 'mesh'", str(path))
    path.unlink()
    assert place.complete() == ()


def test_renamed_builder_is_reported(place):
    place.write("mesh.py")
    place.complete()
    place.write("mesh.py", "shape")
    reported = []

    found = complete(place.config(), place.cache, reported.append)

    assert [builder.name for builder in found] == ["shape"]
    assert reported == ["builder 'mesh' was removed from 'builders/mesh.py', so its products are deleted; the file now has 'shape'"]


def test_project_builder_works_without_a_configuration_entry(tmp_path, monkeypatch):
    settings = (
        "limits: {analyse: 3s, process: 2s, memory: 512MiB}\nenvironment: [LEVEL]\nretry: {times: 2}\nundeclared_reads: add\n"
        "scan_folders: [{name: p, path: a}]\nplatforms: {linux: {}, server: {}}\n"
    )
    monkeypatch.setenv("LEVEL", "9")
    found = []
    for entries in ("", "builders: [{name: mesh, uses: mesh}]\n"):
        folder = tmp_path / str(len(entries))
        folder.mkdir()
        project = own_project(folder, monkeypatch, {
            "aptui.yaml": settings + entries, "a/x.mesh": "", "builders/mesh.py": CODE.format(name="Made", called="mesh"),
        })  # fmt: skip
        (builder,) = complete(load.load(project), tmp_path / "memory")
        found.append(replace(builder, origin="", code_files=()))

    assert found[0] == found[1]
    assert (found[0].process_limit_s, found[0].analyse_limit_s, found[0].memory_limit_bytes) == (2.0, 3.0, 512 << 20)
    assert dict(found[0].variables).keys() == {"LEVEL"}


# Builder versions that include the output of a tool's version command.


def versioned(folder, monkeypatch, command="sh tool.sh -v"):
    """Return a function that loads a project with a tool that has a version command."""
    settings = f"""
scan_folders: [{{name: a, path: assets}}]
builders:
  - {{name: b, patterns: ["*"], command: x, tools: [{{name: sh, version: {json.dumps(command)}}}]}}
"""
    project = own_project(folder, monkeypatch, {"aptui.yaml": settings, "tool.sh": "echo tool  1.2; echo of $1 >&2"})
    return lambda: load.load(project)


def test_builder_version_includes_the_output_of_its_version_command(tmp_path, monkeypatch):
    config, memory = versioned(tmp_path, monkeypatch), tmp_path / "memory"
    (first,) = complete_checked(config(), memory)
    (tmp_path / "project/tool.sh").write_text("echo tool 1.3")
    (upgraded,) = complete_checked(config(), memory)

    assert first.version == "1 (sh: tool 1.2 of -v)"
    assert upgraded.version == "1 (sh: tool 1.3)"
    assert first.code_digest == upgraded.code_digest


def test_verb_that_only_reads_uses_stored_output_of_version_commands(tmp_path, monkeypatch, no_process):
    config, memory = versioned(tmp_path, monkeypatch), tmp_path / "memory"
    (asked,) = complete_checked(config(), memory)
    no_process()

    assert complete(config(), memory) == (asked,)
    assert complete(config(), tmp_path / "none") == config().project.builders


def test_version_command_of_a_missing_tool_does_not_run(tmp_path, monkeypatch):
    config = versioned(tmp_path, monkeypatch, "no-such-tool -v")
    settings = tmp_path / "project/aptui.yaml"
    settings.write_text(settings.read_text().replace("name: sh,", "name: no-such-tool,"))

    (builder,) = complete_checked(config(), tmp_path / "memory")

    assert builder.fault.startswith("builder 'b': the program 'no-such-tool' was not found")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sh -c 'echo no; exit 3'", "ended with status 3: no"),
        ("true", "printed nothing"),
        ("false", "ended with status 1; correct the command"),
        ("sleep 60", "took more than 0.1 s"),
        ("sh -c '", "cannot be started: No closing quotation"),
    ],
)
def test_failed_version_command_is_the_fault_of_its_builder_alone(tmp_path, monkeypatch, command, why):
    monkeypatch.setattr(registry, "_VERSION_LIMIT_S", 0.1 if "sleep" in command else 60)
    config = versioned(tmp_path, monkeypatch, command)
    settings = tmp_path / "project/aptui.yaml"
    settings.write_text(settings.read_text() + '  - {name: other, patterns: ["*"], command: x}\n')

    builder, other = complete_checked(config(), tmp_path / "memory")

    assert builder.fault.startswith(f"builder 'b': the version command {command!r} of tool 'sh' {why}".replace('"', "'"))
    assert (builder.version, other.fault) == ("1", "")


def test_builder_has_its_old_version_after_its_version_command_was_repaired(tmp_path, monkeypatch):
    config, memory = versioned(tmp_path, monkeypatch), tmp_path / "memory"
    tool = tmp_path / "project/tool.sh"
    first, text = complete_checked(config(), memory), tool.read_text()
    tool.write_text("exit 1")
    (faulty,) = complete_checked(config(), memory)
    tool.write_text(text)

    assert faulty.fault
    assert complete_checked(config(), memory) == first
