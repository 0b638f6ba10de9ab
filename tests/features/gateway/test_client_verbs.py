"""`aptui client` and `aptui token` on the command line."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from aptui.cli import main
from aptui.features.gateway import verbs
from tests.features.gateway.live_served import SETTINGS, Garden, garden

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    with garden(tmp_path_factory.mktemp("garden"), SETTINGS, {"a.txt": "a", "b.txt": "bb"}) as opened:
        yield opened


@pytest.fixture
def client(there: Garden, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("APTUI_TOKEN", there.served.token)
    return lambda *words: main.main(["client", *words, "--url", there.url])


def test_client_verb_prints_the_answers_of_requests_as_json(client, capsys: pytest.CaptureFixture[str]) -> None:
    assert client("status", "a.txt", "--platform", "linux") == 0
    assert json.loads(capsys.readouterr().out)["status"] == "compiled"
    assert client("jobs_info", "term=b.txt", "fence=false") == 0
    assert len(json.loads(capsys.readouterr().out)["jobs"]) == 2
    assert client("ping") == 0


def test_products_are_downloaded_and_listed(client, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert client("get", "b.txt", "--platform", "linux", "--output", str(tmp_path / "b")) == 0
    assert (tmp_path / "b").read_text() == "bb"
    assert client("catalog", "--platform", "server") == 0
    assert [line.split()[-1] for line in capfdbinary.readouterr().out.decode().splitlines()][:2] == ["server/a.txt", "server/b.txt"]
    assert client("catalog", "--platform", "server", "--json") == 0
    assert json.loads(capfdbinary.readouterr().out.splitlines()[0])["path"] == "a.txt"


def test_watch_prints_notifications_with_times(there: Garden, client, capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[str] = []

    def is_seen() -> bool:
        printed.append(capsys.readouterr().out)
        return "".join(printed).count("path=seen.txt") == 2

    def change_then_end() -> None:
        try:
            there.write("seen.txt", "seen")
            until(is_seen, "notifications of both platforms")
        finally:
            for session in there.served.context.sessions:
                if session.hello.client == "aptui client":
                    asyncio.run_coroutine_threadsafe(session.close(1008, "over"), there.served.loop).result()

    thread = threading.Thread(target=change_then_end)
    hello_callbacks = there.served.context.sessions.hello_callbacks
    hello_callbacks.append(lambda session: session.hello.client == "aptui client" and thread.start())
    assert client("watch", "--notices", "asset_changed") == 2  # Exit code 2 means that the connection ended.
    thread.join()
    hello_callbacks.pop()
    there.rest()

    lines = [line.split() for line in "".join(printed).splitlines()]
    assert [line[1] for line in lines if "path=seen.txt" in line] == ["asset_changed", "asset_changed"]
    assert all(line[0].count(":") == 2 for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ("fly",),
        ("status",),
        ("wait",),
        ("status", "wing=1"),
        ("get",),
        ("job_log", "job_id=soon"),
        ("jobs_info", "nothing"),
        ("watch", "--ca", "/no"),
    ],
)
def test_invalid_arguments_are_reported_before_connecting(
    client, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert client(*words) == 3
    assert capsys.readouterr().err.startswith("aptui: ")


def test_only_a_token_in_the_arguments_causes_a_warning(
    there: Garden, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("APTUI_TOKEN", raising=False)
    file = tmp_path / "token"
    file.write_text(f"{there.served.token}\n")
    file.chmod(0o600)
    ping = ["client", "ping", "--url", there.url]

    assert main.main([*ping, "--token-file", str(file)]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(file.read_text()))
    assert main.main([*ping, "--token", "-"]) == 0
    assert capsys.readouterr().err == ""
    assert main.main([*ping, "--token", there.served.token]) == 0
    assert "other users of this machine" in capsys.readouterr().err


def test_missing_gateway_and_missing_token_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("APTUI_TOKEN", raising=False)
    assert main.main(["client", "ping", "--url", "http://127.0.0.1:1", "--token", "x"]) == 2
    assert "no gateway answers" in capsys.readouterr().err
    file = tmp_path / "token"
    file.write_text("x\n")
    file.chmod(0o644)
    assert main.main(["client", "ping", "--url", "http://127.0.0.1:1", "--token-file", str(file)]) == 3
    assert "other users can read this token" in capsys.readouterr().err
    assert main.main(["client", "ping", "--url", "http://127.0.0.1:1"]) == 3
    assert "a token is missing" in capsys.readouterr().err


def test_tokens_are_added_listed_and_revoked(
    there: Garden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(there.served.token_file.parents[1]))
    assert main.main(["token", "list", "--json"]) == 0
    others = json.loads(capsys.readouterr().out)
    assert main.main(["token", "add", "phone", "--scopes", "read", "--json"]) == 0
    token = json.loads(capsys.readouterr().out)["token"]
    assert main.main(["token", "list", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == [*(each["name"] for each in others), "phone"]
    ask = lambda what: main.main(["client", what, "--url", there.url, "--token", token])

    assert ask("ping") == 0
    assert ask("rescan") == 3
    assert "lacks the scope" in capsys.readouterr().err
    assert main.main(["token", "list"]) == 0
    listed = capsys.readouterr().out
    assert "phone" in listed
    assert token not in listed
    assert main.main(["token", "revoke", "phone"]) == 0
    assert ask("ping") == 3
    assert "does not accept this token" in capsys.readouterr().err
    assert main.main(["token", "add", "guest", "--days", "0.5"]) == 0
    output = capsys.readouterr()
    assert len(output.out.split()) == 1, "the output is only the token"
    assert "not shown again" in output.err
    assert main.main(["token", "list"]) == 0
    assert " until " in capsys.readouterr().out
    for words in (["add", "x", "--scopes", "fly"], ["add"], ["revoke", "nobody"], ["add", "x", "--days", "0"]):
        assert main.main(["token", *words]) == 3
    capsys.readouterr()
    for days in ("-1", "0", "nan", "soon"):
        assert main.main(["token", "add", "x", f"--days={days}"]) == 3
        assert f"'{days}' is not a number of days from 0 to" in capsys.readouterr().err


def test_missing_aiohttp_is_reported_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verbs, "find_spec", lambda _name: None)

    assert main.main(["gateway"]) == 3
    assert "pip install 'aiohttp" in capsys.readouterr().err
