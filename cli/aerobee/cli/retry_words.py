"""When a group gets failed messages again, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee import BackOff, GroupRetry, InOrderRetry

_NO_RETRIES = "no retries: a failed message becomes a dead letter at once"
TIMES_SHOWN_MAX = 3
"""Of those after the first retry."""


def retry_lines(by_broker: Mapping[str, GroupRetry]) -> list[str]:
    """For all brokers, or, if they differ, for each."""
    lines = {broker: _retry_lines(retry) for broker, retry in by_broker.items()}
    if len(set(lines.values())) == 1:
        return [*next(iter(lines.values()))]
    return [f"{broker}: {line}" for broker, some in lines.items() for line in some]


def _retry_lines(retry: GroupRetry) -> tuple[str, ...]:
    line = _retry_line(retry)
    if retry.in_order is None or (in_order := _in_order(retry.in_order)) == line:
        return (line,)
    return line, f"listeners in order: {in_order}"


def _in_order(retry: InOrderRetry) -> str:
    if retry.retries_max == 0:
        return _NO_RETRIES
    times = _growing(retry.back_off, is_once=retry.retries_max == 1)
    if retry.retries_max is None:
        return f"{times}, without end"
    return f"{times}; dead letter after {retry.retries_max + 1:,} attempts"


def _retry_line(retry: GroupRetry) -> str:
    order = "; in order of message groups" if retry.ordered else ""
    if not retry.retries_max:
        return f"{_NO_RETRIES}{order}"
    return f"{_retry_times(retry)}; dead letter after {retry.retries_max + 1:,} attempts{order}"


def _retry_times(retry: GroupRetry) -> str:
    is_once = retry.retries_max == 1
    if retry.back_off is not None:
        return _growing(retry.back_off, is_once=is_once)
    if not retry.delays_ms:
        return "retries after the times that the broker sets"
    first_ms, *others_ms = retry.delays_ms[: retry.retries_max]
    others = [_length(each) for each in others_ms]
    if len(others) > TIMES_SHOWN_MAX:
        others[TIMES_SHOWN_MAX - 1 :] = [f"... {others[-1]}"]
    return _times(first_ms, ", ".join(others), is_once=is_once)


def _growing(back_off: BackOff, *, is_once: bool) -> str:
    longest = _length(back_off.max_ms)
    then = f"{back_off.multiplier} times as long each time, at most {longest}"
    return _times(back_off.initial_ms, then if back_off.multiplier > 1 else "", is_once=is_once)


def _times(first_ms: int, then: str, *, is_once: bool) -> str:
    first = _length(first_ms)
    if is_once:
        return f"first retry after {first}"
    return f"first retry after {first}, then {then}" if then else f"every retry after {first}"


def _length(length_ms: int) -> str:
    for unit, unit_ms in (("h", 3_600_000), ("min", 60_000)):
        if length_ms >= unit_ms and length_ms % unit_ms == 0:
            return f"{length_ms // unit_ms:,} {unit}"
    return f"{length_ms / 1_000:g} s" if length_ms >= 1_000 else f"{length_ms} ms"
