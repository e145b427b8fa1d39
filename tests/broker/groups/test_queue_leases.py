"""Queue leases: one holder at a time, rising epochs, first come first served."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from aerobee.broker.groups.queue_leases import COUNTER_BITS, GroupQueue, Lease, QueueLeases
from tests.support.property_runs import examples

KEY = GroupQueue("g", "t", 0)


def test_a_free_queue_is_granted_at_once_and_a_held_one_is_not() -> None:
    leases = QueueLeases(run_number=1)
    granted = leases.acquire(KEY, "a")
    assert granted == Lease(KEY, "a", (1 << COUNTER_BITS) + 1)
    assert leases.acquire(KEY, "b") is None
    assert leases.holder(KEY) == granted


def test_asking_again_for_a_queue_that_one_holds_gives_the_same_lease() -> None:
    leases = QueueLeases(run_number=1)
    assert leases.acquire(KEY, "a") == leases.acquire(KEY, "a")


def test_a_released_queue_goes_to_who_asked_first() -> None:
    leases = QueueLeases(run_number=1)
    first = leases.acquire(KEY, "a")
    assert first is not None
    for client in ("c", "b", "c"):
        assert leases.acquire(KEY, client) is None
    ended, granted = leases.release(KEY, "a", first.epoch)
    assert ended == first
    assert [lease.client_id for lease in granted] == ["c"]
    assert granted[0].epoch > first.epoch


def test_a_release_under_an_old_epoch_changes_nothing() -> None:
    leases = QueueLeases(run_number=1)
    first = leases.acquire(KEY, "a")
    assert first is not None
    assert leases.release(KEY, "a", first.epoch - 1) == (None, [])
    assert leases.release(KEY, "b", first.epoch) == (None, [])
    assert leases.is_current(KEY, first.epoch)


def test_a_withdrawn_wish_is_not_served() -> None:
    leases = QueueLeases(run_number=1)
    first = leases.acquire(KEY, "a")
    assert first is not None
    leases.acquire(KEY, "b")
    leases.acquire(KEY, "c")
    assert leases.release(KEY, "b", 0) == (None, [])
    _, granted = leases.release(KEY, "a", first.epoch)
    assert [lease.client_id for lease in granted] == ["c"]
    assert leases.wish_count("g", "b") == 0


def test_a_member_that_goes_loses_all_leases_and_wishes_of_its_group_only() -> None:
    leases = QueueLeases(run_number=1)
    other = GroupQueue("other", "t", 0)
    leases.acquire(KEY, "a")
    leases.acquire(other, "a")
    leases.acquire(KEY, "b")
    ended, granted = leases.drop_member("g", "a")
    assert [lease.key for lease in ended] == [KEY]
    assert [lease.client_id for lease in granted] == ["b"]
    holder = leases.holder(other)
    assert holder is not None
    assert holder.client_id == "a"


def revoked() -> tuple[QueueLeases, Lease]:
    """Taken from a, which may believe in it until 30.0; b waits."""
    leases = QueueLeases(run_number=1)
    first = leases.acquire(KEY, "a")
    assert first is not None
    leases.acquire(KEY, "b")
    assert leases.revoke(KEY, 30.0) == first
    assert not leases.is_current(KEY, first.epoch)
    return leases, first


def test_a_revoked_queue_is_nobodys_until_its_holder_can_believe_in_it_no_more() -> None:
    leases, _ = revoked()
    assert leases.next_block_end_s() == 30.0
    assert leases.end_blocks(29.9) == []
    assert [lease.client_id for lease in leases.end_blocks(30.0)] == ["b"]
    assert leases.next_block_end_s() is None
    assert leases.revoke(GroupQueue("g", "t", 9), 30.0) is None


def test_nobody_elses_asking_or_giving_back_shows_that_the_former_holder_has_heard() -> None:
    leases, first = revoked()
    for client in ("b", "c"):
        assert leases.acquire(KEY, client) is None
    assert leases.release(KEY, "c", first.epoch) == (None, [])
    assert leases.next_block_end_s() == 30.0
    assert leases.end_blocks(29.9) == []
    assert [lease.client_id for lease in leases.end_blocks(30.0)] == ["b"]


def test_a_former_holder_that_asks_or_gives_back_has_heard_of_it() -> None:
    leases, _ = revoked()
    granted_now = leases.acquire(KEY, "a")
    assert granted_now is not None
    assert granted_now.client_id == "b", "who has waited longer"

    leases, first = revoked()
    ended, granted = leases.release(KEY, "a", first.epoch)
    assert ended is None
    assert [lease.client_id for lease in granted] == ["b"]


def test_a_former_holder_whose_session_ends_believes_no_more() -> None:
    leases, _ = revoked()
    ended, granted = leases.drop_member("g", "a")
    assert ended == []
    assert [lease.client_id for lease in granted] == ["b"]


# ---------------------------------------------------------------------------- joining again


def test_a_member_that_joins_again_keeps_the_leases_that_it_shows() -> None:
    leases = QueueLeases(run_number=1)
    second_key = GroupQueue("g", "t", 1)
    first = leases.acquire(KEY, "a")
    second = leases.acquire(second_key, "a")
    assert first is not None
    assert second is not None
    leases.acquire(second_key, "b")
    confirmed, ended, granted = leases.resume("g", "a", [(KEY, first.epoch)])
    assert confirmed == [first]
    assert ended == [second]
    assert [(lease.key, lease.client_id) for lease in granted] == [(second_key, "b")]


def test_leases_of_others_and_invented_ones_are_not_confirmed() -> None:
    leases = QueueLeases(run_number=3)
    held = leases.acquire(KEY, "a")
    assert held is not None
    presented = [(KEY, held.epoch), (GroupQueue("g", "t", 1), held.epoch + 5), (KEY, 0)]
    assert leases.resume("g", "b", presented) == ([], [], [])
    # Without a grace nothing of an earlier run counts either.
    old = (2 << COUNTER_BITS) + 7
    assert leases.resume("g", "b", [(GroupQueue("g", "t", 2), old)]) == ([], [], [])


def test_after_an_unclean_stop_only_former_holders_get_their_queues() -> None:
    leases = QueueLeases(run_number=2, grace_end_s=10.0)
    old = (1 << COUNTER_BITS) + 7
    other_key = GroupQueue("g", "t", 1)
    assert leases.acquire(other_key, "b") is None
    confirmed, _, _ = leases.resume("g", "a", [(KEY, old)])
    assert confirmed == [Lease(KEY, "a", old)]
    assert leases.is_current(KEY, old)
    granted = leases.end_grace()
    assert [(lease.key, lease.client_id) for lease in granted] == [(other_key, "b")]
    assert granted[0].epoch > old
    assert leases.grace_end_s is None


def test_when_two_show_leases_of_an_earlier_run_the_later_grant_was_the_valid_one() -> None:
    leases = QueueLeases(run_number=2, grace_end_s=10.0)
    older, newer = (1 << COUNTER_BITS) + 3, (1 << COUNTER_BITS) + 4
    leases.resume("g", "a", [(KEY, older)])
    confirmed, ended, _ = leases.resume("g", "b", [(KEY, newer)])
    assert confirmed == [Lease(KEY, "b", newer)]
    assert ended == [Lease(KEY, "a", older)]
    confirmed, ended, _ = leases.resume("g", "c", [(KEY, older)])
    assert (confirmed, ended) == ([], [])


def test_restored_leases_are_held_and_must_be_of_an_earlier_run() -> None:
    leases = QueueLeases(run_number=2)
    lease = Lease(KEY, "a", (1 << COUNTER_BITS) + 1)
    leases.restore(lease)
    assert leases.acquire(KEY, "b") is None
    with pytest.raises(ValueError, match="cannot be restored"):
        leases.restore(lease)
    with pytest.raises(ValueError, match="cannot be restored"):
        leases.restore(Lease(GroupQueue("g", "t", 1), "a", (2 << COUNTER_BITS) + 1))


# ---------------------------------------------------------------------------- any order of events

CLIENTS = st.sampled_from(["a", "b", "c"])
KEYS = st.builds(GroupQueue, st.sampled_from(["g", "h"]), st.just("t"), st.integers(0, 2))


class LeaseMachine(RuleBasedStateMachine):
    """What members believe must never contradict what the table says.

    `believed` is what each client was told and not told to forget; a broker crash forgets the
    table and keeps the beliefs, a clean restart keeps both.
    """

    epochs = Bundle("epochs")

    @initialize()
    def start(self) -> None:
        self.run = 1
        self.leases = QueueLeases(run_number=1)
        self.believed: dict[GroupQueue, Lease] = {}
        self.highest: dict[GroupQueue, int] = {}
        self.waiting: dict[GroupQueue, list[str]] = {}
        # Who had a queue revoked and has not shown that it knows.
        self.unheard: dict[GroupQueue, str] = {}

    def hear(self, key: GroupQueue, client: str) -> None:
        if self.unheard.get(key) == client:
            del self.unheard[key]

    def on_granted(self, lease: Lease) -> None:
        assert lease.key not in self.believed, "two holders"
        assert lease.key not in self.unheard, "its former holder may still work on it"
        assert lease.epoch > self.highest.get(lease.key, 0), "an epoch that does not rise"
        waiting = self.waiting[lease.key]
        assert waiting, "granted to somebody who did not ask"
        assert waiting.pop(0) == lease.client_id, "not the first in line"
        self.believed[lease.key] = lease
        self.highest[lease.key] = lease.epoch

    def on_ended(self, ended: list[Lease]) -> None:
        for lease in ended:
            assert self.believed.pop(lease.key) == lease

    def forget_waiting(self, group: str, client: str) -> None:
        for key, waiting in self.waiting.items():
            if key.group == group and client in waiting:
                waiting.remove(client)

    @rule(key=KEYS, client=CLIENTS)
    def acquire(self, key: GroupQueue, client: str) -> None:
        mine = self.believed.get(key)
        if mine is not None and mine.client_id == client:
            if self.leases.holder(key) is not None:
                assert self.leases.acquire(key, client) == mine
            return
        self.hear(key, client)
        waiting = self.waiting.setdefault(key, [])
        if client not in waiting:
            waiting.append(client)
        lease = self.leases.acquire(key, client)
        if lease is not None:
            self.on_granted(lease)

    @rule(key=KEYS, client=CLIENTS, wrong=st.booleans())
    def release(self, key: GroupQueue, client: str, wrong: bool) -> None:
        if client in self.waiting.get(key, ()):
            self.waiting[key].remove(client)
        self.hear(key, client)
        mine = self.believed.get(key)
        epoch = mine.epoch + wrong if mine is not None else 5
        ended, granted = self.leases.release(key, client, epoch)
        if mine is not None and mine.client_id == client and not wrong:
            # After a crash the table may not know of it.
            assert ended in (mine, None)
            del self.believed[key]
        else:
            assert ended is None
        for lease in granted:
            self.on_granted(lease)

    @rule(group=st.sampled_from(["g", "h"]), client=CLIENTS)
    def drop(self, group: str, client: str) -> None:
        self.forget_waiting(group, client)
        for key in list(self.unheard):
            if key.group == group:
                self.hear(key, client)
        ended, granted = self.leases.drop_member(group, client)
        self.on_ended(ended)
        for lease in list(self.believed.values()):
            if lease.key.group == group and lease.client_id == client:
                del self.believed[lease.key]
        for lease in granted:
            self.on_granted(lease)

    @rule(key=KEYS)
    def revoke(self, key: GroupQueue) -> None:
        ended = self.leases.revoke(key, 1.0)
        if ended is not None:
            self.on_ended([ended])
            self.unheard[key] = ended.client_id

    @rule()
    def blocks_end(self) -> None:
        self.unheard = {}
        for lease in self.leases.end_blocks(1.0):
            self.on_granted(lease)

    @rule(group=st.sampled_from(["g", "h"]), client=CLIENTS, data=st.data())
    def resume(self, group: str, client: str, data: st.DataObject) -> None:
        mine = [
            lease
            for lease in self.believed.values()
            if lease.key.group == group and lease.client_id == client
        ]
        shown = [lease for lease in mine if data.draw(st.booleans())]
        self.forget_waiting(group, client)
        confirmed, ended, granted = self.leases.resume(
            group, client, [(lease.key, lease.epoch) for lease in shown]
        )
        assert sorted(confirmed, key=lambda lease: lease.key) == sorted(
            shown, key=lambda lease: lease.key
        )
        for lease in mine:
            if lease not in shown:
                # It has stopped by itself; the table may have known or not.
                del self.believed[lease.key]
        assert all(lease in mine and lease not in shown for lease in ended)
        for lease in granted:
            self.on_granted(lease)

    @rule()
    def crash(self) -> None:
        self.run += 1
        self.leases = QueueLeases(run_number=self.run, grace_end_s=10.0)
        self.waiting = {}
        self.unheard = {}

    @rule()
    def restart(self) -> None:
        if self.leases.grace_end_s is not None or self.unheard:
            return
        self.run += 1
        held = self.leases.held()
        self.leases = QueueLeases(run_number=self.run)
        for lease in held:
            self.leases.restore(lease)
        self.waiting = {}

    @rule()
    def end_grace(self) -> None:
        # Whoever did not come back has stopped by itself: that is what the grace is for.
        held = {lease.key: lease for lease in self.leases.held()}
        self.believed = {key: lease for key, lease in self.believed.items() if key in held}
        for lease in self.leases.end_grace():
            self.on_granted(lease)

    @invariant()
    def nobody_believes_what_the_table_gave_to_another(self) -> None:
        for lease in self.leases.held():
            assert self.believed.get(lease.key) == lease


TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)


def test_what_a_late_old_stream_does_not_show_goes_to_nobody_else_while_its_member_may_use_it() -> (
    None
):
    leases = QueueLeases(run_number=1)
    lease = leases.acquire(KEY, "a")
    assert lease is not None
    assert leases.acquire(KEY, "b") is None
    assert leases.resume("g", "a", (), believes_until_s=10.0) == ([], [lease], [])
    assert leases.end_blocks(9.9) == []
    assert [one.client_id for one in leases.end_blocks(10.0)] == ["b"]


def test_a_member_that_asks_again_gets_at_once_what_it_did_not_show() -> None:
    leases = QueueLeases(run_number=1)
    first = leases.acquire(KEY, "a")
    leases.resume("g", "a", (), believes_until_s=10.0)
    again = leases.acquire(KEY, "a")
    assert first is not None
    assert again is not None
    assert again.epoch > first.epoch
