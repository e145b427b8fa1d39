"""Runs seeds of the timer simulation and tells of those that fail.

python -m tests.timer_simulation --seeds 100000 --jobs 2
python -m tests.timer_simulation --seed 4711 --trace
"""

from __future__ import annotations

import sys

from tests.support.seed_campaign import main
from tests.timer_simulation.campaign import CAMPAIGN

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
