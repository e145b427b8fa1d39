"""The page on moving from Apache RocketMQ and back: its commands, on a folder that Apache wrote.

Between them messages are sent and consumed; at the end the judge reads every byte, and a model of
Apache's start serves all messages, old and new.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aerobee.store.format.transaction_records import ASIDE_TOPIC, OP_TOPIC, TRANSACTIONS_GROUP
from tests.docs.test_examples import PATIENCE_S, ROOT, Block, Cluster, blocks_of
from tests.support.apache_start import apache_problems
from tests.support.plain_folder import Sizes, folder_problems
from tests.support.plain_store import PlainStore
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "migration.md"
GOLDEN = ROOT / "tests" / "golden"
STORE = "clean-small"
CLUSTER = "moved"
GROUP, TOPIC = "orders-partial", "PaymentNotices"
NEW_MESSAGES = 25


class Move:
    """A user's shell, with a nameserver of his own beside the broker that he moves."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        nameserver = f"127.0.0.1:{free_port()}"
        self._real = {
            "127.0.0.1:8081": nameserver,
            "127.0.0.1:10911": "127.0.0.1:0",
            'cluster = "aerobee"': f'cluster = "{CLUSTER}"',
        }
        self._environment = {
            **cluster.environment,
            "AEROBEE_NAMESERVER": nameserver,
            "AEROBEE_CLUSTER": CLUSTER,
        }
        etcd = cluster.addresses["127.0.0.1:2379"]
        self.serve(
            f"aerobee nameserver --cluster {CLUSTER} --listen {nameserver} --etcd-endpoints {etcd}"
        )

    def serve(self, text: str) -> subprocess.Popen[bytes]:
        with (self.folder / "services.log").open("ab") as log:
            process = subprocess.Popen(
                text.split(), cwd=self.folder, env=self._environment, stderr=log
            )
        self._running.append(process)
        return process

    def write_file(self, block: Block) -> None:
        text = block.text
        for shown, real in self._real.items():
            text = text.replace(shown, real)
        name = text.splitlines()[0].removeprefix("# ")
        (self.folder / name).write_text(text)

    def run(self, text: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", f"set -o pipefail\n{text}"],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        log = (self.folder / "services.log").read_text()
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}\n{log}"
        return done.stdout

    def wait_until_registered(self) -> None:
        def is_shown() -> bool:
            shown = subprocess.run(
                ["aerobee", "cluster", "show"],
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
            )
            return "broker-a" in shown.stdout

        wait_until(is_shown, "the broker is registered")

    def stop(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def move(tmp_path: Path) -> Iterator[Move]:
    with tarfile.open(GOLDEN / f"{STORE}.tar.gz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    (tmp_path / STORE).rename(tmp_path / "store")
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    running = Move(tmp_path, cluster)
    yield running
    running.stop()
    cluster.stop()


@pytest.mark.thorough
def test_a_broker_moves_to_aerobee_and_back(move: Move) -> None:
    manifest = json.loads((GOLDEN / f"{STORE}.json").read_text())
    broker: subprocess.Popen[bytes] | None = None
    said: list[str] = []
    for block in blocks_of(PAGE):
        if block.language == "toml":
            move.write_file(block)
        elif block.language == "sh" and block.text.startswith("aerobee broker"):
            broker = move.serve(block.text)
            move.wait_until_registered()
        elif block.language == "sh":
            if "broker-a/abort" in block.text:
                assert broker is not None
                use(move, manifest)
                broker.send_signal(signal.SIGTERM)
                assert broker.wait(PATIENCE_S) == 0
            said.append(move.run(block.text))
    assert str(manifest["config"]) in said[0]
    assert any(
        f"all {manifest['commitLog']['records']} messages are there" in text for text in said
    )
    check_way_back(move.folder / "broker-a", manifest)
    assert (move.folder / "store" / "checkpoint").read_bytes()[:8] == (
        manifest["onDisk"]["checkpoint"]["physicMsgTimestamp"].to_bytes(8, "big")
    ), "the original is as it was"


def use(move: Move, manifest: Any) -> None:
    """What clients do meanwhile: a group goes on where it was, and new messages come."""
    offsets = manifest["consumerOffsets"][f"{TOPIC}@{GROUP}"]
    queues = manifest["topics"][TOPIC]
    left = sum(queue["maxOffset"] - offsets[queue_id] for queue_id, queue in queues.items())
    lines = "".join(f"new-{number}\n" for number in range(NEW_MESSAGES))
    (move.folder / "new.txt").write_text(lines)
    move.run(f"aerobee produce {TOPIC} --key moved --no-create < new.txt")
    command = f"aerobee consume {TOPIC} --group {GROUP} --idle-timeout 3 --format json"
    # The times for which Apache's delayed messages waited are past.
    late = len(delayed(manifest, TOPIC))
    assert late > 0
    assert len(move.run(command).splitlines()) == left + late + NEW_MESSAGES
    assert move.run(command) == "", "all was committed"


def delayed(manifest: Any, topic: str = "") -> list[str]:
    """What waited when Apache's broker ended, for a topic or all; by unique keys."""
    return [
        send["uniqKey"]
        for send in manifest["specialSends"]
        if send["kind"] in ("delay-pending", "timer-pending") and topic in ("", send["topic"])
    ]


def check_way_back(root: Path, manifest: Any) -> None:
    sizes = Sizes.of(manifest["config"])
    assert folder_problems(root, sizes, closed=True) == []
    assert apache_problems(root, sizes) == []
    log = PlainStore(root, sizes.segment_bytes)
    messages = [record for record in log.records if not record.topic.startswith("AEROBEE_")]
    end = manifest["commitLog"]["maxOffset"]
    late = [
        record.properties["UNIQ_KEY"]
        for record in messages
        if record.physical_offset >= end and "REAL_TOPIC" in record.properties
    ]
    assert len(set(delayed(manifest)) - set(late)) <= 2, "two were sent to wait for days"
    # Its open transactions are older than the log would be, so they were set aside.
    new = [record for record in messages if record.physical_offset >= end]
    aside = [record for record in new if record.topic == ASIDE_TOPIC]
    assert {record.properties["REAL_TOPIC"] for record in aside} == {TOPIC}
    ops = [record for record in new if record.topic == OP_TOPIC]
    assert len(ops) == len(aside) == 3
    assert len(messages) == manifest["commitLog"]["records"] + len(late) + len(ops) + NEW_MESSAGES
    offsets = json.loads((root / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    ends = {
        str(queue_id): max(
            r.queue_offset + 1 for r in log.records if (r.topic, r.queue_id) == (TOPIC, queue_id)
        )
        for queue_id in range(4)
    }
    assert offsets[f"{TOPIC}@{GROUP}"] == ends

    def others(offsets: Any) -> Any:
        return {
            key: value
            for key, value in offsets.items()
            if key != f"{TOPIC}@{GROUP}" and not key.endswith(f"@{TRANSACTIONS_GROUP}")
        }

    assert others(offsets) == others(manifest["consumerOffsets"])
