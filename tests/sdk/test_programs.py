import re
import sys

import pytest

from aptui.builders.common import messages, summarize_errors
from aptui.sdk import JobError, JobLog, MissingError, find_program, has_library, library, program_digest, programs, run_program


def test_error_names_a_package_that_is_not_installed():
    with pytest.raises(MissingError, match="the job needs the Python package 'Nope', which is not installed; run pip install Nope"):
        library("no_such_module_here.part", "Nope")

    assert not has_library("no_such_module_here")


def test_broken_package_is_reported_with_the_import_error(tmp_path, monkeypatch):
    (tmp_path / "broken_here.py").write_text("import ctypes\nraise ImportError('libfoo.so.1 is missing')\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(MissingError, match=r"cannot be imported \(libfoo.so.1 is missing\); run pip install"):
        library("broken_here")


def test_installed_package_is_imported():
    assert library("json").loads("1") == 1
    assert has_library("json")


@pytest.fixture
def bin_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    def put(name, text="#!/bin/sh\n"):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
        return str(tmp_path / name)

    return put


def test_requested_program_is_used_instead_of_the_first_one_in_the_path(bin_folder):
    one, two = bin_folder("one"), bin_folder("two")

    assert find_program(None, ("zero", "two", "one")) == two
    assert find_program("one", ("two",)) == one
    assert find_program(one, ()) == one
    assert find_program("zero", ("one",)) == ""
    assert find_program(None, ("zero",)) == ""


def test_digest_of_a_program_changes_with_its_bytes(bin_folder):
    path = bin_folder("tool")
    first = program_digest(path)
    bin_folder("tool", "#!/bin/sh\ntrue\n")

    assert first.startswith("tool ")
    assert program_digest(path) != first
    assert program_digest("") == "none"
    assert program_digest(path + "x") == "toolx unreadable"


@pytest.mark.real
def test_program_runs_in_the_given_folder_and_returns_both_output_streams(bin_folder, tmp_path, monkeypatch):
    path = bin_folder("tool", '#!/bin/sh\necho "$PWD $1 $LC_ALL"\necho wrong >&2\nexit 3\n')

    ended = run_program([path, "a b"], str(tmp_path))

    assert (ended.status, ended.output) == (3, f"{tmp_path} a b C\nwrong\n")
    monkeypatch.setattr(programs, "MOST_OUTPUT_BYTES", 3)
    assert run_program([path], str(tmp_path)).output == str(tmp_path)[:3]


@pytest.mark.real
@pytest.mark.parametrize(("number", "name"), [(15, "SIGTERM"), (40, "40")])
def test_signal_that_ends_a_program_is_reported(number, name, tmp_path):
    with pytest.raises(JobError, match=f"^sh ended with signal {name}$"):
        programs.run_logged(["sh", "-c", f"kill -{number} $$"], str(tmp_path), JobLog(lambda *_line: None))


@pytest.mark.real
def test_program_that_cannot_be_started_is_reported_as_missing(tmp_path):
    with pytest.raises(MissingError, match="cannot start 'tool': No such file or directory"):
        run_program([str(tmp_path / "tool")], str(tmp_path))


def test_each_error_or_warning_in_program_output_is_found_once():
    pattern = re.compile(r"(?P<kind>\w+): (?P<file>[^:]*):(?P<line>\d*): (?P<text>.*)")

    found = messages("noise\nERROR: a:3:  x\nERROR: a:3: x\nwarning: ::\nwarning: b:: y\n", pattern)

    assert [(each.is_error, each.where, each.text) for each in found] == [(True, "a:3", "x"), (False, "b", "y")]


def test_summary_has_the_first_error_and_the_number_of_other_errors():
    assert summarize_errors(["a"]) == "a"
    assert summarize_errors(["a", "b", "c"]) == "a (and 2 more)"


@pytest.mark.real
def test_builders_import_heavy_packages_only_when_needed():
    import subprocess

    code = (
        "import sys, importlib\n"
        "for name in 'model shader lua font fontatlas yaml xml table locale tilemap'.split():\n"
        "    importlib.import_module(f'aptui.builders.{name}_builder')\n"
        "print([name for name in ('trimesh', 'fontTools', 'lupa', 'numpy', 'ruamel', 'jsonschema', 'PIL', 'brotli') if name "
        "in sys.modules])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
