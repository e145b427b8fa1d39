"""The suite against our cluster; README.md says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rocketmq_remoting.suite.programs import SUITES
from tests.rocketmq_remoting.suite.running import (
    README,
    Difference,
    Outcome,
    complaints,
    differences,
    outcomes,
    scenarios_of,
)
from tests.rpc.core.interop.programs import Program

QUICK = frozenset(
    {
        "send.answer",
        "batch.in-order",
        "content.properties",
        "refused.queue-absent",
        "lookup.key",
        "delay.level-1",
        "recall.recalled",
        "transaction.checked-commit",
        "group.members-2",
        "members.restarted",
        "broadcast.all",
        "tags.2",
        "sql.2",
        "order.failing",
        "retry.contents",
        "dead.given-up",
        "bounds.by-time",
        "lite.seek",
        "pull.waits",
        "tool.group-stats",
    }
)


def test_a_difference_is_known_or_a_complaint() -> None:
    known = differences(
        "apache",
        "| `a.*`, `b.one` | Apache | x |\n| `c` | Aerobee | y |\n| `d` | Apache, at times | z |",
    )
    assert known == [Difference("a.*", False), Difference("b.one", False), Difference("d", True)]
    went = [Outcome("a.x", 1, "it failed"), Outcome("b.one", 1, ""), Outcome("d", 1, "")]
    assert complaints(went, known) == ["b.one: the promise holds; README.md says that it does not"]
    assert complaints([Outcome("c", 1, "it failed")], known) == ["c: it failed"]


def kept_as_readme_says(program: Program, folder: Path, only: frozenset[str] | None) -> None:
    if program.missing:
        pytest.skip(program.missing)
    wanted = [each for each in scenarios_of(program) if only is None or each.name in only]
    assert len(wanted) >= len(only or ())
    found = list(outcomes(program, "aerobee", wanted, folder))
    assert {each.name for each in found} == {each.name for each in wanted}
    assert complaints(found, differences("aerobee", README.read_text())) == []


@pytest.mark.slow
def test_the_promises_that_show_most_are_kept(tmp_path: Path) -> None:
    kept_as_readme_says(SUITES["5.3.3"], tmp_path, QUICK)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("version", SUITES)
def test_every_promise_is_kept_but_those_that_readme_names(version: str, tmp_path: Path) -> None:
    kept_as_readme_says(SUITES[version], tmp_path, None)
