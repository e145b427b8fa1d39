"""`aerobee etcd`: snapshots that can be restored, space that comes back, and nothing done to a
cluster that is not well; against real members.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aerobee.cli import etcd_backup
from aerobee.cli.commands.etcd import etcd
from aerobee.cli.etcd_members import EtcdMembers
from aerobee.cli.local_cluster.programs import etcd_binary
from aerobee.runtime.errors import RegistryUnavailable
from tests.support.etcd_cluster import RunningMember, fill, running_members, until_full
from tests.support.waiting import wait_until

MIB = 1024 * 1024


def run(member: RunningMember, *words: str) -> Result:
    return CliRunner().invoke(etcd, [*words, "--endpoints", member.endpoint])


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningMember]]:
    with running_members(tmp_path_factory.mktemp("three"), 3) as members:
        yield members


@pytest.mark.slow
def test_a_snapshot_can_be_restored_and_its_time_is_noted(
    three: list[RunningMember], tmp_path: Path
) -> None:
    three[0].put("/aerobee/aerobee/topics/orders", b"{}")
    for old in ("20200101T000000Z", "20200102T000000Z"):
        (tmp_path / f"etcd-{old}.db").write_bytes(b"")
    before_ms = time.time() * 1_000
    done = run(three[1], "save", str(tmp_path), "--keep", "2", "--json")
    assert done.exit_code == 0, done.output
    kept = sorted(tmp_path.iterdir())
    assert json.loads(done.output)["file"] == str(kept[-1])
    assert json.loads(done.output)["removed"] == [str(tmp_path / "etcd-20200101T000000Z.db")]
    assert [path.name for path in kept[:1]] == ["etcd-20200102T000000Z.db"]
    assert len(kept) == 2
    assert kept[1].stat().st_mode & 0o077 == 0
    restored = tmp_path / "restored"
    etcdutl = etcd_binary().with_name("etcdutl")
    peer = "http://127.0.0.1:2380"
    restore: list[str | Path] = [
        etcdutl,
        "snapshot",
        "restore",
        kept[1],
        "--data-dir",
        restored / "m-0",
    ]
    named = ["--name=m-0", f"--initial-cluster=m-0={peer}", f"--initial-advertise-peer-urls={peer}"]
    subprocess.run([*restore, *named], check=True, capture_output=True)
    noted = three[0].get("/aerobee/aerobee/backups/etcd")
    assert noted is not None
    assert before_ms - 1_000 <= json.loads(noted)["at"] <= time.time() * 1_000
    with running_members(restored, 1) as (again,):
        assert again.get("/aerobee/aerobee/topics/orders") == b"{}"


@pytest.mark.slow
def test_space_comes_back_member_by_member_the_leader_last(three: list[RunningMember]) -> None:
    revision = fill(three[0], 24)
    three[0].ask("kv/compaction", revision=str(revision), physical=True)
    cluster = EtcdMembers([three[0].endpoint])
    wait_until(lambda: _is_freed(three[0], cluster), "what was compacted is free")
    leader = next(member.name for member in three if member.is_leader())
    little = run(three[0], "defragment", "--gain-min-mib", "1000", "--json")
    assert [each["defragmented"] for each in json.loads(little.output)] == [False] * 3
    done = run(three[0], "defragment", "--gain-min-mib", "8")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.partition(":")[0] for line in lines][-1] == leader
    assert done.output.count(": defragmented, ") == 3
    assert all(cluster.status(one).size < 8 * MIB for one in cluster.members())
    assert three[2].get("filling") is not None


def _is_freed(member: RunningMember, cluster: EtcdMembers) -> bool:
    """Each member frees its own piece by piece, and counts it with its next write."""
    member.put("later", b"")
    return all(cluster.status(one).size_in_use < 8 * MIB for one in cluster.members())


@pytest.mark.slow
def test_no_member_is_silenced_while_another_one_is_away(tmp_path: Path) -> None:
    with running_members(tmp_path, 3) as members:
        gone = next(member for member in members if not member.is_leader())
        members.remove(gone)
        gone.kill()
        refused = CliRunner().invoke(
            etcd, ["defragment", "--gain-min-mib", "0", "--endpoints", members[0].endpoint]
        )
        assert refused.exit_code == 4
        assert "start it first" in str(refused.output)
        assert "defragmented, " not in refused.output
        shown = run(members[0], "status")
        assert shown.exit_code == 1
        assert f"{gone.name}: etcd at {gone.endpoint} does not do it" in shown.output
        # A snapshot needs no majority's word, and another member's is as good.
        saved = run(members[0], "save", str(tmp_path))
        assert saved.exit_code == 0, (saved.output, saved.exception)


@pytest.mark.slow
def test_a_full_etcd_says_so_and_can_still_be_saved(tmp_path: Path) -> None:
    quota = f"--quota-backend-bytes={16 * MIB}"
    with running_members(tmp_path, 1, quota) as (member,):
        until_full(member)
        shown = run(member, "status")
        assert shown.exit_code == 1
        assert "NOSPACE" in shown.output
        done = run(member, "save", str(tmp_path))
        # The note cannot be written, so that the age goes on rising.
        assert done.exit_code != 0
        assert "saved " in done.output
        assert len(list(tmp_path.glob("etcd-*.db"))) == 1


def snapshot_of(content: bytes) -> list[bytes]:
    """In pieces that the hash does not begin with."""
    whole = content + hashlib.sha256(content).digest()
    return [whole[at : at + 37] for at in range(0, len(whole), 37)]


def test_a_whole_snapshot_is_kept_as_it_came(tmp_path: Path) -> None:
    path = etcd_backup.save(tmp_path, "now", snapshot_of(b"content" * 50))
    assert path.read_bytes() == b"".join(snapshot_of(b"content" * 50))


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_what_is_not_what_etcd_sent_leaves_no_file(tmp_path: Path, damage: str) -> None:
    pieces = snapshot_of(b"content" * 50)
    if damage == "changed":
        pieces[1] = b"\0" * len(pieces[1])
    wrong = {"cut": pieces[:-1], "changed": pieces, "empty": []}[damage]
    with pytest.raises(RegistryUnavailable, match="take it from another member"):
        etcd_backup.save(tmp_path, "now", wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_folder_that_is_not_there_is_no_fault_of_etcd(
    three: list[RunningMember], tmp_path: Path
) -> None:
    refused = run(three[0], "save", str(tmp_path / "missing"))
    assert refused.exit_code == 3
    assert "missing cannot be written" in refused.output


def test_a_backup_s_name_is_one_word() -> None:
    refused = CliRunner().invoke(etcd, ["note-backup", "a/b"])
    assert refused.exit_code == 2
