"""What a start makes of a replica's folder: who it is, whether it is alone, what it may lack."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.opening import change_log
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.joining import Cut
from aerobee.broker.replication.replica_folder import (
    OpenedReplica,
    ReplicaFolder,
    ReplicaIdentity,
    load_history,
    note_failed,
    note_incomplete,
    note_log_cut,
    note_log_emptied,
    note_log_repaired,
    open_replica,
    save_history,
)
from aerobee.broker.replication.state_file import STATE_PATH, FoundLog, ReplicaState
from aerobee.broker.wiring import FEATURES
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.tables.atomic_file import replace_atomically

CLUSTERED = ReplicaIdentity(broker_id=1, has_nameservers=True, is_sync_flush=False)
SINGLE = replace(CLUSTERED, has_nameservers=False)
FOUND = FoundLog(end=1_000, is_clean=True, boot_id="boot-1")
STATE = ReplicaState(
    broker_id=1,
    instance="run-1",
    incarnation="log-1",
    epoch=4,
    replicas=frozenset({0, 1}),
    boot_id="boot-1",
    closed_end=1_000,
)
HISTORY = EpochHistory.of([(1, 0), (4, 600)])


class Folder:
    def __init__(self, path: Path) -> None:
        self.disk = RealDisk(path)
        self.disk.make_directory("config")
        self.chance = random.Random(5)

    def write(self, state: ReplicaState, history: EpochHistory = HISTORY) -> None:
        replace_atomically(self.disk, STATE_PATH, state.encode())
        save_history(self.disk, history)

    def open(self, found: FoundLog = FOUND, identity: ReplicaIdentity = CLUSTERED) -> OpenedReplica:
        return open_replica(self.disk, identity, found, self.chance)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_new_folder_in_a_cluster_waits_to_be_told_who_is_master(folder: Folder) -> None:
    empty = FoundLog(end=0, is_clean=True, boot_id="boot-1")
    assert not folder.open(empty).is_alone
    assert not folder.open(empty).is_alone, "nor at its second start, if nobody has told it"
    assert folder.open(empty, SINGLE).is_alone


def test_a_log_from_before_there_were_replicas_is_served_at_once(folder: Folder) -> None:
    opened = folder.open()
    assert opened.is_alone
    assert opened.history.entries == ()
    assert folder.open().is_alone, "and at the next start too"


def test_each_start_is_another_instance_and_knows_the_one_before(folder: Folder) -> None:
    folder.write(replace(STATE, closed_end=None))
    found = replace(FOUND, is_clean=False)
    first = folder.open(found)
    second = folder.open(found)
    assert first.predecessor == "run-1"
    assert second.predecessor == first.state.instance != second.state.instance


def test_after_another_boot_an_instance_that_did_not_stop_may_run_elsewhere(folder: Folder) -> None:
    folder.write(replace(STATE, closed_end=None))
    opened = folder.open(FoundLog(end=1_000, is_clean=False, boot_id="boot-2"))
    assert opened.predecessor == ""


def test_the_incarnation_stays_as_long_as_nothing_was_lost(folder: Folder) -> None:
    folder.write(STATE)
    assert folder.open().own == (1, "log-1")
    crashed = replace(FOUND, is_clean=False)
    assert folder.open(crashed).own == (1, "log-1"), "a dead process leaves the page cache behind"


def test_a_power_failure_renews_it_unless_everything_was_flushed(folder: Folder) -> None:
    power_failure = FoundLog(end=900, is_clean=False, boot_id="boot-2")
    folder.write(replace(STATE, closed_end=None, is_sync_flush=True))
    assert folder.open(power_failure).own == (1, "log-1")
    folder.write(replace(STATE, closed_end=None))
    assert folder.open(power_failure).own != (1, "log-1")


def test_a_failed_disk_renews_it_unless_everything_was_flushed(folder: Folder) -> None:
    """The machine goes on, and its page cache does not have what the disk refused."""
    crashed = FoundLog(end=900, is_clean=False, boot_id="boot-1")
    failed = replace(STATE, closed_end=None, has_failed=True)
    folder.write(replace(failed, is_sync_flush=True))
    assert folder.open(crashed).own == (1, "log-1")
    folder.write(failed)
    renewed = folder.open(crashed).own
    assert renewed != (1, "log-1")
    assert folder.open(crashed).own == renewed, "once"


@pytest.mark.parametrize("failing", ["fsync", "close"])
async def test_a_failure_of_the_disk_is_noted(folder: Folder, failing: str) -> None:
    folder.write(STATE)
    opened = folder.open()

    async def write(path: str, data: bytes) -> None:
        replace_atomically(folder.disk, path, data)

    if failing == "fsync":
        await ReplicaFolder(opened, write).note_failed()
    else:
        note_failed(folder.disk)
    assert folder.open(replace(FOUND, is_clean=False)).own != opened.own


def test_a_cut_log_keeps_its_name_and_a_repaired_one_does_not(folder: Folder) -> None:
    folder.write(STATE)
    note_log_cut(folder.disk, 700)
    assert folder.open(replace(FOUND, end=700)).own == (1, "log-1")
    note_log_repaired(folder.disk, folder.chance)
    assert folder.open(replace(FOUND, end=700)).own != (1, "log-1")


@pytest.mark.parametrize("is_unclean", [False, True])
def test_a_cut_behind_an_unclean_election_makes_it_another_log(
    folder: Folder, is_unclean: bool
) -> None:
    """What is cut then may be what it was known to have for ever."""
    folder.write(STATE)
    cut = Cut(700, is_unclean=is_unclean)
    change_log(folder.disk, StoreConfig(), cut, folder.chance, FEATURES)
    cut_log = replace(FOUND, end=700)
    assert (folder.open(cut_log).own != (1, "log-1")) == is_unclean


def test_a_log_that_the_registry_found_to_be_incomplete_is_another_log_and_not_alone(
    folder: Folder,
) -> None:
    folder.write(replace(STATE, replicas=frozenset({1})))
    assert folder.open().is_alone
    note_incomplete(folder.disk)
    renewed = folder.open(replace(FOUND, is_clean=False))
    assert renewed.own != (1, "log-1")
    assert not renewed.is_alone, "the group may have others since the copy was made"
    assert "lacks messages that this replica once had" in renewed.trouble
    again = folder.open(replace(FOUND, is_clean=False))
    assert (again.own, again.trouble) == (renewed.own, ""), "once"
    assert not again.is_alone, "nobody has told it of its group yet"


def test_a_start_says_where_the_log_ended_then(folder: Folder) -> None:
    assert folder.open().opened_end == 1_000
    folder.write(STATE)
    assert folder.open(replace(FOUND, end=700)).opened_end == 700


def test_a_log_that_somebody_has_changed_is_another_log(folder: Folder) -> None:
    folder.write(STATE)
    assert folder.open(replace(FOUND, end=800)).own != (1, "log-1")


def test_a_damaged_state_is_trusted_in_nothing(folder: Folder) -> None:
    folder.write(replace(STATE, replicas=frozenset({1})))
    folder.write(replace(STATE, replicas=frozenset({1})))
    file = folder.disk.open_file(STATE_PATH)
    file.write_at(20, [b"??"])
    file.close()
    opened = folder.open()
    assert not opened.is_alone
    assert opened.own != (1, "log-1")


def test_epochs_beyond_the_end_of_the_log_are_forgotten_for_good(folder: Folder) -> None:
    folder.write(replace(STATE, epoch=1, closed_end=500))
    opened = folder.open(replace(FOUND, end=500))
    assert opened.history.entries == ((1, 0),)
    assert load_history(folder.disk).entries == ((1, 0),)


def test_alone_after_a_loss_what_follows_is_of_a_new_epoch(folder: Folder) -> None:
    folder.write(replace(STATE, replicas=frozenset({1}), closed_end=None))
    opened = folder.open(FoundLog(end=900, is_clean=False, boot_id="boot-2"))
    assert opened.is_alone
    assert opened.history.entries == ((1, 0), (4, 600), (5, 900))
    assert load_history(folder.disk) == opened.history


def test_a_replica_of_several_does_not_start_without_a_nameserver(folder: Folder) -> None:
    folder.write(STATE)
    with pytest.raises(InvalidArgument, match=r"replicas \[0, 1\].*set nameservers"):
        folder.open(identity=SINGLE)


def test_a_replica_that_stopped_before_it_heard_of_its_group_is_not_alone(folder: Folder) -> None:
    empty = replace(FOUND, end=0)
    assert not folder.open(empty).is_alone
    assert not folder.open(empty).is_alone  # the state is there now, and knows no replicas


def test_a_replica_that_only_heard_of_its_own_registration_is_not_alone(folder: Folder) -> None:
    # Before the first election of a group its record names whoever has registered so far.
    heard = replace(STATE, epoch=0, replicas=frozenset({1}), closed_end=0)
    folder.write(heard, EpochHistory())
    assert not folder.open(replace(FOUND, end=0)).is_alone


def test_a_history_older_than_what_the_replica_has_seen_is_refused(folder: Folder) -> None:
    folder.write(replace(STATE, epoch=7))
    with pytest.raises(InvalidArgument, match="ends with epoch 4, the replica has seen 7"):
        folder.open()


def test_a_log_that_is_to_be_emptied_has_not_its_name_and_has_its_epochs_until_it_is(
    folder: Folder,
) -> None:
    folder.write(STATE)
    before = load_history(folder.disk)
    note_log_emptied(folder.disk, folder.chance)
    opened = folder.open(FoundLog(end=2_000, is_clean=True, boot_id="boot-1"))
    assert opened.own != (1, "log-1")
    assert opened.history == before
    assert not opened.is_alone


@given(
    st.builds(
        ReplicaState,
        broker_id=st.integers(0, 9),
        instance=st.text(max_size=16),
        incarnation=st.text(max_size=16),
        epoch=st.integers(0, 1 << 60),
        replicas=st.frozensets(st.integers(0, 99)),
        boot_id=st.text(max_size=40),
        is_sync_flush=st.booleans(),
        closed_end=st.none() | st.integers(0, 1 << 60),
    ),
    st.integers(0, 10_000),
    st.integers(0, 7),
)
def test_a_flipped_bit_is_noticed(state: ReplicaState, position: int, bit: int) -> None:
    data = bytearray(state.encode())
    assert ReplicaState.decode(bytes(data)) == state
    data[position % len(data)] ^= 1 << bit
    try:
        changed = ReplicaState.decode(bytes(data))
    except ValueError:
        return
    assert changed == state, "white space may differ, content may not"


def test_a_folder_of_another_cluster_or_group_is_refused_and_left_alone(folder: Folder) -> None:
    mine = replace(CLUSTERED, cluster="blue", broker_name="broker-a")
    folder.write(STATE)
    folder.open(identity=mine)  # a file from before the names stood in it
    written = folder.disk.read_file(STATE_PATH)
    for other in (replace(mine, cluster="green"), replace(mine, broker_name="broker-b")):
        with pytest.raises(InvalidArgument, match="holds the messages of broker-a of cluster blue"):
            folder.open(identity=other)
        assert folder.disk.read_file(STATE_PATH) == written
    assert folder.open(identity=mine).state.cluster == "blue"
