"""How large the files of a local cluster are: small ones when new, else as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.cli.failures import EnvironmentFailure, Failure
from aerobee.cli.local_cluster.plan import ClusterPlan, Replica, default_ports
from aerobee.cli.local_cluster.sizes import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    MIB,
    QUEUE_ENTRIES,
    SEGMENT_BYTES,
    SMALL,
    SMALLEST,
    Sizes,
    note_sizes,
    sizes_of,
)
from aerobee.store.format.index_file import IndexGeometry
from tests.support.plain_index import PlainFile

FIRST, SECOND = Replica("broker-a", 0), Replica("broker-a", 1)


def plan_of(folder: Path, *, replicas: int = 1, sizes: Sizes | None = None) -> ClusterPlan:
    ports = default_ports(
        brokers=1, replicas=replicas, nameserver=1081, broker_first=1911, etcd=1379
    )
    return ClusterPlan(
        data=folder, cluster="test", ports=ports, broker_sizes={FIRST: sizes} if sizes else {}
    )


def write_log(folder: Path, name: str, segment_bytes: int, *, files: int = 1) -> Path:
    """The log of a broker of the cluster; its bytes do not matter here."""
    store = folder / "brokers" / name
    (store / "commitlog").mkdir(parents=True, exist_ok=True)
    for number in range(files):
        with (store / "commitlog" / f"{number * segment_bytes:020}").open("wb") as segment:
            segment.truncate(segment_bytes)
    return store


def test_a_new_store_is_small_and_the_users_settings_win(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert sizes_of(plan, SMALL, {}) == {FIRST: SMALL}
    assert SMALL[SEGMENT_BYTES] == 64 * MIB
    assert SMALLEST[SEGMENT_BYTES] == 16 * MIB
    geometry = IndexGeometry(SMALL[INDEX_SLOTS], SMALL[INDEX_ENTRIES])
    assert geometry.file_bytes < 32 * MIB
    (chosen,) = sizes_of(plan, SMALL, {SEGMENT_BYTES: str(MIB)}).values()
    assert chosen == {INDEX_SLOTS: SMALL[INDEX_SLOTS], INDEX_ENTRIES: SMALL[INDEX_ENTRIES]}


def test_a_store_goes_on_with_what_was_noted(tmp_path: Path) -> None:
    note_sizes(plan_of(tmp_path, sizes=SMALLEST), {QUEUE_ENTRIES: "1000", "listen": "x"})
    write_log(tmp_path, "broker-a", 5 * MIB)
    plan = plan_of(tmp_path)
    assert sizes_of(plan, SMALL, {}) == {FIRST: {**SMALLEST, QUEUE_ENTRIES: 1_000}}


def test_a_note_counts_only_beside_a_store(tmp_path: Path) -> None:
    note_sizes(plan_of(tmp_path, sizes=SMALLEST), {})
    assert sizes_of(plan_of(tmp_path), SMALL, {}) == {FIRST: SMALL}


def test_a_store_of_an_older_version_goes_on_with_its_large_files(tmp_path: Path) -> None:
    store = write_log(tmp_path, "broker-a", 1024 * MIB)
    (chosen,) = sizes_of(plan_of(tmp_path), SMALL, {}).values()
    # What its files do not tell is left to the broker's own defaults.
    assert chosen == {SEGMENT_BYTES: 1024 * MIB}
    (store / "index").mkdir()
    plain = PlainFile([0] * 11, 30)
    plain.put(17, 0, 1_700_000_000_000)
    (store / "index" / "20231114221320123").write_bytes(plain.encode())
    (chosen,) = sizes_of(plan_of(tmp_path), SMALL, {}).values()
    assert chosen == {SEGMENT_BYTES: 1024 * MIB, INDEX_SLOTS: 11, INDEX_ENTRIES: 30}


def test_sizes_are_recognised_from_several_files_and_not_from_one_that_may_be_cut(
    tmp_path: Path,
) -> None:
    write_log(tmp_path, "broker-a", 3 * MIB, files=2)
    assert sizes_of(plan_of(tmp_path), SMALL, {}) == {FIRST: {SEGMENT_BYTES: 3 * MIB}}
    write_log(tmp_path / "cut", "broker-a", 3 * MIB)
    assert sizes_of(plan_of(tmp_path / "cut"), SMALL, {}) == {FIRST: {}}


def test_a_replica_that_is_added_gets_the_sizes_of_its_group(tmp_path: Path) -> None:
    write_log(tmp_path, "broker-a", 1024 * MIB)
    chosen = sizes_of(plan_of(tmp_path, replicas=2), SMALL, {})
    assert chosen[FIRST] == chosen[SECOND] == {SEGMENT_BYTES: 1024 * MIB}


def test_a_setting_that_contradicts_the_store_is_refused_with_what_to_do(tmp_path: Path) -> None:
    write_log(tmp_path, "broker-a", 16 * MIB)
    with pytest.raises(Failure) as caught:
        sizes_of(plan_of(tmp_path), SMALL, {SEGMENT_BYTES: "67108864"})
    assert caught.value.exit_code == 2
    assert caught.value.message == (
        f"--broker-set store.segment_bytes=67108864 contradicts the data folder {tmp_path}: "
        "broker-a was written with 16777216; leave the option out, or choose another --data"
    )
    assert sizes_of(plan_of(tmp_path), SMALL, {SEGMENT_BYTES: "16777216"}) == {FIRST: {}}


def test_a_damaged_note_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "store-sizes.json").write_text("[1]")
    with pytest.raises(EnvironmentFailure, match=r"store-sizes.json is damaged: remove it"):
        sizes_of(plan_of(tmp_path), SMALL, {})
