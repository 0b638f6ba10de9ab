"""A headless Chromium, controlled by the DevTools protocol over two pipes: no port, no network, one reader.

Every wait has a deadline.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools import find_program
from waiting import TIMEOUT_S, until

PROGRAM = find_program("chromium")
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # Chromium refuses to run as root with its sandbox
    "--no-first-run",
    "--mute-audio",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
)
SOFTWARE_GL = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader")
NO_GL = ("--disable-gpu", "--disable-3d-apis")


class Browser:
    """A Chromium process with its own profile."""

    def __init__(self, folder: Path, *flags: str) -> None:
        assert PROGRAM is not None
        (theirs, self._out), (self._in, back) = os.pipe(), os.pipe()
        words = [PROGRAM, *_FLAGS, *flags, f"--user-data-dir={folder}", "about:blank"]
        self._process = _started(words, theirs, back)
        os.close(theirs)
        os.close(back)
        self._received = bytearray()
        self._answers: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self._count = 0

    def post(self, method: str, session: str = "", **params: Any) -> int:
        """Send a message; return its id, which its answer repeats."""
        self._count += 1
        frame = {"id": self._count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._out, json.dumps(frame).encode() + b"\0")
        return self._count

    def answer(self, number: int) -> dict[str, Any]:
        """Wait for an answer."""
        deadline = time.monotonic() + TIMEOUT_S
        while number not in self._answers:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser does not answer; its last words: {self.events[-3:]}"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser is gone"
            self._received += data
            while b"\0" in self._received:
                message, _, rest = self._received.partition(b"\0")
                self._received = bytearray(rest)
                self._take(json.loads(message))
        answered = self._answers.pop(number)
        assert "error" not in answered, answered["error"]
        return answered["result"]

    def _take(self, frame: dict[str, Any]) -> None:
        if "id" in frame:
            self._answers[frame["id"]] = frame
        else:
            self.events.append(frame)

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        return self.answer(self.post(method, session, **params))

    def open(self, url: str, *, width: int = 1180, height: int = 900, scheme: str = "light") -> Page:
        """Open a page; `url`, which may contain a secret, does not appear in the arguments of a process."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        page = Page(self, self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        page.ask("Runtime.enable")
        page.ask("Log.enable")
        page.ask("Page.enable")
        page.set_view(width, height, scheme)
        page.ask("Page.navigate", url=url)
        return page

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.post("Browser.close")
        os.close(self._out)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)


def _started(words: list[str], theirs: int, back: int) -> subprocess.Popen[bytes]:
    """Start the browser with its input as descriptor 3 and its output as descriptor 4."""
    command = ["bash", "-c", f'exec "$@" 3</proc/self/fd/{theirs} 4>/proc/self/fd/{back}', "bash", *words]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, pass_fds=(theirs, back))


class Page:
    """A page that a Chromium process has opened."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self._session = browser, session

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.ask(method, self._session, **params)

    def begin(self, expression: str) -> int:
        """Start to evaluate a JavaScript expression; return a number with which `Page.value` waits for the value."""
        return self.browser.post("Runtime.evaluate", self._session, expression=expression, awaitPromise=True, returnByValue=True)

    def value(self, number: int) -> Any:
        answered = self.browser.answer(number)
        assert "exceptionDetails" not in answered, answered["exceptionDetails"]
        return answered["result"].get("value")

    def evaluate(self, expression: str) -> Any:
        return self.value(self.begin(expression))

    def until(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value."""
        # An error counts as null, because the expression may fail until the page is loaded.
        script = f"(() => {{ try {{ return {expression} }} catch {{ return null }} }})()"
        return until(
            lambda: self.evaluate(script),
            lambda: f"{expression}; {self.complaints}; {self.evaluate('document.body?.innerText')}",
            TIMEOUT_S,
        )

    def set_view(self, width: int, height: int, scheme: str = "light") -> None:
        """Set the size of the page and its colour scheme."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, *, whole: bool = False) -> bytes:
        """Return a PNG of the visible part, or of the whole page."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    @property
    def complaints(self) -> list[str]:
        """Problems that the browser reports: errors of scripts, refused resources, violations of the content security policy."""
        messages = []
        for event in self.browser.events:
            if event.get("sessionId") != self._session:
                continue
            match event["method"], event["params"]:
                case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                    messages.append(details.get("exception", {}).get("description", details["text"]))
                case "Log.entryAdded", {"entry": {"level": "error", "text": text} as entry}:
                    messages.append(f"{text} {entry.get('url', '')}")
        return messages


@contextlib.contextmanager
def browser(folder: Path, *flags: str) -> Iterator[Browser]:
    """Yield a browser; at the end it is stopped with all its processes."""
    opened = Browser(folder, *flags)
    try:
        yield opened
    finally:
        opened.close()
