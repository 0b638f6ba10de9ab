"""Verbs that run or check something: `reprocess`, `rerun`, `verify`, `doctor`, `init`, `demo`, `schema` and `config`."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import verb_project
from msgspec.structs import replace
from verb_project import Run

from aptui.cli import doctor, engine_verbs, main
from aptui.config import load
from aptui.demo.demo_project import count_expected_products
from aptui.link.engine_client import EngineClient
from aptui.shared.errors import HostError
from aptui.store.queries import checks

pytestmark = pytest.mark.real

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 5\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return verb_project.write(tmp_path, monkeypatch)


def reasons(run: Run, terms: str) -> set[str]:
    return {row["reason"] for row in json.loads(run("jobs", "--json", "--filter", terms)[1])}


# --------------------------------------------------------------------------------------------------------------- reprocess


def test_reprocess_runs_jobs_of_named_sources_and_records_the_reason(run: Run) -> None:
    run("batch")
    expected = {"a.txt": 2, "assets/sub": 1, "*.up": 1, "*.txt": 4, "assets/*.txt": 2, "sub/*": 1, "tables/tw*": 2}

    runs = {pattern: json.loads(run("reprocess", pattern, "--json")[1])["jobs_run"] for pattern in expected}

    # Every run also retries the two failed jobs of tables/bad.json.
    assert runs == {pattern: count + 2 for pattern, count in expected.items()}
    assert "requested by a user" in run("why", "sub/b.up")[1]


def test_reprocess_exits_with_code_3_if_no_source_matches(run: Run) -> None:
    run("batch")

    assert run("reprocess", "*.nothing")[0] == 3
    assert run("reprocess", "")[0] == 3


def test_why_names_the_changed_input(run: Run, project: Path) -> None:
    run("batch")
    (project / "assets" / "a.txt").write_text("changed")
    run("batch")

    assert "dependency 'a.txt' changed" in run("why", "x.words@linux")[1]


def test_failed_analysis_is_listed_once_for_all_platforms(run: Run, project: Path) -> None:
    (project / "assets" / "broken.words").write_text("x")

    code, out, _ = run("batch", "--json")

    (failure,) = [failure for failure in json.loads(out)["failures"] if failure["source"] == "broken.words"]
    assert code == 1
    assert failure["platform"] == "all"
    assert failure["job_key"].startswith("CreateJobs_{")
    assert failure["builder"] == "words"
    assert json.loads(out)["jobs_failed"] == 3


# ------------------------------------------------------------------------------------------------------------------- rerun


def folder_of(out: str) -> Path:
    return Path(out.splitlines()[-1].removeprefix("kept").strip())


def test_rerun_verb_keeps_its_output_folder_and_changes_no_product(run: Run, project: Path) -> None:
    run("batch")
    product = project / "Cache" / "linux" / "sub" / "b.txt"
    product.write_text("mine")

    code, out, _ = run("rerun", "sub/b.up")

    assert code == 0
    assert "command  echo working" in out
    assert "  working\n" in out
    assert [path.read_text() for path in folder_of(out).rglob("b.txt")] == ["B"]
    assert product.read_text() == "mine"
    assert Path.cwd() == project


def test_rerun_of_a_failing_job_exits_with_code_1(run: Run) -> None:
    run("batch")

    code, out, _ = run("rerun", "tables/bad.json@server")

    assert code == 1
    assert "failed: " in out
    assert folder_of(out).is_dir()


@pytest.mark.parametrize("replace_by", [os.mkfifo, lambda _path: None])
def test_rerun_of_a_source_that_is_not_a_file_is_refused(run: Run, project: Path, replace_by: Callable[[Path], None]) -> None:
    run("batch")
    (project / "assets/sub/b.up").unlink()
    replace_by(project / "assets/sub/b.up")

    code, _, err = run("rerun", "sub/b.up")

    assert (code, "the source 'sub/b.up' is not a file now; restore the file first" in err) == (3, True)


def test_start_reports_options_that_a_running_engine_does_not_use(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_verbs, "_running", lambda _config: 4711)

    code, out, err = run("start", "--workers", "0", "--skip-start-scan")

    assert (code, "is already running as process 4711" in out) == (0, True)
    assert "'--workers' has no effect, because the engine is already running; run 'aptui stop' first" in err
    assert "'--skip-start-scan' has no effect" in err
    assert "'--set'" not in err


def test_start_does_not_report_the_folder_of_the_engine_as_unused(capsys: pytest.CaptureFixture[str]) -> None:
    given = Namespace(set=[main._engine_setting("/o3de")], workers=2)

    engine_verbs._report_unused(given)

    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["'--workers'"]


def test_stop_succeeds_if_the_engine_ends_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_words: object, **_options: object) -> EngineClient:
        raise HostError("no answer", hint="")

    monkeypatch.setattr(engine_verbs.EngineClient, "of", refuse)
    ended: Any = SimpleNamespace(pid=(1 << 22) - 1, socket="", is_alive=False)

    assert engine_verbs._stop(ended, "cache", is_when_idle=False)


def test_rerun_works_for_copies_and_python_builders(run: Run) -> None:
    run("batch")

    for name in ("a.txt@server", "x.words@linux"):
        code, out, _ = run("rerun", name)

        assert code == 0, name
        assert "\x1b" not in out
        assert any(path.is_file() for path in folder_of(out).rglob("*"))


def test_next_batch_does_not_delete_the_work_folder_of_a_rerun(run: Run) -> None:
    run("batch")
    folder = folder_of(run("rerun", "sub/b.up")[1])

    run("batch")

    assert folder.is_dir()


# --------------------------------------------------------------------------------------------------------------------- why


def test_why_compares_the_digest_of_a_pointer_and_does_not_read_a_pipe(run: Run, project: Path) -> None:
    source = project / "assets/large.txt"
    source.write_text(POINTER)
    run("batch")

    os.utime(source, (1, 1))
    assert json.loads(run("why", "large.txt", "--json")[1])["unprocessed"] == ""

    source.unlink()
    os.mkfifo(source)
    assert json.loads(run("why", "large.txt", "--json")[1])["unprocessed"].startswith("its file changed since")


# ------------------------------------------------------------------------------------------------------------------ verify


def test_verify_finds_and_repairs_wrong_products(run: Run, project: Path) -> None:
    run("batch")
    well, _, _ = run("verify")
    (project / "Cache" / "linux" / "a.txt").write_text("A")
    (project / "Cache" / "server" / "c.txt").unlink()

    damaged, out, _ = run("verify", "--json")
    output = run("verify")[1]
    repaired, _, _ = run("verify", "--repair")

    found = {(finding["product"], finding["problem"]) for finding in json.loads(out)["findings"]}
    assert (well, damaged, repaired) == (0, 1, 0)
    assert found == {("linux/a.txt", "damaged"), ("server/c.txt", "missing")}
    assert "aptui reprocess" in output
    assert (project / "Cache" / "linux" / "a.txt").read_text() == "a"
    assert run("verify")[0] == 0


@pytest.mark.parametrize("replace_by", [os.mkfifo, os.mkdir])
def test_pipe_or_folder_in_place_of_a_product_is_damage_that_verify_repairs(
    run: Run, project: Path, replace_by: Callable[[Path], None]
) -> None:
    run("batch")
    product = project / "Cache/linux/a.txt"
    product.unlink()
    replace_by(product)

    damaged, out, _ = run("verify", "--json")
    repaired, _, _ = run("verify", "--repair")

    assert (damaged, repaired) == (1, 0)
    assert [(each["product"], each["problem"]) for each in json.loads(out)["findings"]] == [("linux/a.txt", "damaged")]
    assert product.read_text() == "a"


def test_verify_does_not_count_a_product_as_repaired_if_its_job_failed(run: Run, project: Path) -> None:
    run("batch")
    (project / "Cache/linux/a.txt").write_text("A")
    (project / "Cache/server/c.txt").unlink()
    (project / "shared/c.txt").write_text(POINTER)

    code, out, _ = run("verify", "--repair")

    assert code == 1
    assert "still missing or changed: 1 of 9 products" in out


# ------------------------------------------------------------------------------------------------------------------ doctor


def test_doctor_passes_for_a_valid_project(run: Run, project: Path) -> None:
    before, _, _ = run("doctor")
    assert not (project / "Cache").exists()
    run("batch")

    code, out, _ = run("doctor", "--json")

    checks = {check["name"]: check for check in json.loads(out)}
    assert (before, code) == (0, 0)
    assert checks["database"]["said"].endswith("sound")
    assert checks["builders"]["said"] == "4"
    assert {"python", "sqlite", "libraries", "open files", "watches", "cache", "disk", "host"} <= set(checks)


def test_doctor_reports_missing_packages_and_programs_of_enabled_builders(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "trimesh" else find_spec(name))
    settings = project / "aptui.yaml"

    def builders() -> dict[str, str]:
        checks = json.loads(run("doctor", "--json")[1])
        return next(check for check in checks if check["name"] == "builders")

    assert builders()["state"] == "ok"
    settings.write_text(settings.read_text().replace("builders:\n", "builders:\n  - {name: meshes, uses: model}\n"))
    assert builders()["state"] == "warn"
    assert builders()["said"] == "5; 'meshes' uses trimesh"
    monkeypatch.setenv("PATH", str(project))
    settings.write_text(settings.read_text().replace("builders:\n", "builders:\n  - {name: glyphs, uses: msdf}\n"))
    assert builders()["said"] == "6; 'glyphs' uses msdf-atlas-gen; 'meshes' uses trimesh"
    (project / "builders/b.py").write_text(REQUIRING)
    assert builders()["said"] == "7; 'glyphs' uses msdf-atlas-gen; 'meshes' uses trimesh; 'mine' uses no-such-package"
    pack = 'builders:\n  - {name: pack, patterns: ["*.p"], command: "x", tools: [no-such-tool]}\n'
    settings.write_text(settings.read_text().replace("builders:\n", pack))
    assert builders()["state"] == "fail"
    assert "builder 'pack': the program 'no-such-tool' was not found" in builders()["said"]


REQUIRING = """
class Mine:
    name = "mine"
    patterns = ("*.mine",)
    requires = ("no-such-package>=2",)
    def create_jobs(self, request): ...
    def process_job(self, request): ...
"""


def test_doctor_reports_a_damaged_database(run: Run, project: Path) -> None:
    run("batch")
    database = project / "Cache" / "assetdb.sqlite"
    database.write_bytes(database.read_bytes()[:4096] + os.urandom(len(database.read_bytes()) - 4096))

    code, out, _ = run("doctor")

    assert code == 1
    assert "fail  database" in out


def test_doctor_warns_of_a_cache_that_is_a_link(run: Run, project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (project / "Cache").symlink_to(tmp_path / "elsewhere")

    code, out, _ = run("doctor")

    assert code == 0
    assert "warn  cache         '" in out
    assert "is a link to" in out


def test_doctor_does_not_call_a_cache_in_the_root_folder_a_link(project: Path) -> None:
    config = replace(load.load(project), cache_dir=Path("/no-such-cache"))

    assert "is a link to" not in doctor._cache(config)[1]


def test_doctor_fails_on_broken_configuration_but_checks_the_machine(run: Run, project: Path) -> None:
    (project / "aptui.yaml").write_text("workers: many\n")

    code, out, _ = run("doctor")

    assert code == 1
    assert "fail  configuration" in out
    assert "python" in out


def test_doctor_warns_of_low_disk_space_and_network_mounts(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> None:
    monkeypatch.setattr(
        doctor.shutil, "disk_usage", lambda _path: os.terminal_size((0, 0)) and type("Usage", (), {"free": 200 << 20})()
    )
    monkeypatch.setattr(doctor, "filesystem", lambda _path: "nfs4")

    out = run("doctor")[1]

    assert "warn  disk          200.0 MiB free" in out
    assert "network file system (nfs4)" in out


def test_doctor_finds_the_file_system_of_the_longest_matching_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        f"2 1 0:2 / {tmp_path}/with\\040blank rw shared:1 - nfs4 server:/x rw\n"
        f"3 1 0:3 / {tmp_path}/with rw - tmpfs tmpfs rw\n"
    )

    assert doctor.filesystem(tmp_path / "with blank" / "cache", str(mounts)) == "nfs4"
    assert doctor.filesystem(tmp_path / "withal", str(mounts)) == "ext4"


@pytest.mark.parametrize(("version", "has_bug"), [((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 54, 1), False)])
def test_doctor_detects_a_sqlite_version_with_the_wal_reset_bug(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], has_bug: bool
) -> None:
    monkeypatch.setattr(checks, "sqlite_version", lambda: version)

    assert checks.has_wal_reset_bug() is has_bug


# ----------------------------------------------------------------------------------------------------------------- project


def test_init_writes_a_valid_configuration(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    (folder / "a.txt").write_text("a")

    assert run("init", str(folder), "--copy", "*.txt")[0] == 0
    assert run("init", str(folder))[0] == 3
    code, out, _ = run("batch", "--project", str(folder), "--json")

    assert code == 0
    assert json.loads(out)["products"] == 1


@pytest.mark.slow
def test_demo_verb_succeeds_only_if_exactly_the_intended_jobs_fail(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "demo"
    code, out, _ = run("demo", str(folder))
    again, _, _ = run("demo", str(folder))
    (folder / "assets" / "data" / "another.json").write_text("{")
    wrong, output, _ = run("demo", str(folder))

    assert (code, again, wrong) == (0, 0, 1)
    assert f"{count_expected_products()} products" in out
    assert (
        sum(1 + max(0, len(line) - 1) // 80 for line in out.replace(str(folder), "aptui-demo").splitlines()) <= 24 - 5
    )  # 5 of the terminal's 24 lines are for the failures and the prompt on stderr
    assert "data/another.json failed, but should have succeeded" in output


def test_schema_verb_prints_json(run: Run) -> None:
    assert "properties" in json.loads(run("schema")[1])


def test_config_prints_effective_configuration(run: Run, project: Path) -> None:
    output = run("config", "--set", "workers=3")[1]
    answer = json.loads(run("config", "--json")[1])

    assert "workers       3" in output
    assert answer["project_dir"] == str(project)


def test_doctor_prints_a_systemd_unit_with_the_path_of_this_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["doctor", "--systemd"]) == 0

    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("ExecStart="))
    program, *words = shlex.split(line.removeprefix("ExecStart="))
    assert Path(program).is_absolute()
    assert os.access(program, os.X_OK)
    assert words[-4:] == ["serve", "--detached", "--project", "%f"]


@pytest.mark.parametrize(
    ("key", "text"),
    [("serve.allowed", "[]"), ("serve.port", "45650"), ("on.quiet", "10.0"), ("logs", "not set"), ("pool.share", "0")],
)
def test_config_explain_prints_the_default_of_a_key_that_no_file_sets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, text: str
) -> None:
    (tmp_path / "aptui.yaml").write_text("scan_folders: [{name: game, path: .}]\n")

    assert main.main(["config", "-C", str(tmp_path), "--explain", key]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=3) == ["set", "by", "default", text]
