"""`aptui cache`: output for users and programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from homes import own_project
from verb_project import Run

from aptui.features.sharing import namespaces, shared_cache
from aptui.features.sharing import verbs as cache_verbs
from aptui.features.sharing.stores.placing import Lease
from aptui.shared.errors import UserError
from aptui.shared.result_store import SharingSum

pytestmark = pytest.mark.real

CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - name: upper
    patterns: ["*.up"]
    command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out"
workers: 1
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shared_cache, "_LEAST_TIMEOUT_S", 60.0)  # a busy machine finds results slowly
    folder = own_project(tmp_path, monkeypatch)
    (folder / "aptui.yaml").write_text(CONFIG)
    for name in ("a.up", "b.up", "c.txt"):
        (folder / "assets" / name).write_text(name)
    return folder


def asked(run: Run, *words: str) -> dict[str, Any]:
    return dict(json.loads(run(*words, "--json")[1]))


def store(tmp_path: Path) -> Path:
    return tmp_path / "xdg_cache_home" / "aptui" / "store"


def test_batch_verb_prints_a_summary_of_stored_results(run: Run, tmp_path: Path) -> None:
    assert "from cache" not in run("batch")[1]

    code, out, _ = run("batch", "--set", f"cache={tmp_path / 'Other'}")

    assert code == 0
    assert out.splitlines()[-1].startswith("2 of 2 results from cache: ")
    assert asked(run, "batch", "--set", f"cache={tmp_path / 'Third'}")["shared"]["local_hits"] == 2


def test_verbs_log_and_why_show_the_origin_of_a_result(run: Run, tmp_path: Path) -> None:
    run("batch")
    there = ["--set", f"cache={tmp_path / 'Other'}"]
    run("batch", *there)
    (tmp_path / "project" / "aptui.yaml").write_text(CONFIG + f"cache: {tmp_path / 'Other'}\n")

    assert "a.up@linux:upper logged nothing, because its result was from this machine's store (" in run("log", "a.up")[2]
    assert "its result is from this machine's store (" in run("why", "a.up")[1]


def test_cache_stats_show_stored_results_and_saved_time(run: Run, tmp_path: Path) -> None:
    assert "no stored result was requested yet" in run("cache", "stats")[1]
    run("batch")

    stats = asked(run, "cache", "stats")

    assert (stats["mode"], stats["records"], stats["blobs"]) == ("inactive", 2, 2)
    assert stats["local_store"] == str(store(tmp_path))
    assert stats["builders"]["upper"]["misses"] == 2
    assert "upper" in run("cache", "stats")[1]


@pytest.mark.parametrize(("lost_ms", "expected"), [(3, "0.0 s"), (300, "-0.3 s"), (-300, "0.3 s")])
def test_lost_time_is_printed_with_a_minus_sign_unless_it_is_rounded_to_zero(
    lost_ms: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cache_verbs._print_totals({"upper": SharingSum(misses=1, built_ms=1000 - lost_ms, fetch_ms=1000)}, 1)

    assert f" {expected} " in capsys.readouterr().out


def test_cache_gc_removes_results_down_to_a_limit(run: Run, tmp_path: Path) -> None:
    run("batch")
    held = asked(run, "cache", "stats")["size_bytes"]

    assert asked(run, "cache", "gc")["removed"] == 0
    assert asked(run, "cache", "gc", "--limit", "1B")["freed_bytes"] == held
    assert asked(run, "cache", "stats")["blobs"] == 0
    assert run("cache", "gc", "--limit", "much") == (3, "", "aptui: 'much' is not a size; write for example --limit 5GiB\n")


def test_cache_gc_says_why_recently_used_results_stay(run: Run, tmp_path: Path) -> None:
    run("batch")
    with closing(Lease(str(store(tmp_path)))):
        code, out, _ = run("cache", "gc", "--limit", "1B")

    assert (code, out.splitlines()[1:]) == (
        0,
        ["results of the last 10 minutes stay, because an engine or a server uses the store"],
    )


def test_store_can_be_maintained_outside_a_project(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("batch")
    (tmp_path / "server").mkdir()
    monkeypatch.chdir(tmp_path / "server")
    words = ("--store", str(store(tmp_path)))

    assert run("cache", "verify", *words)[:2] == (
        0,
        "undamaged: 2 results, 2 products, " + run("cache", "gc", *words)[1].split("; ")[1].replace(" remain", ""),
    )
    assert asked(run, "cache", "gc", "--limit", "1B", *words)["blobs"] == 0
    assert run("cache", "stats")[0] == 3


def test_cache_verify_removes_damaged_results(run: Run, tmp_path: Path) -> None:
    run("batch")
    blob = next(path for path in store(tmp_path).rglob("cas/*/*") if path.is_file())
    blob.chmod(0o644)
    blob.write_text("other")

    code, out, _ = run("cache", "verify")

    assert code == 1
    assert f"damaged, and removed: cas/{blob.parent.name}/{blob.name}" in out
    assert run("cache", "verify")[0] == 0


def test_cache_prefetch_lists_missing_results_and_builds_nothing(run: Run, project: Path) -> None:
    run("batch")
    (project / "assets" / "new.up").write_text("new")

    code, out, _ = run("cache", "prefetch")

    assert code == 1
    assert "missing: new.up@linux:upper" in out
    assert "2 of 3 results found" in out
    assert not list(project.rglob("new.out"))


def test_unreachable_store_is_not_reported_as_empty(run: Run, project: Path, tmp_path: Path) -> None:
    (project / "aptui.yaml").write_text(CONFIG + f"shared_cache: {{mode: client, store: {tmp_path / 'nowhere'}}}\n")

    found = asked(run, "cache", "prefetch")

    assert (found["found"], len(found["missing"])) == (0, 2)
    assert any("does not exist" in text for text in found["doubts"])


def git(folder: Path, *words: str) -> None:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, env={**os.environ, **identity})


def test_cache_ready_counts_only_results_that_the_shared_cache_has(run: Run, project: Path, tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    run("batch")
    git(project, "init", "-q")
    git(project, "add", "assets", "aptui.yaml")
    git(project, "commit", "-qm", "new")
    with (project / "aptui.yaml").open("a") as file:
        file.write(f"shared_cache: {{mode: client, store: {tmp_path / 'share'}}}\n")

    assert asked(run, "cache", "ready", "HEAD")["missing"] == ["a.up@linux:upper", "b.up@linux:upper"]
    assert asked(run, "cache", "prefetch")["missing"] == []


def test_cache_ready_verb_reports_missing_results_of_a_commit(run: Run, project: Path) -> None:
    git(project, "init", "-q")
    (project / ".gitignore").write_text("Cache/\n")
    for message, text in (("old", "a.up"), ("new", "other")):
        (project / "assets" / "a.up").write_text(text)
        git(project, "add", "-A")
        git(project, "commit", "-qm", message)
    (project / "assets" / "a.up").write_text("a.up")
    run("batch")

    assert asked(run, "cache", "ready", "HEAD~1") == {"found": 2, "missing": [], "doubts": []}
    assert asked(run, "cache", "ready", "HEAD") == {"found": 1, "missing": ["a.up@linux:upper"], "doubts": []}
    assert run("cache", "ready", "nowhere")[0] == 3
    assert run("cache", "ready")[0] == 3


def test_readiness_of_a_commit_ignores_git_archive_attributes(run: Run, project: Path) -> None:
    """The files are not read with `git archive`, which would omit some files, and change the text of others."""
    git(project, "init", "-q")
    (project / ".gitignore").write_text("Cache/\n")
    (project / ".gitattributes").write_text("a.up export-ignore\nb.up export-subst\n")
    (project / "assets/b.up").write_text("$Format:%H$")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "new")
    run("batch")

    assert asked(run, "cache", "ready", "HEAD") == {"found": 2, "missing": [], "doubts": []}


def test_shared_cache_is_tested_by_reading_and_writing(run: Run, project: Path, tmp_path: Path) -> None:
    """The command is `aptui cache test`."""
    assert run("cache", "test")[0] == 3
    (project / "aptui.yaml").write_text(CONFIG + f"shared_cache: {{mode: server, store: {tmp_path / 'share'}}}\n")

    assert run("cache", "test")[0] == 1
    (tmp_path / "share").mkdir()
    code, out, _ = run("cache", "test")

    assert code == 0
    assert "and results can be written to it" in out


def test_missing_team_key_is_reported_by_two_verbs(run: Run, project: Path, tmp_path: Path) -> None:
    """The verbs are `cache test` and `doctor`."""
    (tmp_path / "share").mkdir()
    shared = f"shared_cache: {{mode: server, store: {tmp_path / 'share'}, team_key_file: {tmp_path / 'team.key'}}}\n"
    (project / "aptui.yaml").write_text(CONFIG + shared)

    code, out, err = run("cache", "test")

    assert code == 1
    assert f"{tmp_path / 'team.key'}: the key cannot be read: No such file or directory; copy the file to this path" in out + err
    assert "copy the team's key" in run("doctor")[1]


def test_store_of_this_machine_is_used_although_the_team_key_is_missing(run: Run, project: Path, tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    shared = f"shared_cache: {{mode: server, store: {tmp_path / 'share'}, team_key_file: {tmp_path / 'team.key'}}}\n"
    (project / "aptui.yaml").write_text(CONFIG + shared)
    run("batch")

    _code, out, err = run("batch", "--set", f"cache={tmp_path / 'Other'}")

    assert f"the shared cache is not used: {tmp_path / 'team.key'}: the key cannot be read" in err
    assert out.splitlines()[-1].startswith("2 of 2 results from cache: ")
    assert not list((tmp_path / "share").iterdir())


def test_cache_init_does_not_print_the_home_folder(
    run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))

    _code, out, _ = run("cache", "init")

    assert "team_key_file: '~/.config/aptui/team.key'" in out


def test_served_results_can_be_fetched(run: Run, project: Path, tmp_path: Path) -> None:
    run("batch")
    words = [sys.executable, "-m", "aptui", "cache", "serve", "--port", "0"]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as served:
        try:
            assert served.stderr is not None
            address = served.stderr.readline().rsplit(" ", 1)[1].strip()
            shared = ["--set", "shared_cache.mode=client", "--set", f"shared_cache.store={address}"]
            shared += ["--set", "shared_cache.trust=unsealed"]
            others = ["--set", f"local_store.path={tmp_path / 'elsewhere'}", "--set", f"cache={tmp_path / 'Other'}"]
            assert asked(run, "batch", *shared, *others)["shared"]["remote_hits"] == 2
        finally:
            served.terminate()


def test_batch_verb_without_a_shared_cache_does_not_import_sharing(run: Run, project: Path) -> None:
    run("batch")
    words = (
        "import sys; from aptui.cli import main as cli; cli.main(['batch']); "
        "sys.exit(any(name.startswith('aptui.features.sharing') for name in sys.modules))"
    )

    assert (
        subprocess.run(
            [sys.executable, "-c", words], check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        ).returncode
        == 0
    )


def test_cache_init_creates_the_team_key_once_and_prints_instructions(run: Run, project: Path, tmp_path: Path) -> None:
    (project / "aptui.yaml").write_text(CONFIG + "shared_cache: {mode: client, store: 'https://cache.example/x'}\n")
    assert "run 'aptui cache init' to make a key" in run("cache", "stats")[2]

    made = asked(run, "cache", "init")
    key = Path(made["team_key_file"])
    code, out, _ = run("cache", "init")

    assert (made["is_new"], code) == (True, 0)
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_text().strip()) == 64
    assert "exists already" in out
    assert f"team_key_file: '{key}'" in out
    assert "mode: server" in out
    assert key.read_text().strip() not in out
    with (project / "aptui.yaml").open("a") as file:
        file.write("")
    (project / "aptui.yaml").write_text(
        CONFIG + f"shared_cache: {{mode: client, store: 'https://cache.example/x', team_key_file: {key}}}\n"
    )
    assert run("cache", "stats")[0] == 0


def test_doctor_reports_risks_of_a_shared_cache(run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "probe", lambda _sharing: namespaces.ProbeAnswer("", "the store answered"))

    def values_of(text: str, name: str = "shared cache") -> dict[str, str]:
        (project / "aptui.yaml").write_text(CONFIG + text)
        return next(check for check in json.loads(run("doctor", "--json")[1]) if check["name"] == name)

    assert values_of("")["state"] == "ok"
    open_one = values_of("shared_cache: {mode: client, store: 'http://cache.example/x', trust: unsealed}\n")
    assert open_one["state"] == "warn"
    assert "could replace your products" in open_one["said"]
    assert "it uses http, not https" in open_one["said"]
    (tmp_path / "key").write_text("k" * 32)
    (tmp_path / "key").chmod(0o644)
    assert (
        "other users can read the key"
        in values_of(f"shared_cache: {{mode: client, store: 'https://x', team_key_file: {tmp_path / 'key'}}}\n")["said"]
    )
    (tmp_path / "key").chmod(0o600)
    store = tmp_path / "share"
    store.mkdir()
    assert values_of(f"shared_cache: {{mode: client, store: {store}, team_key_file: {tmp_path / 'key'}}}\n")["state"] == "ok"
    assert values_of("local_store: {links: hard}\n", "local store")["state"] == "warn"


@pytest.mark.parametrize("store", ["http://127.0.0.1:9/x", "{tmp_path}/missing"])
def test_doctor_reports_a_shared_cache_that_cannot_be_read(run: Run, project: Path, tmp_path: Path, store: str) -> None:
    store = store.format(tmp_path=tmp_path)
    (project / "aptui.yaml").write_text(CONFIG + f"shared_cache: {{mode: client, store: '{store}', trust: unsealed}}\n")

    code, out, _ = run("doctor", "--json")

    found = next(check for check in json.loads(out) if check["name"] == "shared cache")
    assert (code, found["state"]) == (1, "fail")
    assert found["said"].startswith(f"{store}: ")
    assert "aptui cache test" in found["advice"]


def test_doctor_reports_stores_that_cannot_be_written(
    run: Run, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (tmp_path / "file").touch()
    (project / "aptui.yaml").write_text(
        CONFIG
        + f"shared_cache: {{mode: server, store: '{share}', trust: unsealed}}\nlocal_store: {{path: {tmp_path}/file/store}}\n"
    )
    monkeypatch.setattr(os, "access", lambda path, _mode: path != str(share))

    code, out, _ = run("doctor", "--json")

    found = {check["name"]: (check["state"], check["said"]) for check in json.loads(out)}
    assert code == 1
    assert found["shared cache"] == ("fail", f"'{share}' cannot be written")
    assert found["local store"] == ("fail", f"'{tmp_path}/file' is not a folder, so results are not stored")
    assert list(share.iterdir()) == []


def test_doctor_does_not_contact_the_store_of_an_untrusted_project(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "aptui.yaml").write_text(CONFIG + "shared_cache: {mode: client, store: 'http://127.0.0.1:9/x', trust: unsealed}\n")
    monkeypatch.delenv("APTUI_TRUST")

    out = run("doctor", "--json")[1]

    assert next(check for check in json.loads(out) if check["name"] == "shared cache")["state"] == "warn"


@pytest.mark.parametrize("is_script", [False, True])
def test_changed_version_command_of_a_commit_runs_only_on_request(
    run: Run, project: Path, tmp_path: Path, *, is_script: bool
) -> None:
    """The option `--trust-code` of `cache ready` is the request."""
    canary, settings, script = tmp_path / "canary", project / "aptui.yaml", project / "version.sh"
    before = settings.read_text()
    after = before.replace('{stem}.out"\n', '{stem}.out"\n    tools: [{name: sh, version: "sh version.sh"}]\n')
    git(project, "init", "-q")
    (project / ".gitignore").write_text("Cache/\n")
    script.write_text("echo 1" if is_script else f"touch {canary}; echo 2")
    settings.write_text(after if is_script else before)
    git(project, "add", "-A")
    git(project, "commit", "-qm", "ours")
    script.write_text(f"touch {canary}; echo 2")
    settings.write_text(after)
    git(project, "commit", "-qam", "theirs")
    git(project, "checkout", "-q", "HEAD~1")

    branch = next((project / ".git/refs/heads").iterdir()).name
    code, _, error = run("cache", "ready", branch)

    assert (code, canary.exists()) == (3, False)
    assert (
        f"the commit's version command of a tool differs from this checkout ('{'version.sh' if is_script else 'aptui.yaml'}')"
        in error
    )
    run("cache", "ready", branch, "--trust-code")
    assert canary.exists()


def test_readiness_check_runs_new_builder_code_of_a_commit_only_on_request(run: Run, project: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    code = f"open({str(canary)!r}, 'w')\nclass B:\n    name = 'mine'\n    version = '1'\n    patterns = ('*.mine',)\n"
    code += "    def create_jobs(self, request): ...\n    def process_job(self, request): ...\n"
    git(project, "init", "-q")
    (project / ".gitignore").write_text("Cache/\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "ours")
    (project / "builders").mkdir()
    (project / "builders" / "mine.py").write_text(code)
    git(project, "add", "-A")
    git(project, "commit", "-qm", "theirs")
    git(project, "checkout", "-q", "HEAD~1")

    branch = next((project / ".git/refs/heads").iterdir()).name
    code_, _, error = run("cache", "ready", branch)

    assert code_ == 3
    assert "contains code that would run on this machine" in error
    assert "--trust-code" in error
    assert not canary.exists()
    assert run("cache", "ready", branch, "--trust-code")[0] == 1
    assert canary.exists()
    canary.unlink()
    git(project, "checkout", "-q", branch)
    assert run("cache", "ready", "HEAD")[0] == 1  # The code of HEAD is trusted, because the checkout already runs it.


def test_token_file_readable_by_other_users_is_refused(tmp_path: Path) -> None:
    from aptui.features.sharing.verbs import _tokens

    file = tmp_path / "tokens"
    file.write_text("secret team\n")
    file.chmod(0o644)
    with pytest.raises(UserError, match="other users can read these tokens"):
        _tokens(str(file))
    file.chmod(0o600)

    assert _tokens(str(file)) == {"secret": "team"}


def test_readiness_check_needs_a_repository_and_a_known_commit(run: Run, project: Path) -> None:
    outside = run("cache", "ready", "HEAD")
    git(project, "init", "-q")
    unknown = run("cache", "ready", "nope")

    assert (outside[0], "git finds no repository" in outside[2]) == (3, True)
    assert (unknown[0], "'nope' is not a commit" in unknown[2]) == (3, True)
