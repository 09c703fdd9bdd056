"""A real Chromium, driven through its DevTools pipe: what a reader does to a page, and what the page does then.

One process serves many pages. Keys are real key events, widths and colour schemes are the browser's own emulation, and
every message of the console and every request is kept.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from places import REPOSITORY

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to open the page")
SCREENSHOTS = REPOSITORY / "build" / "screenshots"
SIZES = {"wide": (1400, 900), "tablet": (820, 1100), "phone": (390, 844)}
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
KEYS = {
    "Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), " ": (32, " "), "ArrowDown": (40, ""), "ArrowUp": (38, ""),
    "ArrowLeft": (37, ""), "ArrowRight": (39, ""), "Home": (36, ""), "End": (35, ""),
}  # fmt: skip
SETTLED = """(async () => {
  const end = performance.now() + 200000;
  const soon = () => new Promise((done) => setTimeout(done, 20));
  while (document.readyState !== "complete") await soon();
  for (const closed of document.querySelectorAll("details:is(.panel, .behind, .report)")) closed.open = true;
  const bare = (table) => !table.querySelector("button.sort");
  const waits = () => [...document.querySelectorAll(".scroll > table.sortable")].some(bare);
  while (waits() && performance.now() < end) await soon();
  return !waits();
})()"""
"""Opens what is to be opened, and says whether all tables can be sorted."""
SHOWN = "[...document.querySelectorAll('.figure svg')].filter((drawn) => drawn.clientWidth)"
FITTED = f"""{SHOWN}.every((drawn) => drawn.clientWidth <= drawn.closest('.figure').clientWidth
    && drawn.clientWidth > 0.98 * Math.min(1080, drawn.closest('.figure').clientWidth))"""
"""Whether every figure is as wide as its place."""


class Browser:
    """One Chromium with one page at a time; close it."""

    def __init__(self, folder: Path) -> None:
        to_browser, self._write = _pipe()
        self._read, from_browser = _pipe()
        quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, to_browser, 3), (os.POSIX_SPAWN_DUP2, from_browser, 4)]
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        self.pid = os.posix_spawn(str(CHROMIUM), command, os.environ, file_actions=[*ends, *quiet], setpgroup=0)
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._rest = b""
        self.messages: list[str] = []
        """Errors and warnings that the page caused since it was opened."""
        self.requests: list[str] = []
        self._size = SIZES["wide"]
        self._session = ""
        self._session = self._call("Target.attachToTarget", targetId=self._page(), flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call("Performance.enable", timeDomain="threadTicks")

    def _page(self) -> str:
        """The page that it begins with; a browser that is busy starting may answer before there is one."""
        limit = time.monotonic() + 120
        while True:
            for one in self._call("Target.getTargets")["targetInfos"]:
                if one["type"] == "page":
                    return str(one["targetId"])
            assert time.monotonic() < limit, "the browser opened no page"
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            return bool(self.run("1 + 1") == 2)
        except (AssertionError, OSError):
            return False

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._write)
        os.close(self._read)

    def open(self, path: Path, size: tuple[int, int] = SIZES["wide"], dark: bool = False, wait: bool = True) -> None:
        """Go to a file and, where asked, open all that is to be opened."""
        self.resize(size)
        self.media(dark)
        self.messages.clear()
        self.requests.clear()
        self._call("Page.navigate", url=path.as_uri())
        if wait:
            assert self.run(SETTLED), "not every table was made"

    def resize(self, size: tuple[int, int]) -> None:
        self._size, phone = size, size[0] < 600
        self._call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1,
                   mobile=phone)  # fmt: skip

    def media(self, dark: bool = False, kind: str = "") -> None:
        """The reader's colours, and `print` for paper."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=kind, features=[scheme])

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript, awaited where it is a promise."""
        found = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def comes_true(self, condition: str) -> bool:
        """Whether an expression of JavaScript comes true: what follows a change is drawn when the machine has time."""
        found = self.run(f"""new Promise((done) => {{
            const end = performance.now() + 60000;
            const ask = () => {{
              const met = {condition};
              if (met || performance.now() > end) done(met); else setTimeout(ask, 50);
            }};
            ask();
        }})""")
        return bool(found)

    def press(self, key: str, shift: bool = False) -> None:
        code, text = KEYS[key]
        for kind in ("keyDown", "keyUp"):
            letter = {"text": text} if text and kind == "keyDown" else {}
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code="Space" if key == " " else key,
                       windowsVirtualKeyCode=code, modifiers=8 if shift else 0, **letter)  # fmt: skip

    def type(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """A real click into the middle of an element."""
        x, y = self.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: "center"}}); const b = e.getBoundingClientRect();
            return [b.x + b.width / 2, b.y + b.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move(self, x: float, y: float) -> None:
        """The pointer to this place of the window."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, most: int = 16000) -> Path:
        """Of the page from its top, in a window that is high enough for it: `captureBeyondViewport` draws all figures
        again."""
        path.parent.mkdir(parents=True, exist_ok=True)
        width, height = self._size
        whole = self._call("Page.getLayoutMetrics")["cssContentSize"]["height"]
        self.resize((width, min(int(whole), most)))
        self.run("scrollTo(0, 0)")
        shot = self._call("Page.captureScreenshot")
        path.write_bytes(base64.b64decode(shot["data"]))
        self.resize((width, height))
        return path

    def pdf(self) -> bytes:
        return base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"])

    def main_thread_seconds(self) -> float:
        """Processor time of the page's main thread since it was opened: other programs do not lengthen it."""
        found = {one["name"]: one["value"] for one in self._call("Performance.getMetrics")["metrics"]}
        return float(found["TaskDuration"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        session = {"sessionId": self._session} if getattr(self, "_session", "") else {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._answer()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._heard(answer)

    def _answer(self) -> dict[str, Any]:
        pieces = [self._rest]
        while b"\0" not in pieces[-1]:
            read = os.read(self._read, 1 << 16)
            assert read, "the browser ended"
            pieces.append(read)
        whole, _, self._rest = b"".join(pieces).partition(b"\0")
        answer: dict[str, Any] = json.loads(whole)
        return answer

    def _heard(self, event: dict[str, Any]) -> None:
        method, found = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = found["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
            self.messages.append(" ".join(str(one.get("value", one.get("description"))) for one in found["args"]))
        elif method == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
            self.messages.append(found["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])


def outside(requests: list[str]) -> list[str]:
    """The requests that leave the file: figures may be made into images inside of the page."""
    return [one for one in requests if not one.startswith(("file:", "data:", "blob:", "about:"))]


_started: list[Browser] = []
"""The one that all tests of a process share: starting it takes a second."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Closed by `close_shared`, when the last test that may want it is over."""
    if _started and not _started[0].answers():
        close_shared()
    if not _started:
        _started.append(Browser(tmp_path_factory.mktemp("browser")))
    return _started[0]


def close_shared() -> None:
    while _started:
        _started.pop().close()


def _pipe() -> tuple[int, int]:
    """Ends above 9, so that none of them is a number that the browser's own ends will have."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
