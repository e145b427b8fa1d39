"""The parts of a node's memory add up to less than its limit, or it does not start."""

from __future__ import annotations

import pytest

from aerobee.rpc.memory_budget import (
    BROKER_MEMORY,
    COPIES,
    MIB,
    NAMESERVER_MEMORY,
    Division,
    MemoryBudget,
    needed_bytes,
)
from aerobee.rpc.server_engine import FRAME_BYTES_MAX, ServerOptions
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.machine import UsableMemory
from aerobee.runtime.metrics.families import Family

LIMITS_MIB = (224, 256, 300, 512, 700, 1_024, 2_048, 4_096, 24_000, 1 << 20)
each_node = pytest.mark.parametrize(
    "division", [BROKER_MEMORY, NAMESERVER_MEMORY], ids=lambda each: each.node
)


def with_mib(division: Division, mib: float) -> MemoryBudget:
    return MemoryBudget(division, UsableMemory(int(mib * MIB), "/sys/fs/cgroup/memory.max"))


@each_node
def test_the_table_divides_no_more_than_there_is(division: Division) -> None:
    assert sum(part.share for part in division.parts) <= 1.0
    names = [*division.fixed, *(part.name for part in division.parts)]
    assert len(set(names)) == len(names)


@each_node
@pytest.mark.parametrize("mib", LIMITS_MIB)
def test_all_parts_together_are_less_than_the_limit(division: Division, mib: int) -> None:
    budget = with_mib(division, mib)
    assert sum(budget.bytes_of.values()) <= mib * MIB
    assert COPIES * budget.request_bytes_max <= budget.bytes_of["requests"]
    assert budget.channels.bytes_max == budget.bytes_of["channels"]


@each_node
def test_more_memory_is_never_less_for_a_part(division: Division) -> None:
    smaller = with_mib(division, LIMITS_MIB[0]).bytes_of
    for mib in LIMITS_MIB[1:]:
        larger = with_mib(division, mib).bytes_of
        assert all(larger[name] >= smaller[name] for name in smaller)
        smaller = larger


@each_node
def test_a_machine_without_a_limit_has_what_the_engine_allows(division: Division) -> None:
    budget = with_mib(division, 24_000)
    options = ServerOptions()
    assert budget.server_bytes == options.memory_bytes_max
    assert budget.request_bytes_max == options.request_bytes_max == FRAME_BYTES_MAX


@each_node
def test_a_node_with_too_little_memory_does_not_start_and_says_what_to_set(
    division: Division,
) -> None:
    needed_mib = needed_bytes(division) / MIB
    assert 128 < needed_mib <= 224
    with_mib(division, needed_mib)
    for mib in (1, 64, needed_mib - 3):
        with pytest.raises(InvalidArgument) as refused:
            with_mib(division, mib)
        said = str(refused.value)
        assert f"may use {mib:.0f} MiB of memory, by /sys/fs/cgroup/memory.max" in said
        assert f"needs {needed_mib:.0f}" in said
        assert "resources.limits.memory" in said


@pytest.mark.parametrize("mib", [224, 256, 24_000])
def test_sizes_that_exceed_their_part_together_are_made_smaller(mib: int) -> None:
    budget = with_mib(BROKER_MEMORY, mib)
    sizes = 32 * MIB, 64 * MIB
    least = budget.least("store", *sizes)
    assert sum(least) <= budget.bytes_of["store"]
    assert least[1] == pytest.approx(2 * least[0], abs=2)
    if mib == 24_000:
        assert tuple(least) == sizes


def test_what_is_not_counted_is_absent_and_not_zero() -> None:
    budget = with_mib(BROKER_MEMORY, 512)
    budget.counts("server", lambda: 42)
    budget.channels.used = 7
    limit, used, usable = budget.families()
    assert dict(_rows(limit)) == budget.bytes_of
    assert dict(_rows(used)) == {"server": 42, "channels": 7}
    assert [value for _, value in usable.rows] == [512 * MIB]


def _rows(family: Family) -> list[tuple[str, float]]:
    return [(labels[0], value) for labels, value in family.rows]
