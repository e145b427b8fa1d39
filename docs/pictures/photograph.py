"""Photographs the audit's page with chromium: python docs/pictures/photograph.py

Without options it takes docs/audit-report.png, of the report that
tests/offset_audit/sample_report.py makes. It needs chromium, and pngquant, without which the
picture is three times as large (Debian: apt-get install chromium pngquant). No test runs it: after
a change of the page, run it in an environment with the project (`uv run`), look at the picture, and
commit it. To look at a page as others see it:

    python docs/pictures/photograph.py --width 390 --dark --whole --out /tmp/phone.png [report.html]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "audit-report.png"
QUIET = (
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)
ONLY_THE_WORST = """
for (const chip of document.querySelectorAll(".chip"))
  if (chip.dataset.severity !== "CRITICAL") chip.click();
"""
HEIGHT = "document.querySelector(%s).getBoundingClientRect().bottom + scrollY"


class Browser:
    """What DevTools' protocol says over two pipes: a message each way ends with a zero byte."""

    def __init__(self, asks: int, answers: int) -> None:
        self._asks = os.fdopen(asks, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._number = 0
        self._session: dict[str, str] = {}

    def open(self, page: Path) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self.call("Page.enable")
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters, **self._session}
        self._asks.write(json.dumps(asked).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            pass
        if "error" in answer:
            sys.exit(f"chromium refuses {method}: {answer['error']['message']}")
        return answer["result"]

    def value(self, script: str) -> Any:
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return done["result"].get("value")

    def _read(self) -> Any:
        said = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                sys.exit("chromium ended: start it by hand to see why")
            said += byte
        return json.loads(said)


@contextmanager
def chromium(program: str) -> Iterator[Browser]:
    """One of its own, with an empty profile."""
    asks, to_chromium = os.pipe()
    from_chromium, answers = os.pipe()
    # Chromium reads file descriptor 3 and writes 4, wherever the pipes are here.
    script = f'exec "$@" 3<&{asks} 4>&{answers}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [program, *QUIET, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")
        running = subprocess.Popen(
            ["bash", "-c", script, "bash", *words],
            pass_fds=(asks, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(asks)
        os.close(answers)
        browser = Browser(to_chromium, from_chromium)
        try:
            yield browser
            browser.call("Browser.close")
        finally:
            running.terminate()
            running.wait()


def photograph(page: Path, out: Path, choices: argparse.Namespace) -> None:
    with chromium(choices.chromium) as browser:
        browser.open(page)
        size = {"width": choices.width, "deviceScaleFactor": choices.scale}
        phone = choices.width < 600
        browser.call("Emulation.setDeviceMetricsOverride", height=900, mobile=phone, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if choices.dark else "light"}
        browser.call("Emulation.setEmulatedMedia", features=[scheme])
        if not choices.whole:
            browser.value(ONLY_THE_WORST)
        height = browser.value(HEIGHT % json.dumps("footer" if choices.whole else "#heat"))
        wide = browser.value("document.documentElement.scrollWidth")
        if wide > choices.width:
            print(f"the page is {wide} pixels wide: it scrolls sideways", file=sys.stderr)
        clip = {"x": 0, "y": 0, "width": choices.width, "height": height + 20, "scale": 1}
        taken = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    out.write_bytes(base64.b64decode(taken["data"]))
    if shutil.which("pngquant") is None:
        print("there is no pngquant: the picture has all its colours", file=sys.stderr)
    else:
        subprocess.run(["pngquant", "--force", "--ext=.png", "--strip", str(out)], check=True)
    print(f"{out}: {choices.width} x {height + 20:.0f}, {out.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description="photographs the audit's page")
    parser.add_argument("page", nargs="?", type=Path, help="a report (default: the sample)")
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--width", type=int, default=1080)
    parser.add_argument("--scale", type=float, default=2)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--whole", action="store_true", help="all of the page, not its upper part")
    parser.add_argument("--chromium", default="chromium")
    choices = parser.parse_args()
    if choices.page is not None:
        photograph(choices.page, choices.out, choices)
        return
    sys.path.insert(0, str(ROOT))
    from aerobee.offset_audit.outputs.report.render import render
    from tests.offset_audit.sample_report import sample

    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(render(sample()), "utf-8")
        photograph(page, choices.out, choices)


if __name__ == "__main__":
    main()
