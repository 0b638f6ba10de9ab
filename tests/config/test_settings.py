"""Sections and keys of `aptui.yaml` for single features: their meaning, mistakes with their places, their effect on signatures."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from homes import own_project
from tools import needs_feature

from aptui.cli import main
from aptui.config.builders import missing_programs, program_of, unknown_placeholder
from aptui.config.configuration import Config, ConfigErrors
from aptui.config.load import load
from aptui.config.packing import differing, variables_of
from aptui.config.settings import QUIET_S, Alert, ClusterSettings, check_address, compile_cluster
from aptui.config.yaml.config_schema import FOLDER_SCHEMA
from aptui.core.asset_checks import Check, Limit
from aptui.core.project import UndeclaredReads
from aptui.core.retry import RetryRule
from aptui.shared.errors import UserError
from aptui.worker.commands import read_trace

Configure = Callable[..., Config]
Added = dict[str, str]
"""{parameter of `configure`: text that it adds to the configuration}."""
POOL = "pool: {kind: dask, scheduler: 'tcp://127.0.0.1:8786', insecure: true"


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Return a function that loads a project: line 3 is a copy rule, line 4 a Python builder, line 5 a command, line 6 `more`."""
    folder = own_project(tmp_path, monkeypatch)

    def configure(more: str = "", copy: str = "", python: str = "", command: str = "") -> Config:
        (folder / "aptui.yaml").write_text(
            "scan_folders: [{name: game, path: assets}]\nbuilders:\n"
            f"- {{name: data, copy: ['*.txt']{copy}}}\n"
            f"- {{name: tables, uses: json{python}}}\n"
            f"- {{name: upper, patterns: ['*.up'], command: 'cp {{source}} {{products_dir}}'{command}}}\n{more}\n"
        )
        return load(folder)

    return configure


# ------------------------------------------------------------------------------------------------- meaning of the settings


def test_settings_are_compiled_and_restored_from_the_stored_form(configure: Configure) -> None:
    more = """\
retry: {times: 1}
resources: {licence: 2, gpu: 1}
undeclared_reads: add
on: {quiet: 1m, failed: {exec: [a, b c], webhook: 'http://[::1]:8/x'}, idle: {bell: true, desktop: true}}
checks: {small: {bytes: '<= 1KiB', seconds: 1.5..2, level: fail}, mine: {command: [sh, x], budget: 1MiB}}
"""
    python = ", undeclared_reads: ignore, quality: [draft, final]"
    command = ", trace_reads: true, retry: {times: 2, on: [memory, error, 75]}, resources: [licence, gpu, gpu]"

    compiled, remembered = configure(more, python=python, command=command), configure(more, python=python, command=command)

    project, after = compiled.project, math.nextafter
    assert remembered == compiled
    assert isinstance(remembered.project.builders[1].undeclared_reads, UndeclaredReads)
    assert [builder.retry for builder in project.builders] == [None, None, RetryRule(2, ("memory", "error", "exit 75"))]
    assert (project.retry, project.resources) == (RetryRule(1, ("crash", "timeout")), (("gpu", 1), ("licence", 2)))
    assert [builder.resources for builder in project.builders] == [(), (), ("gpu", "licence")]
    assert [builder.has_drafts for builder in project.builders] == [False, True, False]
    assert project.undeclared_reads is UndeclaredReads.ADD
    assert [builder.undeclared_reads for builder in project.builders] == [None, UndeclaredReads.IGNORE, None]
    assert [builder.traces_reads for builder in project.builders] == [False, False, True]
    assert compiled.on.quiet_s == 60
    assert compiled.on.alerts == (Alert("failed", ("a", "b c"), "http://[::1]:8/x"), Alert("idle", desktop=True, bell=True))
    assert compiled.checks == (
        Check(
            "small", "fail",
            limits=(
                Limit("bytes", "<= 1KiB", -sys.float_info.max, after(1024.0, math.inf)),
                Limit("seconds", "1.5..2", 1.5, after(2.0, math.inf)),
            ),
        ),
        Check("mine", command=("sh", "x"), budget_bytes=1 << 20),
    )  # fmt: skip


def test_omitted_settings_have_defaults(configure: Configure) -> None:
    config = configure()

    assert (config.on.alerts, config.on.quiet_s, config.project.retry) == ((), QUIET_S, None)
    assert config.project.undeclared_reads is UndeclaredReads.WARN
    assert {(each.retry, each.undeclared_reads, each.traces_reads) for each in config.project.builders} == {(None, None, False)}


@pytest.mark.parametrize(
    ("added", "is_same"),
    [
        ({"more": "retry: {times: 1}", "command": ", retry: {times: 2}"}, True),
        ({"more": "resources: {gpu: 1}", "command": ", resources: [gpu]"}, True),
        ({"more": "undeclared_reads: add", "python": ", undeclared_reads: ignore", "command": ", trace_reads: true"}, True),
        ({"more": "on: {idle: {bell: true}}"}, True),
        ({"more": "checks: {small: {bytes: '<= 1KiB'}}"}, True),
        ({"more": "checks: {small: {bytes: '<= 1KiB', level: block}}"}, False),
        ({"command": ", quality: [final]"}, True),
        ({"command": ", quality: [draft, final]"}, False),
    ],
)
def test_only_settings_that_affect_products_change_the_signature(configure: Configure, added: Added, is_same: bool) -> None:
    bare, found = configure().project, configure(**added).project

    assert (found.signature == bare.signature, found.scan_signature) == (is_same, bare.scan_signature)
    assert configure(**added).project == found


OTHERS = "can be used only with 'uses:', 'command:' or 'steps:'"


@pytest.mark.parametrize(
    ("added", "place", "what"),
    [
        ("retry: {on: [crash]}", "6:8", "'times' is missing"),
        ("retry: {times: -1}", "6:16", "a whole number up to 10"),
        ("retry: {times: 11}", "6:16", "a whole number up to 10"),
        ("retry: {times: 1, on: [crashes]}", "6:24", "crash, timeout, memory, error, or the exit status of a command"),
        ("retry: {times: 1, on: [0]}", "6:24", "exit status"),
        ("retry: {times: 1, on: [256]}", "6:24", "exit status"),
        ("retry: 3", "6:8", "a mapping like {times: 2"),
        ({"copy": ", retry: {times: 1}"}, "3:33", f"'retry' {OTHERS}"),
        ({"command": ", resources: [gpu]"}, "5:88", "'gpu' is not a resource; add the resource"),
        ({"more": "resources: {gpus: 1}", "command": ", resources: [gpu]"}, "5:88", "; did you mean 'gpus'?"),
        ({"more": "resources: {gpu: 1}", "command": ", resources: gpu"}, "5:87", "a list of resources"),
        ({"more": "resources: {gpu: 1}", "copy": ", resources: [gpu]"}, "3:33", f"'resources' {OTHERS}"),
        ("resources: {gpu: 0}", "6:18", "a whole number above 0"),
        ("resources: {gpu: many}", "6:18", "a whole number above 0"),
        ("resources: [gpu]", "6:12", "a mapping from name to number"),
        *[
            ({"command": f", quality: {quality}"}, "5:85", "[final] or [draft, final]")
            for quality in ("draft", "[draft]", "[final, draft]", "[draft, final, final]", "[]", "[best]", "true", "{draft: 1}")
        ],
        ({"copy": ", quality: [draft, final]"}, "3:33", f"'quality' {OTHERS}"),
        ({"copy": ", undeclared_reads: add"}, "3:33", f"'undeclared_reads' {OTHERS}"),
        ({"python": ", trace_reads: true"}, "4:30", "'trace_reads' can be used only with 'command:'"),
        ({"python": ", undeclared_reads: perhaps"}, "4:48", "ignore, warn or add"),
        ({"copy": ", environment: [X]"}, "3:33", f"'environment' {OTHERS}"),
        *[
            (f"environment: [{name}]", "6:15", "'environment.1' must be the name of an environment variable")
            for name in ("A-B", "TMPDIR", "APTUI_SOURCE")
        ],
        ("on: {failed: {webhook: 'http://example.org/x'}}", "6:24", "is not encrypted"),
        ("on: {failed: {webhook: 'ftp://example.org/x'}}", "6:24", "is not the address of a web hook"),
        ("on: {mended: {webhook: 'https://[x/'}}", "6:24", "is not the address of a web hook"),
        ("on: {idle: {}}", "6:12", "'on.idle' has no action"),
        ("on: {failed: {exec: 'rm -rf /'}}", "6:21", "must be a list"),
        ("on: {failed: {exec: []}}", "6:21", "exec"),
        ("on: {broken: {bell: true}}", "6:6", "unknown key"),
        ("on: {quiet: soon}", "6:13", "duration"),
        ("checks: {a: {level: fail}}", "6:13", "the check 'a' has no requirement"),
        ("checks: {a: {widht: 1}}", "6:14", "unknown key 'widht' in 'checks.a'"),
        ("checks: {a: {facts: {bones: many}}}", "6:29", "'many' is not a range of bones"),
        ("checks: {a: {facts: {Bones: 1}}}", "6:22", "'Bones' is not the name of a fact"),
        ("checks: {a: {width: wide}}", "6:21", "'wide' is not a range of width"),
        ("checks: {a: {bytes: <= 4 parsecs}}", "6:21", "'<= 4 parsecs' is not a range of bytes"),
        ("checks: {a: {name: '['}}", "6:20", "not a regular expression"),
        ("checks: {a: {files: [/x], power_of_two: true}}", "6:22", "must be relative"),
        ("checks: {a: {budget: 1MiB, level: block}}", "6:35", "the check 'a' cannot block jobs, because 'budget' compares"),
        ("checks: {a: {lint: [speling]}}", "6:21", "'checks.a.lint.1' must be spelling, dead or case"),
        ("checks: {a: {width: 1, level: deny}}", "6:31", "'checks.a.level' must be warn, fail or block"),
        ("serve: {allowed: [10.0.0.1, bad..host]}", "6:29", "'bad..host' is neither a host name nor an address"),
        ("serve: {connections: [{id: x, address: '?', port: 4}]}", "6:23", "address: expected an address or a host name"),
        (f"{POOL}}}", "6:7", "a cluster needs a store"),
        (f"{POOL}, store: store}}\nsandbox: require", "6:7", "jobs on a cluster run without a sandbox"),
    ],
)  # fmt: skip
def test_mistake_is_reported_with_its_place(configure: Configure, added: str | Added, place: str, what: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        configure(**({"more": added} if isinstance(added, str) else added))

    (found,) = str(caught.value).splitlines()
    assert found.partition("aptui.yaml:")[2].startswith(f"{place}: ")
    assert what in found


def test_folder_settings_cannot_set_alerts() -> None:
    assert "on" not in FOLDER_SCHEMA["properties"]


# ------------------------------------------------------------------------------------------------------------------ doctor


@pytest.mark.real
def test_doctor_reports_whether_commands_can_be_traced(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def output() -> str:
        main.main(["doctor"])
        return next(line for line in capsys.readouterr().out.splitlines() if "tracing" in line)

    configure()
    plain = output()
    configure(command=", trace_reads: true")
    monkeypatch.setattr(read_trace, "fault", lambda: "strace is not installed")
    lacking = output()
    monkeypatch.setattr(read_trace, "fault", lambda: "")

    assert "no builder has 'trace_reads'" in plain
    assert lacking.startswith("warn")
    assert "the files that upper read cannot be recorded: strace is not installed" in lacking
    assert output().startswith("ok")


@pytest.mark.real
@needs_feature("cluster")
def test_doctor_names_a_cluster_without_authentication(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    configure(f"{POOL}, store: store}}")

    main.main(["doctor", "--json"])

    (found,) = [check for check in json.loads(capsys.readouterr().out) if check["name"] == "cluster"]
    assert found["state"] == "warn"
    assert "every user of this machine can run programs as you" in found["said"]


# ------------------------------------------------------------------------------------------------------------- environment


def test_builder_gets_shared_variables_and_a_copy_rule_gets_none(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARED_ONE", "x")
    monkeypatch.delenv("OWN", raising=False)

    project = configure("environment: [SHARED_ONE]", command=", environment: [OWN]").project

    found = {builder.name: [(name, bool(digest)) for name, digest in builder.variables] for builder in project.builders}
    assert found == {"data": [], "upper": [("OWN", False), ("SHARED_ONE", True)], "tables": [("SHARED_ONE", True)]}


@pytest.mark.parametrize(("name", "is_other"), [("OWN", True), ("SHARED_ONE", True), ("NOBODYS", False)])
def test_changed_variable_changes_the_configuration_without_a_file_change(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, name: str, is_other: bool
) -> None:
    def with_value(value: str) -> Config:
        monkeypatch.setenv(name, value)
        return configure("environment: [SHARED_ONE]", command=", environment: [OWN]")

    monkeypatch.delenv(name, raising=False)
    before, one, two = configure("environment: [SHARED_ONE]", command=", environment: [OWN]"), with_value("1"), with_value("2")

    assert len({config.project.signature for config in (before, one, two)}) == (3 if is_other else 1)
    assert with_value("1").project == one.project
    assert differing(two, variables_of(one)) == ([name] if is_other else [])
    assert "1" not in variables_of(one).values(), "the stored record does not contain the value"


# ---------------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("cp {source} {products_dir}/{stem}.txt", ""),
        ("cp {src} {products_dir}", "{src}"),
        ('echo "{sorce}"', "{sorce}"),
        ("awk '{print}' {source}", ""),
        ("echo it\\'s {here}", "{here}"),
        ("x ${HOME} {params.size} {} {a,b} {1..3}", ""),
    ],
)
def test_unknown_placeholder_is_found_outside_single_quotes(line: str, unknown: str) -> None:
    assert unknown_placeholder(line) == unknown


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("tr a-z A-Z < {source}", "tr"),
        ("LANG=C A=b sort {source}", "sort"),
        ("convert", "convert"),
        ("cd /tmp && tr a b", ""),
        ("./tool {source}", ""),
        ("$TOOL {source}", ""),
        ("{params.tool} x", ""),
        ("(tr a b)", ""),
        ("tr;x", "tr"),
    ],
)
def test_program_of_a_command_line_is_its_first_plain_word(line: str, program: str) -> None:
    assert program_of(line) == program


def test_missing_program_is_reported_with_its_builder_at_every_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builders = "builders:\n  - {name: u, patterns: ['*.x'], version: 1, command: 'sqush {source}'}\n"
    (tmp_path / "aptui.yaml").write_text(f"scan_folders: [{{name: game, path: ., order: 0}}]\n{builders}")

    (more,) = missing_programs(load(tmp_path))
    assert more.startswith(f"{tmp_path}/aptui.yaml:3:")
    assert "the program 'sqush' is not in the PATH, so the jobs of builder 'u' will fail" in more
    (tmp_path / "sqush").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(missing_programs(load(tmp_path))) == []


# ----------------------------------------------------------------------------------------------------------------- cluster


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://127.0.0.1:8786", ""),
        ("tcp://localhost:8786", ""),
        ("tcp://[::1]:8786", ""),
        ("tls://head:8786", "needs certificates"),
        ("tcp://head:8786", "not encrypted"),
        ("tcp://10.0.0.1:8786", "not encrypted"),
        ("head:8786", "not the address of a scheduler"),
        ("tls://head", "not the address of a scheduler"),
        ("inproc://x:1", "not the address of a scheduler"),
        ("tcp://[::1:8786", "not the address of a scheduler"),
    ],
)
def test_scheduler_without_tls_needs_insecure_setting_and_loopback_address(address: str, message: str) -> None:
    if message:
        with pytest.raises(UserError, match=message):
            check_address(address, has_certificates=False, is_insecure=True)
        return
    check_address(address, has_certificates=False, is_insecure=True)
    check_address("tls://head:8786", has_certificates=True)
    with pytest.raises(UserError, match="every user of this machine could run programs as you; use tls://"):
        check_address(address, has_certificates=True)


def test_cluster_settings_are_compiled() -> None:
    more = {"kind": "dask", "scheduler": "tcp://127.0.0.1:8786", "insecure": True, "share": 4, "store": "store", "tags": ["GPU"]}

    found = compile_cluster(more, [{"name": "bake", "needs": ["gpu", "Licence"], "at_most": 2}, {"name": "copy"}], Path("/p"))

    assert (found.store, found.tags, found.share) == ("/p/store", ("gpu",), 4)
    assert (found.needs, found.at_most) == ((("bake", ("gpu", "licence")),), (("bake", 2),))
    assert not ClusterSettings().is_used
