"""Scripts of keys. Typed at once or with random pauses, each script must copy the same text.

`python -m tests.tui.bursts 20 --seed 3` types each script at once, and then nineteen times with different pauses.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.tui.tmux_harness import Home, Pane, Tmux, copied_texts, wait

LONGEST_PAUSE_S = 0.3
_TIMEOUT_S = 80
"""Timeout of a script (seconds): the first search of a process imports its libraries, which is slow on a busy machine."""
_ERROR = "| ERROR | origin: tables | tables/bad.json:2:7: Expecting value"
SCRIPTS: dict[str, tuple[str, str]] = {
    "an error by filter": ("/bad failed⏎⏎yd", _ERROR),
    "an error by its key": ("e⏎yd", _ERROR),
    "an error by its cause": ("f⏎⏎yd", _ERROR),
    "a row by path": ("/^a⏎yr", "a.txt"),
    "a row by status": ("sf⏎yr", "tables/bad.json"),
    "a row by command": (":filter status:failed⏎yr", "tables/bad.json"),
    "a row after nothing was found": ("/zzz⏎⎋/^b⏎yr", "b.txt"),
    "a row after help and reasons": ("?⎋/bad⏎x⎋yr", "tables/bad.json"),
    "an asset": ("2/good⏎yy", "tables/good.json"),
    "the jobs of an asset": ("2/b.txt⏎J/^b⏎yr", "b.txt"),
    "an asset after help and a menu": ("2?⎋/good⏎.⎋yy", "tables/good.json"),
    "an asset after nothing was found": ("2/zzz⏎⎋/bad⏎yy", "tables/bad.json"),
    "a product": ("2tt/b.txt⏎yyt", "linux/b.txt"),
    "a line of the log": ("3/zzz⏎⎋/bad.json⏎yy", "2:7: Expecting value"),
    "a line of another tab": ("3>?⎋g/bad.json⏎yy<", "2:7: Expecting value"),
    "a pattern of a builder": ("5S⎋/data⏎p⏎yy", "aptui.yaml:5:5"),
    "a platform of the cache": ("6e⎋.⎋yy", "linux    4    9 B"),
    "a tool after a question": ("7j⏎⎋jyy", ":retry"),
}
"""{name of a script: (keys to type, text with which the copied text must end)}; ⏎ is Enter, ⎋ is Esc."""
_KEYS = {"⏎": "Enter", "⎋": "Escape"}
_RESET = ("1", "Escape", "Escape", "/", "C-u", "Enter")
_RESETS = {
    "2": ("2", "/", "C-u", "Enter"), "3": ("3", "/", "C-u", "Enter"), "5": ("5", "/", "C-u", "Enter"), "7": ("7", "g"),
}  # fmt: skip
"""Keys that reset a screen before the next script. Each screen is named by the key that opens it."""


class Typist:
    """A user at a screen of aptui in tmux, over a project with an idle engine."""

    def __init__(self, tmux: Tmux) -> None:
        self._tmux, self._pane = tmux, tmux.open()
        self._pane.wait(lambda screen: " connected" in screen and "5 jobs" in screen, "the first screen", _TIMEOUT_S)

    def leave(self) -> None:
        """Close the screen."""
        self._pane.keys("C-c", "C-c")
        self._pane.wait_until_gone()

    def begin(self, script: str) -> None:
        """Undo the changes of earlier scripts on the screen."""
        for keys in (("Escape", "Escape", "Escape"), _RESETS.get(script[0], ()), _RESET):
            if keys:
                self._pane.keys(*keys)
        self._pane.wait(_is_fresh, "all jobs again", _TIMEOUT_S)

    def type(self, script: str, pauses: random.Random | None) -> str:
        """Type the keys of a script and return the text that aptui copies. Without `pauses`, all keys are sent at once."""
        outer = self._tmux.outer
        before = len(copied_texts(outer.seen))
        if pauses is None:
            _type_at_once(self._pane, script)
        else:
            for key in script:
                _press(self._pane, key)
                # After half of the key presses, there is a pause of random length.
                time.sleep(pauses.choice((0.0, pauses.uniform(0, LONGEST_PAUSE_S))))
        outer.wait(lambda outer: len(copied_texts(outer.seen)) > before, f"a copy after {script!r}", timeout_s=_TIMEOUT_S)
        return copied_texts(outer.seen)[-1]


def _is_fresh(screen: str) -> bool:
    return "5 jobs" in screen and " / filter" in screen and "⏎ open" in screen


def _press(pane: Pane, key: str) -> None:
    if key in _KEYS:
        pane.keys(_KEYS[key])
    else:
        pane.type(key)


def _type_at_once(pane: Pane, script: str) -> None:
    """Send a script in one command; Esc is sent separately, because a terminal reads Esc and the next key as one key."""
    parts = script.split("⎋")
    for number, part in enumerate(parts):
        if number:
            pane.keys("Escape")
            time.sleep(0.06)  # longer than the time limit for the rest of an escape sequence
        if part:
            pane.keys(*("Enter" if key == "⏎" else "Space" if key == " " else key for key in part))


def main(arguments: list[str]) -> int:
    """Type the keys of all scripts several times. Return 1 if a script copied the wrong text, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.tui.bursts", description=__doc__.partition("\n")[0])
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    chance, failed = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder, Home(Path(folder)) as home:
        home.run("start")
        wait(lambda: home.run("jobs", "--filter", "status:failed").count("bad.json"), "the first build", str, _TIMEOUT_S)
        with Tmux(home) as tmux:
            typist = Typist(tmux)
            for number in range(options.rounds):
                for name, (script, expected) in SCRIPTS.items():
                    typist.begin(script)
                    copied = typist.type(script, chance if number else None)
                    failed += not copied.endswith(expected)
                    sys.stdout.write(f"{'ok  ' if copied.endswith(expected) else 'WRONG'} {name}: {copied!r}\n")
            typist.leave()
    sys.stdout.write(f"{options.rounds * len(SCRIPTS)} scripts, {failed} wrong\n")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
