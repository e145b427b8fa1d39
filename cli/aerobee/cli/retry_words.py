"""When a group gets failed messages again, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee import GroupRetry

TIMES_SHOWN_MAX = 3
"""Of those after the first retry."""


def retry_lines(by_broker: Mapping[str, GroupRetry]) -> list[str]:
    """One for all brokers, or, if they differ, one for each."""
    lines = {broker: _retry_line(retry) for broker, retry in by_broker.items()}
    if len(set(lines.values())) == 1:
        return [next(iter(lines.values()))]
    return [f"{broker}: {line}" for broker, line in lines.items()]


def _retry_line(retry: GroupRetry) -> str:
    order = "; in order of message groups" if retry.ordered else ""
    if not retry.retries_max:
        return f"no retries: a failed message becomes a dead letter at once{order}"
    return f"{_retry_times(retry)}; dead letter after {retry.retries_max + 1:,} attempts{order}"


def _retry_times(retry: GroupRetry) -> str:
    if (growing := retry.back_off) is not None:
        longest = _length(growing.max_ms)
        then = f"{growing.multiplier} times as long each time, at most {longest}"
        return _times(retry, growing.initial_ms, then if growing.multiplier > 1 else "")
    if not retry.delays_ms:
        return "retries after the times that the broker sets"
    first_ms, *others_ms = retry.delays_ms[: retry.retries_max]
    others = [_length(each) for each in others_ms]
    if len(others) > TIMES_SHOWN_MAX:
        others[TIMES_SHOWN_MAX - 1 :] = [f"... {others[-1]}"]
    return _times(retry, first_ms, ", ".join(others))


def _times(retry: GroupRetry, first_ms: int, then: str) -> str:
    first = _length(first_ms)
    if retry.retries_max == 1:
        return f"first retry after {first}"
    return f"first retry after {first}, then {then}" if then else f"every retry after {first}"


def _length(length_ms: int) -> str:
    for unit, unit_ms in (("h", 3_600_000), ("min", 60_000)):
        if length_ms >= unit_ms and length_ms % unit_ms == 0:
            return f"{length_ms // unit_ms:,} {unit}"
    return f"{length_ms / 1_000:g} s" if length_ms >= 1_000 else f"{length_ms} ms"
