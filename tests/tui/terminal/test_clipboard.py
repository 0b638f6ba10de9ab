"""A copy reaches the clipboard of the user's terminal and reports its route."""

import base64
import os
import re
import shutil
import stat
import subprocess
import sys

import pytest
from tools import MACHINE, needs

from aptui.tui.terminal.clipboard import MOST_COPIES, SAFE_BYTES, Clipboard
from tests.tui.pty_harness import Terminal

COPY = (
    "import sys; from aptui.tui.terminal.clipboard import Clipboard; "
    "print(Clipboard(sys.stdout.write).copy('{0}' * {1}).toast(), flush=True)"
)


def clipboard(tmp_path, written, **environ):
    return Clipboard(written.append, {"TERM": "xterm", "PATH": os.environ["PATH"], **environ}, tmp_path / "copies")


def test_copy_is_sent_to_a_plain_terminal_as_osc_52(tmp_path):
    written = []

    copied = clipboard(tmp_path, written).copy("naïve")

    assert written == ["\x1b]52;c;" + base64.b64encode("naïve".encode()).decode() + "\x07"]
    assert (copied.size_bytes, copied.routes, copied.file) == (6, ("terminal",), None)
    assert copied.toast() == "6 B → terminal, if allowed"


def test_copy_is_sent_to_gnu_screen_as_osc_52_in_several_parts(tmp_path):
    written = []

    copied = clipboard(tmp_path, written, STY="1.pts").copy("x" * 500)

    pieces = re.findall(r"\x1bP(.*?)\x1b\\", written[0], re.DOTALL)
    assert "".join(f"\x1bP{piece}\x1b\\" for piece in pieces) == written[0]
    assert all(len(piece) < 250 for piece in pieces)
    assert "".join(pieces) == "\x1b]52;c;" + base64.b64encode(b"x" * 500).decode() + "\x07"
    assert copied.toast() == "500 B → screen and terminal, if allowed"


@pytest.mark.real
def test_dead_tmux_falls_back_to_osc_52(tmp_path):
    written = []

    copied = clipboard(tmp_path, written, TMUX=f"{tmp_path}/nothing,1,0").copy("x")

    assert copied.routes == ("terminal",)
    assert written


def test_large_copy_is_sent_to_the_terminal_and_kept_in_a_private_file(tmp_path):
    written = []

    copied = clipboard(tmp_path, written).copy("y" * SAFE_BYTES)

    assert len(written) == 1
    assert copied.file.read_text() == "y" * SAFE_BYTES
    assert stat.S_IMODE(copied.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(copied.file.parent.stat().st_mode) == 0o700
    assert copied.toast() == f"73 KiB → terminal; the text is large, so it is also in '{copied.file}'"


def test_copy_that_the_terminal_cannot_receive_is_kept_in_a_file(tmp_path):
    def refuse(_):
        raise OSError

    copied = Clipboard(refuse, {"TERM": "xterm"}, tmp_path).copy("z")

    assert copied.routes == ()
    assert str(copied.file) in copied.toast()
    assert copied.file.read_text() == "z"


def test_only_a_raw_copy_keeps_control_sequences(tmp_path):
    written = []
    board = clipboard(tmp_path, written)

    board.copy("a\x1b[31mb\x1b]52;c;?\x07\nc")
    board.copy("a\x1b[31mb", raw=True)

    texts = [base64.b64decode(data[7:-1]) for data in written]
    assert texts == [b"ab\nc", b"a\x1b[31mb"]
    assert not any("?" in data for data in written)


def test_raw_copy_keeps_invalid_utf_8(tmp_path):
    written = []

    clipboard(tmp_path, written).copy("caf\udce9", raw=True)

    assert base64.b64decode(written[0][7:-1]) == b"caf\xe9"


def test_copy_register_keeps_the_last_texts_without_duplicates(tmp_path):
    board = clipboard(tmp_path, [])
    for number in [*range(MOST_COPIES + 5), 20]:
        board.copy(str(number))

    assert list(board.register)[:3] == ["20", str(MOST_COPIES + 4), str(MOST_COPIES + 3)]
    assert len(board.register) == MOST_COPIES


def test_new_copy_stays_if_older_copies_have_later_times(tmp_path):
    (tmp_path / "copies").mkdir()
    for number in range(MOST_COPIES):
        (tmp_path / "copies" / f"copy-99990101-000000-{number:06}.txt").write_text("older")

    copied = clipboard(tmp_path, []).copy("x" * SAFE_BYTES)

    assert copied.file.read_text() == "x" * SAFE_BYTES
    assert len(list((tmp_path / "copies").iterdir())) == MOST_COPIES


def test_old_copies_are_deleted(tmp_path):
    board = clipboard(tmp_path, [])
    for _ in range(MOST_COPIES + 3):
        board.copy("y" * SAFE_BYTES)

    assert len(list((tmp_path / "copies").iterdir())) == MOST_COPIES


# ── tests with a real tmux ────────────────────────────────────────────────────────────────────────────────────────────

CONFIGURATIONS = {
    "default": "",
    "clipboard-on": "set -s set-clipboard on",
    "passthrough-on": "set -g allow-passthrough on",
    "clipboard-off": "set -s set-clipboard off",
}


def has_tmux():
    if shutil.which("tmux") is None:
        return False
    found = re.search(r"(\d+)\.(\d+)", subprocess.run(["tmux", "-V"], capture_output=True, text=True).stdout)
    return found is not None and (int(found[1]), int(found[2])) >= (3, 2)


def arrives(folder, configuration, size_bytes):
    """Copy a text inside a tmux with this configuration; return the text that reached the terminal outside tmux."""
    conf, socket, script = folder / "tmux.conf", folder / "tmux.sock", folder / "sending.py"
    conf.write_text(CONFIGURATIONS[configuration] + "\n")
    script.write_text(COPY.format("Aptui ", size_bytes // 6) + "\nimport time; time.sleep(60)\n")
    command = ["tmux", "-S", str(socket), "-f", str(conf), "new-session", f"{sys.executable} {script}"]
    try:
        with Terminal(command, 100, 30, {"TMUX": "", "STY": "", "XDG_STATE_HOME": str(folder)}) as terminal:
            terminal.wait(lambda term: "tmux and terminal" in term.screen(), "the toast")
            ends = re.compile(rb"\x1b\]52;[a-z]*;([A-Za-z0-9+/=]+)(?:\x07|\x1b\\)")
            terminal.wait(lambda term: ends.search(term.seen), "OSC 52 at the terminal around tmux")
            return base64.b64decode(ends.search(bytes(terminal.seen))[1]).decode()
    finally:
        subprocess.run(["tmux", "-S", str(socket), "kill-server"], capture_output=True)


@pytest.mark.real
@needs("tmux")
@pytest.mark.skipif(not has_tmux(), reason=MACHINE + "its tmux does not know load-buffer -w")
@pytest.mark.parametrize(("configuration", "size_bytes"), [("default", 100), ("clipboard-off", 75_000)])
def test_copy_reaches_the_terminal_outside_tmux(tmp_path, configuration, size_bytes):
    assert arrives(tmp_path, configuration, size_bytes) == "Aptui " * (size_bytes // 6)
