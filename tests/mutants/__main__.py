"""Puts each known error into a copy of the product and tells whether its tests catch it.

python -m tests.mutants
python -m tests.mutants commit-moves-back shares-overlap
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.mutants.campaign import run_all
from tests.mutants.entries import MUTANTS

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these; by default all")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - by_name.keys()):
        parser.error(f"no such mutant: {', '.join(unknown)}; there are {', '.join(by_name)}")
    chosen = [by_name[name] for name in arguments.names] or list(MUTANTS)
    return run_all(chosen, ROOT, jobs=arguments.jobs, options=("--hypothesis-profile", "unshrunk"))


if __name__ == "__main__":
    sys.exit(main())
