"""`aptui check`, and the effect of checks in `batch` and `status`: reported, refused, blocked, and released."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from verb_project import Run
from waiting import until

from aptui.features.shipping import findings
from aptui.worker.commands import command
from aptui.worker.commands.command import Execution
from aptui.worker.output import MOST_BYTES

PROJECT = """\
scan_folders: [{name: game, path: assets}]
builders:
  - {name: pictures, uses: image, patterns: ["*.png"]}
  - {name: data, copy: ["*.txt"]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "assets" / "art").mkdir(parents=True)
    Image.new("RGB", (48, 64)).save(folder / "assets" / "art" / "Rock.png")
    Image.new("RGB", (16, 16)).save(folder / "assets" / "art" / "small.png")
    (folder / "assets" / "a.txt").write_text("text")
    monkeypatch.chdir(folder)
    return folder


def write(project: Path, checks: str) -> None:
    (project / "aptui.yaml").write_text(f"{PROJECT}{checks}\n")


@pytest.mark.real
def test_findings_of_checks_are_shown_by_three_verbs(project: Path, run: Run) -> None:
    """The verbs are `batch`, `check` and `status`."""
    write(project, "checks: {square: {files: [art/*], power_of_two: true}, names: {name: '[a-z.]+'}, all: {budget: 3}}")

    batch, printed, _ = run("batch")
    code, listed, _ = run("check", "--json")
    found = json.loads(listed)

    assert (batch, code) == (0, 0)
    assert "warn: square  linux/art/rock.png: width and height must be powers of two, but are 48x64" in printed
    assert found["counts"] == {"square": 1, "names": 1, "all": 1}
    assert [(each["check"], each["source"]) for each in found["findings"]] == [
        ("square", "art/Rock.png"), ("names", "art/Rock.png"), ("all", ""),
    ]  # fmt: skip
    assert "checks     3 checks: 3 findings (3 warn): aptui check" in run("status")[1]
    assert json.loads(run("status", "--json")[1])["checks"] == {"warn": 3}


@pytest.mark.real
def test_failing_check_makes_every_batch_exit_with_1(project: Path, run: Run) -> None:
    write(project, "checks: {wide: {width: <= 32, level: fail}}")

    assert [run("batch")[0] for _ in range(2)] == [1, 1]
    assert json.loads(run("batch", "--json")[1])["checks"][0]["what"] == "width is 48, wanted: <= 32"
    assert run("check")[0] == 1
    assert run("check", "--only", "none")[0] == 3

    write(project, "checks: {wide: {width: <= 48, level: fail}}")
    assert run("batch")[0] == 0


@pytest.mark.real
def test_check_ignores_platforms_that_are_not_processed(project: Path, run: Run) -> None:
    def platforms_of(*words: str) -> tuple[int, set[str]]:
        code, printed, _ = run(*words, "--json")
        answer = json.loads(printed)
        return code, {each["product"].partition("/")[0] for each in answer.get("findings", answer.get("checks", ()))}

    checks = "checks: {square: {files: [art/*], power_of_two: true, level: fail}}"
    write(project, f"{checks}\nplatforms: {{web: {{}}}}")

    assert platforms_of("batch") == platforms_of("check") == (1, {"linux", "web"})
    assert platforms_of("batch", "--platforms", "web") == (1, {"web"})
    write(project, f"{checks}\nplatforms: {{web: {{enabled: false}}}}")
    assert platforms_of("check") == (1, {"linux"})
    assert json.loads(run("status", "--json")[1])["checks"] == {"fail": 1}


@pytest.mark.real
def test_failed_blocking_check_keeps_the_previous_products(project: Path, run: Run) -> None:
    write(project, "checks: {wide: {width: <= 64, level: block}}")
    assert run("batch")[0] == 0
    product = project / "Cache" / "linux" / "art" / "small.png"
    before = product.read_bytes()

    Image.new("RGB", (99, 16)).save(project / "assets" / "art" / "small.png")
    code, printed, _ = run("batch")

    assert code == 1
    assert "check 'wide': small.png: width is 99, wanted: <= 64" in printed
    assert product.read_bytes() == before


@pytest.mark.real
def test_new_blocking_check_makes_existing_jobs_fail(project: Path, run: Run) -> None:
    write(project, "")
    assert run("batch")[0] == 0

    write(project, "checks: {wide: {width: <= 32, level: block}}")
    refused = json.loads(run("batch", "--json")[1])
    assert [failure["source"] for failure in refused["failures"]] == ["art/Rock.png"]
    assert refused["jobs_run"] == 1

    write(project, "")
    assert json.loads(run("batch", "--json")[1])["jobs_failed"] == 0


@pytest.mark.real
def test_command_of_a_check_runs_for_each_product(project: Path, run: Run) -> None:
    write(project, "checks: {mine: {files: ['*.png'], command: [sh, -c, 'echo bad >&2; test $(basename \"$0\") = small.png']}}")
    run("batch")

    found = json.loads(run("check", "--json")[1])["findings"]

    assert [(each["source"], each["what"]) for each in found] == [("art/Rock.png", "bad")]


@pytest.mark.real
def test_command_of_a_check_gets_few_environment_variables(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_TOKEN", "secret")
    write(project, "checks: {mine: {files: [a.txt], command: [sh, -c, 'echo ${CI_TOKEN-none}; exit 1']}}")
    run("batch")

    assert [each["what"] for each in json.loads(run("check", "--json")[1])["findings"]] == ["none"]


@pytest.mark.real
def test_long_output_of_a_check_is_shortened(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Execution] = []
    monkeypatch.setattr(findings, "execute", lambda *words, **named: ended.append(command.execute(*words, **named)) or ended[-1])
    write(project, "checks: {mine: {files: [a.txt], command: [sh, -c, 'yes | head -c 9000000; echo end; exit 1']}}")
    run("batch")

    found = json.loads(run("check", "--json")[1])["findings"]

    assert [each["what"] for each in found] == ["end"]
    (one,) = ended
    assert len(one.output.head) + len(one.output.tail) <= 2 * MOST_BYTES < one.output.byte_count


@pytest.mark.real
def test_timeout_of_a_check_kills_the_children_of_its_command(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_COMMAND_LIMIT_S", 0.5)
    write(project, "checks: {mine: {files: [a.txt], command: [sh, -c, 'setsid sleep 300 & echo $! > pid; sleep 300']}}")
    run("batch")

    found = json.loads(run("check", "--json")[1])["findings"]

    assert [each["what"] for each in found] == ["'sh' timed out after 0.5 s"]
    state = Path(f"/proc/{(project / 'pid').read_text().strip()}/stat")

    def is_dead() -> bool:
        try:
            return state.read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            return True

    until(is_dead)  # polled, because a busy kernel may deliver the signal late


@pytest.mark.real
def test_check_whose_program_is_missing_is_reported(project: Path, run: Run) -> None:
    write(project, "checks: {mine: {command: [no-such-program]}}")
    run("batch")

    code, _, errors = run("check")

    assert code == 3
    assert "the check 'mine' runs 'no-such-program', which is not installed" in errors


@pytest.mark.real
def test_jobs_are_filtered_by_the_name_of_a_failed_check(project: Path, run: Run) -> None:
    write(project, "checks: {small: {width: < 20}}")
    assert run("batch")[0] == 0

    _code, out, _err = run("jobs", "--filter", "check:small", "--json")
    listed = json.loads(out)
    assert [job["source"] for job in listed] == ["art/Rock.png"]
    assert listed[0]["checks"] == "small: width is 48, wanted: < 20"
    assert json.loads(run("jobs", "--filter", "!check:.", "--json")[1])[0]["checks"] == ""
