"""Photographs the console with chromium: python docs/pictures/photograph_console.py

Starts a cluster of its own, fills it as tests/console/test_browser.py does, and takes
docs/pictures/console-*.png, which docs/console.md shows. It needs chromium (Debian: apt-get install
chromium). No test runs it: after a change of the pages, run it in an environment with the project
(`uv run`), look at the pictures, and commit them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

from playwright.sync_api import sync_playwright

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.console.test_browser import fill  # noqa: E402
from tests.support.local_up import AEROBEE, Up, running  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402

FOLDER: Final = ROOT / "docs" / "pictures"
BYTES_MAX: Final = 100 * 1_024


class Picture(NamedTuple):
    """One page."""

    name: str
    path: str
    theme: Literal["light", "dark"]
    width: int = 1_100
    height: int = 560


PICTURES: Final = (
    Picture("console-groups", "/groups", "light", height=300),
    Picture("console-group", "/groups/failing", "dark"),
    Picture("console-message", "/message?topic=orders&broker=broker-a&queue=0&offset=3", "light"),
)


@contextmanager
def console(up: Up, folder: Path) -> Iterator[str]:
    """Its address."""
    log = folder / "console.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*AEROBEE, "console", "--port", "0", "--allow-changes"],
            stdout=output,
            stderr=output,
            env={**os.environ, "AEROBEE_NAMESERVER": up.document()["nameserver"]},
        )
    try:
        wait_until(lambda: "console: http" in log.read_text(), "the console")
        (line,) = [each for each in log.read_text().splitlines() if each.startswith("console:")]
        yield line.removeprefix("console: ")
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        sys.exit("there is no chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name, running(Path(name), "--brokers", "2") as up:
        asyncio.run(fill(up.document()["nameserver"]))
        orders = [json.dumps({"order": number, "sum": 12.5 * number}) for number in range(20, 60)]
        up.run("produce", "orders", given="\n".join(orders) + "\n")
        with console(up, Path(name)) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            for picture in PICTURES:
                context = browser.new_context(
                    viewport={"width": picture.width, "height": picture.height},
                    color_scheme=picture.theme,
                )
                page = context.new_page()
                page.goto(address + picture.path)
                file = FOLDER / f"{picture.name}.png"
                page.screenshot(path=file)
                context.close()
                size = file.stat().st_size
                print(f"{file.relative_to(ROOT)}: {size:,} bytes")
                if size > BYTES_MAX:
                    sys.exit(f"{file.name} is larger than {BYTES_MAX:,} bytes: show less of it")
            browser.close()


if __name__ == "__main__":
    main()
