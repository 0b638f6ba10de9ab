"""Settings are written back in place, and nothing else in the file changes."""

import os

import pytest

from aptui.config.configuration import ConfigErrors
from aptui.config.edit import edit_text, mistake_in, settings, value_of, with_entries, writable_files, write
from aptui.config.load import load
from aptui.config.yaml.nodes import read_yaml
from aptui.shared.errors import HostError, UserError

PROJECT = """\
# The game.   Two  spaces stay.
name: "my game"

scan_folders:
  - {name: game,   path: assets}   # here

ignore:
- '*.tmp'   # what editors leave
- {regex: 'x+'}
limits:
    process:   1h      # long enough

    # before the end
builders: [{name: files, copy: ["*.txt"]}]
workers: 2 # two
# the end
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "game"
    (folder / "assets").mkdir(parents=True)
    (folder / "aptui.yaml").write_text(PROJECT, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("key", "value", "before", "after"),
    [
        ("workers", 6, "workers: 2 # two", "workers: 6 # two"),
        ("limits.process", "5m", "process:   1h      # long", "process:   5m      # long"),
        ("name", "é: #1", 'name: "my game"', 'name: "é: #1"'),
        ("limits.memory", "2GiB", "# long enough\n", "# long enough\n    memory: 2GiB\n"),
        ("logs", "../logs", "# the end\n", '# the end\nlogs: "../logs"\n'),
    ],
)
def test_edit_changes_only_the_text_of_the_value(key, value, before, after):
    assert PROJECT.count(before) == 1
    assert edit_text(PROJECT, "x", key, value) == PROJECT.replace(before, after)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (PROJECT, PROJECT.replace("- {regex: 'x+'}\n", "- {regex: 'x+'}\n- \"*.bak\"\n")),
        ("ignore: []\n", 'ignore: ["*.bak"]\n'),
        ("ignore: [a, b]  # c\n", 'ignore: [a, b, "*.bak"]  # c\n'),
        ("ignore: [\n  a,\n]\n", 'ignore: [\n  a, "*.bak"\n]\n'),
        ("workers: 1", 'workers: 1\nignore: ["*.bak"]\n'),
        ("", 'ignore: ["*.bak"]\n'),
        ("# mine\n", '# mine\nignore: ["*.bak"]\n'),
        ("{workers: 1}", '{workers: 1, ignore: ["*.bak"]}'),
        ("ignore:\r\n  - a\r\nname: b\r\n", 'ignore:\r\n  - a\r\n  - "*.bak"\r\nname: b\r\n'),
    ],
)
def test_edit_adds_an_entry_in_the_style_of_its_list(text, after):
    assert edit_text(text, "x", "ignore", "*.bak", adds=True) == after


@pytest.mark.parametrize("text", ["workers: 1\n...\n", "limits:\n", "limits: 4\n"])
def test_edit_refuses_an_unusual_layout_and_leaves_the_file_unchanged(text):
    with pytest.raises(UserError, match="change the key by hand"):
        edit_text(text, "x", "limits.process", "5m")


def test_edit_adds_a_missing_mapping():
    assert edit_text("workers: 1\n", "x", "limits.process", "5m") == "workers: 1\nlimits:\n  process: 5m\n"
    assert edit_text("{}", "x", "limits.process", "5m") == "{limits: {process: 5m}}"
    assert edit_text("limits: {analyse: 1s}\n", "x", "limits.process", "5m") == "limits: {analyse: 1s, process: 5m}\n"


@pytest.mark.parametrize("value", ["true", "1e3", "a: b", "# x", "- x", "*x", " pad ", "\x1b[31m", "\u2028", '"', "no", "岩"])
def test_any_edited_text_is_read_unchanged_by_yaml(value):
    from aptui.config.yaml.nodes import read_yaml

    assert read_yaml(edit_text("", "x", "name", value).encode(), "x").plain() == {"name": value}


def test_edited_value_is_loaded_and_the_file_keeps_its_permissions(project):
    file = project / "aptui.yaml"
    file.chmod(0o640)

    write(project, file, "limits.process", "5m")
    write(project, file, "ignore", "*.bak", adds=True)

    assert load(project).limits.process_s == 300
    assert "*.bak" in file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(project)) == ["aptui.yaml", "assets"]


def test_missing_user_file_is_created_and_overrides_the_project(project):
    own = writable_files(project)[1]

    write(project, own, "workers", 7)

    assert load(project).workers == 7
    known = settings(project, ["workers", "limits.process", "limits.memory", "logs"])
    assert (known["workers"].value, known["workers"].file) == (7, str(own))
    assert known["limits.process"].where.endswith("aptui.yaml:11:16")
    assert known["limits.memory"].file == ""
    assert "logs" not in known


def test_a_link_to_a_settings_file_stays_a_link(project, tmp_path):
    (tmp_path / "real.yaml").write_text("workers: 1\n", encoding="utf-8")
    own = writable_files(project)[1]
    own.parent.mkdir(parents=True)
    own.symlink_to(tmp_path / "real.yaml")

    write(project, own, "workers", 3)

    assert own.is_symlink()
    assert (tmp_path / "real.yaml").read_text(encoding="utf-8") == "workers: 3\n"


def test_a_value_that_breaks_the_configuration_is_not_written(project):
    with pytest.raises(ConfigErrors, match=r"limits\.process"):
        write(project, project / "aptui.yaml", "limits.process", "soon")

    assert (project / "aptui.yaml").read_text(encoding="utf-8") == PROJECT


def test_setting_in_a_file_that_is_not_utf8_is_refused_with_its_place(project):
    file = project / "aptui.yaml"
    file.write_bytes(b"# \xff\n" + PROJECT.encode())

    with pytest.raises(UserError, match=r"aptui\.yaml:1:3: byte 0xff is not UTF-8"):
        write(project, file, "workers", 3)


def test_unwritable_folder_is_reported(project, monkeypatch):
    def refuse(*_arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(HostError, match="Permission denied"):
        write(project, project / "aptui.yaml", "workers", 3)

    assert sorted(os.listdir(project)) == ["aptui.yaml", "assets"]


@pytest.mark.parametrize(
    ("text", "value"), [("4", 4), ("1.5", 1.5), (" 5m ", "5m"), ("2GiB", "2GiB"), ("٤", "٤"), ("nan", "nan"), ("1e400", "1e400")]
)
def test_value_typed_as_a_number_is_stored_as_a_number(text, value):
    assert value_of(text) == value


def test_values_are_checked_against_the_schema():
    assert "a whole number" in mistake_in("workers", "many")
    assert "a duration" in mistake_in("limits.process", "soon")
    assert mistake_in("workers", 4) == mistake_in("limits.memory", "2GiB") == mistake_in("ignore", ["*.tmp"]) == ""


BLOCK = """\
# who may come in
serve:
  enabled: true
  rejected:   # never these
    - 1.2.3.4   # the printer
    # the office
    - 10.0.0.0/8
  port: 1
"""
FLOW = "serve: {rejected: [1.2.3.4, 10.0.0.0/8], port: 1}  # end\n"
LINES = "serve:\n  rejected: [\n    1.2.3.4,  # the printer\n    10.0.0.0/8,  # the office\n  ]\n"
DIALS = """\
serve:
  connections:
    - {id: phone, address: 1.2.3.4, port: 5}   # Anna's
    - id: tablet   # on the wall
      address: 1.2.3.5
      port: 6
"""
PHONE = {"id": "phone", "address": "1.2.3.4", "port": 5}
TABLET = {"id": "tablet", "address": "1.2.3.5", "port": 6}


@pytest.mark.parametrize(
    ("text", "entries", "after"),
    [
        (BLOCK, ["1.2.3.4", "10.0.0.0/8"], BLOCK),
        (BLOCK, ["10.0.0.0/8"], BLOCK.replace("    - 1.2.3.4   # the printer\n", "")),
        (BLOCK, ["1.2.3.4"], BLOCK.replace("    - 10.0.0.0/8\n", "")),
        (BLOCK, ["1.2.3.4", "10.0.0.0/8", "::1"], BLOCK.replace("10.0.0.0/8\n", '10.0.0.0/8\n    - "::1"\n')),
        (BLOCK, ["1.2.3.4", "10.0.0.0/9"], BLOCK.replace("10.0.0.0/8\n", '"10.0.0.0/9"\n')),
        (
            BLOCK, [],
            BLOCK.replace("rejected:", "rejected: []").replace("    - 1.2.3.4   # the printer\n    # the", "    # the")
            .replace("    - 10.0.0.0/8\n", ""),
        ),
        (FLOW, ["10.0.0.0/8"], FLOW.replace("1.2.3.4, ", "")),
        (FLOW, ["1.2.3.4"], FLOW.replace(", 10.0.0.0/8", "")),
        (FLOW, [], FLOW.replace("1.2.3.4, 10.0.0.0/8", "")),
        (FLOW, ["1.2.3.4", "10.0.0.0/8", "a.b"], FLOW.replace("0.0/8", "0.0/8, a.b")),
        (LINES, ["10.0.0.0/8"], LINES.replace("1.2.3.4,  ", "")),
        (LINES, ["1.2.3.4"], LINES.replace("10.0.0.0/8,  ", "")),
        (DIALS, [TABLET], DIALS.replace("    - {id: phone, address: 1.2.3.4, port: 5}   # Anna's\n", "")),
        (DIALS, [PHONE, {**TABLET, "port": 7}], DIALS.replace("port: 6", "port: 7")),
        (DIALS, [{**PHONE, "auto": False}, TABLET], DIALS.replace("port: 5}", "port: 5, auto: false}")),
        (DIALS, [PHONE, {**TABLET, "auto": False}], DIALS.replace("port: 6\n", "port: 6\n      auto: false\n")),
        (DIALS, [PHONE, {**TABLET, "id": "wall"}], DIALS.replace("id: tablet", "id: wall")),
        ("serve: {port: 1}\n", ["ab"], "serve: {port: 1, rejected: [ab]}\n"),
        ("serve:\n  port: 1\n", ["ab"], "serve:\n  port: 1\n  rejected: [ab]\n"),
        ("workers: 1\n", ["ab"], "workers: 1\nserve:\n  rejected: [ab]\n"),
    ],
)  # fmt: skip
def test_edit_of_a_list_changes_only_entries_that_differ(text, entries, after):
    key = "serve.connections" if text is DIALS else "serve.rejected"

    changed = with_entries(text, "x", key, entries)

    assert changed == after
    assert read_yaml(changed.encode(), "x").plain()["serve"][key.partition(".")[2]] == entries


def test_list_with_reordered_entries_is_written_as_a_whole():
    assert read_yaml(with_entries(FLOW, "x", "serve.rejected", ["10.0.0.0/8", "1.2.3.4"]).encode(), "x").plain() == {
        "serve": {"rejected": ["10.0.0.0/8", "1.2.3.4"], "port": 1}
    }


def test_value_that_is_not_a_list_is_refused():
    with pytest.raises(UserError, match="change the key by hand"):
        with_entries("serve: 3\n", "x", "serve.rejected", ["a"])
