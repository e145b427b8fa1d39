"""Roles in one process: promotion in place, following, stepping down, the in-sync set, hand-over;
with a store of a few numbers and nameservers that answer as the test says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import NoReturn

import pytest

from aerobee.broker.cluster.in_sync_registry import InSyncRegistry
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import Cut
from aerobee.broker.replication.master_term import Proposal, ReplicaName
from aerobee.broker.replication.replica_set import ReplicaPlace
from aerobee.cluster_view.channels import Channels
from aerobee.runtime import errors
from aerobee.store.format.epoch_file import EPOCH_FILE, decode_epochs
from aerobee.v1 import common_pb2
from tests.support.loop_wakes import loop_wakes
from tests.support.roles_scene import OTHER, OWN, Scene, running
from tests.support.waiting import until


async def test_a_promotion_has_its_epoch_on_disk_before_anything_is_done_under_it() -> None:
    scene = Scene(history=EpochHistory.of([(1, 0)]))
    async with running(scene):
        scene.hear(scene.record(3))
        await until(lambda: scene.terms == [3])
        assert scene.roles.may_act()
        assert scene.state_on_disk().epoch == 3
        (files,) = scene.files_at_roles
        assert decode_epochs(files[EPOCH_FILE][-1]) == [(1, 0), (3, 1_000)]


async def test_a_log_without_epochs_is_wholly_of_its_first_master() -> None:
    scene = Scene()
    scene.store.min_offset = 400
    async with running(scene):
        scene.hear(scene.record(1))
        await until(lambda: scene.terms == [1])
        assert scene.epochs_on_disk() == [(1, 400)]
        assert scene.roles.term is not None
        assert scene.roles.term.start == 1_000


async def test_on_a_full_disk_it_does_not_lead_until_there_is_room() -> None:
    scene = Scene()
    scene.writes_fail = True
    async with running(scene):
        scene.hear(scene.record(1))
        await asyncio.sleep(0.05)
        assert scene.roles.term is None
        scene.writes_fail = False
        await until(lambda: scene.terms == [1])


async def test_news_during_a_promotion_overrules_it() -> None:
    scene = Scene(history=EpochHistory.of([(1, 0)]))
    async with running(scene):
        scene.hear(scene.record(2))
        scene.hear(scene.record(3, master_id=1, instance="x"))
        await until(lambda: scene.master.calls == [("host-1:1", 3)])
        assert scene.roles.term is None


async def test_an_epoch_that_its_log_has_already_is_never_taken_up() -> None:
    scene = Scene(history=EpochHistory.of([(5, 0)]))
    async with running(scene):
        asked: list[int] = []
        scene.roles.on_doubt(lambda: asked.append(1))
        scene.hear(scene.record(5))
        await until(lambda: scene.mastership.resigned_epoch == 5)
        assert asked, "or nobody would be elected while it is registered"
        await asyncio.sleep(0.05)
        assert scene.roles.term is None
        scene.hear(scene.record(6))
        await until(lambda: scene.terms == [6])


async def test_that_it_is_not_alone_is_on_disk_before_a_replica_may_join() -> None:
    scene = Scene(is_alone=True)
    scene.manager.begin_alone()
    assert scene.roles.may_act()
    with pytest.raises(errors.NotMaster, match="must register first"):
        scene.roles.check_joining(OTHER, "run-of-1", 0)
    async with running(scene):
        scene.hear(scene.record(1, replicas=(0,)))
        await until(lambda: scene.terms == [0, 1])
        scene.writes_fail = True
        scene.hear(scene.record(1))
        await asyncio.sleep(0.02)
        with pytest.raises(errors.NotMaster, match="must register first"):
            scene.roles.check_joining(OTHER, "run-of-1", 1)
        scene.writes_fail = False
        await until(lambda: 1 in scene.roles.known_replicas)
        assert scene.state_on_disk().replicas == {0, 1}
        scene.roles.check_joining(OTHER, "run-of-1", 1)


async def test_a_slave_follows_the_newest_master_only() -> None:
    scene = Scene()
    async with running(scene):
        scene.hear(scene.record(1, master_id=1, instance="x"))
        await until(lambda: scene.master.calls == [("host-1:1", 1)])
        scene.hear(scene.record(2, master_id=2, instance="y", replicas=(0, 1, 2)))
        await until(lambda: scene.master.calls[1:] == [("host-2:1", 2)])
        assert scene.master.ended == 1
        scene.hear(scene.record(3))
        await until(lambda: scene.terms == [3])
        assert scene.master.ended == 2, "nothing more comes from a master when it leads"


async def test_a_nameserver_that_loses_sight_of_the_master_does_not_end_its_stream() -> None:
    scene = Scene()
    async with running(scene):
        record = scene.record(1, master_id=1, instance="x")
        scene.hear(record)
        await until(lambda: len(scene.master.calls) == 1)
        scene.roles.hear_endpoints([])
        await asyncio.sleep(0.05)
        scene.hear(record)
        await asyncio.sleep(0.05)
        assert (len(scene.master.calls), scene.master.ended) == (1, 0)


@pytest.mark.parametrize("was_registered", [True, False])
async def test_only_who_was_registered_before_leaves_the_set_at_once(was_registered: bool) -> None:
    scene = Scene(history=EpochHistory.of([(1, 0)]))
    own, other = (
        ReplicaPlace(broker_id=broker_id) for broker_id in (OWN.broker_id, OTHER.broker_id)
    )
    async with running(scene):
        if was_registered:
            scene.roles.hear_endpoints([own, other])
        scene.roles.hear_endpoints([own])
        scene.sequence += 1
        scene.roles.heartbeat_sent(scene.sequence)
        scene.roles.hear_replica_set(scene.record(3, in_sync=(OWN, OTHER)))
        scene.roles.renewed(scene.sequence, 60_000)
        await until(lambda: scene.terms == [3])
        scene.roles.hear_endpoints([own])
        await asyncio.sleep(0.1)
        assert [one.in_sync for one in scene.proposals] == [{OWN}] * was_registered


@pytest.mark.parametrize(
    ("others", "min_insync_replicas", "expected"),
    [((1, 2), 1, True), ((1, 2), 2, True), ((1, 2), 3, False), ((1,), 1, False)],
)
async def test_a_former_master_leaves_for_a_moment_if_enough_others_are_in_sync(
    others: tuple[int, ...], min_insync_replicas: int, *, expected: bool
) -> None:
    """Else its successor would acknowledge nothing before its folder is open again."""
    scene = Scene(history=EpochHistory.of([(1, 0)]))
    names = [ReplicaName(broker_id, f"log-{broker_id}") for broker_id in others]
    replicas = (OWN.broker_id, *others)
    assert not scene.roles.is_dispensable(min_insync_replicas), "nothing is known"
    for in_sync in ((OWN, *names), names):
        record = scene.record(
            4, master_id=1, instance="x", in_sync=tuple(in_sync), replicas=replicas
        )
        scene.roles.hear_replica_set(record)
        assert scene.roles.is_dispensable(min_insync_replicas) is expected
    scene.roles.hear_replica_set(scene.record(5, in_sync=(OWN, *names), replicas=replicas))
    assert not scene.roles.is_dispensable(min_insync_replicas), "it is to lead"


async def test_an_unknown_epoch_makes_a_master_ask_once() -> None:
    scene = Scene()
    asked: list[int] = []
    scene.roles.on_doubt(lambda: asked.append(1))
    async with running(scene):
        record = scene.record(3)
        scene.hear(record)
        await until(lambda: scene.terms == [3])
        scene.roles.heard_epoch(3)
        assert scene.roles.may_act()
        for _ in range(3):
            with pytest.raises(errors.StaleEpoch):
                scene.roles.check_joining(OTHER, "run-of-1", 9)
            scene.hear(record)
            assert scene.roles.may_act(), "the registry knows of no such epoch"
        assert asked == [1]
        scene.roles.heard_epoch(10)
        assert not scene.roles.may_act()


async def test_a_stream_that_breaks_is_tried_again_and_what_must_be_cut_asks_for_reopening() -> (
    None
):
    scene = Scene()
    scene.master.answer = errors.Unreachable("gone")
    async with running(scene):
        scene.hear(scene.record(1, master_id=1, instance="x"))
        await until(lambda: len(scene.master.calls) >= 3)
        scene.master.answer = Cut(700)
        reopening = await asyncio.wait_for(scene.manager.reopening, 5)
        assert reopening.change == Cut(700)


async def test_a_master_that_hears_of_a_newer_one_ends_its_term_and_asks_for_reopening() -> None:
    scene = Scene()
    async with running(scene):
        scene.hear(scene.record(1))
        await until(lambda: scene.terms == [1])
        scene.hear(scene.record(2, master_id=1, instance="x"))
        reopening = await asyncio.wait_for(scene.manager.reopening, 5)
        assert reopening.change is None
        assert scene.roles.term is None
        assert scene.terms == [1, None]


async def test_a_replica_that_has_caught_up_joins_the_set_and_a_silent_one_leaves_it() -> None:
    scene = Scene()
    async with running(scene):
        scene.hear(scene.record(1))
        await until(lambda: scene.terms == [1])
        scene.roles.replica_joined(OTHER, 1_000)
        scene.roles.replica_acknowledged(OTHER, 1_000)
        await until(
            lambda: scene.roles.term is not None and scene.roles.term.in_sync == {OWN, OTHER}
        )
        scene.store.appended_end = 2_000
        await until(lambda: scene.roles.term is not None and scene.roles.term.in_sync == {OWN})
        assert [set(one.in_sync) for one in scene.proposals] == [{OWN, OTHER}, {OWN}]


async def test_while_its_outcome_is_unknown_a_change_is_asked_again_and_both_sets_count() -> None:
    scene = Scene(lag_ms=60_000)
    scene.answers = [errors.RegistryUnavailable("away"), errors.Unreachable("away")]
    async with running(scene):
        scene.hear(scene.record(1))
        await until(lambda: scene.terms == [1])
        term = scene.roles.term
        assert term is not None
        scene.roles.replica_joined(OTHER, 1_000)
        scene.roles.replica_acknowledged(OTHER, 1_000)
        await until(lambda: len(scene.proposals) == 1)
        assert term.counted == {OWN, OTHER}
        assert term.in_sync == {OWN}
        await until(lambda: term.in_sync == {OWN, OTHER})
        assert len(set(scene.proposals)) == 1
        assert len(scene.proposals) == 3


async def test_after_an_unknown_outcome_a_refusal_changes_nothing_until_the_record_is_heard() -> (
    None
):
    scene = Scene(lag_ms=60_000)
    refused = errors.InvalidArgument("not of this cluster")
    scene.answers = [errors.Unreachable("no answer"), refused, refused]
    async with running(scene):
        scene.hear(scene.record(1))
        await until(lambda: scene.terms == [1])
        term = scene.roles.term
        assert term is not None
        scene.roles.replica_joined(OTHER, 1_000)
        scene.roles.replica_acknowledged(OTHER, 1_000)
        await until(lambda: len(scene.proposals) == 3)
        assert term.counted == {OWN, OTHER}
        scene.store.appended_end = 2_000
        assert term.confirm(2_000) == 1_000
        await until(lambda: term.in_sync == {OWN, OTHER})


class RefusingNameservers(Channels):
    """Each nameserver answers with its error."""

    def __init__(self, answers: dict[str, errors.AerobeeError]) -> None:
        super().__init__()
        self._answers = answers

    async def call(
        self, address: str, method: object, request: object, **options: object
    ) -> NoReturn:
        raise self._answers[address]


async def test_a_refusal_does_not_undo_what_another_nameserver_may_have_made() -> None:
    answers: dict[str, errors.AerobeeError] = {
        "ns1": errors.Unreachable("no answer"),
        "ns2": errors.InvalidArgument("not of this cluster"),
    }
    identity = common_pb2.BrokerIdentity(broker_name="broker-a")
    registry = InSyncRegistry(("ns1", "ns2"), identity, RefusingNameservers(answers))
    proposal = Proposal(frozenset({OWN}), 3)
    for _ in range(3):
        with pytest.raises(errors.Unreachable):
            await registry.alter(1, proposal)
    answers["ns1"] = answers["ns2"]
    with pytest.raises(errors.InvalidArgument):
        await registry.alter(1, proposal)


async def test_a_master_that_was_stopped_reads_what_waits_before_it_judges_its_replicas() -> None:
    scene = Scene(lag_ms=1_000)
    async with running(scene):
        scene.hear(scene.record(1, in_sync=(OWN, OTHER)))
        await until(lambda: scene.terms == [1])
        scene.roles.replica_joined(OTHER, 1_000)
        scene.store.appended_end = 2_000
        await asyncio.sleep(0.2)
        # As after SIGSTOP: the loop stands still, and the acknowledgement waits in its socket.
        loop = asyncio.get_running_loop()
        loop.call_later(1.22, scene.roles.replica_acknowledged, OTHER, 2_000)
        time.sleep(1.2)
        await asyncio.sleep(0.3)
        assert scene.proposals == []


async def test_a_master_whose_replicas_keep_up_sleeps() -> None:
    scene = Scene(lag_ms=60_000)
    async with running(scene):
        scene.hear(scene.record(1, in_sync=(OWN, OTHER)))
        await until(lambda: scene.terms == [1])
        scene.roles.replica_joined(OTHER, 1_000)
        scene.roles.replica_acknowledged(OTHER, 1_000)
        await asyncio.sleep(0.05)
        with loop_wakes() as wakes:
            await asyncio.sleep(0.5)
        assert wakes.count <= 2
        assert scene.proposals == []


async def test_a_replica_that_is_still_under_an_earlier_epoch_does_not_join() -> None:
    """It would take this master's log for its earlier one's, and cut nothing."""
    scene = Scene()
    async with running(scene):
        scene.hear(scene.record(3))
        await until(lambda: scene.terms == [3])
        with pytest.raises(errors.StaleEpoch, match="epoch 2 is over"):
            scene.roles.check_joining(OTHER, "run-of-1", 2)
        assert scene.roles.may_act()


async def test_a_stranger_who_speaks_of_newer_epochs_does_not_stop_a_master() -> None:
    scene = Scene()
    async with running(scene):
        scene.hear(scene.record(3))
        await until(lambda: scene.terms == [3])
        for stranger in (ReplicaName(99, "x"), ReplicaName(0, "y")):
            with pytest.raises(errors.NotMaster):
                scene.roles.check_joining(stranger, "run-of-1", 1_000)
        assert scene.roles.may_act()


async def test_only_the_registered_process_of_a_replica_joins() -> None:
    scene = Scene()
    async with running(scene):
        scene.hear(scene.record(3))
        await until(lambda: scene.terms == [3])
        for instance in ("x", ""):
            with pytest.raises(errors.DuplicateBroker, match="must register before"):
                scene.roles.check_joining(OTHER, instance, 1_000)
        assert scene.roles.may_act()
        scene.roles.check_joining(OTHER, "run-of-1", 3)
        scene.roles.hear_endpoints([])
        scene.roles.check_joining(OTHER, "run-of-1", 3)  # it is the same, registered or not


async def test_a_slave_says_at_once_how_far_its_log_reaches_when_its_master_has_gone() -> None:
    scene = Scene()
    asked: list[int] = []
    scene.roles.on_doubt(lambda: asked.append(1))
    master, own = ReplicaPlace(broker_id=1, is_master=True), ReplicaPlace(broker_id=0)
    scene.roles.hear_endpoints([own, master])
    assert asked == []
    for _ in range(3):
        scene.roles.hear_endpoints([own])
    assert asked == [1], "once: then the nameserver knows"


async def test_without_a_lease_no_change_of_the_set_is_asked_for() -> None:
    scene = Scene()
    async with running(scene):
        scene.hear(scene.record(1))
        await until(lambda: scene.terms == [1])
        scene.mastership.doubt()
        scene.roles.replica_joined(OTHER, 1_000)
        scene.roles.replica_acknowledged(OTHER, 1_000)
        await asyncio.sleep(0.15)
        assert scene.proposals == []


async def test_a_resigned_master_leads_again_only_under_a_newer_epoch() -> None:
    scene = Scene()
    async with running(scene), asyncio.TaskGroup() as tasks:
        scene.hear(scene.record(1, in_sync=(OWN, OTHER)))
        await until(lambda: scene.terms == [1])
        scene.roles.replica_joined(OTHER, 1_000)
        handing = tasks.create_task(_outcome(scene.handover.hand_over(1, 1.0)))
        await until(lambda: scene.mastership.resigned_epoch == 1)
        assert not scene.roles.may_act()
        assert scene.handover.successor_id == 1
        scene.hear(scene.record(1, in_sync=(OWN, OTHER)))
        assert not scene.roles.may_act()
        scene.hear(scene.record(2, in_sync=(OWN,)))
        await until(lambda: scene.terms == [1, 2])
        assert scene.roles.may_act()
        assert await handing == "done"
        assert scene.handover.successor_id is None, "that wish was of epoch 1"


async def test_a_hand_over_without_an_election_ends_in_time_and_without_a_master() -> None:
    scene = Scene()
    async with running(scene):
        scene.hear(scene.record(1, in_sync=(OWN, OTHER)))
        await until(lambda: scene.terms == [1])
        scene.roles.replica_joined(OTHER, 1_000)
        with pytest.raises(errors.DeadlineExceeded, match="epoch 1 is resigned"):
            await scene.handover.hand_over(None, 0.3)
        assert not scene.roles.may_act()
        assert not scene.roles.is_pausing


async def test_a_hand_over_sleeps_until_it_hears_what_it_waits_for() -> None:
    scene = Scene(lag_ms=60_000)
    async with running(scene), asyncio.TaskGroup() as tasks:
        scene.hear(scene.record(1, in_sync=(OWN, OTHER)))
        await until(lambda: scene.terms == [1])
        handing = tasks.create_task(_outcome(scene.handover.hand_over(1, 5.0)))
        with loop_wakes() as wakes:
            await asyncio.sleep(0.2)
            scene.store.appended_end = 1_500
            scene.roles.replica_joined(OTHER, 1_000)
            await asyncio.sleep(0.2)
            scene.roles.replica_acknowledged(OTHER, 1_500)
            await asyncio.sleep(0.2)
            assert scene.mastership.resigned_epoch == 1
            scene.hear(scene.record(2, master_id=1, instance="x"))
            assert await handing == "done"
        assert wakes.count <= 8


async def test_a_hand_over_waits_for_what_was_taken_before_it() -> None:
    scene = Scene()
    async with running(scene), asyncio.TaskGroup() as tasks:
        scene.hear(scene.record(1, in_sync=(OWN, OTHER)))
        await until(lambda: scene.terms == [1])
        scene.roles.replica_joined(OTHER, 1_000)
        scene.store.appended_end = 1_500
        handing = tasks.create_task(_outcome(scene.handover.hand_over(None, 5.0)))
        await until(lambda: scene.roles.is_pausing)
        with pytest.raises(errors.NotMaster, match="handing over"):
            scene.roles.check_enough()
        await asyncio.sleep(0.03)
        assert scene.mastership.resigned_epoch is None
        scene.roles.replica_acknowledged(OTHER, 1_500)
        await until(lambda: scene.mastership.resigned_epoch == 1)
        scene.hear(scene.record(2, master_id=1, instance="x"))
        assert await handing == "done"


async def _outcome(coroutine: Awaitable[object]) -> str:
    try:
        await coroutine
    except errors.AerobeeError as error:
        return str(error)
    return "done"


async def test_reads_wait_until_what_the_log_had_at_its_opening_is_confirmed() -> None:
    scene = Scene()
    with pytest.raises(errors.ReplicaBehind):
        scene.roles.check_reads()
    scene.roles.note_confirmed(999)
    with pytest.raises(errors.ReplicaBehind):
        scene.roles.check_reads()
    scene.roles.note_confirmed(5_000)
    scene.roles.check_reads()
    assert scene.roles.confirmed_end == 1_000, "no further than the log"
    Scene(is_alone=True).roles.check_reads()
