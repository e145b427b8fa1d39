"""PURE: a page of metrics has a limit in bytes, and says what it leaves out.

Each family keeps its first rows, so sources put the most important ones first. Small families stay
whole; the large ones share what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from aerobee.runtime.metrics.families import AnyFamily, Family, Gathered, gauge

PAGE_BYTES_MAX = 4 * 1024 * 1024
LEFT_OUT = "aerobee_metrics_left_out_series"
_ROW_BYTES = 24
"""The value, and what separates it from the labels."""
_LABEL_BYTES = 4
_ROWS_PER_PAUSE = 500


def within(
    gathered: Sequence[Gathered],
    bytes_max: int = PAGE_BYTES_MAX,
    *,
    pause: Callable[[], None] = lambda: None,
) -> list[Gathered]:
    """The same, or as much of it as takes about `bytes_max` bytes as text, with LEFT_OUT for each
    metric that has lost series. `pause` is called between pieces of work."""
    sizes = [[_sizes(family, one.labels, pause) for family in one.families] for one in gathered]
    totals = sorted(sum(each) for of_one in sizes for each in of_one)
    if sum(totals) <= bytes_max:
        return list(gathered)
    share = _share(totals, bytes_max)
    kept = []
    for one, of_one in zip(gathered, sizes, strict=True):
        left_out = gauge(
            LEFT_OUT, "Series that a page had no room for; those with the most lag stay.", "metric"
        )
        families: list[AnyFamily] = []
        for family, of_rows in zip(one.families, of_one, strict=True):
            count = _fitting(of_rows, share)
            if count < len(of_rows):
                left_out.add(len(of_rows) - count, family.name)
                family = _first(family, count)
            families.append(family)
        kept.append(Gathered(one.labels, [*families, left_out]))
    return kept


def _share(totals: Sequence[int], bytes_max: int) -> int:
    """The most that one family may take, given the ascending sizes of all."""
    left = bytes_max
    for number, total in enumerate(totals):
        share = left // (len(totals) - number)
        if total > share:
            return share
        left -= total
    return left


def _sizes(family: AnyFamily, constant: Mapping[str, str], pause: Callable[[], None]) -> list[int]:
    """About how many bytes each row takes."""
    labels = {**constant, **dict.fromkeys(family.labels, "")}
    fixed = (
        len(family.name)
        + _ROW_BYTES
        + sum(len(name) + len(value.encode()) + _LABEL_BYTES for name, value in labels.items())
    )
    sizes = []
    for number, row in enumerate(family.rows, 1):
        lines = 1 if isinstance(family, Family) else len(family.rows[number - 1][1].counts) + 2
        sizes.append(lines * (fixed + sum(len(value.encode()) for value in row[0])))
        if number % _ROWS_PER_PAUSE == 0:
            pause()
    return sizes


def _fitting(sizes: Sequence[int], bytes_max: int) -> int:
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > bytes_max:
            return count
    return len(sizes)


def _first(family: AnyFamily, count: int) -> AnyFamily:
    if isinstance(family, Family):
        return replace(family, rows=family.rows[:count])
    return replace(family, rows=family.rows[:count])
