"""Our filters say of messages what Apache's say; where they do not, docs/filters.md says so."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from tests.domain.sql_filter.apache.cases import Case, cases
from tests.domain.sql_filter.apache.judge import (
    DOES_NOT,
    MATCHES,
    PROGRAM,
    RECORDED,
    REFUSED,
    apaches_verdicts,
    our_verdict,
)

MESSAGE = {"a": "6", "b": "x", "TAGS": "paid"}
# Apache's verdict on what we refuse: it does not look at what follows a complete expression, and
# has no bounds.
DIFFERENCES = {
    "a = 6 nonsense": MATCHES,
    "a = 6)": MATCHES,
    "a = 6.0d": MATCHES,
    "b = 'x' 'y'": MATCHES,
    "a LIKE '6%'": DOES_NOT,
    "a + 1 = 7": DOES_NOT,
    "a = 06": DOES_NOT,
    "(" * 51 + "a = 6" + ")" * 51: MATCHES,
    " OR ".join(["a = 6"] * 400): MATCHES,
}


def test_recorded_verdicts_are_ours() -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    found = Counter(theirs for theirs, _, _ in recorded)
    assert min(found[each] for each in (MATCHES, DOES_NOT, REFUSED)) > 30
    for theirs, expression, properties in recorded:
        assert our_verdict(Case(expression, properties))[0] == theirs, expression


@pytest.mark.parametrize("expression", DIFFERENCES)
def test_what_only_apache_accepts_is_refused(expression: str) -> None:
    assert our_verdict(Case(expression, MESSAGE))[0] == REFUSED


@pytest.mark.slow
def test_apaches_classes_say_the_same() -> None:
    """`make filter-judge` asks them about 10,000."""
    if PROGRAM.missing:
        pytest.skip(PROGRAM.missing.replace("make clients-test", "make filter-judge"))
    asked = list(cases(Random(11), 3_000))
    asked += [Case(expression, MESSAGE) for expression in DIFFERENCES]
    verdicts = apaches_verdicts(asked)
    assert verdicts[3_000:] == "".join(DIFFERENCES.values())
    for case, theirs in zip(asked[:3_000], verdicts, strict=False):
        assert our_verdict(case)[0] == theirs, case
