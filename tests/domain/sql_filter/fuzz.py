"""Any text is an expression or is refused with its place, soon; and what is compiled judges as the
plain reading of its tree does.

    python -m tests.domain.sql_filter.fuzz --texts 200000 [--seed N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from random import Random, SystemRandom

from aerobee.domain.sql_filter.errors import SqlIllegal
from aerobee.domain.sql_filter.expression import SqlExpression
from aerobee.domain.sql_filter.parser import parse
from tests.domain.sql_filter.apache.cases import cases
from tests.domain.sql_filter.reference import is_match

PIECES = (
    *(
        "a",
        "b",
        "'",
        "''",
        "'x'",
        "(",
        ")",
        ",",
        "=",
        "<>",
        "<",
        ">=",
        "+",
        "-",
        ".",
        "e",
        "0",
        "9",
    ),
    *(" AND ", " OR ", " NOT ", " IN (", " IS NULL", " BETWEEN ", "CONTAINS ", "TRUE", "--", "/*"),
    *("*/", "\n", "\x00", "中", "😀", "\ud800", "L", "1e", "0x", ";", "!=", "LIKE"),
)
SLOW_S = 2.0
"""Beyond any expression of the allowed length, on a busy machine too."""


def broken(random: Random, text: str) -> str:
    """A text with some pieces put in, taken out, doubled or swapped."""
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        at = random.randint(0, len(text))
        end = min(len(text), at + random.choice((0, 1, 3, 20)))
        piece = random.choice((random.choice(PIECES), text[at:end] * random.choice((0, 2, 400))))
        text = text[:at] + piece + text[end:]
    return text


def check(text: str, properties: dict[str, str]) -> str:
    """What became of a text. Raises AssertionError, or whatever should not be raised."""
    began_s = time.monotonic()
    try:
        matches = SqlExpression(text).matches(properties)
    except SqlIllegal as error:
        position = error.position
        found = "refused"
    else:
        position = 0
        assert matches is is_match(parse(text), properties)
        found = "matched" if matches else "did not match"
    assert 0 <= position <= len(text)
    assert time.monotonic() - began_s < SLOW_S, "it took too long"
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=SystemRandom().getrandbits(32))
    options = parser.parse_args(arguments)
    print(f"--seed {options.seed}", flush=True)
    random = Random(options.seed)
    results: Counter[str] = Counter()
    for case in cases(random, options.texts):
        text = broken(random, case.expression)
        try:
            results[check(text, case.properties)] += 1
        except Exception:
            print(f"failed on {text!r} with {case.properties}")
            raise
    print(dict(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
