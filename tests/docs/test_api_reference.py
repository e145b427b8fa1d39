"""docs/api.md and the pages that it lists say of every public name what its source says."""

from __future__ import annotations

import re

from aerobee import AdminClient, errors
from docs.site import blocking_docstrings
from docs.site.api_reference import PAGE, REGENERATE, pages, public_names


def whole() -> str:
    """The text of all pages."""
    return "\n".join(path.read_text("utf-8") for path in pages())


def test_the_pages_are_what_the_docstrings_say() -> None:
    for path, text in pages().items():
        is_fresh = path.is_file() and path.read_text("utf-8") == text
        assert is_fresh, f"make {path.name} anew: {REGENERATE}"


def test_the_index_has_every_name_once() -> None:
    rows = re.findall(r"(?m)^\| \[`(\w+)`\]\(reference/", PAGE.read_text("utf-8"))
    assert sorted(rows) == sorted(name for name, _ in public_names())


def test_every_public_name_and_every_error_is_there_with_a_sentence() -> None:
    text = whole()
    headings = set(re.findall(r"(?m)^## (\w+)$", text))
    public = {name for name, _ in public_names()}
    assert len(public) > 40
    assert public <= headings
    kinds = {name for name in dir(errors) if name[0].isupper()} - {"ClassVar"}
    assert [name for name in kinds if f"`{name}`" not in text] == []


async def test_every_call_of_the_parts_of_the_administration_is_there() -> None:
    text = whole()
    parts = {
        name: part
        for name, part in vars(AdminClient("127.0.0.1:1")).items()
        if not name.startswith("_")
    }
    calls = [
        f"### AdminClient.{name}.{call}()\n"
        for name, part in parts.items()
        for call in dir(part)
        if not call.startswith("_")
    ]
    assert len(calls) > 40
    assert [call for call in calls if call not in text] == []


def test_a_blocking_method_says_itself_what_it_does() -> None:
    for path, text in blocking_docstrings.files().items():
        is_fresh = path.read_text("utf-8") == text
        assert is_fresh, "make them anew: python docs/site/blocking_docstrings.py"
        assert '"""See `' not in text
