"""What POP has finished becomes the committed offset, even if nothing more is ever finished."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.groups.ownership import POPS, Claim
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.pop.standing import Standing
from aerobee.broker.popping.commits import PopCommits
from aerobee.runtime.errors import AerobeeError, Busy, LeaseExpired, NotMaster, ReplicaBehind

KEY = GroupQueue("billing", "orders", 0)


class Offsets:
    """The group's offset; what is committed counts once a test says so."""

    def __init__(self) -> None:
        self.counted = 0
        self.asked: list[int] = []
        self.refusal: AerobeeError | None = None

    def query(self, key: GroupQueue) -> int:
        return self.counted

    def commit(self, key: GroupQueue, offset: int, claim: Claim) -> None:
        assert (key, claim) == (KEY, POPS)
        self.asked.append(offset)
        if self.refusal is not None:
            raise self.refusal


def commits_of(offsets: Offsets) -> PopCommits:
    some: Any = offsets
    return PopCommits(some, lambda key: Standing(3, 0), is_behind=lambda key: False)


@pytest.mark.parametrize("refusal", [ReplicaBehind("reading"), Busy("too much waits")])
async def test_a_commit_that_a_master_could_not_take_yet_is_made_later(
    refusal: AerobeeError,
) -> None:
    offsets = Offsets()
    commits = commits_of(offsets)
    offsets.refusal = refusal
    commits.note(KEY)
    await commits.commit()
    offsets.refusal = None
    await commits.commit()
    assert offsets.asked == [3, 3]


async def test_a_commit_that_was_taken_and_never_written_is_made_once_more() -> None:
    offsets = Offsets()
    commits = commits_of(offsets)
    commits.note(KEY)
    await commits.commit()
    await commits.commit()
    assert offsets.asked == [3, 3]
    offsets.counted = 3
    await commits.commit()
    await commits.commit()
    assert offsets.asked == [3, 3]


@pytest.mark.parametrize("refusal", [NotMaster("a slave"), LeaseExpired("a member has it")])
async def test_what_others_commit_is_not_tried_again(refusal: AerobeeError) -> None:
    offsets = Offsets()
    commits = commits_of(offsets)
    offsets.refusal = refusal
    commits.note(KEY)
    await commits.commit()
    await commits.commit()
    assert offsets.asked == [3]
