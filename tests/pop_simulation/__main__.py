"""Runs seeds of the simulation of POP and tells of those that fail.

python -m tests.pop_simulation --seeds 100000 --jobs 2
python -m tests.pop_simulation --seed 4711 --trace
"""

from __future__ import annotations

import sys

from tests.pop_simulation.campaign import CAMPAIGN
from tests.support.seed_campaign import main

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
