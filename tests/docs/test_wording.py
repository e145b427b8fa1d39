"""Pages for users read as English: no phrase that only a translation would have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")
    ),
    *sorted((ROOT / "docs").glob("*.md")),
    *(
        page
        for folder in ("internals", "operations", "reference")
        for page in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
INSTEAD = {
    r"\bfor ever\b": "without end, or how long",
    r"belongs? into": "belongs in",
    r"behind (the|its) (newest|message|last)": "after, or past the end",
    r"also if": "even if",
    r"\| so (long|many|much|often)\b": "this long, how much",
    r"Comes:": "Planned:",
    r"(two|four) looks": "runs, or steps",
    r"\b[Ww]hoever\b": "the one that, or a passive",
    r"\bwants a look\b": "needs attention",
    r"\bcalled off\b": "cancelled",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_no_phrase_of_a_translation(page: Path) -> None:
    text = re.sub(r"(?s)```.*?```", "", page.read_text("utf-8"))
    found = {
        each.group(): better
        for phrase, better in INSTEAD.items()
        for each in re.finditer(phrase, text)
    }
    assert not found
