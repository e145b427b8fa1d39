"""The suite against one server, with one release of Apache's remoting client.

    python -m tests.rocketmq_remoting.suite [--server aerobee|apache] [--client 5.3.3] [PATTERN ...]

Prints how each scenario went, and at the end what is not as README.md says; exits with 1 then.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
from pathlib import Path

from tests.rocketmq_remoting.suite.clusters import CLUSTERS
from tests.rocketmq_remoting.suite.programs import SUITES, fetch_apache
from tests.rocketmq_remoting.suite.running import (
    README,
    Outcome,
    complaints,
    differences,
    outcomes,
    scenarios_of,
)


def main(arguments: list[str]) -> int:
    """1: something is not as README.md says."""
    parser = argparse.ArgumentParser(prog="python -m tests.rocketmq_remoting.suite")
    parser.add_argument("--server", choices=sorted(CLUSTERS), default="aerobee")
    parser.add_argument("--client", choices=sorted(SUITES), default="5.3.3")
    parser.add_argument("--list", action="store_true", help="only print the promises")
    parser.add_argument("patterns", nargs="*", default=["*"], metavar="PATTERN")
    told = parser.parse_args(arguments)
    program = SUITES[told.client]
    program.build()
    wanted = [
        each
        for each in scenarios_of(program)
        if any(fnmatch.fnmatchcase(each.name, pattern) for pattern in told.patterns)
    ]
    if told.list:
        for scenario in wanted:
            print(f"{scenario.name:30} {scenario.promise}")
        return 0
    if told.server == "apache":
        fetch_apache()
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="aerobee-suite-") as name:
        for outcome in outcomes(program, told.server, wanted, Path(name)):
            found.append(outcome)
            print(
                f"{outcome.name:30} {outcome.took_s:6.1f} s  {outcome.why or 'passed'}", flush=True
            )
    passed = sum(not each.why for each in found)
    print(f"{passed} of {len(found)} promises hold at {told.server}, client {told.client}")
    wrong = complaints(found, differences(told.server, README.read_text()))
    print("\n".join(wrong) if wrong else "all as README.md says")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
