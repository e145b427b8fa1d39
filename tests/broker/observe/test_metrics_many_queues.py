"""A scrape of a broker with 10,000 queues: right, and without stopping the broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.broker.observe.many_queues import (
    COMMITTED,
    GROUP,
    MESSAGES,
    running_broker,
    write_folder,
)
from tests.support.scrapes import Scrape

TOPICS, QUEUES = 1_250, 8
STEP_S_MAX = 0.030
"""Three times what a step takes by itself, and a tenth of what all would take as one."""
SCRAPES = 6
PAUSE_S = 0.1


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.many_files
async def test_no_step_of_a_scrape_of_10_000_queues_keeps_the_loop_for_long(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "broker"
    await asyncio.to_thread(write_folder, folder, topics=TOPICS, queues=QUEUES)
    steps_s: list[float] = []
    gathered_s = None
    async with running_broker(folder) as broker:
        while len(steps_s) < SCRAPES:
            found = await asyncio.to_thread(Scrape.of, broker.metrics)
            if found.get("aerobee_metrics_gather_seconds") == gathered_s:
                await asyncio.sleep(PAUSE_S)  # a page that took long is shown for a while
                continue
            gathered_s = found.get("aerobee_metrics_gather_seconds")
            step_s = found.get("aerobee_metrics_step_seconds")
            assert step_s is not None
            steps_s.append(step_s)
    lag = found.rows("rocketmq_consumer_lag_messages", consumer_group=GROUP)
    assert len(lag) == TOPICS
    assert set(lag.values()) == {QUEUES * (MESSAGES - COMMITTED)}
    ages = found.rows("rocketmq_consumer_lag_latency", consumer_group=GROUP)
    assert len(ages) == TOPICS, "what was not known at the first scrape is known by now"
    assert min(ages.values()) > 0
    # Others may have the processor in the middle of a step: the machine, not the scrape.
    assert min(steps_s) < STEP_S_MAX, steps_s
