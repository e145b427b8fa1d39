"""Runs seeds of the cluster simulation and reports failures.

python -m tests.cluster_simulation --seeds 100000 --jobs 2
python -m tests.cluster_simulation --seed 4711 --trace
"""

from __future__ import annotations

import sys

from tests.cluster_simulation.campaign import CAMPAIGN
from tests.support.seed_campaign import main

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
