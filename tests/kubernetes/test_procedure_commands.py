"""Commands of docs/operations/kubernetes.md that can be tried without a cluster of machines.

Patches on the rendered objects, settings on the services' own configuration, scripts as they stand,
and etcd by force with real members.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.cli.local_cluster.programs import etcd_binary
from aerobee.runtime.config import load_config
from tests.kubernetes.conftest import Overlay
from tests.kubernetes.etcd_pods import PORTS, local_words, running, wait_until_healthy
from tests.kubernetes.manifests import Manifests, Object
from tests.kubernetes.pages import commands_of
from tests.kubernetes.rendering import ROOT
from tests.support.command_parsing import parsed
from tests.support.etcd_cluster import RunningMember
from tests.support.ports import free_ports

PAGE = ROOT / "docs" / "operations" / "kubernetes.md"
PAGES = (PAGE, PAGE.with_name("move-etcd.md"), ROOT / "deploy" / "k8s" / "README.md")
FORCE = "--force-new-cluster"


def commands(page: Path) -> list[str]:
    return commands_of(page.read_text("utf-8"))


def patches(page: Path) -> list[list[Any]]:
    """JSON patches of the StatefulSet of etcd."""
    found = []
    for command in commands(page):
        if "patch statefulset aerobee-etcd" in command:
            # The one within double quotes has the place that a command before it found.
            quoted = re.search(r"-p '(.*)'$", command) or re.search(r'-p "(.*)"$', command)
            assert quoted, command
            found.append(json.loads(quoted[1].replace('\\"', '"').replace("$LAST", "-1")))
    return found


def apply(patch: list[Any], document: Object) -> None:
    """RFC 6902, as far as the pages use it; AssertionError where `test` fails."""
    for step in patch:
        *path, last = step["path"].strip("/").split("/")
        place: Any = document
        for name in path:
            place = place[int(name)] if isinstance(place, list) else place[name]
        key: Any = last
        if isinstance(place, list) and last != "-":
            key = int(last)
        match step["op"]:
            case "test":
                assert place[key] == step["value"], step
            case "replace":
                assert key in place or key < len(place)
                place[key] = step["value"]
            case "add" if last == "-":
                place.append(step["value"])
            case "add":
                place[key] = step["value"]
            case "remove":
                del place[key]
            case unknown:
                raise AssertionError(unknown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_patches_of_pages_fit_the_manifests(overlay: Overlay, page: Path) -> None:
    found = patches(page)
    assert found
    changed = overlay("ha").get("StatefulSet", "aerobee-etcd")
    for patch in found:
        apply(patch, changed)
    arguments = changed["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--initial-cluster-state=existing" in arguments
    assert FORCE not in arguments
    assert changed["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_objects_and_files_of_the_page_exist(overlay: Overlay) -> None:
    ha = overlay("ha+audit")
    pods = {name for pod in ha.pods() for name in pod.instances}
    claims = {
        f"{claim['metadata']['name']}-{instance}"
        for pod in ha.pods()
        for claim in pod.owner["spec"].get("volumeClaimTemplates", ())
        for instance in pod.instances
    }
    owners = {pod.name for pod in ha.pods()}
    ours = {"aerobee-volume-tools", "aerobee-backups"}
    ours |= {f"aerobee-restore-etcd-{ordinal}" for ordinal in range(3)}
    for command in commands(PAGE):
        for name in re.findall(r"(?:data-)?aerobee-(?:[a-z]+-?)+\d?", command):
            assert name.rstrip("-") in pods | claims | owners | ours | {"data-aerobee-etcd"}, (
                command
            )
        for path in re.findall(r"\bdeploy/k8s/[\w./-]+", command):
            assert (ROOT / path).exists(), path


def test_the_survivor_s_setting_wins_over_the_file(overlay: Overlay) -> None:
    """`kubectl set env`, and its end, on the configuration that the group's pods have."""
    (given, ended) = (
        shlex.split(command)[-1] for command in commands(PAGE) if "set env" in command
    )
    name, _, value = given.partition("=")
    assert ended == f"{name}-"
    ha = overlay("ha")
    (pod,) = (one for one in ha.pods_of("broker") if one.name == "aerobee-broker-a")
    environment = pod.environment(pod.containers[0], 0)
    file = _mounted(ha)
    for variables, expected in ((environment, 2), ({**environment, name: value}, 1)):
        config = load_config(
            BrokerConfig, environment_prefix="AEROBEE_BROKER", file=file, environment=variables
        ).config
        assert config.replication.min_insync_replicas == expected


def _mounted(manifests: Manifests) -> Path:
    """The same file that the ConfigMap was made of."""
    path = ROOT / "deploy" / "k8s" / "overlays" / "ha" / "broker.toml"
    assert manifests.config("aerobee-broker-config")["data"]["broker.toml"] == path.read_text()
    return path


def test_the_nameserver_that_allows_an_unclean_election_can_start_in_a_pod() -> None:
    (command,) = (one for one in commands(PAGE) if "--unclean-election" in one)
    words = shlex.split(command.partition(" -- ")[2])
    assert words[:2] == ["timeout", "--preserve-status"]
    parsed(words[words.index("aerobee") + 1 :])


def test_archives_are_of_what_the_pod_mounts(tmp_path: Path) -> None:
    """Also of what back-up-and-restore.md copies: no shell and no `tar` is in the image."""
    pages = (PAGE, PAGE.with_name("back-up-and-restore.md"))
    scripts = [one for page in pages for one in commands(page) if "tarfile" in one]
    assert len(scripts) == 2
    for command in scripts:
        (script,) = re.findall(r'python3 -c "(.*)" >', command)
        (folder,) = re.findall(r"\.add\('/var/lib/aerobee/(\w+)'", script)
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("content")
        script = script.replace("/var/lib/aerobee", str(tmp_path))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
        (archive := tmp_path / "archive.tar").write_bytes(done.stdout)
        with tarfile.open(archive) as found:
            assert found.getnames() == [folder, f"{folder}/file"]


def test_the_newest_snapshot_goes_to_a_member_s_claim(tmp_path: Path) -> None:
    """Out of one pod and into the other, in place of whatever the member had."""
    scripts = [re.findall(r'python3 -c "([^"]*)"', one) for one in commands(PAGE)]
    fetch, put = (one for (one, *_) in filter(None, scripts) if "copyfileobj" in one)
    for folder, names in (
        ("backups", ("etcd-1.db", "etcd-2.db", "other")),
        ("claim", ("etcd.db",)),
    ):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text(name)
    (tmp_path / "claim" / "data").mkdir()
    run = partial(subprocess.run, capture_output=True, check=True)
    fetched = run([sys.executable, "-c", _at(fetch, tmp_path / "backups")]).stdout
    run([sys.executable, "-c", _at(put, tmp_path / "claim")], input=fetched)
    assert [one.name for one in (tmp_path / "claim").iterdir()] == ["etcd.db"]
    assert (tmp_path / "claim" / "etcd.db").read_text() == "etcd-2.db"


def _at(script: str, folder: Path) -> str:
    """What the script does in a pod that mounts `folder`."""
    return script.replace("/var/lib/aerobee", str(folder))


@pytest.mark.thorough
@pytest.mark.slow
def test_a_survivor_of_etcd_goes_on_alone_and_takes_members_again(
    overlay: Overlay, tmp_path: Path
) -> None:
    """The three pods' command lines; two are lost with their claims; the page's patches on one."""
    stateful_set = overlay("ha").get("StatefulSet", "aerobee-etcd")
    (whole,) = Manifests([stateful_set]).pods()
    ports = free_ports(len(whole.instances) * len(PORTS))
    forcing, undoing = (copy.deepcopy(stateful_set) for _ in range(2))
    first, second = patches(PAGE)
    apply(first, forcing)
    apply([*first, *second], undoing)
    logs = iter(tmp_path / f"{at}.log" for at in range(9))

    def words(owner: Object, ordinal: int) -> list[str]:
        (pod,) = Manifests([owner]).pods()
        found = local_words(pod, whole, ports, tmp_path / str(ordinal), ordinal)
        return [str(etcd_binary()), *found[1:]]

    with ExitStack() as stack:
        for ordinal in range(3):
            stack.enter_context(running(words(stateful_set, ordinal), next(logs)))
        for ordinal in range(3):
            wait_until_healthy(ports[ordinal * len(PORTS) + 2])
    # All have ended; two have lost their claims.
    for lost in ("1", "2"):
        shutil.rmtree(tmp_path / lost)
    with running(words(forcing, 0), next(logs)) as process:
        wait_until_healthy(ports[2])
        member = RunningMember("0", ports[0], process)
        assert len(member.ask("cluster/member/list")["members"]) == 1
        member.put("/aerobee/aerobee/topics/orders", b"{}")
    with running(words(undoing, 0), next(logs)) as process:
        wait_until_healthy(ports[2])
        member = RunningMember("0", ports[0], process)
        assert member.get("/aerobee/aerobee/topics/orders") == b"{}"
        member.ask("cluster/member/add", peerURLs=[f"http://127.0.0.1:{ports[len(PORTS) + 1]}"])
        joining = [
            re.sub(r",aerobee-etcd-2=\S+", "", word) if "initial-cluster=" in word else word
            for word in words(undoing, 1)
        ]
        with running(joining, next(logs)):
            wait_until_healthy(ports[len(PORTS) + 2])
            assert len(member.ask("cluster/member/list")["members"]) == 2
