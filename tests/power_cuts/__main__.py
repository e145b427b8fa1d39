"""Runs seeds of the power-cut simulation and reports failures.

python -m tests.power_cuts --seeds 100000 --jobs 2
python -m tests.power_cuts --seed 4711 --trace
python -m tests.power_cuts --exhaustive
"""

from __future__ import annotations

import sys

from tests.power_cuts.campaign import CAMPAIGN
from tests.power_cuts.exhaustive import SCRIPTS, run_exhaustively
from tests.support.seed_campaign import parser_of, run_command


def main() -> int:
    parser = parser_of(CAMPAIGN)
    parser.add_argument("--exhaustive", action="store_true", help="short lives, cut everywhere")
    arguments = parser.parse_args()
    if arguments.exhaustive:
        for name in SCRIPTS:
            print(f"{name}: {run_exhaustively(name, CAMPAIGN.variant_of(arguments.mutant))}")
        return 0
    return run_command(CAMPAIGN, arguments)


if __name__ == "__main__":
    sys.exit(main())
