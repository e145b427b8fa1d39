"""The etcd of the manifests forms a cluster: the rendered command lines, with only the pods' names
replaced by addresses of this machine, are run by a real etcd.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner

from aerobee.cli.commands.etcd import etcd as upkeep_command
from aerobee.cli.local_cluster.programs import etcd_binary
from aerobee.nameserver.config import EtcdConfig, EtcdTlsConfig, NameserverConfig
from aerobee.nameserver.etcd import Etcd
from aerobee.runtime.config import load_config
from aerobee.runtime.errors import RegistryUnavailable
from tests.kubernetes.conftest import Overlay
from tests.kubernetes.etcd_pods import (
    PORTS,
    READY_TIMEOUT_S,
    local_words,
    running,
    wait_until_healthy,
)
from tests.kubernetes.manifests import PodTemplate
from tests.kubernetes.rendering import MANIFESTS, render_with
from tests.support.certificates import issue
from tests.support.ports import free_ports


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single", "ha"])
def test_the_members_of_an_overlay_form_a_cluster(
    overlay: Overlay, name: str, tmp_path: Path
) -> None:
    (pod,) = overlay(name).pods_of("etcd")
    ports = free_ports(len(pod.instances) * len(PORTS))
    with ExitStack() as stack:
        for ordinal, instance in enumerate(pod.instances):
            words = _local(pod, ordinal, ports, tmp_path / instance)
            stack.enter_context(running(words, tmp_path / f"{instance}.log"))
        for ordinal in range(pod.replicas):
            wait_until_healthy(ports[ordinal * len(PORTS) + 2])
    for instance in pod.instances:
        assert (tmp_path / instance / "data" / "member").is_dir()


@pytest.mark.thorough
@pytest.mark.slow
def test_one_member_becomes_three_as_the_readme_says(overlay: Overlay, tmp_path: Path) -> None:
    """`From single to ha`: what its commands make of the pods' command lines."""
    (one,) = overlay("single").pods_of("etcd")
    (three,) = overlay("ha").pods_of("etcd")
    (patch,) = re.findall(r"--type json -p '(.*?)'", (MANIFESTS / "README.md").read_text())
    tested, replaced, _ = json.loads(patch)
    assert one.containers[0]["args"][int(tested["path"].rpartition("/")[2])] == tested["value"]
    ports = free_ports(three.replicas * len(PORTS))
    with ExitStack() as stack:
        for ordinal in range(three.replicas):
            instance = three.instances[ordinal]
            words = _local(three if ordinal else one, ordinal, ports, tmp_path / instance)
            if ordinal:
                _until_done(_add_member, ports[0], ports[ordinal * len(PORTS) + 1])
                (members,) = (word for word in words if word.startswith("--initial-cluster="))
                known = ",".join(members.split(",")[: ordinal + 1])
                changed = {members: known, tested["value"]: replaced["value"]}
                words = [changed.get(word, word) for word in words]
            stack.enter_context(running(words, tmp_path / f"{instance}.log"))
            for at in range(ordinal + 1):
                wait_until_healthy(ports[at * len(PORTS) + 2])
        assert len(_ask(ports[0], "cluster/member/list")["members"]) == three.replicas


@pytest.mark.slow
async def test_with_certificates_nameservers_are_let_in_and_nobody_else(
    overlay: Overlay, tmp_path: Path
) -> None:
    """The component `etcd-tls`: command line and variables of its pods and jobs, with files instead
    of the Secrets of README.md."""
    overlay("single")  # skips where nothing can be rendered
    mine = render_with(
        tmp_path,
        resources=["overlays/single"],
        components=["components/etcd-upkeep", "components/etcd-tls"],
    )
    (pod,) = mine.pods_of("etcd")
    (nameserver,) = mine.pods_of("nameserver")
    authority = trustme.CA()
    issue(authority, tmp_path / "aerobee-etcd-server", "127.0.0.1")
    issue(authority, tmp_path / "aerobee-etcd-client", "aerobee-nameserver")
    ports = free_ports(len(PORTS))
    words = _local(pod, 0, ports, tmp_path / "data")
    words = [word.replace("/etc/aerobee-etcd", _secret(pod, tmp_path)) for word in words]
    variables = {
        name: value.replace("/etc/aerobee-etcd", _secret(nameserver, tmp_path))
        for name, value in nameserver.environment(nameserver.containers[0], 0).items()
    }
    variables["AEROBEE_NAMESERVER_ETCD_ENDPOINTS"] = f"127.0.0.1:{ports[0]}"
    upkeep = next(pod for pod in mine.pods_of("etcd-upkeep") if "snapshots" in pod.name)
    of_jobs = {
        name: value.replace("/etc/aerobee-etcd", _secret(upkeep, tmp_path))
        for name, value in upkeep.environment(upkeep.containers[0], 0).items()
    }
    of_jobs["ETCDCTL_ENDPOINTS"] = f"127.0.0.1:{ports[0]}"
    config = load_config(
        NameserverConfig, environment_prefix="AEROBEE_NAMESERVER", environment=variables
    ).config
    stranger = EtcdConfig(endpoints=config.etcd.endpoints, tls=EtcdTlsConfig(ca=config.etcd.tls.ca))
    with running(words, tmp_path / "etcd.log"):
        await asyncio.to_thread(wait_until_healthy, ports[2])
        async with Etcd(config.etcd, chance=random.Random(1)) as etcd:
            assert await etcd.revision() > 0
        asked = partial(CliRunner().invoke, upkeep_command, ["status"])
        done = await asyncio.to_thread(asked, env=of_jobs)
        assert (done.exit_code, "aerobee-etcd-0" in done.output) == (0, True), done.output
        refused = await asyncio.to_thread(
            asked, env={**of_jobs, "ETCDCTL_CERT": "", "ETCDCTL_KEY": ""}
        )
        assert refused.exit_code != 0
        async with Etcd(stranger, chance=random.Random(1)) as etcd:
            with pytest.raises(RegistryUnavailable):
                await etcd.revision()


def _secret(pod: PodTemplate, folder: Path) -> str:
    """Where this machine has the files that the pod finds in /etc/aerobee-etcd."""
    (name,) = (
        volume["secret"]["secretName"] for volume in pod.spec["volumes"] if "secret" in volume
    )
    return str(folder / name)


def _add_member(client_port: int, peer_port: int) -> None:
    _ask(client_port, "cluster/member/add", peerURLs=[f"http://127.0.0.1:{peer_port}"])


def _ask(port: int, method: str, **request: Any) -> Any:
    url, body = f"http://127.0.0.1:{port}/v3/{method}", json.dumps(request).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=5) as answer:
        return json.loads(answer.read())


def _until_done(call: Callable[..., None], *arguments: int) -> None:
    """etcd takes no change before the last one has settled."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            return call(*arguments)
        except urllib.error.HTTPError as error:
            if time.monotonic() >= deadline_s:
                raise AssertionError(error.read()) from None
        time.sleep(0.2)


def _local(pod: PodTemplate, ordinal: int, ports: list[int], folder: Path) -> list[str]:
    """A pod's command line with this machine's addresses in place of the cluster's names."""
    words = local_words(pod, pod, ports, folder, ordinal)
    assert words[0] == "etcd"
    return [str(etcd_binary()), *words[1:]]
