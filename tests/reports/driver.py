"""A headless Chromium that tests can drive, through chromedriver's WebDriver protocol."""

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--window-size=1280,2000"]

UNFOLDED = """
for (const details of document.querySelectorAll('.more, .part')) details.open = true;
for (const panel of document.querySelectorAll('[role=tabpanel]')) panel.hidden = false;
"""
"""Opens whatever is folded and every tab."""

READY = "return document.documentElement.dataset.charts == 'drawn' && !document.querySelector('.reader')?.hidden"


class Browser:
    """One session of a running browser."""

    def __init__(self, server: str, session: str) -> None:
        self._session = f"{server}/session/{session}"

    @classmethod
    @contextmanager
    def start(cls, driver: str, chromium: str, folder: Path) -> Iterator[Self]:
        with subprocess.Popen(
            [driver, "--port=0", f"--log-path={folder / 'driver.log'}"], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                server = f"http://127.0.0.1:{_port(process)}"
                options = {"binary": chromium, "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]}
                wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
                answer = _post(f"{server}/session", {"capabilities": {"alwaysMatch": wanted}})
                running = cls(server, answer["sessionId"])
                try:
                    yield running
                finally:
                    running._call("DELETE", "")  # ends Chromium
            finally:
                process.kill()  # where the tests' parent ignores SIGTERM, so does the driver

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a local file, at a fragment of its address; what was logged before is forgotten."""
        self.visit(path.as_uri() + fragment)

    def show(self, path: Path, fragment: str = "") -> None:
        """Open a page, and wait until its charts are drawn that are in view, and its reader is there, if it has one."""
        self.open(path, fragment)
        self.wait(READY, 120)

    def visit(self, url: str) -> None:
        """Open an address; what was logged before is forgotten."""
        self.log("browser")
        self.log("performance")
        _post(f"{self._session}/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page and return what it returns."""
        return _post(f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, seconds: float = 60) -> Any:
        """Run JavaScript until it returns something true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"not within {seconds} s: {script}"
            time.sleep(0.05)
        return value

    def wait_for(self, script: str) -> Any:
        """Run JavaScript in the page and return what it calls ``done`` with, at once or later."""
        body = {"script": f"const done = arguments[0]; {script}", "args": []}
        return _post(f"{self._session}/execute/async", body)

    @contextmanager
    def wide(self, width: int, height: int = 2000) -> Iterator[None]:
        """While it lasts, the page has a viewport of this size, in pixels; below 500 that of a phone."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._command("Emulation.setDeviceMetricsOverride", sizes)
        try:
            yield
        finally:
            self._command("Emulation.clearDeviceMetricsOverride", {})

    def point_at(self, x: float, y: float, *, click: bool = False) -> None:
        """Move the pointer to a point of the viewport, and click there."""
        moves: list[dict[str, Any]] = [
            {"type": "pointerMove", "duration": 0, "x": int(x) + step, "y": int(y)} for step in (-2, 0)
        ]
        if click:
            moves += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": moves}
        _post(f"{self._session}/actions", {"actions": [mouse]})

    def press(self, *keys: str) -> None:
        """Press keys one after the other; special ones are those of WebDriver (``\\ue004``: Tab)."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        _post(f"{self._session}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def log(self, kind: str) -> list[Any]:
        """What was logged since the last time: ``browser`` (the console) or ``performance`` (events)."""
        entries: list[Any] = _post(f"{self._session}/se/log", {"type": kind})
        return entries

    def requests(self, path: Path) -> list[str]:
        """Addresses that the page at ``path`` asked for since it was opened, its own first."""
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [event["request"]["url"] for event in sent if event["documentURL"] == path.as_uri()]

    def _command(self, command: str, parameters: dict[str, Any]) -> None:
        """A command of the browser's own protocol."""
        _post(f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _call(self, method: str, path: str) -> None:
        with urllib.request.urlopen(urllib.request.Request(self._session + path, method=method), timeout=60):
            pass


def _port(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"started successfully on port (\d+)", line):
            return int(found[1])
    raise RuntimeError("chromedriver did not start")


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["value"]
