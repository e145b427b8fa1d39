"""Changes that rest on what was read: no change is lost, and giving up comes in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from aerobee.nameserver.compare_and_swap import ATTEMPTS_MAX, Keep, Write, changed, revision_of
from aerobee.nameserver.key_values import KeyValue, Put
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import InvalidArgument, RegistryUnavailable
from aerobee.testing.memory_registry import MemoryRegistry

KEY, OTHER = "/count", "/other"

Read = Callable[[], Awaitable[KeyValue | None]]


@pytest.fixture
async def etcd() -> MemoryRegistry:
    return MemoryRegistry(SystemClock())


def one_more(entry: KeyValue | None) -> Write[int]:
    count = 1 if entry is None else int(entry.value) + 1
    return Write(count, {KEY: revision_of(entry)}, [Put(KEY, b"%d" % count)])


async def count_in(etcd: MemoryRegistry, key: str = KEY) -> int:
    entry = await etcd.get(key)
    return 0 if entry is None else int(entry.value)


def read_before_others(etcd: MemoryRegistry, times: int, key: str = KEY) -> Read:
    """Others change `key` after each of the first reads."""
    left = iter(range(times))

    async def read() -> KeyValue | None:
        entry = await etcd.get(KEY)
        if next(left, None) is not None:
            await etcd.transaction({}, [Put(key, b"%d" % (await count_in(etcd, key) + 100))])
        return entry

    return read


async def test_the_decision_is_written_and_its_revision_returned(etcd: MemoryRegistry) -> None:
    read = partial(etcd.get, KEY)
    assert await changed(etcd, read, one_more, what="the count") == (1, await etcd.revision())
    assert await changed(etcd, read, one_more, what="the count") == (2, await etcd.revision())
    assert await count_in(etcd) == 2


@pytest.mark.parametrize("times", [1, 2, ATTEMPTS_MAX - 1])
async def test_what_others_changed_meanwhile_is_read_again(
    etcd: MemoryRegistry, times: int
) -> None:
    count, _ = await changed(etcd, read_before_others(etcd, times), one_more, what="the count")
    assert count == await count_in(etcd) == times * 100 + 1


async def test_of_many_at_once_none_is_lost(etcd: MemoryRegistry) -> None:
    async def read() -> KeyValue | None:
        entry = await etcd.get(KEY)
        await asyncio.sleep(0)  # all have read before the first one writes
        return entry

    found = await asyncio.gather(
        *(changed(etcd, read, one_more, what="the count") for _ in range(ATTEMPTS_MAX))
    )
    assert sorted(count for count, _ in found) == list(range(1, ATTEMPTS_MAX + 1))


async def test_giving_up_after_so_many_attempts_says_what_is_contended(
    etcd: MemoryRegistry,
) -> None:
    undone: list[KeyValue | None] = []

    async def undo(seen: KeyValue | None) -> None:
        undone.append(seen)

    read = read_before_others(etcd, 2 * ATTEMPTS_MAX)
    with pytest.raises(RegistryUnavailable, match=r"^the count is being changed by others; try"):
        await changed(etcd, read, one_more, what="the count", on_lost=undo)
    assert await count_in(etcd) == ATTEMPTS_MAX * 100
    # What each lost attempt prepared was undone.
    assert [0 if seen is None else int(seen.value) for seen in undone] == [
        number * 100 for number in range(ATTEMPTS_MAX)
    ]


async def test_a_refusal_changes_nothing_and_is_not_repeated(etcd: MemoryRegistry) -> None:
    asked = []

    def refuse(entry: KeyValue | None) -> Write[int]:
        asked.append(entry)
        raise InvalidArgument("no")

    before = await etcd.revision()
    with pytest.raises(InvalidArgument):
        await changed(etcd, partial(etcd.get, KEY), refuse, what="the count")
    assert (asked, await etcd.revision()) == ([None], before)


async def test_a_refusal_may_come_after_a_lost_attempt(etcd: MemoryRegistry) -> None:
    def at_most_once(entry: KeyValue | None) -> Write[int]:
        if entry is not None:
            raise InvalidArgument("there is one already")
        return one_more(entry)

    with pytest.raises(InvalidArgument):
        await changed(etcd, read_before_others(etcd, 1), at_most_once, what="the count")
    assert await count_in(etcd) == 100


async def test_to_keep_all_as_it_is_writes_nothing(etcd: MemoryRegistry) -> None:
    def keep(entry: KeyValue | None) -> Keep[str]:
        return Keep("enough")

    before = await etcd.revision()
    assert await changed(etcd, partial(etcd.get, KEY), keep, what="the count") == ("enough", 0)
    assert await etcd.revision() == before


async def test_several_keys_change_together_or_not_at_all(etcd: MemoryRegistry) -> None:
    """The other key changes first, although only the first one is written to be kept."""
    seen: list[tuple[int, int]] = []

    def both(entry: KeyValue | None) -> Write[int]:
        put = one_more(entry)
        return Write(
            put.value, {**put.expected, OTHER: revisions[-1]}, [*put.changes, Put(OTHER, b"1")]
        )

    revisions: list[int] = []

    async def read() -> KeyValue | None:
        seen.append((await count_in(etcd), await count_in(etcd, OTHER)))
        revisions.append(revision_of(await etcd.get(OTHER)))
        return await read_once()

    read_once = read_before_others(etcd, 1, OTHER)
    await changed(etcd, read, both, what="both")
    assert seen == [(0, 0), (0, 100)]
    assert (await count_in(etcd), await count_in(etcd, OTHER)) == (1, 1)


async def test_a_lease_that_has_ended_is_a_lost_attempt(etcd: MemoryRegistry) -> None:
    leases: list[int] = []

    async def read() -> int:
        lease = await etcd.grant_lease(60_000)
        if not leases:
            await etcd.revoke_lease(lease.lease_id)
        leases.append(lease.lease_id)
        return lease.lease_id

    def leased(lease_id: int) -> Write[int]:
        return Write(lease_id, {KEY: 0}, [Put(KEY, b"1", lease_id)])

    assert (await changed(etcd, read, leased, what="the lease"))[0] == leases[1]
    etcd.close()


async def test_an_etcd_that_is_away_is_not_asked_again(etcd: MemoryRegistry) -> None:
    etcd.go_away()
    asked = []

    async def read() -> KeyValue | None:
        asked.append(KEY)
        return await etcd.get(KEY)

    with pytest.raises(RegistryUnavailable, match="is away"):
        await changed(etcd, read, one_more, what="the count")
    assert len(asked) == 1
