"""Who may act as master and when: decisions on the broker group's record, lease and resignation."""

from __future__ import annotations

from aerobee.broker.replication.master_lease import LeaseMargin
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName, TermPolicy
from aerobee.broker.replication.mastership import Follow, Lead, Mastership, Stay, StepDown
from aerobee.broker.replication.replica_set import NO_MASTER, ReplicaSetView

OWN = ReplicaName(0, "log-a")
OTHER = ReplicaName(1, "log-b")
LEASE_MS = 10_000


class Scene:
    """One replica, the news it hears, and the time."""

    def __init__(self, *, is_alone: bool = False) -> None:
        self.now_s = 100.0
        self.revision = 0
        self.sequence = 0
        self.mastership = Mastership(
            OWN, "run-1", is_alone=is_alone, margin=LeaseMargin(share=0.1, seconds=0.5)
        )

    def hear(
        self,
        epoch: int,
        master_id: int = 0,
        instance: str = "run-1",
        *,
        in_sync: tuple[ReplicaName, ...] = (OWN, OTHER),
        replicas: tuple[int, ...] = (0, 1),
        revision: int | None = None,
    ) -> bool:
        self.revision = self.revision + 1 if revision is None else revision
        return self.mastership.hear(
            ReplicaSetView(
                epoch=epoch,
                master_id=master_id,
                master_instance=instance,
                in_sync=frozenset(in_sync),
                replicas=frozenset(replicas),
                revision=self.revision,
            )
        )

    def beat(self, *, confirmed: bool = True) -> None:
        self.sequence += 1
        self.mastership.heartbeat_sent(self.sequence, self.now_s)
        if confirmed:
            self.mastership.renewed(self.sequence, LEASE_MS)

    def lead(self, epoch: int, *, in_sync: tuple[ReplicaName, ...] = (OWN, OTHER)) -> MasterTerm:
        term = MasterTerm(
            epoch=epoch,
            own=OWN,
            in_sync=in_sync,
            revision=self.revision,
            log_end=0,
            confirmed_end=0,
            policy=TermPolicy(),
            now_s=self.now_s,
        )
        self.mastership.lead(term)
        return term

    @property
    def may_act(self) -> bool:
        return self.mastership.may_act(self.now_s)


def leading(epoch: int = 3) -> Scene:
    scene = Scene()
    scene.hear(epoch)
    scene.lead(epoch)
    scene.beat()
    return scene


def test_a_replica_without_news_waits() -> None:
    scene = Scene()
    assert scene.mastership.decide() == Stay()
    assert not scene.may_act


def test_only_the_instance_that_the_record_names_leads() -> None:
    scene = Scene()
    scene.hear(3, instance="run-0")
    assert scene.mastership.decide() == Stay()
    scene.hear(4)
    assert scene.mastership.decide() == Lead(4)
    scene.lead(4)
    assert scene.mastership.decide() == Stay()


def test_another_master_is_followed_and_a_newer_one_too() -> None:
    scene = Scene()
    scene.hear(3, master_id=1, instance="x")
    assert scene.mastership.decide() == Follow(1, 3)
    scene.hear(4, master_id=2, instance="y", replicas=(0, 1, 2))
    assert scene.mastership.decide() == Follow(2, 4)
    scene.hear(5, master_id=NO_MASTER, instance="")
    assert scene.mastership.decide() == Stay()


def test_a_master_steps_down_when_another_one_has_its_epoch_or_a_newer_one() -> None:
    scene = leading(3)
    scene.hear(4, master_id=1, instance="x")
    assert scene.mastership.decide() == StepDown(4)
    assert not scene.may_act


def test_a_master_acts_only_while_its_lease_is_valid() -> None:
    scene = leading()
    assert scene.may_act
    scene.now_s += 8.4
    assert scene.may_act
    scene.now_s += 0.2
    assert not scene.may_act, "10 s minus a tenth and half a second are over"
    scene.beat()
    assert scene.may_act


def test_the_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    scene = leading()
    scene.beat(confirmed=False)
    sent_s = scene.now_s
    scene.now_s += 6.0
    scene.mastership.renewed(scene.sequence, LEASE_MS)
    scene.now_s = sent_s + 8.6
    assert not scene.may_act


def test_a_renewal_says_nothing_of_heartbeats_that_were_sent_after_it() -> None:
    scene = leading()
    scene.beat(confirmed=False)
    renewed, sent_s = scene.sequence, scene.now_s
    scene.now_s += 6.0
    scene.beat(confirmed=False)
    scene.mastership.renewed(renewed, LEASE_MS)
    scene.now_s = sent_s + 8.4
    assert scene.may_act
    scene.now_s = sent_s + 8.6
    assert not scene.may_act


def test_a_record_that_is_older_than_the_known_one_changes_nothing() -> None:
    scene = leading(3)
    newest = scene.revision
    assert not scene.hear(2, master_id=1, instance="x", revision=newest - 1)
    assert scene.may_act
    assert scene.mastership.decide() == Stay()


def test_a_renewal_that_comes_with_an_older_record_gives_no_authority() -> None:
    scene = leading(3)
    newest = scene.revision
    scene.now_s += 60
    assert not scene.hear(3, master_id=1, instance="x", revision=newest - 1)
    scene.beat()
    assert not scene.may_act, "etcd was restored: who is master there is not known"
    scene.hear(3, revision=newest)
    scene.beat()
    assert scene.may_act


def test_a_newer_epoch_counts_also_with_the_lower_revision_of_a_restored_etcd() -> None:
    scene = leading(3)
    scene.hear(50, revision=1_000)
    scene.lead(50)
    assert scene.hear(51, master_id=1, instance="x", revision=7)
    assert scene.mastership.decide() == StepDown(51)
    scene.beat()
    assert not scene.may_act


def test_who_was_alone_steps_down_before_another_master_in_a_new_etcd() -> None:
    scene = Scene(is_alone=True)
    scene.lead(9, in_sync=(OWN,))
    scene.hear(1, master_id=1, instance="x", in_sync=(OTHER,))
    assert not scene.may_act
    assert scene.mastership.decide() == StepDown(1)


def test_who_knows_to_be_alone_believes_a_new_etcd_that_names_another_master() -> None:
    scene = Scene(is_alone=True)
    scene.hear(9, in_sync=(OWN,), replicas=(0,), revision=1_000)
    scene.lead(9, in_sync=(OWN,))
    assert scene.may_act
    scene.hear(1, master_id=1, instance="x", in_sync=(OTHER,), revision=5)
    assert not scene.may_act
    assert scene.mastership.decide() == StepDown(1)


def test_a_renewal_that_comes_with_news_of_another_master_gives_no_authority() -> None:
    scene = leading(3)
    scene.now_s += 60
    scene.hear(4, master_id=1, instance="x")
    scene.beat()
    assert not scene.may_act


def test_a_resigned_epoch_is_never_taken_up_again_but_a_newer_one_is() -> None:
    scene = leading(3)
    scene.mastership.resign()
    assert not scene.may_act
    scene.beat()
    assert not scene.may_act
    scene.mastership.end_term()
    assert scene.mastership.decide() == Stay(), "the record still names it under the old epoch"
    scene.hear(4)
    assert scene.mastership.decide() == Lead(4)
    scene.lead(4)
    scene.beat()
    assert scene.may_act


def test_the_only_replica_of_its_group_needs_neither_lease_nor_nameserver() -> None:
    scene = Scene(is_alone=True)
    scene.lead(0, in_sync=(OWN,))
    assert scene.may_act
    scene.now_s += 1_000_000
    assert scene.may_act


def test_it_stops_acting_at_the_moment_it_hears_of_another_replica() -> None:
    scene = Scene(is_alone=True)
    scene.lead(2, in_sync=(OWN,))
    scene.hear(2, instance="run-0", in_sync=(OWN,))
    assert not scene.may_act, "the record still has its predecessor for a master"
    assert scene.mastership.decide() == Stay()
    scene.hear(3, in_sync=(OWN,))
    assert scene.mastership.decide() == Lead(3)
    scene.lead(3, in_sync=(OWN,))
    assert not scene.may_act, "and now it needs a lease"
    scene.beat()
    assert scene.may_act


def test_it_is_alone_again_once_the_others_were_removed() -> None:
    scene = leading(3)
    scene.now_s += 60
    assert not scene.may_act
    scene.hear(3, in_sync=(OWN,), replicas=(0,))
    assert scene.may_act


def test_an_unclean_election_while_it_was_alone_ends_its_term() -> None:
    scene = Scene(is_alone=True)
    scene.lead(2, in_sync=(OWN,))
    scene.hear(3, master_id=1, instance="x", in_sync=(OTHER,))
    assert scene.mastership.decide() == StepDown(3)


def test_a_doubt_is_settled_only_by_a_heartbeat_sent_after_it() -> None:
    scene = leading(3)
    scene.beat(confirmed=False)
    under_way = scene.sequence
    scene.mastership.doubt()
    assert not scene.may_act
    scene.mastership.renewed(under_way, LEASE_MS)
    assert not scene.may_act, "that one was sent before"
    scene.beat()
    assert scene.may_act


def test_a_change_of_the_in_sync_set_reaches_the_term_only_under_its_epoch() -> None:
    scene = leading(3)
    term = scene.mastership.term
    assert term is not None
    scene.hear(3, in_sync=(OWN,))
    assert term.in_sync == {OWN}
    scene.hear(4, in_sync=(OWN, OTHER))
    assert term.in_sync == {OWN}, "epoch 4 is another term"
    assert scene.mastership.decide() == Lead(4)
