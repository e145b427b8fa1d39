"""docs/comparison.md and docs/faq.md quote docs/performance.md, and do not measure anew."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_row_of_figures_is_one_of_the_performance_page() -> None:
    measured = (DOCS / "comparison.md").read_text("utf-8").partition("## Measured")[2]
    rows = [line for line in measured.splitlines() if line.startswith("|")]
    known = (DOCS / "performance.md").read_text("utf-8").splitlines()
    assert len(rows) > 12
    assert [row for row in rows if not any(each.startswith(row) for each in known)] == []


def test_the_rates_of_the_answers_are_those_of_the_comparison() -> None:
    answer = (DOCS / "faq.md").read_text("utf-8").partition("## Is it ready")[0]
    rates = re.findall(r"\d+,\d00", answer)
    assert len(rates) == 2
    measured = (DOCS / "comparison.md").read_text("utf-8").partition("## Measured")[2]
    assert all(f"messages/s | {rate} |" in measured for rate in rates)


def test_the_rates_by_which_brokers_are_counted_are_those_of_the_comparison() -> None:
    page = (DOCS / "operations" / "size.md").read_text("utf-8")
    sent = re.findall(r"(?m)^\| (?:sent in batches|sent one by one|read)[^|]*\| (.*) \|$", page)
    rates = [*re.findall(r"[\d,]+,\d00", " ".join(sent))]
    assert len(rates) == 5
    known = (DOCS / "performance.md").read_text("utf-8")
    assert all(f" | {rate} |" in known for rate in rates)
