"""docs/security.md: each claim names what holds it, and the doors are those that are there."""

from __future__ import annotations

import re

import pytest

from aerobee.access.needs import Who
from tests.access.test_needs import TABLE
from tests.support.named_tests import ROOT, assert_in_suite, named_in

PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
METHODS = {path.rpartition("/")[2]: needs for path, needs in TABLE.items() if "aerobee" in path}
OF_MEMBERSHIP = {"Join", "AcquireLease"}
"""Frames of one stream."""


def rows(title: str) -> list[list[str]]:
    """The cells of the table below a heading, its head and rule left out."""
    section = PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_file_and_test_that_it_names_is_there() -> None:
    named = named_in(PAGE)
    assert len(named) > 15
    for path, function in named:
        assert_in_suite(path, function)
    for path in re.findall(r"`(tests/[\w/.]+\.py)", PAGE):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("cells", rows("Who might attack"), ids=lambda cells: cells[0][:60])
def test_each_attacker_has_what_stops_it_and_what_is_left(cells: list[str]) -> None:
    assert len(cells) == 3
    assert all(cells), "an empty cell is no answer"


def test_each_door_is_a_method_and_what_is_for_brokers_is_said_to_be() -> None:
    told: dict[str, str] = {}
    for call, _, who in rows("The doors, one by one"):
        for name in re.findall(r"`(\w+)`", call):
            told[name] = who
    assert told.keys() - OF_MEMBERSHIP <= METHODS.keys()
    for_brokers = {name for name, needs in METHODS.items() if needs.who is Who.BROKERS}
    assert {
        name for name, who in told.items() if re.match("the (broker|replica) that it names", who)
    } == for_brokers
    assert len(told) > 20
