import os
from types import SimpleNamespace

from aptui.tui.screens.logs.logs_pane import LogFiles


def log_files(folder, reported=None):
    config = SimpleNamespace(log_dir=folder)
    shell = SimpleNamespace(config=config, show_toast=lambda text, *_rest: (reported if reported is not None else []).append(text))
    shown = []
    files = LogFiles(shell, lambda: shown.append(files.path and files.path.name))
    return files, shown


def put(folder, *names):
    for name in names:
        (folder / name).write_text("a line\n", encoding="utf-8")


def test_displayed_older_log_stays_when_a_newer_log_appears(tmp_path):
    put(tmp_path, "aptui.log", "aptui.1.log")
    files, shown = log_files(tmp_path)
    assert files.find()
    files.step(1)
    put(tmp_path, "aptui.2.log")

    assert files.find()

    assert shown == ["aptui.1.log"]
    assert files.path.name == "aptui.1.log"
    assert files.age == 2


def test_current_log_is_shown_when_the_displayed_older_log_is_deleted(tmp_path):
    put(tmp_path, "aptui.log", "aptui.1.log")
    files, _shown = log_files(tmp_path)
    files.find()
    files.step(1)
    os.unlink(tmp_path / "aptui.1.log")

    assert files.find()

    assert files.path.name == "aptui.log"


def test_stepping_beyond_the_newest_or_oldest_log_shows_a_message(tmp_path):
    reported = []
    files, shown = log_files(tmp_path, reported)
    assert not files.find()
    put(tmp_path, "aptui.log")
    assert files.find()

    files.step(1)
    files.step(-1)

    assert reported == ["there is no older stored log", "this is the newest log"]
    assert shown == []
