"""docs/failure-modes.md: every row is held by a test that exists."""

from __future__ import annotations

import re

import pytest

from tests.support.named_tests import ROOT, assert_in_suite, named_in

PAGE = ROOT / "docs" / "failure-modes.md"
COLUMNS = ["fault", "what you see", "what is kept", "what to do", "test"]


def rows() -> list[list[str]]:
    """The cells of every row of every table, heads and rules left out."""
    found = []
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells != COLUMNS and not set(line) <= set("|-"):
                found.append(cells)
    return found


ROWS = rows()


def test_there_is_a_row_for_every_kind_of_fault() -> None:
    assert len(ROWS) >= 45
    sections = re.findall(r"(?m)^## (.*)$", PAGE.read_text("utf-8"))
    assert len(sections) >= 8


@pytest.mark.parametrize("cells", ROWS, ids=lambda cells: cells[0][:60])
def test_a_row_is_complete_and_its_test_exists(cells: list[str]) -> None:
    assert len(cells) == len(COLUMNS), cells
    assert all(cells), "an empty cell is no answer"
    (named,) = named_in(cells[-1])
    assert cells[-1] == "`{}::{}`".format(*named)
    assert_in_suite(*named)
