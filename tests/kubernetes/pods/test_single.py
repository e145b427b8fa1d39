"""The overlay `single` runs as it is written: etcd, nameserver, broker and tools in containers, and
the demo's producer and consumers go through it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aerobee.cli.demo.flights import flights_archive
from tests.kubernetes.pods.cluster import TOOLS, PodCluster, open_cluster
from tests.kubernetes.pods.engine import PodmanFailed
from tests.kubernetes.pods.kubelet import memory_bytes
from tests.kubernetes.pods.load_client import CHECKOUT, NAMESERVER, PYTHON
from tests.kubernetes.pods.local_manifests import local_manifests
from tests.kubernetes.pods.outcome import has_failed

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(180)]

SERVERS = ("aerobee-etcd", "aerobee-nameserver", "aerobee-broker-a")
FLIGHTS = 40_000
USER = "10001"
REFUSED = """
import os, sys
for path in sys.argv[1:]:
    try:
        open(os.path.join(path, "written"), "w").close()
    except OSError as error:
        print(error.errno)
    else:
        print("written")
        os.remove(os.path.join(path, "written"))
"""
OPEN_TO_OTHERS = """
import os, sys
made = [(at, *(os.path.join(at, name) for name in names)) for at, _, names in os.walk(sys.argv[1])]
print(len(made), *(path for paths in made for path in paths if os.stat(path).st_mode & 0o077))
"""
READ_ONLY = "30"
"""EROFS."""


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[PodCluster]:
    tests = Path(__file__).resolve().parent.parent.parent
    mounts = {f"{CHECKOUT}/tests": tests, "/flights": flights_archive().parent}
    manifests = local_manifests(tmp_path, "single")
    async with open_cluster(manifests, *SERVERS, TOOLS, mounts=mounts) as cluster:
        yield cluster
        if has_failed(request.node):
            print(await cluster.account())


async def test_the_demo_goes_through_a_cluster_of_pods(cluster: PodCluster) -> None:
    await cluster.start(*SERVERS, TOOLS)
    await cluster.ready(*SERVERS, TOOLS)
    await _are_confined(cluster)
    told = await cluster.tools.execute(
        *("python3", "-m", "tests.kubernetes.pods.demo"),
        *(NAMESERVER, "aerobee", "/flights/flights.csv.zip", str(FLIGHTS)),
        environment=PYTHON,
        timeout_s=120,
    )
    outcome = json.loads(told)
    assert outcome["proven"], outcome
    assert outcome["sent"] == FLIGHTS
    assert cluster.must_restart() == {}
    # Also below the root of a volume, which is not the broker's and open to its group.
    for pod in cluster.of("aerobee-broker-a"):
        told = await pod.execute("python3", "-c", OPEN_TO_OTHERS, "/var/lib/aerobee/store")
        folders, *is_open = told.split()
        assert int(folders) > 5
        assert is_open == []
    print(outcome["perSecond"])
    for pod in cluster.pods.values():
        ready_s = pod.probes.ready_after_s or 0.0
        memory_mb = memory_bytes(await pod.process_id()) / 1e6
        print(f"{pod.name}: ready after {ready_s:.1f} s, {memory_mb:.0f} MB")
    for stopped in await cluster.stop(*SERVERS):
        assert stopped.exit_code == 0


async def _are_confined(cluster: PodCluster) -> None:
    """Every pod is what its securityContext says, seen from outside and from inside."""
    for pod in cluster.pods.values():
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{await pod.process_id()}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {USER}
        assert status["Groups"].split() == [USER]
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, (pod.name, kind)
        assert status["NoNewPrivs"] == "1"
        # 2: a filter of system calls is in force.
        assert status["Seccomp"] == "2"
    for pod in (*cluster.of("aerobee-broker-a"), *cluster.of("aerobee-nameserver")):
        mounts = [one["mountPath"] for one in pod.container["volumeMounts"]]
        writable = [path for path in mounts if path != "/etc/aerobee"]
        places = ["/", "/etc", "/usr/local", "/var", "/etc/aerobee"]
        told = await pod.execute("python3", "-c", REFUSED, *places, *writable)
        assert told.split() == [READ_ONLY] * len(places) + ["written"] * len(writable)
    with pytest.raises(PodmanFailed, match="Operation not permitted"):
        await cluster.tools.execute("python3", "-c", "import os; os.setuid(0)")
