"""The pictures of the documentation are what docs/pictures/draw.py draws."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_pictures_of_the_console_are_small_and_shown() -> None:
    script = runpy.run_path(str(DOCS / "pictures" / "photograph_console.py"))
    page = (DOCS / "console.md").read_text("utf-8")
    for picture in script["PICTURES"]:
        file = DOCS / "pictures" / f"{picture.name}.png"
        assert file.stat().st_size <= script["BYTES_MAX"]
        assert f"pictures/{file.name}" in page
    assert {each.theme for each in script["PICTURES"]} == {"light", "dark"}


def test_the_pictures_are_what_their_source_draws() -> None:
    pictures = runpy.run_path(str(DOCS / "pictures" / "draw.py"))["PICTURES"]
    drawn = {f"{picture.name}.svg": picture.svg() for picture in pictures}
    kept = {file.name: file.read_text("utf-8") for file in (DOCS / "pictures").glob("*.svg")}
    assert kept == drawn, "draw them anew: python docs/pictures/draw.py"
    for name, text in drawn.items():
        assert ElementTree.fromstring(text).get("aria-label"), "for readers who do not see it"
        assert any(name in page.read_text("utf-8") for page in DOCS.glob("*.md")), "is shown"
