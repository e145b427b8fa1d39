"""docs/audit-findings.md: each check has its row and its section there, each limit its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from aerobee.offset_audit.checks.check import Check, Limits
from aerobee.offset_audit.checks.registry import all_checks
from aerobee.offset_audit.rules.limits import LIMIT_NAMES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "audit-findings.md"
TEXT = PAGE.read_text("utf-8")


def sections() -> dict[str, str]:
    """The sections of the findings by the checks that their headings name."""
    parts = re.split(r"(?m)^###? (.*)$", TEXT)
    return {
        name: text
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
        for name in heading.split(", ")
    }


def rows() -> dict[str, str]:
    """The depth of each check that the table lists."""
    found = re.findall(r"(?m)^\| \[([A-Z_, ]+)\]\(#[\w-]+\) \|.*\| (.*) \|$", TEXT)
    return {name: depth for names, depth in found for name in names.split(", ")}


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.name)
def test_each_check_has_a_row_and_a_section_with_an_example_and_what_to_do(check: Check) -> None:
    assert check.name in rows(), f"the table of checks has no row of {check.name}"
    assert "deep" in rows()[check.name] or not check.is_deep
    section = sections().get(check.name)
    assert section is not None, f"{check.name} has no section"
    assert re.search(r"(?m)^> \S", section), f"{check.name} has no example"
    assert re.search(r"(?i)what to do", section), f"{check.name} does not say what to do"


def test_the_page_tells_of_no_check_that_is_not_made() -> None:
    assert sorted(rows()) == sorted(check.name for check in all_checks())


def test_the_page_has_every_limit_with_its_default() -> None:
    told = re.findall(r"(?m)^\| `(\w+)` \| (\d+) \|", TEXT)
    assert told == [
        (limit.name, str(limit.default)) for limit in fields(Limits) if limit.name in LIMIT_NAMES
    ]
