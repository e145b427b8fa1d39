"""`aerobee up` and the client commands, as a user runs them: real processes, real signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.local_up import (
    AEROBEE,
    PATIENCE_S,
    Up,
    is_alive,
    numbers,
    processes_naming,
    received,
    running,
    sent,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
MIB = 1024 * 1024


def test_whatever_is_killed_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        sent(up, "kept", numbers(1_000))
        for turn, name in enumerate(("broker-a", "nameserver", "etcd")):
            before = up.document()["pids"][name]
            os.kill(before, signal.SIGKILL)

            def is_back(name: str = name, before: int = before) -> bool:
                return up.document()["pids"][name] not in (None, before) and up.knows("kept")

            wait_until(is_back, f"a new process of {name}, and the topic's queues")
            assert f"{name} ended with signal SIGKILL; starting it again" in up.said()
            more = numbers(10, start=1_000 + 10 * turn)
            sent(up, "kept", more, "--timeout-ms", "30000")
        assert sorted(received(up, "kept", "g", 1_030)) == sorted(numbers(1_030))


def bytes_of(folder: Path) -> int:
    """Of all files together, as they are told, not as they lie on the disk."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def refused(data: Path, setting: str) -> str:
    """What `up` says that does not even begin."""
    done = subprocess.run(
        [*AEROBEE, "up", "--data", str(data), "--ports", "auto", "--broker-set", setting],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2
    return done.stderr


def test_a_stopped_folder_goes_on_with_its_messages_and_offsets(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        sent(up, "kept", numbers(100))
        first = received(up, "kept", "g", 60)
        pids = up.pids()
        assert up.end(signal.SIGTERM) == 0
    assert not any(is_alive(pid) for pid in pids)
    assert not up.ready_file.exists()
    store = up.data / "brokers" / "broker-a"
    assert bytes_of(store) < 3 * 64 * MIB
    assert refused(up.data, "store.segment_bytes=1073741824") == (
        f"aerobee: --broker-set store.segment_bytes=1073741824 contradicts the data folder "
        f"{up.data}: broker-a was written with 67108864; leave the option out, or choose another "
        "--data\n"
    )
    subprocess.run([*AEROBEE, "store", "verify", str(store)], check=True, timeout=PATIENCE_S)
    with running(tmp_path) as up:
        second = received(up, "kept", "g", 40)
        assert sorted(first + second) == sorted(numbers(100))


def test_no_other_user_reaches_what_it_and_its_clients_write(tmp_path: Path) -> None:
    """Messages, logs, etcd, secrets, keys: also where the umask takes nothing away. Nor is etcd's
    port open to who has no certificate."""
    before = os.umask(0)
    try:
        with running(tmp_path, "--access", "--tls", "--replicas", "2") as up:
            up.environment["AEROBEE_CLUSTER_SECRET_FILE"] = str(up.data / "access/cluster-secret")
            up.environment["HOME"] = str(up.data / "home")
            sent(up, "kept", numbers(10))
            received(up, "kept", "g", 10)
            received(up, "kept", "everywhere", 10, "--from", "first", "--broadcast")
            up.run("user", "create", "shop", "--credentials-file", str(up.data / "shop.keys"))
            assert up.ready_file.stat().st_mode & 0o077 == 0
            assert not etcd_answers(up, "client"), "only the nameserver's certificate opens it"
            assert not etcd_answers(up)
    finally:
        os.umask(before)
    made = [up.data, *up.data.rglob("*")]
    assert {path.name for path in made} >= {
        "cluster-secret",
        "ca.crt",
        "client.key",
        "shop.keys",
        "commitlog",
        "consumerOffset.json",
        "nameserver.log",
        "up.lock",
    }
    assert [path for path in made if path.lstat().st_mode & 0o077] == []


def etcd_answers(up: Up, certificate: str = "") -> bool:
    tls = up.data / "tls"
    context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
    if certificate:
        context.load_cert_chain(tls / f"{certificate}.crt", tls / f"{certificate}.key")
    try:
        url = f"https://{up.document()['etcd']}/version"
        with urllib.request.urlopen(url, context=context, timeout=PATIENCE_S) as answer:
            return "etcdserver" in answer.read().decode()
    except OSError:
        return False


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    with running(tmp_path, "--brokers", "2") as up:
        pids = up.pids()
        assert up.end(signal.SIGINT) == 130
        assert up.said().splitlines()[-1] == "stopped"
    assert len(pids) == 4
    assert not any(is_alive(pid) for pid in pids)


def test_a_second_ctrl_c_does_not_wait_for_a_process_that_hangs(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        pids = up.pids()
        os.kill(up.document()["pids"]["broker-a"], signal.SIGSTOP)
        up.process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping brokers" in up.said(), "it is stopping")
        assert up.end(signal.SIGINT) == 130
        # Not the last line: asyncio, which a forked start has in place of uvloop, may add that its
        # loop was closed before it heard of all deaths.
        assert "aerobee: stopped at once; processes were killed" in up.said().splitlines()
    wait_until(lambda: not any(is_alive(pid) for pid in pids), "who was killed is gone")


def test_ctrl_c_before_it_is_ready_leaves_no_process(tmp_path: Path) -> None:
    up = Up(tmp_path)
    wait_until(lambda: (up.data / "logs" / "broker-a.log").exists(), "a broker was started")
    assert up.end(signal.SIGINT) == 130
    assert processes_naming(up.data) == []
    up.output.close()


@pytest.mark.thorough
def test_a_killed_parent_takes_its_children_with_it(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        sent(up, "kept", numbers(100))
        pids = up.pids()
        up.process.kill()
        up.process.wait()
        wait_until(lambda: not any(is_alive(pid) for pid in pids), "all children have ended")
    up.ready_file.unlink()
    with running(tmp_path) as up:
        assert sorted(received(up, "kept", "g", 100)) == sorted(numbers(100))


def test_one_folder_serves_one_cluster(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        second = subprocess.run(
            [*AEROBEE, "up", "--data", str(up.data), "--ports", "auto"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert second.returncode == 3
        assert second.stderr == (
            f"aerobee: the data folder {up.data} is in use by another cluster (process "
            f"{up.process.pid}); stop it or choose another --data\n"
        )


def test_a_broker_refuses_a_folder_that_another_one_uses(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        second = subprocess.run(
            [
                *(*AEROBEE, "broker", "--listen", "127.0.0.1:0", "--nameservers", ""),
                *("--store-root", str(up.data / "brokers" / "broker-a")),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert second.returncode == 3, second.stderr
        assert "Traceback" not in second.stderr


def test_a_port_in_use_is_told_before_anything_is_started(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        done = subprocess.run(
            [
                *(*AEROBEE, "up", "--data", str(tmp_path / "data")),
                *("--nameserver-port", str(port), "--broker-port", "1025", "--etcd-port", "1027"),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 3
    assert done.stderr.startswith(f"aerobee: port {port} (the nameserver) is in use")
    assert done.stderr.count("\n") == 1
    assert list((tmp_path / "data" / "logs").iterdir()) == []


def test_a_wrong_broker_setting_is_told_in_one_sentence(tmp_path: Path) -> None:
    up = Up(tmp_path, "--broker-set", "store.segment_bytes=few")
    assert up.process.wait(PATIENCE_S) == 2
    last = up.said().splitlines()[-1]
    assert last.startswith("aerobee: broker-a did not start:")
    assert "store.segment_bytes" in last
    up.output.close()


def test_a_broker_that_takes_no_messages_is_told_with_its_reason(tmp_path: Path) -> None:
    with running(tmp_path, "--broker-set", "store.disk_free_bytes_min=4611686018427387904") as up:
        said = wait_until(lambda: "takes no messages" in up.said() and up.said(), "the reason")
        (line,) = [line for line in said.splitlines() if "takes no messages" in line]
        assert "broker-a" in line
        reason = "bytes free, less than the 4611686018427387904 that must stay"
        assert reason in line
        (found,) = up.json("doctor", expect=2)["findings"]
        assert (found["check"], found["severity"]) == ("NOT_WRITABLE", "ERROR")
        assert found["evidence"].startswith("broker-a:0 takes no messages: ")
        assert reason in found["evidence"]
        log = (up.data / "logs" / "broker-a.log").read_text()
        (line,) = [line for line in log.splitlines() if "writable=False" in line]
        assert " WARNING " in line


def test_an_ephemeral_cluster_removes_its_folder(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    process = subprocess.Popen(
        [*AEROBEE, "up", "--ephemeral", "--ports", "auto", "--ready-file", str(ready_file)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(ready_file.exists, "the ready file")
        folder = Path(json.loads(ready_file.read_text())["data"])
        assert folder.is_dir()
    finally:
        process.terminate()
    assert process.wait(PATIENCE_S) == 0
    assert not folder.exists()


@pytest.mark.thorough
def test_the_demo_proves_what_it_claims(tmp_path: Path) -> None:
    done = subprocess.run(
        [*AEROBEE, "demo", "--flights", "20000", "--transactions"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 of consumer-2" in done.stdout
    assert "saw 20,000 of 20,000 flights" in done.stdout
    assert "refund-desk cannot handle came 3 times and is a dead letter" in done.stdout
    assert "refund-desk: handled 4 of 4 cancelled flights" in done.stdout
    assert "was sent again and is handled" in done.stdout
    assert "bookings: 300 transactions, 200 in the ledger, 30 open when" in done.stdout
    assert "consumers saw 200 bookings in 200 messages, 0 of them wrong" in done.stdout
    assert "PROVEN: none of 20,000 flights is missing" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_console_waits_for_browsers_and_knows_nobody(tmp_path: Path) -> None:
    """It is loaded when the first one comes; with access control, visitors sign in."""
    with running(tmp_path, "--access", with_console=True) as up:
        address = up.document()["console"]
        assert f"  console     {address}\n" in up.said()
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{address}/groups", timeout=PATIENCE_S) as answer:
            assert answer.url == f"{address}/sign-in?next=%2Fgroups"
            assert "Access key" in answer.read().decode()
        assert up.end(signal.SIGTERM) == 0
        assert "the console ended" not in up.said()


def test_a_cluster_that_nobody_looks_at_loads_no_console(tmp_path: Path) -> None:
    with running(tmp_path, with_console=True) as up:
        loaded = Path(f"/proc/{up.document()['pid']}/maps").read_text()
        assert "markupsafe" not in loaded, "jinja2 needs it"
        with urllib.request.urlopen(up.document()["console"], timeout=PATIENCE_S) as answer:
            assert "Consumer groups" in answer.read().decode()
        assert "markupsafe" in Path(f"/proc/{up.document()['pid']}/maps").read_text()
    (tmp_path / "other").mkdir()
    with running(tmp_path / "other") as up:
        assert "console" not in up.document()
