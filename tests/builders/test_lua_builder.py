import os

import pytest
from tools import needs

from aptui.builders import lua_builder
from aptui.builders.lua_builder import BYTECODE_ASSET_TYPE, LUA_ASSET_TYPE, LuaBuilder

BUILDER = LuaBuilder

VERSIONS = ["5.1", "5.2", "5.3", "5.4", "5.5", "luajit"]
TEXT = "local t = {" + ", ".join(f"k{number} = {number}" for number in range(30)) + "}\nreturn t\n"

FAKE = """#!/bin/sh
# Stands for luac: notes its arguments, and fails or writes as the source says.
for last; do :; done
echo "$PWD|$*" > "$LUAC_NOTE"
if grep -q broken "$last"; then echo "luac: $last:7: '=' expected near 'x'" >&2; exit 1; fi
if grep -q silent "$last"; then exit 3; fi
while [ $# -gt 0 ]; do if [ "$1" = -o ]; then printf bytecode > "$2"; fi; shift; done
"""


@pytest.fixture
def no_programs(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


@pytest.fixture
def no_lupa(monkeypatch):
    monkeypatch.setattr(lua_builder, "has_library", lambda _name: False)


@pytest.fixture
def fake_luac(no_programs, monkeypatch):
    for tool in ("grep", "sh"):
        (no_programs / tool).symlink_to(next(path for path in (f"/bin/{tool}", f"/usr/bin/{tool}") if os.path.exists(path)))
    path = no_programs / "luac5.4"
    path.write_text(FAKE)
    path.chmod(0o755)
    monkeypatch.setenv("LUAC_NOTE", str(no_programs / "note"))
    return lambda: (no_programs / "note").read_text().strip().split("|")


@pytest.mark.usefixtures("no_programs")
def test_valid_script_is_copied_if_no_compiler_is_installed(bench):
    response = bench.process(bench.write("scripts/Main.lua", TEXT))

    (product,) = response.products
    assert (product.path, product.sub_id, product.asset_type) == ("Main.lua", 0, LUA_ASSET_TYPE)
    assert (bench.products_dir / "Main.lua").read_text() == TEXT


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize("version", VERSIONS)
def test_broken_script_fails_with_its_line(bench, version):
    source = bench.write("a.lua", "#!/usr/bin/lua\nx = 1\ny = = 2\n")

    assert bench.fail(source, version=version) == "a.lua:3: unexpected symbol near '='"


@pytest.mark.usefixtures("no_programs")
def test_script_is_checked_with_the_requested_version_of_the_language(bench):
    source = bench.write("a.lua", "x = 7 // 2\n")

    assert bench.fail(source, version="5.1") == "a.lua:1: unexpected symbol near '/'"
    assert bench.build(source, version="5.3")


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize("is_stripped", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_bytecode_is_compiled_by_lupa_if_no_compiler_is_installed(bench, version, is_stripped):
    source = bench.write("a.lua", TEXT)

    made = bench.build(source, compile="bytecode", version=version, strip=is_stripped)

    assert made["a.lua"].startswith((b"\x1bLua", b"\x1bLJ"))
    assert str(bench.folder).encode() not in made["a.lua"]
    assert bench.build(source, compile="bytecode", version=version, strip=is_stripped) == made
    assert bench.process(source, compile="bytecode").products[0].asset_type == BYTECODE_ASSET_TYPE


@pytest.mark.real
@pytest.mark.usefixtures("no_programs")
def test_equal_sources_give_equal_bytecode_in_another_process(bench, made_elsewhere, digests_of):
    source = bench.write("a.lua", TEXT)
    params = {"compile": "bytecode", "version": "luajit"}

    assert made_elsewhere(bench, source, **params) == digests_of(bench.build(source, **params))


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize("data", [b"", b"-- \xff\xfe bytes\nx = '\xe9'\n", b"\xef\xbb\xbfx = 1\n", b"# shell line only"])
def test_unusual_valid_scripts_are_accepted(bench, data):
    assert bench.build(bench.write("a.lua", data), compile="bytecode")


@pytest.mark.usefixtures("no_programs")
def test_compiling_does_not_run_the_script(bench):
    assert bench.build(bench.write("a.lua", "while true do end error('ran')"), compile="bytecode")


def test_source_that_is_already_bytecode_is_refused(bench):
    assert bench.fail(bench.write("a.lua", b"\x1bLuaT\x00")) == "a.lua: the file is already bytecode, not a script"


@pytest.mark.real
def test_compiler_runs_in_the_scan_folder_with_a_relative_source_name(bench, fake_luac):
    source = bench.write("scripts/a.lua", "fine")

    assert bench.build(source, strip=True) == {"a.lua": b"bytecode"}
    folder, arguments = fake_luac()
    assert folder == str(bench.folder / "assets")
    assert arguments.startswith("-o ")
    assert arguments.endswith(" -s -- scripts/a.lua")


@pytest.mark.real
@pytest.mark.usefixtures("no_lupa")
def test_luac_checks_scripts_if_lupa_is_not_installed(bench, fake_luac):
    assert bench.build(bench.write("a.lua", "fine"), compile="check") == {"a.lua": b"fine"}
    assert fake_luac()[1] == "-p -- a.lua"


@pytest.mark.real
@pytest.mark.usefixtures("fake_luac")
def test_compiler_error_has_the_line_in_the_script(bench):
    assert bench.fail(bench.write("a.lua", "broken")) == "a.lua:7: '=' expected near 'x'"
    assert bench.fail(bench.write("b.lua", "silent")) == "b.lua: the script does not compile"


def test_compiler_version_is_part_of_the_fingerprint(bench, no_programs, fake_luac):
    before = bench.analyse("a.x").jobs[0].additional_fingerprint
    (no_programs / "luac5.4").write_text(FAKE + "# newer\n")
    after = bench.analyse("a.x").jobs[0].additional_fingerprint
    (no_programs / "luac5.4").unlink()

    assert len({before, after, bench.analyse("a.x").jobs[0].additional_fingerprint}) == 3


@pytest.mark.usefixtures("no_programs", "no_lupa")
def test_error_for_a_missing_library_and_compiler_names_the_remedy(bench):
    error = bench.fail(bench.write("a.lua", "x = 1"))

    assert error == "a.lua: Lua is not installed; install the Python package 'lupa' (pip install lupa) or the system package lua5.4"


@pytest.mark.usefixtures("no_programs")
def test_error_names_a_missing_compiler_that_a_parameter_requests(bench):
    assert "the program 'luac9', which the parameter 'luac' names, was not found" in bench.fail(
        bench.write("a.lua", ""), luac="luac9"
    )


@pytest.mark.real
@needs("luac5.4")
def test_real_compiler_and_library_report_the_same_error(bench):
    good, bad = bench.write("a.lua", TEXT), bench.write("b.lua", "x = 1\nx = [[\n")

    assert bench.build(good)["a.lua"].startswith(b"\x1bLuaT")
    assert bench.fail(bad) == bench.fail(bad, compile="check") == "b.lua:3: unfinished long string (starting at line 2) near <eof>"


def test_error_for_a_utf_16_script_names_the_remedy(bench):
    error = bench.fail(bench.write("a.lua", "return 1".encode("utf-16")))

    assert error == "a.lua:1: the file is UTF-16, which Lua does not read; save it as UTF-8"


@pytest.mark.real
def test_too_deeply_nested_script_has_its_own_error(bench):
    depth = 100_000

    assert (
        bench.fail(bench.write("a.lua", f"return {'(' * depth}1{')' * depth}")) == "a.lua: the script is nested too deeply for Lua"
    )
