"""Back-off grows, stays below its maximum, and takes its chance from outside."""

from __future__ import annotations

import random
from itertools import islice, pairwise

import pytest
import tenacity
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.nameserver.backoff_wait import BackoffWait
from aerobee.runtime.errors import InvalidArgument, RegistryUnavailable
from aerobee.runtime.retry import Backoff


def test_delays_double_up_to_the_maximum_without_jitter() -> None:
    backoff = Backoff(base_ms=100, max_ms=1_000, jitter=0)
    delays = list(islice(backoff.delays_s(random.Random(1)), 6))
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@settings(deadline=None)
@given(
    base_ms=st.integers(1, 1_000),
    more_ms=st.integers(0, 10_000),
    factor=st.floats(1, 10),
    jitter=st.floats(0, 1),
    attempt=st.integers(0, 10_000),
    seed=st.integers(),
)
def test_a_delay_lies_between_its_share_and_the_maximum(
    base_ms: int, more_ms: int, factor: float, jitter: float, attempt: int, seed: int
) -> None:
    backoff = Backoff(base_ms=base_ms, max_ms=base_ms + more_ms, factor=factor, jitter=jitter)
    delay_ms = backoff.delay_s(attempt, random.Random(seed)) * 1_000
    assert base_ms * (1 - jitter) - 1e-6 <= delay_ms <= base_ms + more_ms + 1e-6


def test_the_bounds_never_shrink_from_one_attempt_to_the_next() -> None:
    backoff = Backoff(jitter=0)
    delays = list(islice(backoff.delays_s(random.Random(1)), 200))
    assert all(earlier <= later for earlier, later in pairwise(delays))


@pytest.mark.parametrize(
    "settings",
    [{"base_ms": 0}, {"base_ms": 9, "max_ms": 8}, {"factor": 0.9}, {"jitter": 1.1}],
)
def test_a_back_off_that_cannot_work_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        Backoff(**settings)  # type: ignore[arg-type]


async def test_tenacity_waits_as_the_back_off_says() -> None:
    waits: list[float] = []

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)

    async def fail() -> None:
        raise RegistryUnavailable("away")

    retrying = tenacity.AsyncRetrying(
        sleep=sleep,
        wait=BackoffWait(Backoff(base_ms=100, max_ms=300, jitter=0), random.Random(1)),
        stop=tenacity.stop_after_attempt(4),
        reraise=True,
    )
    with pytest.raises(RegistryUnavailable):
        await retrying(fail)
    assert waits == [0.1, 0.2, 0.3]
