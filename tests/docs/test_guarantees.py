"""docs/guarantees.md: every row says what is lost, how long writes pause, and names its test."""

from __future__ import annotations

import re

import pytest

from tests.support.named_tests import ROOT, assert_in_suite, named_in

PAGE = ROOT / "docs" / "guarantees.md"
COLUMNS = ["fault", "flush", "replication", "replicas", "lost at most", "writes pause", "test"]
FLUSH = {"async", "sync", "any"}
REPLICATION = {"none", "async", "sync", "sync, min 2", "any"}


def rows() -> list[list[str]]:
    """The cells of every row of the table of guarantees, its head and rule left out."""
    found = []
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        is_rule = set(line) <= set("|-")
        if line.startswith("|") and len(cells) == len(COLUMNS) and cells != COLUMNS and not is_rule:
            found.append(cells)
    return found


ROWS = rows()


def test_the_table_covers_every_configuration() -> None:
    assert {cells[1] for cells in ROWS} == FLUSH
    assert {cells[2] for cells in ROWS} == REPLICATION
    assert {number for cells in ROWS for number in re.findall(r"\d", cells[3])} == {"1", "2", "3"}
    assert len({cells[0] for cells in ROWS}) >= 15


@pytest.mark.parametrize("cells", ROWS, ids=lambda cells: "-".join(cells[:4])[:70])
def test_a_row_is_complete_and_its_tests_exist(cells: list[str]) -> None:
    assert all(cells), "an empty cell is no answer"
    assert cells[1] in FLUSH
    assert cells[2] in REPLICATION
    named = named_in(cells[-1])
    assert named, cells[-1]
    for path, function in named:
        assert_in_suite(path, function)
