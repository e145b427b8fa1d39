"""What `make test` and `make proof` promise: no dice in the one, everything long in the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import settings

from tests.proof import CAMPAIGNS, ROOT, run_all
from tests.support.property_runs import EXAMPLES, SEARCH_FACTOR, examples


def test_a_campaign_that_fails_keeps_no_other_from_running(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran: list[str] = []

    def run(target: str) -> int:
        ran.append(target)
        told = capsys.readouterr().out
        assert f"=== make {target}: about " in told
        if len(ran) == 1:
            assert all(f"make {campaign.target} " in told for campaign in CAMPAIGNS)
        return 2 if target == "power-cuts" else 0

    assert run_all(CAMPAIGNS, run) == 1
    assert ran == [campaign.target for campaign in CAMPAIGNS]
    (failed,) = re.findall("make (.*) .*FAILED, exit code 2", capsys.readouterr().out)
    assert failed.startswith("power-cuts")
    assert run_all(CAMPAIGNS, lambda _: 0) == 0


def test_each_campaign_is_a_target_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for campaign in CAMPAIGNS:
        assert f"\n{campaign.target}: " in makefile


def test_property_tests_take_the_same_examples_everywhere_unless_they_search() -> None:
    for name in ("fixed", "whole"):
        assert settings.get_profile(name).derandomize
        assert settings.get_profile(name).database is None
    whole, search = settings.get_profile("whole"), settings.get_profile("search")
    assert not search.derandomize
    assert search.max_examples == whole.max_examples * SEARCH_FACTOR
    assert examples(30) == 30 * settings().max_examples // EXAMPLES


def test_every_number_of_examples_grows_with_the_search() -> None:
    for path in Path(__file__).parent.rglob("test_*.py"):
        for number in re.findall(r"max_examples=(\w+[(]?)", path.read_text()):
            assert number == "examples(", f"{path}: say max_examples=examples({number})"
