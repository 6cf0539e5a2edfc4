"""Headless Chromium for tests: pages at a width and colour scheme, and everything they say or fetch.

Speaks the DevTools protocol through `--remote-debugging-pipe`, which needs nothing but the browser itself.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import waiting

NAMES = ("chromium", "chromium-browser", "google-chrome")
DEADLINE_S = 120.0
FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-dev-shm-usage",
    ),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--remote-debugging-pipe",
    ),
    *("--force-color-profile=srgb", "--hide-scrollbars", "--disable-extensions", "--mute-audio"),
)


def found() -> str | None:
    """The browser's path, or None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def missing() -> str:
    """Why browser tests cannot run here, or nothing."""
    return "" if found() else "no Chromium on PATH; on Debian: apt-get install chromium"


@dataclass
class Page:
    """One page: `said` is its console and exceptions, `fetched` every address it asked for."""

    browser: Browser
    session: str
    said: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def value(self, script: str) -> Any:
        """What a JavaScript expression is, as JSON."""
        wanted = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.browser.ask("Runtime.evaluate", wanted, self.session)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def settled(self) -> None:
        """Wait until everything is loaded."""
        self.until("document.readyState == 'complete'")

    def until(self, script: str) -> None:
        """Poll an expression with a deadline."""
        waiting.until(lambda: self.value(script), script)

    def press(self, key: str, code: int) -> None:
        """Press and release a key on what has the focus; `code` as Windows numbers keys."""
        for kind in ("rawKeyDown", "keyUp"):
            pressed = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
            self.browser.ask("Input.dispatchKeyEvent", pressed, self.session)

    def pdf(self, file: Path) -> None:
        """Save the page as it would be printed."""
        wanted = {"preferCSSPageSize": True, "printBackground": False}
        file.write_bytes(base64.b64decode(self.browser.ask("Page.printToPDF", wanted, self.session)["data"]))

    def picture(self, file: Path) -> None:
        """Save the whole page as it looks, at most 6,000 pixels of it."""
        size = self.browser.ask("Page.getLayoutMetrics", {}, self.session)["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 6000), "scale": 1}
        wanted = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        file.write_bytes(
            base64.b64decode(self.browser.ask("Page.captureScreenshot", wanted, self.session)["data"])
        )

    def heard(self, method: str, values: dict[str, Any]) -> None:
        """Note one event."""
        match method:
            case "Runtime.consoleAPICalled" if values["type"] in ("error", "warning", "assert"):
                self.said.append(
                    f"{values['type']}:"
                    f" {[one.get('value', one.get('description')) for one in values['args']]}"
                )
            case "Runtime.exceptionThrown":
                details = values["exceptionDetails"]
                self.said.append(
                    f"exception: {details.get('exception', {}).get('description', details['text'])}"
                )
            case "Log.entryAdded" if values["entry"]["level"] in ("error", "warning"):
                self.said.append(f"{values['entry']['level']}: {values['entry']['text']}")
            case "Network.requestWillBeSent":
                self.fetched.append(values["request"]["url"])


class Browser:
    """A running Chromium; `open` gives a page of it."""

    def __init__(self, process: subprocess.Popen[bytes], to_browser: int, from_browser: int) -> None:
        self._process, self._out, self._in = process, to_browser, from_browser
        self._number, self._rest = 0, b""
        self._pages: dict[str, Page] = {}

    def open(
        self, address: str, *, width: int = 1200, height: int = 900, dark: bool = False, media: str = ""
    ) -> Page:
        """Load an address at this size, colour scheme and medium, and wait until it is there."""
        target = self.ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable", {}, session)
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", screen, session)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]}, session)
        gone = self.ask("Page.navigate", {"url": address}, session)
        assert "errorText" not in gone, (address, gone)
        page.until(f"location.href == {json.dumps(address)}")
        page.settled()
        return page

    def ask(self, method: str, values: dict[str, Any], session: str = "") -> dict[str, Any]:
        """Send one command and wait for its answer; events that come before it are noted."""
        self._number += 1
        message = {
            "id": self._number,
            "method": method,
            "params": values,
            **({"sessionId": session} if session else {}),
        }
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            if page := self._pages.get(answer.get("sessionId", "")):
                page.heard(answer["method"], answer["params"])

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + DEADLINE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._in, 1 << 20)
            assert part, f"the browser ended with status {self._process.poll()}"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)


@contextmanager
def running(home: Path) -> Iterator[Browser]:
    """A browser that keeps its profile under `home` and ends with the block."""
    path = found()
    assert path, missing()
    to_browser, from_browser = os.pipe(), os.pipe()

    def as_three_and_four() -> None:  # the numbers that Chromium expects its pipes at
        high = os.dup(to_browser[0]), os.dup(from_browser[1])
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    command = [
        path,
        *FLAGS,
        f"--user-data-dir={home / 'profile'}",
        f"--disk-cache-dir={home / 'cache'}",
        "about:blank",
    ]
    with (home / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            close_fds=False,
            preexec_fn=as_three_and_four,
            start_new_session=True,
        )
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        yield Browser(process, to_browser[1], from_browser[0])
    finally:
        os.close(to_browser[1])
        os.close(from_browser[0])
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=120)
