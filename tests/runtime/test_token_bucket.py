"""How often something may happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.runtime.token_bucket import TokenBucket


def test_a_burst_passes_and_then_so_many_a_second() -> None:
    bucket = TokenBucket(per_s=2, burst=3, now_s=100.0)
    assert [bucket.take(100.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert bucket.take(100.4) == pytest.approx(0.1)
    assert bucket.take(100.5) == 0
    assert [bucket.take(200.0) for _ in range(4)] == [0, 0, 0, 0.5], "no more than a burst is saved"


@given(st.lists(st.floats(0, 10), min_size=1, max_size=100), st.integers(1, 5), st.floats(0.1, 50))
def test_never_more_than_a_burst_and_the_rate(
    pauses: list[float], burst: int, per_s: float
) -> None:
    bucket = TokenBucket(per_s=per_s, burst=burst, now_s=0.0)
    now_s, taken = 0.0, 0
    for pause_s in pauses:
        now_s += pause_s
        taken += bucket.take(now_s) == 0
        assert taken <= burst + per_s * now_s + 1e-6
