"""tests/README.md: each promise of the docs has a row, and its tests are in the suite."""

from __future__ import annotations

import re

import pytest

from tests.support.named_tests import ROOT, assert_in_suite, named_in

README = (ROOT / "tests" / "README.md").read_text("utf-8")
NO_PROMISES = "Not there yet"


def rows(section: str) -> dict[str, str]:
    """First cell -> second cell of the table below a heading."""
    text = README.split(f"### {section}\n")[1].split("\n### ")[0]
    _head, *pairs = re.findall(r"(?m)^\| (.*) \| (.*) \|$", text)
    return dict(pairs)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def test_each_guarantee_of_every_configuration_has_a_row() -> None:
    head = page("guarantees.md").split("\n## ")[0]
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head)
    assert list(rows("In every configuration")) == re.findall(r"(?m)^- (.*)$", plain)


def test_each_kind_of_fault_has_a_row_with_the_files_of_its_tests() -> None:
    found = rows("When something fails")
    sections = page("failure-modes.md").split("\n## ")[1:]
    kinds = dict(section.split("\n", 1) for section in sections)
    del kinds[NO_PROMISES]
    assert list(found) == list(kinds)
    for kind, text in kinds.items():
        files = sorted({path for path, _ in named_in(text)})
        assert re.findall(r"`(.*?)`", found[kind]) == files, kind


def test_each_finding_of_the_audit_has_a_row() -> None:
    table = page("audit-findings.md").split("\n## All checks\n")[1].split("\n## ")[0]
    checks = ", ".join(re.findall(r"(?m)^\| \[([A-Z_, ]+)\]", table)).split(", ")
    assert list(rows("What the audit finds")) == [f"`{check}`" for check in checks]


@pytest.mark.parametrize(
    "section",
    ["In every configuration", "What the audit finds", "What Apache's clients rely on"],
)
def test_each_row_names_tests_of_the_suite(section: str) -> None:
    for promise, cell in rows(section).items():
        assert named_in(cell), promise
        for path, function in named_in(cell):
            assert_in_suite(path, function)
