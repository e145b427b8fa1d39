"""A real etcd of several members, which fills up, loses members, and is called over its JSON
API."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aerobee.cli.local_cluster.programs import etcd_binary
from tests.support.etcd import SHORT_ELECTIONS, STOP_TIMEOUT_S
from tests.support.ports import free_ports
from tests.support.waiting import wait_until


class Refused(Exception):
    """etcd's error message."""


@dataclass
class RunningMember:
    """One process."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def ask(self, method: str, **request: Any) -> Any:
        """Raises Refused."""
        call = urllib.request.Request(f"{self.endpoint}/v3/{method}", json.dumps(request).encode())
        try:
            with urllib.request.urlopen(call, timeout=20) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode()) from None

    def put(self, key: str, value: bytes) -> int:
        """The revision afterwards. Raises Refused."""
        coded = {name: base64.b64encode(text).decode()
                 for name, text in (("key", key.encode()), ("value", value))}  # fmt: skip
        return int(self.ask("kv/put", **coded)["header"]["revision"])

    def get(self, key: str) -> bytes | None:
        found = self.ask("kv/range", key=base64.b64encode(key.encode()).decode()).get("kvs")
        return base64.b64decode(found[0]["value"]) if found else None

    def is_leader(self) -> bool:
        status = self.ask("maintenance/status")
        return bool(status.get("leader") == status["header"]["member_id"])


@contextmanager
def running_members(
    folder: Path, count: int, *flags: str, programs: Path | None = None
) -> Iterator[list[RunningMember]]:
    """Members m-0, m-1, ... that have quorum; the remaining ones end with the block."""
    ports = free_ports(2 * count)
    peers = ",".join(f"m-{at}=http://127.0.0.1:{ports[2 * at + 1]}" for at in range(count))
    etcd = etcd_binary() if programs is None else programs / "etcd"
    members: list[RunningMember] = []
    try:
        for at in range(count):
            client, peer = (f"http://127.0.0.1:{ports[2 * at + one]}" for one in (0, 1))
            words: Sequence[str] = [
                str(etcd),
                f"--name=m-{at}",
                f"--data-dir={folder / f'm-{at}'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster={peers}",
                "--log-level=error",
                # Not for several members, as the machine may be busy.
                *(SHORT_ELECTIONS if count == 1 else ()),
                *flags,
            ]
            with (folder / f"m-{at}.log").open("wb") as log:
                process = subprocess.Popen(words, stdout=log, stderr=log)
            members.append(RunningMember(f"m-{at}", ports[2 * at], process))
        for member in members:
            wait_until(lambda asked=member: _is_healthy(asked), f"{member.name} is healthy")
        yield members
    finally:
        for member in members:
            if member.process.poll() is None:
                member.kill()


def _is_healthy(member: RunningMember) -> bool:
    try:
        with urllib.request.urlopen(f"{member.endpoint}/health", timeout=2) as answer:
            return b'"true"' in answer.read()
    except OSError:
        return False


def fill(member: RunningMember, mib: int) -> int:
    """Overwrite one key until this much history exists; returns the revision afterwards.

    Raises:
        Refused: the quota is reached.
    """
    revision = 0
    for _ in range(4 * mib):
        revision = member.put("filling", b"x" * 256 * 1024)
    return revision


def until_full(member: RunningMember) -> None:
    """Fill it until it reports that it has no space; its quota must be small."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        try:
            fill(member, 1)
        except Refused as refused:
            if "space exceeded" in str(refused):
                return
            raise
    raise AssertionError("it never refused")
