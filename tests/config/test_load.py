"""Loading the configuration from its layers of YAML, and the stored copy that makes loading an unchanged configuration fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from uuid import UUID

import pytest
from msgspec import Struct
from msgspec.structs import replace

from aptui.config import configuration, dirs, packing
from aptui.config import load as config_load
from aptui.config.builders import SHIPPED_BUILDERS
from aptui.config.configuration import Config
from aptui.config.load import load
from aptui.config.yaml.nodes import read_yaml
from aptui.core.paths import name_uuid
from aptui.core.patterns import ignore_matcher
from aptui.core.project import SHARE_OF_MEMORY, BuilderKind, Platform, ReferenceRule, ScanFolder
from aptui.shared.errors import UserError

EXAMPLE = """\
platforms:
  linux:  {tags: [tools, renderer]}          # the host's platform is always enabled
  server: {tags: [server], enabled: true}
scan_folders:
  - {name: game, path: assets, order: 0}     # lower order wins; recursive by default
  - {name: shared, path: ../shared, order: 100, exclude: [server]}
ignore: ["*.tmp", ".git/*"]
builders:
  - {name: data, copy: ["*.txt", "*.json"]}
  - {name: textures, uses: image, patterns: ["*.png"], params: {format: webp}, platforms: {server: skip}}
  - name: upper
    patterns: ["*.up"]
    version: 1
    command: "tr a-z A-Z < {source} > {products_dir}/{stem}.txt"
    products: ["*.txt"]
cache: Cache
"""
SMALL = "scan_folders: [{name: game, path: assets}]\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes a project and returns its folder; the user's own folders are empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    monkeypatch.setattr(dirs, "host_platform", lambda: "linux")
    monkeypatch.setattr("aptui.config.compiler.host_platform", lambda: "linux")
    (tmp_path / "shared").mkdir()
    (tmp_path / "game" / "assets").mkdir(parents=True)

    def write_project(text: str, *, user: str = "") -> Path:
        (tmp_path / "game" / "aptui.yaml").write_text(text, encoding="utf-8")
        if user:
            (tmp_path / "user" / "aptui").mkdir(parents=True, exist_ok=True)
            (tmp_path / "user" / "aptui" / "aptui.yaml").write_text(user, encoding="utf-8")
        return tmp_path / "game"

    return write_project


def builders_of(text: str) -> str:
    return f"{SMALL}builders:\n{text}"


def test_example_configuration_is_compiled_completely(write: Write, tmp_path: Path) -> None:
    loaded = load(write(EXAMPLE))

    project = loaded.project
    assert (loaded.name, loaded.cache_dir) == ("game", tmp_path / "game" / "Cache")
    assert loaded.log_dir == tmp_path / "game" / "Cache" / ".aptui" / "logs"
    assert project.platforms == (Platform("linux", ("renderer", "tools")), Platform("server", ("server",)))
    game, shared = project.scan_folders
    assert (game.name, game.path, game.platforms) == ("game", str(tmp_path / "game" / "assets"), ("linux", "server"))
    assert (shared.path, shared.order, shared.platforms) == (str(tmp_path / "shared"), 100, ("linux",))
    data, textures, upper = project.builders
    assert (data.kind, [pattern.text for pattern in data.patterns]) == (BuilderKind.COPY, ["*.txt", "*.json"])
    assert (textures.kind, textures.origin, textures.platforms) == (BuilderKind.PYTHON, "entry:image", ("linux",))
    assert textures.params == '{"format":"webp"}'
    assert upper.command is not None
    assert (upper.kind, upper.version, upper.command.products) == (BuilderKind.COMMAND, "1", ("*.txt",))
    assert data.uuid == name_uuid(b"aptui:builder:data")


def test_stored_configuration_keeps_the_reference_rules_of_a_builder(write: Write) -> None:
    given = "{regex: '(?P<n>x)', path: 'a/{n}', kind: product, load: pre, relative_to: source, look_in: source}"
    folder = write(builders_of(f"  - {{name: a, copy: [x], references: ['b(.)', {given}]}}\n"))

    for loaded in (load(folder), load(folder)):
        (rule,) = loaded.project.builders
        assert rule.references == (ReferenceRule("b(.)"), ReferenceRule("(?P<n>x)", "a/{n}", 1, 0, True, True))
        assert not rule.is_plain_copy


def test_undeclared_host_platform_is_enabled(write: Write) -> None:
    loaded = load(write(SMALL))

    assert loaded.project.platforms == (Platform("linux", ("renderer", "tools")),)
    assert loaded.project.host_platform == "linux"


def test_platform_of_this_machine_cannot_be_disabled(write: Write) -> None:
    loaded = load(write(f"{SMALL}platforms: {{linux: {{enabled: false}}, server: {{enabled: false}}}}\n"))

    assert [platform.id for platform in loaded.project.platforms] == ["linux"]
    assert loaded.warnings[0].endswith("aptui.yaml:2:30: 'linux' is the platform of this machine, so it cannot be disabled")


def test_enabled_platforms_that_are_not_selected_are_listed_as_resting(write: Write) -> None:
    folder = write(f"{SMALL}platforms: {{linux: {{}}, server: {{}}, android: {{enabled: false}}, web: {{}}}}\n")

    loaded = load(folder, platforms=["server", "android"])

    assert [platform.id for platform in loaded.project.platforms] == ["server", "android"]
    assert loaded.project.resting_platforms == ("linux", "web")
    assert loaded.project.scan_folders[0].platforms == ("server", "android")


def test_scan_folders_are_sorted_by_order_and_limited_to_a_platform_or_tag(write: Write) -> None:
    folder = write(
        "platforms: {linux: {tags: [Tools]}, server: {tags: [x]}}\n"
        "scan_folders:\n"
        "  - {name: late, path: assets, order: 5, recursive: false, include: [TOOLS, server], exclude: [x]}\n"
        "  - {name: early, path: ../shared, order: -1}\n"
    )

    early, late = load(folder).project.scan_folders

    assert (early.name, early.recursive) == ("early", True)
    assert (late.name, late.recursive, late.platforms) == ("late", False, ("linux",))


def test_nested_scan_folder_with_a_lower_order_number_is_accepted(write: Write, tmp_path: Path) -> None:
    (tmp_path / "game" / "assets" / "ui").mkdir()
    inner = "scan_folders: [{name: game, path: assets, order: 1}, {name: ui, path: assets/ui, order: 0}]\n"

    assert [folder.name for folder in load(write(inner)).project.scan_folders] == ["ui", "game"]


def test_platform_id_overrides_tag_and_tag_overrides_star(write: Write) -> None:
    folder = write(
        "platforms: {linux: {tags: [t]}, server: {tags: [t]}, web: {}}\n"
        + builders_of('  - {name: b, uses: image, params: {q: 1}, platforms: {"*": skip, T: {q: 2}, server: {}}}\n')
    )

    builder = load(folder).project.builders[0]

    assert builder.platforms == ("linux", "server")
    assert builder.platform_params == (("linux", '{"q":2}'),)


def test_builder_skipped_on_all_platforms_is_left_out(write: Write) -> None:
    assert load(write(builders_of('  - {name: b, copy: ["*"], platforms: {linux: skip}}\n'))).project.builders == ()


def test_every_field_of_a_builder_is_compiled(write: Write) -> None:
    text = """\
  - name: b
    command: x
    patterns: [{regex: 'a/(b|c)'}, ./d*]
    priority: 3
    critical: true
    time_limit: 30s
    memory_limit: 2GiB
    version: 1.5
    on_failure: delete
    depfile: d
    dependencies: 'read (.*)'
    warnings: '(?P<file>.*):(?P<line>.*): w (?P<message>.*)'
    errors: 'E (?P<message>.*)'
    asset_type: "{3D5A5C7E-2B0C-4E0A-9E54-3F4D9C6C8A11}"
"""

    builder = load(write(builders_of(text))).project.builders[0]

    assert [(pattern.text, pattern.kind.name) for pattern in builder.patterns] == [("a/(b|c)", "REGEX"), ("d*", "GLOB")]
    assert (builder.priority, builder.is_critical, builder.version) == (3, True, "1.5")
    assert (builder.process_limit_s, builder.memory_limit_bytes) == (30.0, 2 << 30)
    assert (builder.deletes_products_on_failure, builder.analyse_limit_s) == (True, 120.0)
    assert builder.asset_type == UUID("3D5A5C7E-2B0C-4E0A-9E54-3F4D9C6C8A11").bytes
    assert builder.command is not None
    assert (builder.command.depfile, builder.command.dependency_regex) == ("d", "read (.*)")
    assert builder.command.error_regex == "E (?P<message>.*)"


def test_builder_that_uses_copy_is_a_copy_rule(write: Write) -> None:
    builder = load(write(builders_of('  - {name: b, uses: copy, patterns: ["*.x"]}\n'))).project.builders[0]

    assert (builder.kind, builder.origin, builder.needs_analysis) == (BuilderKind.COPY, "", False)


@pytest.mark.parametrize(
    ("given", "limit"), [("", SHARE_OF_MEMORY), ("memory_limit: auto, ", SHARE_OF_MEMORY), ("memory_limit: 0, ", 0)]
)
def test_memory_limit_of_a_worker_defaults_to_a_share_of_the_machine(write: Write, given: str, limit: int) -> None:
    builder = load(write(builders_of(f"  - {{name: b, {given}uses: image}}\n"))).project.builders[0]

    assert builder.memory_limit_bytes == limit


def test_global_limits_apply_to_builders_without_own_limits(write: Write) -> None:
    loaded = load(write(builders_of("  - {name: b, uses: image}\n") + "limits: {analyse: 500ms, process: 90, memory: 1kB}\n"))

    assert (loaded.limits.analyse_s, loaded.limits.process_s, loaded.limits.memory_bytes) == (0.5, 90.0, 1000)
    builder = loaded.project.builders[0]
    assert (builder.analyse_limit_s, builder.process_limit_s, builder.memory_limit_bytes) == (0.5, 90.0, 1000)


@pytest.mark.parametrize(
    ("limits", "builder", "limit_s"),
    [
        ("", "uses: image", 600),
        ("limits: {process: auto}\n", "uses: audio", 600),
        ("", "uses: image, time_limit: 3h", 10_800),
        ("limits: {process: 2h}\n", "uses: image", 7_200),
        ("", "uses: copy, patterns: ['*.x']", 3_600),
        ("", "uses: own", 3_600),
        ("", "command: 'true', patterns: ['*.x']", 3_600),
    ],
)
def test_time_limit_is_ten_minutes_for_shipped_builders_else_one_hour(
    write: Write, limits: str, builder: str, limit_s: float
) -> None:
    loaded = load(write(builders_of(f"  - {{name: b, {builder}}}\n") + limits))

    assert loaded.project.builders[0].process_limit_s == limit_s


def test_shipped_builders_are_the_entry_points_of_the_distribution() -> None:
    points = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]["aptui.builders"]

    assert set(points) == SHIPPED_BUILDERS


def test_companions_are_appended_or_replace_an_extension(write: Write) -> None:
    folder = write(f'{SMALL}companions: {{"*.abc": {{suffix: .cbc, replaces: .abc}}, "*.fbx": [assetinfo, x.y]}}\n')

    found = {(rule.source.text, rule.suffix, rule.replaces) for rule in load(folder).project.companions}

    assert found >= {("*.abc", "cbc", "abc"), ("*.fbx", "assetinfo", ""), ("*.fbx", "x.y", "")}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.TMP", True),
        ("deep/down/a.tmp", True),
        ("Thumbs.db", True),
        ("deep/.git/config", True),
        ("raw/a.txt", True),
        ("raw/deep/a.txt", True),
        ("deep/raw/a.txt", False),
        ("old/x.txt", True),
        ("older/x.txt", False),
        ("backup_12", True),
        ("backup_12/a/b.txt", True),
        ("backup_x", False),
        ("aptui.yaml", True),
        ("a.txt", False),
        ("Cache/linux/a.txt", True),
        ("cache/linux/a.txt", False),
    ],
)
def test_ignore_rules_match_as_in_gitignore(write: Write, path: str, expected: bool) -> None:
    rules = "ignore: ['*.tmp', 'raw/*', old, {regex: 'backup_[0-9]+'}]\n"
    folder = write(f"scan_folders: [{{name: game, path: .}}]\n{rules}")

    assert ignore_matcher(load(folder).project.ignore_regex)(path) is expected


@pytest.mark.parametrize("file", config_load.find_shipped_files(), ids=lambda file: file.name)
def test_shipped_file_is_parsed_with_the_same_values_and_places_as_by_yaml(file: Path) -> None:
    data = file.read_bytes()

    assert config_load._parse_layer(data, file.name) == read_yaml(data, file.name)


def test_shipped_ignore_rules_can_be_left_out(write: Write) -> None:
    is_ignored = ignore_matcher(load(write(f"{SMALL}ignore: [x]\nshipped_ignore: false\n")).project.ignore_regex)

    assert (is_ignored("x"), is_ignored("Thumbs.db")) == (True, False)


def test_workers_default_to_the_number_of_cores(write: Write) -> None:
    folder = write(SMALL)

    assert load(folder).workers == dirs.core_count()
    assert load(folder, workers=7).project.workers == 7
    assert load(folder, sets=["workers=3"]).workers == 3
    assert load(folder, sets=["workers=3"], workers=0).workers == dirs.core_count()


def test_braces_in_a_glob_give_a_warning_that_they_match_literally(write: Write) -> None:
    loaded = load(write(builders_of('  - {name: b, copy: ["*.{png,jpg}"]}\n')))

    assert "aptui.yaml:3:22: in '*.{png,jpg}', braces and brackets are ordinary characters" in loaded.warnings[0]


def test_user_layer_overrides_the_project_and_options_override_both_layers(write: Write) -> None:
    folder = write(EXAMPLE, user="builders: [{name: textures, params: {format: png, q: 1}}]\nworkers: 5\nignore: [mine]\n")

    loaded = load(folder, sets=["builders.textures.params.q=2", "scan_folders.game.order=-3", "limits.process=5m"])

    textures = loaded.project.builders[1]
    assert (textures.params, textures.origin) == ('{"format":"png","q":2}', "entry:image")
    assert loaded.project.scan_folders[0].order == -3
    assert (loaded.workers, loaded.limits.process_s, loaded.limits.analyse_s) == (5, 300.0, 120.0)
    is_ignored = ignore_matcher(loaded.project.ignore_regex)
    assert is_ignored("mine")
    assert is_ignored("a.tmp")
    assert [Path(file).name for file, _ in loaded.layers] == ["defaults.yaml", "builders.yaml", "aptui.yaml", "aptui.yaml"]


def test_value_of_a_set_option_is_parsed_as_yaml(write: Write) -> None:
    loaded = load(write(SMALL), sets=['builders=[{name: a, copy: ["*.x"]}]', "platforms.server.enabled=true"])

    assert [rule.name for rule in loaded.project.builders] == ["a"]
    assert [platform.id for platform in loaded.project.platforms] == ["linux", "server"]


def test_configuration_stores_the_place_of_every_builder_parameter(write: Write) -> None:
    text = "scan_folders: [{name: a, path: .}]\nbuilders:\n  - {name: t, uses: image, params: {a: 1}, platforms: {linux: {b: 2}}}\n"
    folder = write(text)

    places = {key: place.removeprefix(f"{folder}/") for key, place in load(folder, platforms=["linux"]).places.items()}

    assert places == {"t": "aptui.yaml:3:21", "t\nparams\na": "aptui.yaml:3:37", "t\nlinux\nb": "aptui.yaml:3:64"}


def test_project_is_the_nearest_folder_above_with_a_configuration(write: Write, tmp_path: Path) -> None:
    folder = write(SMALL)

    assert dirs.find_project(folder / "assets") == folder
    with pytest.raises(UserError, match=r"no 'aptui.yaml' in .* run 'aptui init' to create this file"):
        dirs.find_project(tmp_path / "shared")


def test_project_signatures_change_only_with_settings_that_affect_products(write: Write) -> None:
    first = load(write(EXAMPLE))
    cosmetic = load(write(EXAMPLE.replace("# the host's", "# our") + "workers: 2\nlimits: {process: 5m}\n"))
    ruled = load(write(EXAMPLE.replace("webp", "png")))
    ignoring = load(write(EXAMPLE.replace("*.tmp", "*.temp")))
    moved = load(write(EXAMPLE.replace("../shared", "../game/assets/../../shared/.")))
    ordered = load(write(EXAMPLE.replace("order: 100", "order: 99")))

    def signatures(loaded: Config) -> tuple[str, str]:
        return loaded.project.signature, loaded.project.scan_signature

    assert signatures(cosmetic) == signatures(first) == signatures(moved)
    assert ruled.project.signature != first.project.signature
    assert ruled.project.scan_signature == first.project.scan_signature
    assert ignoring.project.signature == first.project.signature
    assert ignoring.project.scan_signature != first.project.scan_signature
    assert ordered.project.scan_signature != first.project.scan_signature


def write_tool(folder: Path, text: str) -> None:
    tool = folder / "tool.sh"
    tool.write_text(text, encoding="utf-8")
    tool.chmod(0o755)


@pytest.mark.parametrize("tool", ["./tool.sh", "{name: sh, files: [./tool.sh]}", "{name: sh, files: [tool.sh]}"])
def test_changed_tool_changes_the_code_digest_of_its_builder(write: Write, tool: str) -> None:
    folder = write(builders_of(f'  - {{name: b, command: x, patterns: ["*"], tools: [{tool}]}}\n'))
    write_tool(folder, "one")
    first, again = load(folder), load(folder)
    write_tool(folder, "other")
    upgraded = load(folder)

    assert first == again
    assert len(first.project.builders[0].code_digest) == 32
    assert upgraded.project.builders[0].code_digest != first.project.builders[0].code_digest
    assert upgraded.project.signature != first.project.signature
    assert upgraded.project.scan_signature == first.project.scan_signature


def test_new_mtime_of_an_unchanged_tool_changes_no_signature(write: Write) -> None:
    folder = write(builders_of('  - {name: b, command: x, patterns: ["*"], tools: [./tool.sh]}\n'))
    write_tool(folder, "one")
    first = load(folder)
    os.utime(folder / "tool.sh", ns=(1, 1))

    assert load(folder).project == first.project


@pytest.mark.parametrize(
    ("tool", "fault"),
    [
        ("no-such-tool", "the program 'no-such-tool' was not found in the PATH that aptui was started with; install it"),
        ("./no", "the program './no' does not exist or cannot be run; install it, or correct its path in 'tools'"),
        ("{name: sh, files: [no.py]}", "the file './no.py' does not exist; install it, or correct its path in 'tools'"),
    ],
)
def test_missing_tool_is_the_fault_of_its_builder_alone(write: Write, tool: str, fault: str) -> None:
    folder = write(
        builders_of(
            f'  - {{name: b, command: x, patterns: ["*"], tools: [{tool}]}}\n  - {{name: other, command: x, patterns: ["*"]}}\n'
        )
    )

    assert [builder.fault for builder in load(folder).project.builders] == [f"builder 'b': {fault}", ""]


def test_removed_tool_is_a_fault_until_it_exists_again(write: Write) -> None:
    folder = write(builders_of('  - {name: b, command: x, patterns: ["*"], tools: [./tool.sh]}\n'))
    write_tool(folder, "one")
    first = load(folder)
    (folder / "tool.sh").unlink()
    without = load(folder)
    write_tool(folder, "one")

    (builder,) = without.project.builders
    assert builder.fault.startswith("builder 'b': the program './tool.sh' does not exist")
    assert (builder.code_digest, builder.code_files) == (b"", ())
    assert without.project.signature != first.project.signature
    assert load(folder).project == first.project


def test_tool_is_found_in_a_later_folder_of_the_path(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    write_tool(tmp_path / "bin", "one")
    monkeypatch.setenv("PATH", f"{tmp_path / 'nowhere'}:{tmp_path / 'bin'}")

    loaded = load(write(builders_of('  - {name: b, command: x, patterns: ["*"], tools: [tool.sh]}\n')))

    assert loaded.tools[0].path == str(tmp_path / "bin" / "tool.sh")


def forbid_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> Config:
        pytest.fail("compiled again")

    monkeypatch.setattr(config_load, "_compile", refuse)


def test_unchanged_configuration_is_loaded_without_compiling_it_again(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(EXAMPLE + 'companions: {"*.abc": {suffix: cbc, replaces: abc}}\n')
    first = load(folder)
    forbid_compiling(monkeypatch)

    assert load(folder) == first


@pytest.mark.real
def test_loading_an_unchanged_configuration_imports_no_yaml_modules(write: Write) -> None:
    folder = write(EXAMPLE)
    code = f"""
import json, sys
from pathlib import Path
from aptui.config.load import load
load(Path({str(folder)!r}))
print(json.dumps([name for name in sys.modules if name.split(".")[0] in {{"ruamel", "jsonschema", "pathspec", "wcmatch"}}]))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(configuration.__file__).parents[2])}

    def run() -> list[str]:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        names: list[str] = json.loads(done.stdout)
        return names

    assert run() != []
    assert run() == []


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda text: text.replace("textures", "textvres"), lambda _text: "", lambda _text: "ä"]
)
def test_damaged_stored_configuration_is_compiled_again(write: Write, tmp_path: Path, damage: Callable[[str], str]) -> None:
    folder = write(EXAMPLE)
    first = load(folder)
    (stored,) = (tmp_path / "kept" / "aptui" / "config").iterdir()
    stored.write_text(damage(stored.read_text(encoding="ascii")), encoding="utf-8")

    assert load(folder) == first


@pytest.mark.real
def test_stored_configuration_with_unknown_fields_is_compiled_again(write: Write, tmp_path: Path) -> None:
    folder = write(EXAMPLE)
    first = load(folder)
    (stored,) = (tmp_path / "kept" / "aptui" / "config").iterdir()
    key = stored.read_text(encoding="ascii").split("\n")[0]
    text = json.dumps({**packing.pack(first), "unheard_of": 1})
    stored.write_text(f"{key}\n{packing._seal(text)}\n{text}", encoding="ascii")

    assert load(folder) == first


@pytest.mark.real
def test_configuration_that_was_stored_with_other_fields_is_compiled_again(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled form has the values of the fields without their names, and a clone can be updated without a new version."""
    folder = write(EXAMPLE)
    with monkeypatch.context() as earlier:
        earlier.setitem(packing._KINDS, "Config", type("Config", (Struct,), {"__annotations__": {"project_dir": str}}))
        load(folder)
    (stored,) = (tmp_path / "kept" / "aptui" / "config").iterdir()

    assert packing.read_compiled(str(stored)) is None
    load(folder)
    assert packing.read_compiled(str(stored)) is not None


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("ScanFolder", type("ScanFolder", (Struct,), {"__annotations__": {**ScanFolder.__annotations__, "path": "bytes"}})),
        ("PatternKind", IntEnum("PatternKind", {"REGEX": 7})),
    ],
)
def test_configuration_that_was_stored_with_other_types_is_compiled_again(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, other: type
) -> None:
    folder = write(EXAMPLE)
    load(folder)
    (stored,) = (tmp_path / "kept" / "aptui" / "config").iterdir()
    assert name in packing._KINDS
    assert packing.read_compiled(str(stored)) is not None
    monkeypatch.setitem(packing._KINDS, name, other)

    assert packing.read_compiled(str(stored)) is None


def test_unwritable_cache_folder_is_ignored(write: Write, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file in the way", encoding="utf-8")

    assert load(write(SMALL)).name == "game"


def test_changed_layer_option_or_platform_recompiles_the_configuration(write: Write) -> None:
    folder = write(SMALL)
    first = load(folder)

    assert load(folder, sets=["name=other"]).name == "other"
    assert load(write(f"{SMALL}name: third\n")).name == "third"
    assert load(write(SMALL, user="name: fourth\n")).name == "fourth"
    assert load(folder, sets=["platforms.web.tags=[]"], platforms=["web"]).project.platforms == (Platform("web"),)
    assert first.name == "game"


def test_removed_scan_folder_is_reported_although_yaml_is_unchanged(write: Write) -> None:
    folder = write(SMALL)
    load(folder)
    (folder / "assets").rmdir()

    with pytest.raises(UserError, match=r"aptui.yaml:1:35: scan folder 'game' does not exist"):
        load(folder)


def test_compiled_form_restores_an_equal_configuration(write: Write) -> None:
    loaded = load(write(EXAMPLE), workers=1)

    assert packing.restore(packing.canonical(packing.dump(loaded))) == loaded
    assert replace(loaded, name="x") != loaded


@pytest.mark.parametrize("bounds", ["> 64", ">= 64", "64..", "< 64", "<= 64", "..64", "64", f"<= {'9' * 400}", f"> {'9' * 400}"])
def test_configuration_with_a_blocking_check_of_one_limit_is_stored(write: Write, bounds: str) -> None:
    loaded = load(write(f"{SMALL}checks: {{wide: {{width: '{bounds}', level: block}}}}\n"), workers=1)

    assert packing.restore(packing.canonical(packing.dump(loaded))) == loaded
