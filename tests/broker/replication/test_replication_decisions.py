"""The pure decisions of replication, for whatever a cluster may come to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aerobee.broker.replication.epoch_history import EpochHistory, common_end
from aerobee.broker.replication.joining import (
    BeginAnew,
    Cut,
    GoOn,
    LogState,
    where_to_start,
)
from aerobee.broker.replication.master_lease import LeaseMargin, MasterLease
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName, TermPolicy
from aerobee.runtime.errors import ReplicaDiverged, StaleEpoch
from tests.support.property_runs import examples

SEGMENT_BYTES = 1_024


class Replica:
    """A log as a list of its bytes, each of them the epoch and number that wrote it."""

    def __init__(self) -> None:
        self.content: list[tuple[int, int]] = []
        self.history = EpochHistory()

    def lead(self, epoch: int, count: int) -> None:
        self.history = self.history.begin(epoch, len(self.content))
        self.content += [(epoch, len(self.content) + number) for number in range(count)]

    def copy(self, other: Replica, end: int) -> None:
        """Become equal to another one up to `end`, as a slave does."""
        self.content = other.content[:end]
        self.history = other.history

    def lose(self, end: int) -> None:
        self.content = self.content[:end]

    def state(self, *, begin: int = 0, confirmed_end: int = 0) -> LogState:
        end = len(self.content)
        return LogState(begin, end, self.history, SEGMENT_BYTES, confirmed_end)


@st.composite
def replicas(draw: st.DrawFn) -> list[Replica]:
    """Three logs after some masters, copies cut short, and lost tails."""
    logs = [Replica() for _ in range(3)]
    for epoch in range(1, draw(st.integers(1, 7)) + 1):
        master = logs[draw(st.integers(0, 2))]
        master.lead(epoch, draw(st.integers(0, 4)))
        for slave in logs:
            if slave is not master and draw(st.booleans()):
                common = common_end(
                    slave.history, len(slave.content), master.history, len(master.content)
                )
                low = 0 if common is None else common
                slave.copy(master, draw(st.integers(low, len(master.content))))
        victim = logs[draw(st.integers(0, 2))]
        victim.lose(draw(st.integers(0, len(victim.content))))
    return logs


def equal_up_to(one: Replica, other: Replica) -> int:
    for position, (mine, others) in enumerate(zip(one.content, other.content, strict=False)):
        if mine != others:
            return position
    return min(len(one.content), len(other.content))


@given(replicas())
def test_two_logs_are_equal_up_to_their_common_end(logs: list[Replica]) -> None:
    for one in logs:
        for other in logs:
            end = common_end(one.history, len(one.content), other.history, len(other.content))
            if end is not None:
                assert end <= equal_up_to(one, other)


@given(replicas())
def test_the_common_end_is_the_same_from_both_sides(logs: list[Replica]) -> None:
    one, other = logs[0], logs[1]
    mine = one.history, len(one.content)
    others = other.history, len(other.content)
    assert common_end(*mine, *others) == common_end(*others, *mine)


@given(replicas())
def test_a_log_has_everything_in_common_with_itself(logs: list[Replica]) -> None:
    for one in logs:
        if one.history.entries:
            end = len(one.content)
            assert common_end(one.history, end, one.history, end) == end


@given(replicas(), st.integers(0, 20))
def test_a_slave_that_goes_on_or_cuts_is_the_beginning_of_its_master(
    logs: list[Replica], confirmed_end: int
) -> None:
    slave, master = logs[0], logs[1]
    confirmed_end = min(confirmed_end, len(slave.content))
    try:
        start = where_to_start(slave.state(confirmed_end=confirmed_end), master.state())
    except (ReplicaDiverged, StaleEpoch):
        return
    match start:
        case GoOn(position):
            assert slave.content[:position] == master.content[:position]
            assert position in (len(slave.content), 0)
        case Cut(end):
            assert confirmed_end <= end < len(slave.content)
            assert slave.content[:end] == master.content[:end]
            assert not start.is_unclean, "no unclean election was ever held"
            slave.lose(end)
            assert where_to_start(slave.state(), master.state()) == GoOn(end)
        case BeginAnew(position):
            assert position == 0


@given(replicas(), st.integers(1, 8))
def test_confirmed_bytes_are_cut_only_behind_an_unclean_epoch(
    logs: list[Replica], unclean: int
) -> None:
    slave, master = logs[0], logs[1]
    state = slave.state(confirmed_end=len(slave.content))
    try:
        start = where_to_start(state, master.state(), unclean_epochs=(unclean,))
    except (ReplicaDiverged, StaleEpoch):
        return
    if isinstance(start, Cut):
        assert unclean > slave.history.epoch_at(start.end)
        assert unclean <= master.history.latest_epoch
        assert start.is_unclean, "the log is another one then"


@given(replicas(), st.integers(0, 20))
def test_a_slave_behind_its_masters_begin_begins_anew_there(
    logs: list[Replica], begin: int
) -> None:
    slave, master = logs[0], logs[1]
    begin = min(begin, len(master.content))
    try:
        start = where_to_start(slave.state(), master.state(begin=begin))
    except (ReplicaDiverged, StaleEpoch):
        return
    if isinstance(start, GoOn | Cut):
        end = start.position if isinstance(start, GoOn) else start.end
        assert end >= begin
    else:
        assert start.position == begin


@given(
    st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 3.0), st.booleans()), max_size=30),
    st.floats(0.99, 1.01),
    st.floats(0.99, 1.01),
)
def test_a_lease_ends_here_before_it_ends_in_etcd(
    heartbeats: list[tuple[float, float, bool]], own_rate: float, etcd_rate: float
) -> None:
    lease, lease_ms = MasterLease(LeaseMargin(share=0.05, seconds=0.1)), 3_000
    now_s = etcd_end_s = 0.0
    for sequence, (pause_s, way_s, is_heard) in enumerate(heartbeats, start=1):
        now_s += pause_s
        lease.sent(sequence, now_s * own_rate)
        # etcd hears it later than it was sent; what it says may get lost.
        etcd_end_s = max(etcd_end_s, now_s + way_s + lease_ms / 1_000 / etcd_rate)
        if is_heard:
            lease.renewed(sequence, lease_ms)
        assert not lease.is_valid(etcd_end_s * own_rate)


OWN = ReplicaName(0, "a")
OTHERS = tuple(ReplicaName(broker_id, name) for broker_id in (1, 2) for name in ("x", "y"))


class TermMachine(RuleBasedStateMachine):
    """A term, the logs of its replicas, and etcd's in-sync set, which may change unheard."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.log_end = 100
        self.revision = 1
        self.in_sync = frozenset({OWN, OTHERS[0]})
        self.stored = dict.fromkeys(OTHERS, 0)
        self.pending: tuple[frozenset[ReplicaName], int] | None = None
        self.term = MasterTerm(
            epoch=2,
            own=OWN,
            in_sync=self.in_sync,
            revision=1,
            log_end=100,
            confirmed_end=50,
            policy=TermPolicy(in_sync_lag_s=1.0, proposal_pause_s=0.1),
            now_s=0.0,
        )
        self.stored[OTHERS[0]] = 50

    @rule(count=st.integers(1, 30))
    def append(self, count: int) -> None:
        self.log_end += count

    @rule(pause_s=st.sampled_from((0.05, 0.4, 1.5)))
    def wait(self, pause_s: float) -> None:
        self.now_s += pause_s

    @rule(name=st.sampled_from(OTHERS), share=st.floats(0, 1))
    def join(self, name: ReplicaName, share: float) -> None:
        end = self.stored[name]
        end = max(end, round(end + share * (self.log_end - end)))
        self.stored[name] = end
        self.term.joined(name, end, self.log_end, self.now_s)

    @rule(name=st.sampled_from(OTHERS), share=st.floats(0, 1))
    def acknowledge(self, name: ReplicaName, share: float) -> None:
        progress = [one for one in self.term.progress() if one.name == name]
        if progress:
            end = round(self.stored[name] + share * (self.log_end - self.stored[name]))
            self.stored[name] = max(self.stored[name], end)
            self.term.acknowledged(name, self.stored[name], self.log_end, self.now_s)

    @rule(name=st.sampled_from(OTHERS))
    def leave(self, name: ReplicaName) -> None:
        self.term.left(name)

    @rule()
    def propose(self) -> None:
        proposal = self.term.propose(self.log_end, self.now_s)
        if proposal is not None:
            assert OWN in proposal.in_sync
            assert len({name.broker_id for name in proposal.in_sync}) == len(proposal.in_sync)
            self.pending = proposal.in_sync, proposal.expected_revision

    @precondition(lambda self: self.pending is not None)
    @rule(is_heard=st.booleans())
    def reach_etcd(self, is_heard: bool) -> None:
        assert self.pending is not None
        in_sync, expected = self.pending
        if expected == self.revision:
            self.in_sync, self.revision = in_sync, self.revision + 1
        if is_heard:
            self.term.in_sync_changed(self.in_sync, self.revision)
            self.pending = None

    @precondition(lambda self: self.pending is not None)
    @rule()
    def be_refused_at_last(self) -> None:
        """Asked again, of a nameserver that knows better or less."""
        if self.term.proposal_again() is not None:
            self.term.proposal_refused(self.now_s)

    @rule()
    def another_field_changes(self) -> None:
        self.revision += 1

    @rule()
    def hear_news(self) -> None:
        self.term.in_sync_changed(self.in_sync, self.revision)

    @rule(share=st.floats(0, 1))
    def confirm(self, share: float) -> None:
        before = self.term.confirmed_end
        after = self.term.confirm(round(self.log_end * share))
        assert after >= before

    @invariant()
    def what_is_confirmed_is_in_every_log_of_etcds_set(self) -> None:
        for name in self.in_sync - {OWN}:
            assert self.stored[name] >= self.term.confirmed_end

    @invariant()
    def etcds_set_counts(self) -> None:
        assert self.in_sync <= self.term.counted


TestTerm = TermMachine.TestCase
TestTerm.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)


def term_of_two(*, confirmed_end: int = 0) -> MasterTerm:
    return MasterTerm(
        epoch=1,
        own=OWN,
        in_sync=(OWN, OTHERS[0]),
        revision=1,
        log_end=0,
        confirmed_end=confirmed_end,
        policy=TermPolicy(in_sync_lag_s=2.0),
        now_s=0.0,
    )


@pytest.mark.parametrize("had_stream", [True, False])
def test_who_is_neither_registered_nor_connected_any_more_leaves_the_set_at_once(
    had_stream: bool,
) -> None:
    term = term_of_two()
    if had_stream:
        term.joined(OTHERS[0], 0, 0, 0.0)
        term.left(OTHERS[0])
        term.departed([OTHERS[0].broker_id])
    else:
        # As the master before, which stopped: it was registered when this term began.
        term.departed([OTHERS[0].broker_id], were_registered=[OTHERS[0].broker_id])
    proposal = term.propose(100, 0.1)
    assert proposal is not None
    assert proposal.in_sync == {OWN}
    term.in_sync_changed(proposal.in_sync, 2)
    assert term.confirm(100) == 100, "nobody is waited for"


def test_who_has_not_come_yet_stays_in_the_set_for_the_allowed_lag() -> None:
    term = term_of_two()
    term.departed([OTHERS[0].broker_id], were_registered=[OWN.broker_id])
    assert term.propose(0, 1.9) is None, "all start after a power failure; we were the first"
    term.joined(OTHERS[0], 0, 0, 1.9)
    assert term.propose(0, 1.9) is None
    silent = term_of_two()
    silent.departed([OTHERS[0].broker_id])
    assert silent.propose(0, 2.1) is not None


def test_who_is_connected_or_registered_stays_in_the_set_for_the_allowed_lag() -> None:
    connected = term_of_two()
    connected.joined(OTHERS[0], 0, 0, 0.0)
    connected.departed([OTHERS[0].broker_id])
    assert connected.propose(0, 1.9) is None, "a slave that only lost its nameserver"
    registered = term_of_two()
    registered.departed([])
    assert registered.propose(0, 1.9) is None, "a slave that was killed, or whose wire is cut"
    connected.left(OTHERS[0])
    assert connected.propose(0, 1.9) is not None


def test_a_refusal_after_an_unknown_outcome_leaves_both_sets_counted() -> None:
    term = term_of_two()
    assert term.propose(100, 3.0) is not None, "the silent one leaves"
    assert term.proposal_again() is not None
    term.proposal_refused(3.1)
    assert term.counted == {OWN, OTHERS[0]}
    assert term.confirm(100) == 0
    term.in_sync_changed((OWN,), 2)
    assert term.counted == {OWN}
    assert term.confirm(100) == 100


def test_a_refusal_of_the_first_attempt_is_certain() -> None:
    term = term_of_two()
    assert term.propose(100, 3.0) is not None
    term.proposal_refused(3.1)
    assert not term.is_proposing


def test_a_replica_that_lacks_what_it_once_had_leaves_the_set_until_it_has_it_again() -> None:
    term, other = term_of_two(), OTHERS[0]
    term.joined(other, 0, 0, 0.0)
    term.acknowledged(other, 1_000, 1_000, 0.1)
    assert term.confirm(1_000) == 1_000
    term.left(other)
    term.joined(other, 500, 1_000, 0.5)
    term.left(other)
    left = term.propose(1_000, 0.6)
    assert left is not None, "though it left again at once, and was heard of a moment ago"
    assert left.in_sync == {OWN}
    term.in_sync_changed(left.in_sync, 2)
    term.joined(other, 500, 1_000, 0.7)
    assert term.propose(1_000, 0.8) is None
    term.acknowledged(other, 1_000, 1_000, 0.9)
    back = term.propose(1_000, 1.0)
    assert back is not None
    assert back.in_sync == {OWN, other}


def lonely_term() -> MasterTerm:
    """A master's first term over an empty log, alone in sync."""
    return MasterTerm(
        epoch=1,
        own=OWN,
        in_sync=(OWN,),
        revision=1,
        log_end=0,
        confirmed_end=0,
        policy=TermPolicy(),
        now_s=0.0,
    )


def test_a_newcomer_is_in_sync_only_once_it_has_stored_the_masters_history() -> None:
    newcomer = OTHERS[0]
    term = lonely_term()
    # Both logs are empty: it has everything, and still no epoch in common with anybody.
    term.joined(newcomer, 0, 0, 0.0)
    assert term.propose(0, 0.1) is None
    term.acknowledged(newcomer, 0, 0, 0.2)
    proposal = term.propose(0, 0.3)
    assert proposal is not None
    assert proposal.in_sync == {OWN, newcomer}


def test_a_newcomer_is_in_sync_only_once_it_has_all_that_is_confirmed() -> None:
    """It was up to date a moment ago; elected now, it would lose what was acknowledged since."""
    newcomer = OTHERS[0]
    term = lonely_term()
    term.joined(newcomer, 10, 10, 0.0)
    term.acknowledged(newcomer, 10, 10, 0.1)
    assert term.confirm(20) == 20
    assert term.propose(20, 0.2) is None
    term.acknowledged(newcomer, 20, 30, 0.3)
    proposal = term.propose(30, 0.4)
    assert proposal is not None
    assert proposal.in_sync == {OWN, newcomer}


def behind_under_load(*, lag_s: float) -> tuple[MasterTerm, int, float]:
    """A master alone in sync whose log never rests, and a replica that says after `lag_s` that it
    has what there was; with the log's end and the time now."""
    term, other = lonely_term(), OTHERS[0]
    term.joined(other, 0, 100, 0.0)
    log_end, now_s = 100, 0.0
    for _ in range(20):
        had_end, log_end, now_s = log_end, log_end + 100, now_s + lag_s
        term.confirm(log_end)
        term.acknowledged(other, had_end, log_end, now_s)
    return term, log_end, now_s


def test_a_replica_that_is_always_a_little_behind_a_busy_master_joins_the_set() -> None:
    term, log_end, now_s = behind_under_load(lag_s=0.01)
    assert term.propose(log_end, now_s) is None, "it lacks what came last, which is confirmed"
    assert term.confirm(log_end + 100) == log_end, "what comes now waits for it"
    term.acknowledged(OTHERS[0], log_end, log_end + 100, now_s + 0.01)
    proposal = term.propose(log_end + 100, now_s + 0.01)
    assert proposal is not None
    assert proposal.in_sync == {OWN, OTHERS[0]}
    assert not term.awaited


def test_a_replica_that_may_join_is_waited_for_a_moment_and_not_again_at_once() -> None:
    term, log_end, now_s = behind_under_load(lag_s=0.01)
    term.propose(log_end, now_s)
    given_up_s = term.next_look_s(now_s)
    assert given_up_s == now_s + TermPolicy().in_sync_lag_s / 2
    assert term.propose(log_end, given_up_s) is None
    assert term.confirm(log_end + 100) == log_end + 100
    term.acknowledged(OTHERS[0], log_end, log_end + 100, given_up_s)
    term.propose(log_end + 100, given_up_s + 0.1)
    assert not term.awaited


@pytest.mark.parametrize("lag_s", [TermPolicy().in_sync_lag_s, 60.0])
def test_a_replica_that_is_far_behind_is_not_waited_for(lag_s: float) -> None:
    term, log_end, now_s = behind_under_load(lag_s=lag_s)
    assert term.propose(log_end, now_s) is None
    assert term.confirm(log_end + 100) == log_end + 100


def test_a_replica_that_is_waited_for_and_goes_is_waited_for_no_longer() -> None:
    term, log_end, now_s = behind_under_load(lag_s=0.01)
    term.propose(log_end, now_s)
    term.left(OTHERS[0])
    assert term.confirm(log_end + 100) == log_end + 100
    assert term.next_look_s(now_s) == float("inf")
