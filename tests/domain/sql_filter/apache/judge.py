"""Apache's own filter classes judge what our filters judge, and say the same.

    python -m tests.domain.sql_filter.apache.judge --cases 10000 [--seed 1] [--record 500]

`--record` also writes down so many cases and Apache's verdicts, which test_apaches_verdicts.py
compares where there is no Java. Needs Java and Maven, and builds its program once, into the cache
folder.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from aerobee.domain.sql_filter.errors import SqlIllegal
from aerobee.domain.sql_filter.expression import SqlExpression
from tests.domain.sql_filter.apache.cases import Case, cases
from tests.rpc.core.interop.programs import FETCHED_JARS, Program

HERE = Path(__file__).parent
RECORDED = HERE / "verdicts.json"
PROGRAM = Program(
    "java",
    "rocketmq-filter 5.3.3",
    ("java", "javac", "mvn"),
    (
        *FETCHED_JARS,
        ("javac", "-Xlint:all", "-cp", "libraries/*", "-d", "classes", "Judge.java"),
    ),
    ("java", "-cp", "{0}/classes:{0}/libraries/*", "Judge"),
    HERE,
)
REFUSED, MATCHES, DOES_NOT = "R", "T", "F"


def our_verdict(case: Case) -> tuple[str, str]:
    """And why an expression is refused."""
    try:
        expression = SqlExpression(case.expression)
    except SqlIllegal as illegal:
        return REFUSED, str(illegal)
    return (MATCHES if expression.matches(case.properties) else DOES_NOT), ""


def apaches_verdicts(asked: Sequence[Case]) -> str:
    """A letter for each."""
    lines = [
        " ".join(
            [case.expression.encode().hex()]
            + [f"{name}={value.encode().hex()}" for name, value in case.properties.items()]
        )
        for case in asked
    ]
    answer = subprocess.run(
        PROGRAM.command_line(), input="\n".join(lines), text=True, capture_output=True, check=True
    )
    verdicts = "".join(answer.stdout.split())
    assert len(verdicts) == len(asked), answer.stderr
    return verdicts


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=int, default=0)
    options = parser.parse_args(arguments)
    PROGRAM.build()
    asked = list(cases(Random(options.seed), options.cases))
    verdicts = apaches_verdicts(asked)
    differing = 0
    for case, theirs in zip(asked, verdicts, strict=True):
        ours, why = our_verdict(case)
        if ours != theirs:
            differing += 1
            print(f"Apache {theirs}, ours {ours} {why}: {case.expression!r} {case.properties}")
    print(f"{len(asked)} cases, of Apache {dict(Counter(verdicts))}; {differing} differ")
    if options.record:
        recorded = [
            [theirs, case.expression, case.properties]
            for case, theirs in zip(asked[: options.record], verdicts, strict=False)
        ]
        lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in recorded)
        RECORDED.write_text(f"[\n{lines}\n]\n", "utf-8")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
