"""Pages that the product names, in help, messages, rules and docstrings, are there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_examples import anchors

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "*/aerobee/**/*.py",
    "protos/aerobee/**/*.proto",
    "deploy/**/*.y*ml",
    "deploy/**/*.json",
    "deploy/**/*.tpl",
    "deploy/**/*.txt",
    "CHANGELOG.md",
    "Makefile",
)
PAGE = re.compile(r"docs/[\w./-]+\.(?:md|svg|png)\b(?:#[\w-]+)?")


def named() -> set[str]:
    files = {file for pattern in SOURCES for file in ROOT.glob(pattern) if file.is_file()}
    return {page for file in files for page in PAGE.findall(file.read_text("utf-8"))}


def test_each_page_that_the_product_names_is_there() -> None:
    pages = named()
    assert len(pages) > 30
    missing = []
    for page in sorted(pages):
        path, _, anchor = page.partition("#")
        file = ROOT / path
        if not file.is_file() or (anchor and anchor not in anchors(file)):
            missing.append(page)
    assert missing == []
