"""The parts of a local cluster that can be tried without its services."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import os
import random
import re
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee.cli.__main__ import main
from aerobee.cli.failures import EnvironmentFailure, Failure
from aerobee.cli.local_cluster.addresses import ready_document, ready_lines
from aerobee.cli.local_cluster.child import (
    FIRST_STARTS_MAX,
    RESTART_BACKOFF,
    STABLE_AFTER_S,
    Child,
    ChildEnded,
    ChildSpec,
)
from aerobee.cli.local_cluster.console import LocalConsole, missing_for, tls_of
from aerobee.cli.local_cluster.folder import locked_folder, write_document
from aerobee.cli.local_cluster.plan import (
    ClusterPlan,
    Ports,
    Replica,
    broker_name,
    default_ports,
)
from aerobee.cli.local_cluster.ports import check_free, free_ports
from aerobee.cli.local_cluster.programs import broker_child, etcd_child, nameserver_child
from aerobee.rpc.tls_config import TlsConfig
from aerobee.runtime.clock import Clock, SystemClock
from aerobee.runtime.retry import Backoff
from tests.support.waiting import until

QUICK = Backoff(base_ms=1, max_ms=8, jitter=0)


class _Clock(SystemClock):
    """One on which each child runs for `run_s`: it goes on by that whenever it is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.run_s = 0.0
        self._now_s = 0.0

    def monotonic_s(self) -> float:
        self._now_s += self.run_s
        return self._now_s


def make_child(
    tmp_path: Path,
    program: str,
    *,
    stop_timeout_s: float = 5.0,
    clock: Clock | None = None,
) -> Child:
    spec = ChildSpec(
        name="thing",
        argv=(sys.executable, "-I", "-S", "-c", program),
        log=tmp_path / "thing.log",
        stop_timeout_s=stop_timeout_s,
        restart_backoff=QUICK,
    )
    return Child(spec, clock=clock or SystemClock(), chance=random.Random(1))


def has_ended(pid: int) -> bool:
    """Whether the process is gone; one that nobody has waited for counts as gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


async def eventually_ended(pid: int) -> None:
    await until(lambda: has_ended(pid))


def test_brokers_are_named_like_columns_of_a_sheet() -> None:
    assert [broker_name(index) for index in (0, 1, 25, 26, 27, 52)] == [
        "broker-a",
        "broker-b",
        "broker-z",
        "broker-aa",
        "broker-ab",
        "broker-ba",
    ]


def test_default_ports_are_the_documented_ones() -> None:
    ports = default_ports(brokers=3, nameserver=8081, broker_first=10911, etcd=2379)
    assert ports.brokers == ((10911,), (10921,), (10931,))
    assert ports.named()["the nameserver"] == 8081
    assert ports.etcd_client == 2379


def test_free_ports_are_distinct_and_free() -> None:
    ports = free_ports(brokers=4, chance=random.Random(7))
    assert len(set(ports.named().values())) == 6
    check_free(ports)


def test_a_ready_cluster_tells_one_fact_a_line_and_what_to_type_next(tmp_path: Path) -> None:
    ports = default_ports(brokers=1, replicas=2, nameserver=1081, broker_first=1911, etcd=1379)
    plan = ClusterPlan(data=tmp_path, cluster="aerobee", ports=ports)
    assert ready_lines(plan, 1.26) == [
        "ready in 1.3 s",
        "  nameserver  127.0.0.1:1081",
        "  broker-a    127.0.0.1:1911",
        "  broker-a-1  127.0.0.1:1912",
        "  etcd        127.0.0.1:1379",
        f"  data        {tmp_path}",
        f"  logs        {tmp_path}/logs",
        "  metrics     off (--metrics serves them)",
        "next, in another terminal:",
        "  echo hello | aerobee produce trial --nameserver 127.0.0.1:1081",
        "  aerobee consume trial --group readers --count 1 --nameserver 127.0.0.1:1081",
        "  aerobee doctor --nameserver 127.0.0.1:1081",
    ]


def test_where_the_console_is_comes_first(tmp_path: Path) -> None:
    ports = default_ports(brokers=1, nameserver=1081, broker_first=1911, etcd=1379)
    plan = ClusterPlan(data=tmp_path, cluster="aerobee", ports=ports)
    lines = ready_lines(plan, 1.0, "http://127.0.0.1:8088")
    assert lines[1] == "  console     http://127.0.0.1:8088"
    assert ready_document(plan, {}, "http://127.0.0.1:8088")["console"] == "http://127.0.0.1:8088"
    assert "console" not in ready_document(plan, {})


def test_without_its_packages_a_line_says_how_to_get_the_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = default_ports(brokers=1, nameserver=1081, broker_first=1911, etcd=1379)
    plan = ClusterPlan(data=tmp_path, cluster="aerobee", ports=ports)
    assert missing_for(plan) == ""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install '.[console]'" in missing_for(plan)


def test_a_console_is_no_operator_by_its_certificate(tmp_path: Path) -> None:
    """Its visitors would be, too."""
    ports = default_ports(brokers=1, nameserver=1081, broker_first=1911, etcd=1379)
    plan = ClusterPlan(
        data=tmp_path, cluster="aerobee", ports=ports, is_encrypted=True, access=True
    )
    tls = tls_of(plan)
    assert isinstance(tls, TlsConfig)
    assert (bool(tls.ca), bool(tls.certificate), bool(tls.key)) == (True, False, False)
    asks = replace(plan, broker_settings={"tls.client_auth": "required"})
    assert "an operator for every visitor" in missing_for(asks)
    assert missing_for(replace(asks, access=False)) == ""


def test_a_port_that_is_taken_is_no_reason_for_no_console(tmp_path: Path) -> None:
    ports = default_ports(brokers=1, nameserver=1081, broker_first=1911, etcd=1379)
    plan = ClusterPlan(data=tmp_path, cluster="aerobee", ports=ports)
    first = LocalConsole(plan, port=0)
    taken = int(first.address.rpartition(":")[2])
    second = LocalConsole(plan, port=taken)
    assert first.address != second.address
    first.close()
    second.close()


def test_what_to_type_next_takes_no_topic_that_a_page_creates() -> None:
    """Readers who follow both would otherwise find that it exists already."""
    pages = (Path(__file__).parents[2] / "docs").rglob("*.md")
    created = {
        topic for page in pages for topic in re.findall(r"topic create (\w+)", page.read_text())
    }
    ports = default_ports(brokers=1, nameserver=1081, broker_first=1911, etcd=1379)
    hints = [
        main.help or "",
        *ready_lines(ClusterPlan(data=Path("data"), cluster="aerobee", ports=ports), 1.0),
    ]
    hinted = set(re.findall(r"aerobee (?:produce|consume) (\w+)", "\n".join(hints)))
    assert created
    assert hinted
    assert not hinted & created


def test_with_a_host_all_but_etcd_listens_everywhere_and_brokers_announce_it(
    tmp_path: Path,
) -> None:
    ports = default_ports(brokers=1, nameserver=8081, broker_first=10911, etcd=2379)
    plan = ClusterPlan(data=tmp_path, cluster="aerobee", ports=ports, host="queue")
    (replica,) = plan.brokers
    broker = " ".join(broker_child(plan, replica).argv)
    assert "--listen 0.0.0.0:10911 --address queue:10911" in broker
    assert "--listen 0.0.0.0:8081" in " ".join(nameserver_child(plan).argv)
    assert "--listen-client-urls=http://127.0.0.1:2379" in etcd_child(plan).argv
    assert "  nameserver  queue:8081" in ready_lines(plan, 1.0)


def test_clients_outside_have_ports_of_their_own_and_metrics_too(tmp_path: Path) -> None:
    ports = default_ports(
        brokers=2,
        replicas=5,
        nameserver=8081,
        broker_first=10911,
        etcd=2379,
        with_outside=True,
        metrics_first=9464,
    )
    assert len(set(ports.named().values())) == len(ports.named()) == 1 + 3 * 11
    plan = ClusterPlan(data=tmp_path, cluster="c", ports=ports, outside_host="example.net")
    broker = " ".join(broker_child(plan, Replica("broker-b", 4)).argv)
    assert "--listen 127.0.0.1:10925 --nameservers" in broker
    assert "--outside-listen 0.0.0.0:10930 --metrics-listen 127.0.0.1:9474" in broker
    assert "--outside-address example.net:10930" in broker
    nameserver = " ".join(nameserver_child(plan).argv)
    assert "--outside-listen 0.0.0.0:8082 --metrics-listen 127.0.0.1:9464" in nameserver
    assert "--outside-address" not in nameserver
    lines = "\n".join(ready_lines(plan, 1.0))
    assert "  outside     example.net:8082 example.net:10916 " in lines
    assert "  metrics     http://127.0.0.1:9464/metrics http://127.0.0.1:9465/metrics" in lines


def test_a_port_of_metrics_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for arguments, said in (
        (("--metrics", "70000"), "use 1 to 65535"),
        (("--metrics", "8081"), "the nameserver and the metrics of the nameserver would both"),
        (("--metrics", "--broker-set", "metrics.listen=127.0.0.1:1"), "give either --metrics or"),
    ):
        result = CliRunner().invoke(main, ["up", "--data", str(tmp_path), *arguments])
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_a_wrong_broker_key_is_told_as_a_key_with_the_one_that_was_meant(tmp_path: Path) -> None:
    def refused(setting: str) -> str:
        arguments = ["up", "--data", str(tmp_path), "--ports", "auto", "--broker-set", setting]
        result = CliRunner().invoke(main, arguments, prog_name="aerobee")
        assert result.exit_code == 2
        return result.stderr

    assert refused("foo=1") == (
        "aerobee: --broker-set: a broker has no key 'foo'; `aerobee config reference` lists them; "
        "see `aerobee up --help`\n"
    )
    assert "did you mean 'store.segment_bytes'?" in refused("store.segment_byte=1")
    assert list(tmp_path.iterdir()) == []


def test_automatic_ports_leave_those_that_are_given(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        taken = server.getsockname()[1]
        arguments = ["up", "--data", str(tmp_path), "--ports", "auto"]
        result = CliRunner().invoke(main, [*arguments, "--nameserver-port", str(taken)])
    assert result.exit_code == 3
    assert result.stderr.startswith(f"aerobee: port {taken} (the nameserver) is in use")


def test_a_port_in_use_is_named_with_its_purpose() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        taken = server.getsockname()[1]
        free = free_ports(brokers=1, chance=random.Random(3))
        ports = Ports(
            nameserver=taken,
            etcd_client=free.etcd_client,
            brokers=free.brokers,
        )
        with pytest.raises(EnvironmentFailure, match=rf"port {taken} \(the nameserver\) is in use"):
            check_free(ports)


def test_a_folder_is_locked_once_and_free_again_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with (
        locked_folder(folder),
        pytest.raises(EnvironmentFailure, match=rf"in use .*process {os.getpid()}"),
        locked_folder(folder),
    ):
        pass
    with locked_folder(folder):
        assert (folder / "logs").is_dir()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(EnvironmentFailure, match="cannot write to the data folder"),
        locked_folder(tmp_path / "file" / "data"),
    ):
        pass


def test_children_get_their_addresses_and_folders(tmp_path: Path) -> None:
    plan = ClusterPlan(
        data=tmp_path,
        cluster="test",
        ports=default_ports(brokers=2, nameserver=1081, broker_first=1911, etcd=1379),
        broker_settings={"flush.mode": "sync"},
    )
    broker = broker_child(plan, Replica("broker-b", 0))
    assert "127.0.0.1:1921" in broker.argv
    assert str(tmp_path / "brokers" / "broker-b") in broker.argv
    flag = broker.argv.index("--flush-mode")
    assert broker.argv[flag + 1] == "sync"
    etcd = etcd_child(plan)
    assert Path(etcd.argv[0]).is_file()
    assert "--listen-client-urls=http://127.0.0.1:1379" in etcd.argv


def test_the_grpc_engine_is_that_of_every_service(tmp_path: Path) -> None:
    ports = default_ports(brokers=1, nameserver=1081, broker_first=1911, etcd=1379)
    plan = ClusterPlan(data=tmp_path, cluster="test", ports=ports)
    for engine in (None, "grpcio"):
        plan = replace(plan, grpc_engine=engine)
        for child in (nameserver_child(plan), broker_child(plan, Replica("broker-a", 0))):
            flags = dict(itertools.pairwise(child.argv))
            assert flags.get("--grpc-engine") == engine


def test_replicas_share_their_group_and_nothing_else(tmp_path: Path) -> None:
    plan = ClusterPlan(
        data=tmp_path,
        cluster="test",
        ports=default_ports(brokers=2, replicas=3, nameserver=1081, broker_first=1911, etcd=1379),
    )
    assert [replica.name for replica in plan.groups["broker-b"]] == [
        "broker-b",
        "broker-b-1",
        "broker-b-2",
    ]
    argv = broker_child(plan, Replica("broker-b", 2)).argv
    flags = dict(itertools.pairwise(argv))
    assert (flags["--broker-name"], flags["--broker-id"]) == ("broker-b", "2")
    assert flags["--listen"] == "127.0.0.1:1923"
    assert flags["--store-root"] == str(tmp_path / "brokers" / "broker-b-2")
    assert len(set(plan.ports.named().values())) == 8


async def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    child = make_child(tmp_path, "import time; time.sleep(60)")
    pids: list[int] = []
    ends: list[ChildEnded] = []
    started = asyncio.Event()

    def on_started(child: Child) -> None:
        assert child.pid is not None
        pids.append(child.pid)
        started.set()

    task = asyncio.ensure_future(child.supervise(on_started=on_started, on_ended=ends.append))
    try:
        async with asyncio.timeout(10):
            await started.wait()
            started.clear()
            os.kill(pids[0], signal.SIGKILL)
            await started.wait()
        assert len(set(pids)) == 2
        assert [end.how for end in ends] == ["ended with signal SIGKILL"]
        assert child.restarts == 1
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await child.stop()
    await eventually_ended(pids[1])


class _Enough(Exception):
    """A test has seen what it waited for."""


async def ends_of(child: Child, count: int) -> list[ChildEnded]:
    """What its owner is told of its first `count` deaths."""
    ends: list[ChildEnded] = []

    def on_ended(ended: ChildEnded) -> None:
        ends.append(ended)
        if len(ends) == count:
            raise _Enough

    with pytest.raises(_Enough):
        await child.supervise(on_started=lambda _: None, on_ended=on_ended)
    return ends


async def test_a_child_that_has_served_is_never_given_up_and_its_pauses_grow(
    tmp_path: Path,
) -> None:
    child = make_child(tmp_path, "raise SystemExit('aerobee broker: the disk is gone')")
    child.served()
    ends = await ends_of(child, 3 * FIRST_STARTS_MAX)
    pauses_s = [end.restart_delay_s for end in ends]
    assert pauses_s[:5] == [0.001, 0.002, 0.004, 0.008, 0.008]
    assert set(pauses_s[4:]) == {0.008}
    assert ends[0].sentence() == (
        "thing ended with exit code 1: broker: the disk is gone; starting it again in 0.0 s"
    )
    assert "(18 times in a row)" in ends[-1].sentence()
    assert RESTART_BACKOFF.max_ms == 30_000


async def test_a_child_that_ran_for_a_while_is_forgiven_its_earlier_deaths(tmp_path: Path) -> None:
    clock = _Clock()
    child = make_child(tmp_path, "raise SystemExit(1)", clock=clock)
    child.served()
    clock.run_s = STABLE_AFTER_S
    assert [end.in_a_row for end in await ends_of(child, 3)] == [1, 1, 1]
    clock.run_s = STABLE_AFTER_S / 3
    assert [end.in_a_row for end in await ends_of(child, 3)] == [1, 2, 3]


async def test_a_child_that_someone_stopped_is_told_as_such_and_started_again(
    tmp_path: Path,
) -> None:
    child = make_child(tmp_path, "raise SystemExit(0)")
    child.served()
    (ended,) = await ends_of(child, 1)
    assert ended.sentence() == (
        "thing was stopped from outside (exit code 0); starting it again in 0.0 s"
    )


async def test_a_first_start_that_fails_again_and_again_is_given_up(tmp_path: Path) -> None:
    child = make_child(tmp_path, "raise SystemExit('no such module')")
    with pytest.raises(Failure, match=r"did not start: it ended 6 times in a row.*no such module"):
        await child.supervise(on_started=lambda _: None, on_ended=lambda _: None)


async def test_a_refusal_after_it_has_served_is_tried_again(tmp_path: Path) -> None:
    child = make_child(tmp_path, "raise SystemExit(3)")
    child.served()
    assert len(await ends_of(child, 4)) == 4


async def test_a_refused_start_is_told_in_the_words_of_the_child(tmp_path: Path) -> None:
    child = make_child(
        tmp_path,
        "import sys; print('aerobee broker: the folder is locked', file=sys.stderr); sys.exit(3)",
    )
    with pytest.raises(Failure, match="thing did not start: broker: the folder is") as caught:
        await child.supervise(on_started=lambda _: None, on_ended=lambda _: None)
    assert caught.value.exit_code == 3


async def test_a_child_that_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    program = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\n"
        "time.sleep(60)\n"
    )
    child = make_child(tmp_path, program, stop_timeout_s=0.2)
    task = asyncio.ensure_future(
        child.supervise(on_started=lambda _: None, on_ended=lambda _: None)
    )
    async with asyncio.timeout(10):
        while not (tmp_path / "thing.log").exists() or not (tmp_path / "thing.log").read_text():
            await asyncio.sleep(0.01)
    pid = child.pid
    assert pid is not None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not await child.stop()
    assert has_ended(pid)


async def test_a_child_ends_with_its_killed_parent(tmp_path: Path) -> None:
    parent_program = (
        "import asyncio, random, sys\n"
        "from pathlib import Path\n"
        "from aerobee.cli.local_cluster.child import Child, ChildSpec\n"
        "from aerobee.runtime.clock import SystemClock\n"
        "spec = ChildSpec(name='thing', argv=('/bin/sleep', '60'), log=Path(sys.argv[1]),\n"
        "                 stop_timeout_s=1)\n"
        "child = Child(spec, clock=SystemClock(), chance=random.Random(1))\n"
        "asyncio.run(child.supervise(on_started=lambda c: print(c.pid, flush=True),\n"
        "                            on_ended=print))\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        parent_program,
        str(tmp_path / "thing.log"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    # Until it is the program itself, it may be on the way to tie itself to its parent.
    async with asyncio.timeout(10):
        while b"sleep" not in Path(f"/proc/{pid}/comm").read_bytes():
            await asyncio.sleep(0.01)
    parent.kill()
    await parent.wait()
    await eventually_ended(pid)


def test_the_ready_file_is_whole_or_not_there(tmp_path: Path) -> None:
    plan = ClusterPlan(
        data=tmp_path,
        cluster="test",
        ports=default_ports(brokers=1, nameserver=1081, broker_first=1911, etcd=1379),
    )
    document = ready_document(plan, {"broker-a": 7, "nameserver": 8, "etcd": 9})
    write_document(tmp_path / "ready.json", document, advice="")
    assert [path.name for path in tmp_path.iterdir()] == ["ready.json"]
    assert document["brokers"] == [
        {"name": "broker-a", "id": 0, "address": "127.0.0.1:1911", "pid": 7}
    ]
    with pytest.raises(EnvironmentFailure, match=r"cannot write .*: .*; choose another"):
        write_document(tmp_path / "none" / "ready.json", document, advice="choose another")
