"""Every mistake in a configuration is one line: `file:line:column: what is wrong; the nearest known word`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aptui.config.builders import PLACEHOLDERS
from aptui.config.configuration import ConfigErrors
from aptui.config.load import load
from aptui.config.yaml.config_schema import check_folder
from aptui.config.yaml.nodes import byte_count, read_yaml
from aptui.shared.errors import UserError

SMALL = "scan_folders: [{name: game, path: assets}]\n"
Complain = Callable[..., list[str]]


@pytest.fixture
def complain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Complain:
    """Return a function that loads a project and returns its mistakes.

    Each mistake begins with the line number, without the path.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    (tmp_path / "assets").mkdir()

    def mistakes(text: str | bytes, **options: object) -> list[str]:
        (tmp_path / "aptui.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(ConfigErrors) as caught:
            load(tmp_path, **options)  # type: ignore[arg-type]  # whatever the test says
        assert caught.value.exit_code == 3
        assert str(caught.value).split("\n") == [str(error) for error in caught.value.errors]
        return [str(error).replace(f"{tmp_path}/aptui.yaml:", "").replace(str(tmp_path), "…") for error in caught.value.errors]

    return mistakes


SHAPES = {
    "unknown key": ("workrs: 3", "2:1: unknown key 'workrs'; did you mean 'workers'?"),
    "unknown key below": ("limits: {proces: 3s}", "2:10: unknown key 'proces' in 'limits'; did you mean 'process'?"),
    "unknown key of a builder": (
        "builders:\n  - {name: a, copy: [x], paterns: []}",
        "3:26: unknown key 'paterns' in 'builders.a'; did you mean 'patterns'?",
    ),
    "unknown key far from all": (
        "limits: {xyzzy: 1}",
        "2:10: unknown key 'xyzzy' in 'limits'; the known names are: all_memory, analyse, memory, process",
    ),
    "merge key": ("<<: {workers: 1}", "2:1: unknown key '<<'; the known names are: "),
    "wrong type": ("workers: many", "2:10: 'workers' must be a whole number, 0 for one per core, not 'many'"),
    "truth is no number": ("workers: true", "2:10: 'workers' must be a whole number, 0 for one per core, not true"),
    "too small": ("workers: -1", "2:10: 'workers' must be a whole number, 0 for one per core, not -1"),
    "nothing": ("cache:", "2:1: 'cache' must be a path, not nothing"),
    "a list for a mapping": ("limits: [1]", "2:9: 'limits' must be a mapping of limits, not a list"),
    "duration": (
        "limits: {process: 5 parsecs}",
        "2:19: 'limits.process' must be auto, or a duration like 30s, 5m or 1h, not '5 parsecs'",
    ),
    "size": (
        "limits: {memory: 5XB}",
        "2:18: 'limits.memory' must be auto, a size like 512MiB or 2GiB, or 0 for no limit, not '5XB'",
    ),
    "platform name": (
        "platforms: {Linux: {}}",
        "2:13: platform 'Linux' must be a name of at most 64 lower-case letters, digits, _ and -, other than common",
    ),
    "reserved platform": (
        "platforms: {common: {}}",
        "2:13: platform 'common' must be a name of at most 64 lower-case letters, digits, _ and -, other than common",
    ),
    "platforms as a list": (
        "platforms: [linux, server]",
        "2:12: 'platforms' must be a mapping of platforms, not a list; write platforms: {linux: {}, server: {}}",
    ),
    "a platform that no folder can be called": (f"platforms: {{{'x' * 65}: {{}}}}", f"2:13: platform '{'x' * 56}"),
    "a number of no wire": (
        f"builders: [{{name: a, copy: [x], priority: {1 << 63}}}]",
        f"2:43: {1 << 63} is not a finite number of at most 64 bits",
    ),
    "a number without end": (f"workers: {'9' * 5_000}", f"2:10: {'9' * 60} is not a finite number of at most 64 bits"),
    "a pattern without end": (f"builders: [{{name: a, copy: ['{'*a' * 513}']}}]", "2:29: a pattern of more than 1024 characters"),
    "resource without a name": ('resources: {"a\\n": 1}', "2:13: resource 'a\\n' must be a name"),
    "newline in a platform": ('platforms: {"a\\n": {}}', "2:13: platform 'a\\n' must be a name of at most 64 "),
    "missing name": ("builders:\n  - copy: [x]", "3:5: 'name' is missing in 'builders.1'"),
    "missing regex": ("ignore: [{}]", "2:10: 'regex' is missing in 'ignore.1'"),
    "choice": (
        "builders: [{name: a, copy: [x], on_failure: delte}]",
        "2:45: 'builders.a.on_failure' must be keep or delete, not 'delte'; did you mean 'delete'?",
    ),
    "skip": (
        "builders: [{name: a, copy: [x], platforms: {linux: skp}}]",
        "2:52: 'builders.a.platforms.linux' must be skip, or a mapping of parameters, not 'skp'",
    ),
    "long value": (f"cache: [{'x' * 99}]", "2:8: 'cache' must be a path, not a list"),
    "twice the same builder": (
        "builders:\n  - {name: a, copy: [x]}\n  - {name: a, copy: [y]}",
        "4:12: the name 'a' is already used in 'builders', at aptui.yaml:3:12",
    ),
    "companion": ("companions: {'*.x': {sufix: y}}", "2:22: unknown key 'sufix' in 'companions.*.x'; did you mean 'suffix'?"),
    "uuid": ("builders: [{name: a, copy: [x], asset_type: 12-34}]", "2:45: 'builders.a.asset_type' must be a UUID, not '12-34'"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_mistake_in_the_structure_is_reported_with_its_place(complain: Complain, name: str) -> None:
    text, expected = SHAPES[name]

    found = complain(SMALL + text + "\n")

    assert "\n".join(found).startswith(expected)


def test_absolute_pattern_in_the_settings_of_a_folder_is_called_a_pattern() -> None:
    found = check_folder(read_yaml(b'files: {"/abs/*": {}}', ".aptui.yaml"))

    assert [str(mistake) for mistake in found] == [".aptui.yaml:1:9: pattern '/abs/*' must be a relative glob"]


NAMES = ", ".join(PLACEHOLDERS)
MEANINGS = {
    "no form": (
        "  - {name: a}",
        "3:5: builder 'a' needs one of the keys 'copy', 'uses', 'command', 'steps'; add one of these keys",
    ),
    "two forms": (
        "  - {name: a, copy: [x], uses: image}",
        "3:26: builder 'a' has both 'copy' and 'uses'; keep only one of these keys",
    ),
    "key of another form": (
        "  - {name: a, copy: [x], tools: [sh]}",
        "3:26: 'tools' can be used only with 'command:', not with 'copy:'",
    ),
    "patterns of a copy rule": (
        "  - {name: a, copy: [x], patterns: [y]}",
        "3:26: 'patterns' can be used only with 'uses:', 'command:' or 'steps:', not with 'copy:'",
    ),
    "one step": (
        "  - {name: a, steps: [{uses: json}]}",
        "3:22: builder 'a' has fewer than two steps; to use one builder, write 'uses:' in place of 'steps:'",
    ),
    "step that is a command": (
        "  - {name: a, steps: [{uses: json}, {uses: command}]}",
        "3:44: 'command' cannot be a step; each step must be a Python builder",
    ),
    "steps of one name": (
        "  - {name: a, steps: [{uses: json}, {uses: json}]}",
        "3:37: two steps have the name 'json'; give one of the steps a different 'name:'",
    ),
    "step with a dot": (
        "  - {name: a, steps: [{uses: json}, {uses: my.json}]}",
        "3:44: the builder 'my.json' has a dot in its name, so the step needs another name; add 'name:' to the step",
    ),
    "key of a command with steps": (
        "  - {name: a, steps: [{uses: json}, {uses: image}], tools: [sh]}",
        "3:53: 'tools' can be used only with 'command:', not with 'steps:'",
    ),
    "unknown placeholder": (
        "  - {name: a, command: 'cp {src} y', patterns: [x]}",
        f"3:24: '{{src}}' is not a placeholder; the placeholders are: {NAMES}; put braces that the program needs in single quotes",
    ),
    "placeholder in a persistent command": (
        "  - {name: a, patterns: [x], persistent: true, command: 'tool {source}'}",
        "3:57: '{source}' cannot be in the line of a persistent command; the program receives this value with each job",
    ),
    "traced persistent command": (
        "  - {name: a, patterns: [x], persistent: true, command: tool, trace_reads: true}",
        "3:76: 'trace_reads' has no effect with 'persistent'; a persistent program itself reports the files that it read",
    ),
    "placeholder of one file with batch": (
        "  - {name: a, patterns: [x], batch: 8, command: 'tool {source}'}",
        (
            "3:49: the placeholder '{source}' cannot be used in a command with 'batch'; write {sources}, because the command gets"
            " several files"
        ),
    ),
    "batch without files": (
        "  - {name: a, patterns: [x], batch: 8, command: 'tool {products_dir}'}",
        "3:49: a command with 'batch' needs the placeholder {sources}; add {sources} to the command line",
    ),
    "files without batch": (
        "  - {name: a, patterns: [x], command: 'tool {sources}'}",
        "3:39: '{sources}' needs 'batch'; without 'batch', write {source}",
    ),
    "quoted files": (
        "  - {name: a, patterns: [x], batch: 8, command: 'tool --in={sources}'}",
        "3:49: {sources} must be a word of its own, without quotes; each file becomes one word of the command line",
    ),
    "depfile with batch": (
        "  - {name: a, patterns: [x], batch: 8, command: 'tool {sources}', depfile: x.d}",
        "3:76: 'depfile' cannot be used with 'batch'; a command with 'batch' gives the dependencies of each file in its manifest",
    ),
    "persistent command with batch": (
        "  - {name: a, patterns: [x], batch: 8, command: 'tool', persistent: true}",
        "3:30: 'batch' has no effect with 'persistent'; use only one of these keys",
    ),
    "products that are not distinguished": (
        "  - {name: a, patterns: [x], batch: 8, command: 'tool {sources}', products: ['*.ktx2']}",
        "3:78: with 'batch', the products of several files would match '*.ktx2'; add {stem} to this pattern",
    ),
    "batch of one": (
        "  - {name: a, patterns: [x], batch: 1, command: 'tool {sources}'}",
        "3:37: 'builders.a.batch' must be a whole number from 2 to 256, not 1",
    ),
    "persistent builder": (
        "  - {name: a, uses: json, persistent: true}",
        "3:27: 'persistent' can be used only with 'command:', not with 'uses:'",
    ),
    "a value as code": (
        "  - {name: a, command: \"sh -c 'cat {source}'\", patterns: [x]}",
        """3:24: 'sh -c' would run the value of {source} as code; pass the value as an argument: sh -c 'tool "$1"' sh {source}; \
or read "$APTUI_SOURCE" from the environment""",
    ),
    "no patterns": ("  - {name: a, command: x}", "3:5: builder 'a' has no patterns; add patterns, which select its sources"),
    "empty patterns": ("  - {name: a, copy: []}", "3:21: builder 'a' has no patterns; add patterns, which select its sources"),
    "command by name": (
        "  - {name: a, uses: command}",
        "3:21: 'command' is not the name of a Python builder; to run a command line, write 'command:' in place of 'uses:'",
    ),
    "absolute pattern": ("  - {name: a, copy: [/x/*.y]}", "3:22: pattern '/x/*.y' must be relative, with '/' between folders"),
    "backslash": (r"  - {name: a, copy: ['x\*.y']}", "3:22: pattern 'x\\\\*.y' must be relative, with '/' between folders"),
    "regex": (
        "  - {name: a, copy: [{regex: 'a('}]}",
        "3:30: not a regular expression: missing ), unterminated subpattern at character 2: 'a('",
    ),
    "unknown platform": (
        "  - {name: a, copy: [x], platforms: {linx: skip}}",
        "3:38: 'linx' is neither a platform nor a tag; did you mean 'linux'?",
    ),
    "unknown group": (
        "  - {name: a, command: x, patterns: [x], errors: '(?P<fil>x)'}",
        "3:50: unknown group 'fil'; did you mean 'file'?",
    ),
    "no group": (
        "  - {name: a, command: x, patterns: [x], dependencies: 'x'}",
        "3:56: it is not clear which group of the regular expression is the file; name the group: (?P<file>…)",
    ),
    "no group of a reference": (
        "  - {name: a, copy: [x], references: ['x']}",
        "3:39: it is not clear which group of the regular expression is the path; name the group: (?P<path>…)",
    ),
    "unknown group of a reference": (
        "  - {name: a, copy: [x], references: [{regex: '(?P<nam>x)', path: 'y/{name}'}]}",
        "3:67: the regular expression has no group 'name'; write (?P<name>…) in the regular expression",
    ),
    "regex of a reference": (
        "  - {name: a, copy: [x], references: ['a(']}",
        "3:39: not a regular expression: missing ), unterminated subpattern at character 2: 'a('",
    ),
    "links of a copy": (
        "  - {name: a, copy: [x], product_dependencies: y}",
        "3:26: 'product_dependencies' can be used only with 'command:', not with 'copy:'",
    ),
}


@pytest.mark.parametrize("name", MEANINGS)
def test_a_mistake_in_a_builder_is_reported_with_its_place(complain: Complain, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("aptui.config.compiler.host_platform", lambda: "linux")
    text, expected = MEANINGS[name]

    assert complain(f"{SMALL}builders:\n{text}\n") == [expected]


FOLDERS = {
    "none": ("workers: 1", "1:1: the project has no scan folders; add 'scan_folders: [{name: game, path: assets}]'"),
    "missing": ("scan_folders: [{name: a, path: nowhere}]", "1:32: scan folder 'a' does not exist: '…/nowhere'"),
    "a file": ("scan_folders: [{name: a, path: aptui.yaml}]", "1:32: scan folder 'a' is not a folder: '…/aptui.yaml'"),
    "without a path": ("scan_folders: [{name: a}]", "1:16: 'path' is missing in 'scan_folders.a'"),
    "the same twice": (
        "scan_folders: [{name: a, path: assets}, {name: b, path: ./assets/}]",
        "1:57: scan folder 'b' is the same folder as 'a'",
    ),
    "inside another": (
        "scan_folders: [{name: a, path: ., order: 3}, {name: b, path: assets, order: 3}]",
        "1:62: scan folder 'b' is inside 'a', which takes precedence, so it would have no files; give 'b' an order below 3",
    ),
    "inside the cache": (
        "scan_folders: [{name: a, path: assets}]\ncache: .",
        "1:32: scan folder 'a' is inside '…', where aptui writes its own files; choose another folder",
    ),
    "unknown tag": (
        "platforms: {server: {tags: [headless]}}\nscan_folders: [{name: a, path: assets, exclude: [headles]}]",
        "2:50: 'headles' is neither a platform nor a tag; did you mean 'headless'?",
    ),
    "exception": (
        "scan_folders: [{name: a, path: assets}]\nignore: ['!x']",
        "2:10: '!x' is not an ignore rule; exceptions that begin with ! are not supported",
    ),
    "comment": (
        "scan_folders: [{name: a, path: assets}]\nignore: ['#x']",
        "2:10: '#x' is not an ignore rule; escape special characters as in .gitignore",
    ),
    "groups in ignore": (
        "scan_folders: [{name: a, path: assets}]\nignore: [{regex: '(?P<a>x)'}]",
        "2:18: named groups, back references and global flags are not allowed in ignore rules",
    ),
    "companion": (
        "scan_folders: [{name: a, path: assets}]\ncompanions: {/x: y}",
        "2:14: pattern '/x' must be relative, with '/' between folders",
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_mistake_in_folders_and_rules_is_reported_with_its_place(complain: Complain, name: str) -> None:
    text, expected = FOLDERS[name]

    assert complain(f"{text}\n") == [expected]


def test_scan_folder_that_is_a_link_to_another_scan_folder_is_refused(complain: Complain, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("assets")

    assert complain("scan_folders: [{name: a, path: assets}, {name: b, path: link}]") == [
        "1:57: scan folder 'b' is the same folder as 'a'"
    ]


def test_all_mistakes_are_reported_in_the_order_of_the_file(complain: Complain) -> None:
    found = complain("wrkers: 3\nlimits: {process: 0}\nbuilders:\n  - {name: a, usse: x}\n")

    assert [line.split(":")[0] for line in found] == ["1", "2", "4"]


def test_mistakes_that_only_the_compiler_finds_are_all_reported(complain: Complain) -> None:
    found = complain(
        "scan_folders: [{name: a, path: no}]\nbuilders: [{name: a}, {name: b, copy: [{regex: '('}, /x]}]\nignore: ['!x']\n"
    )

    assert [line.split(": ")[0] for line in found] == ["1:32", "2:12", "2:48", "2:54", "3:10"]


REFUSED = {
    "alias": (
        b"a: &x 1\nb: *x\n",
        "1:4: anchors and aliases (& and *) are not allowed; repeat the full value in place of each alias",
    ),
    "self reference": (
        b"&x [*x]\n",
        "1:1: anchors and aliases (& and *) are not allowed; repeat the full value in place of each alias",
    ),
    "anchored key": (
        b"&x a: 1\n",
        "1:1: anchors and aliases (& and *) are not allowed; repeat the full value in place of each alias",
    ),
    "tag": (b"a: !!python/object:os.system 1\n", "1:4: tags like "),
    "tagged list": (b"a:\n  - !x [1]\n", "2:5: tags like !x are not allowed; write the value without the tag"),
    "duplicate key": (b"a: 1\nb: 2\na: 3\n", "3:1: key 'a' is given twice, first at aptui.yaml:1:1"),
    "list on top": (b"- a\n", "1:1: the configuration must be a mapping of settings; 'aptui init --dry-run' prints an example"),
    "text on top": (b"hello\n", "1:1: the configuration must be a mapping of settings; 'aptui init --dry-run' prints an example"),
    "nothing on top": (b"---\n", "2:1: the configuration must be a mapping of settings; 'aptui init --dry-run' prints an example"),
    "depth": (b"a: " + b"[" * 60 + b"]" * 60, "1:53: the YAML is nested deeper than 50 levels"),
    "great depth": (b"a: " + b"[" * 500_000, "1:53: the YAML is nested deeper than 50 levels"),
    "long tag": (
        b"a: !" + b"x" * 1000 + b" 1\n",
        f"1:4: tags like !{'x' * 58}… are not allowed; write the value without the tag",
    ),
    "long key twice": (
        (b"? " + b"x" * 1000 + b"\n: 1\n") * 2,
        f"3:3: key '{'x' * 59}…' is given twice, first at aptui.yaml:1:3",
    ),
    "deep mapping": (b"{a: " * 60, "1:201: the YAML is nested deeper than 50 levels"),
    "size": (b"# " + b"x" * (1 << 20), "1:1: the file is larger than 1 MiB; check whether this is a configuration file"),
    "bytes": ("a: ü\nb: ".encode() + b"\xff\n", "2:4: byte 0xff is not UTF-8; save the file as UTF-8"),
    "utf-16": ("a: 1".encode("utf-16"), "1:1: byte 0xff is not UTF-8; save the file as UTF-8"),
    "control character": (b"a: 1\nb: \x01\n", "2:4: not valid YAML: a control character that YAML does not allow"),
    "surrogate": (
        b'a: "\\ud800"\n',
        "1:4: the escape sequence is only half of a character (a lone surrogate); write the character instead of the escape",
    ),
    "syntax": (b"a: 1\nb: [1, 2\n", "3:1: not valid YAML: expected ',' or ']'"),
    "two colons": (b"a: b: c\n", "1:5: not valid YAML: mapping values are not allowed here"),
    "tab": (b"a:\n\tb: 1\n", "2:1: not valid YAML: found character"),
    "open quote": (b"a: 'x\n", "2:1: not valid YAML: found unexpected end of stream"),
    "second document": (b"a: 1\n---\nb: 2\n", "2:1: the file has a second YAML document; keep one document in the file"),
    "list as key": (b"? [a]\n: 1\n", "1:3: a key must be text"),
    "not a number": (b"a: .nan\n", "1:4: .nan is not a finite number of at most 64 bits"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_dangerous_or_broken_yaml_is_refused_before_it_is_expanded(complain: Complain, name: str) -> None:
    data, expected = REFUSED[name]

    (found,) = complain(data)

    assert found.startswith(expected)


def test_empty_file_is_reported_as_having_no_scan_folders(complain: Complain) -> None:
    assert complain("# nothing\n")[0].startswith("1:1: the project has no scan folders")


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("workers", "--set workers: --set needs KEY=VALUE; for example --set workers=4"),
        ("a..b=1", "--set a..b=1: --set needs KEY=VALUE; for example --set workers=4"),
        ("wrkers=1", "--set wrkers: unknown key 'wrkers'; did you mean 'workers'?"),
        ("workers=x", "--set workers:1:1: 'workers' must be a whole number, 0 for one per core, not 'x'"),
        ("workers=", "--set workers: 'workers' must be a whole number, 0 for one per core, not ''"),
        ("limits=[", "--set limits:1:2: not valid YAML: "),
        (
            "builders.dta.params.x=1",
            "--set builders.dta: builder 'dta' needs one of the keys 'copy', 'uses', 'command', 'steps'; did you mean 'data'?",
        ),
        ("scan_folders.gane.order=1", "--set scan_folders.gane: 'path' is missing in 'scan_folders.gane'; did you mean 'game'?"),
        ("builders.data=1", "--set builders.data: 'builders.1' must be a mapping that describes a builder, not 1"),
    ],
)
def test_a_mistake_in_an_option_names_the_option(complain: Complain, option: str, expected: str) -> None:
    (found,) = complain(SMALL + "builders: [{name: data, copy: [x]}]\n", sets=[option])

    assert found.replace(".params.x:", ":").replace(".order:", ":").startswith(expected)


def test_message_about_an_unknown_platform_lists_the_known_ones(complain: Complain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aptui.config.compiler.host_platform", lambda: "linux")

    found = complain(SMALL + "platforms: {server: {enabled: false}}\n", platforms=["sever"])

    assert found == ["unknown platform 'sever'; the platforms are: linux, server"]


def test_a_mistake_in_the_user_layer_names_the_file_of_that_layer(complain: Complain, tmp_path: Path) -> None:
    (tmp_path / "user" / "aptui").mkdir(parents=True)
    (tmp_path / "user" / "aptui" / "aptui.yaml").write_text("wokers: 1\n", encoding="utf-8")

    assert complain(SMALL) == ["…/user/aptui/aptui.yaml:1:1: unknown key 'wokers'; did you mean 'workers'?"]


def test_negative_workers_are_refused(complain: Complain, tmp_path: Path) -> None:
    assert complain("x: 1")
    (tmp_path / "aptui.yaml").write_text(SMALL, encoding="utf-8")

    with pytest.raises(UserError, match="-1 is not a number of workers"):
        load(tmp_path, workers=-1)


def test_pipe_or_folder_in_place_of_a_file_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    (tmp_path / "aptui.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "user" / "aptui").mkdir(parents=True)
    os.mkfifo(tmp_path / "user" / "aptui" / "aptui.yaml")

    with pytest.raises(UserError, match=r"aptui/aptui\.yaml: not a regular file"):
        load(tmp_path)


def test_folder_without_a_project_is_refused_with_the_advice_to_run_init(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no 'aptui.yaml' in .*; run 'aptui init' to create this file"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("100kB", 100_000),
        ("100KB", 100_000),
        ("100k", 100_000),
        ("1G", 10**9),
        ("2M", 2_000_000),
        ("1GiB", 1 << 30),
        (7, 7),
        ("3B", 3),
        ("9" * 400 + "TB", 1 << 60),
    ],
)
def test_byte_sizes_with_units_are_understood(text, count):
    assert byte_count(text) == count
