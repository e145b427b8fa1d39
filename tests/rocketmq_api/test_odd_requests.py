"""Whatever a request of Apache's API has in its fields, it is answered, and nothing breaks.

`make fuzz` sends 100,000.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rocketmq_api.fuzz import TOPIC, fuzz
from tests.support.local_up import running

REQUESTS = 4_000


@pytest.mark.slow
def test_odd_requests_are_refused_by_name_and_break_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        up.run("topic", "create", TOPIC, "--queues", "2", "--type", "MIXED")
        campaign = fuzz(up, REQUESTS)
    assert not campaign.told
    methods = {line.split()[0] for line in campaign.codes}
    assert len(methods) == 17, methods
    assert {f"{name} OK" for name in ("SendMessage", "ReceiveMessage", "PullMessage")} <= set(
        campaign.codes
    )
