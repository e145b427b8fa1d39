"""Commands of the pages for operators, carried out as they stand there, by the real `kubectl` on a
real API server with its controllers and scheduler.

What they do inside pods is shown elsewhere (test_procedure_commands.py, tests/docs): no pod runs
anything here, and every command for one is parsed alone.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.api_server.client import Api
from tests.kubernetes.api_server.control_plane import running_control_plane
from tests.kubernetes.api_server.nodes import BROKEN, add_nodes, add_volumes, kubelets
from tests.kubernetes.api_server.programs import VERSION, built_programs
from tests.kubernetes.api_server.shell import Failed, Shell
from tests.kubernetes.api_server.space import Space, is_ready
from tests.kubernetes.pages import sections
from tests.kubernetes.rendering import ROOT, render_with
from tests.support.command_parsing import parsed
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(300)]

OPERATIONS = ROOT / "docs" / "operations"
UPGRADE = sections(OPERATIONS / "upgrade.md")
PROCEDURES_PAGE = OPERATIONS / "kubernetes.md"
PROCEDURES = sections(PROCEDURES_PAGE)
REPLACE = sections(OPERATIONS / "replace-a-broker.md")
PODS = {
    "aerobee-etcd": 3,
    "aerobee-nameserver": 2,
    "aerobee-broker-a": 3,
    "aerobee-broker-b": 3,
}
COMPONENTS = ["components/held-rollouts", "components/etcd-upkeep"]
STATEFUL_SETS = "/apis/apps/v1/namespaces/aerobee/statefulsets"
MIN_IN_SYNC = "AEROBEE_BROKER_REPLICATION_MIN_INSYNC_REPLICAS"
CARRIED_OUT = {
    "upgrade": {
        "1. Nameservers",
        "2. One pod of one group",
        "3. The rest of this group",
        "4. The other groups, one after the other",
        "Once: the nameservers' Service",
        "Going back",
    },
    "kubernetes": {
        "A group below its minimum, for good",
        "etcd: the majority is lost for good",
        "etcd: all members are lost",
        "A damaged folder",
        "A pod is Terminating, a node is gone",
    },
    "replace-a-broker": {"Kubernetes"},
}
RELEASED, NEXT = "0.1.0", "0.2.0"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Path]]:
    """The API, and the file with which kubectl finds it."""
    programs = built_programs()
    if programs is None:
        pytest.skip(f"Kubernetes {VERSION} is not built: `make k8s-test` builds it with Go")
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl to carry out the pages' commands with")
    folder = tmp_path_factory.mktemp("control-plane")
    with running_control_plane(programs, folder) as api:
        add_volumes(api, add_nodes(api, 6), each=8)
        with kubelets(api):
            yield api, folder / "kubeconfig.json"


@pytest.fixture
def shell(plane: tuple[Api, Path], tmp_path: Path) -> Shell:
    return Shell(tmp_path / "shell", plane[1])


@pytest.fixture
def space(plane: tuple[Api, Path], shell: Shell) -> Space:
    """The overlay ha of the release with all its pods."""
    declare(shell.folder, RELEASED)
    shell.run(UPGRADE["1. Nameservers"])
    release_all(shell)
    space = Space(plane[0], "aerobee")
    space.wait_ready(PODS)
    return space


def declare(folder: Path, tag: str, *, brokers_tag: str = "") -> None:
    """The user's kustomization; `brokers_tag`: that of an image which brokers alone have."""
    path, value = "/spec/template/spec/containers/0/image", f"elsewhere/aerobee:{brokers_tag}"
    patch = {
        "target": {"kind": "StatefulSet", "labelSelector": "app.kubernetes.io/component=broker"},
        "patch": json.dumps([{"op": "replace", "path": path, "value": value}]),
    }
    render_with(
        folder,
        namespace="aerobee",
        resources=["overlays/ha"],
        components=COMPONENTS,
        images=[{"name": "aerobee", "newTag": tag}],
        patches=[patch] if brokers_tag else [],
    )


def release_all(shell: Shell) -> None:
    """What an earlier test has left is of the applied version afterwards."""
    for section in ("3. The rest of this group", "4. The other groups, one after the other"):
        shell.run(UPGRADE[section])


def images(space: Space, owner: str) -> list[str]:
    """The version of each pod, by ordinal."""
    pods = sorted(space.pods_of(owner), key=lambda pod: str(pod["metadata"]["name"]))
    return [pod["spec"]["containers"][0]["image"].partition(":")[2] for pod in pods]


def test_an_upgrade_goes_from_nameservers_to_one_pod_to_its_group_to_the_others(
    shell: Shell, space: Space
) -> None:
    declare(shell.folder, NEXT)
    expected = (
        ("1. Nameservers", [RELEASED] * 3, [RELEASED] * 3),
        ("2. One pod of one group", [RELEASED, RELEASED, NEXT], [RELEASED] * 3),
        ("3. The rest of this group", [NEXT] * 3, [RELEASED] * 3),
        ("4. The other groups, one after the other", [NEXT] * 3, [NEXT] * 3),
    )
    for section, first, second in expected:
        shell.run(UPGRADE[section])
        assert images(space, "aerobee-nameserver") == [NEXT] * 2
        assert images(space, "aerobee-broker-a") == first, section
        assert images(space, "aerobee-broker-b") == second, section
    check_executed(shell)


def test_a_bad_version_takes_one_pod_of_one_group_and_can_be_taken_back(
    shell: Shell, space: Space
) -> None:
    bad = f"{NEXT}{BROKEN}"
    declare(shell.folder, NEXT, brokers_tag=bad)
    shell.run(UPGRADE["1. Nameservers"])
    with pytest.raises(Failed, match="timed out"):
        shell.run([one.replace("30m", "5s") for one in UPGRADE["2. One pod of one group"]])

    def ready(owner: str) -> list[str]:
        return [pod["metadata"]["name"] for pod in space.pods_of(owner) if is_ready(pod)]

    assert images(space, "aerobee-broker-a") == [RELEASED, RELEASED, bad]
    assert len(ready("aerobee-broker-a")) == 2
    assert images(space, "aerobee-broker-b") == [RELEASED] * 3
    assert len(ready("aerobee-broker-b")) == 3
    # A pod of a group that waits starts again with what it had.
    shell.run(["kubectl -n aerobee delete pod aerobee-broker-b-2"])
    wait_until(lambda: len(ready("aerobee-broker-b")) == 3, "the pod is there again")
    assert images(space, "aerobee-broker-b") == [RELEASED] * 3
    declare(shell.folder, RELEASED)
    shell.run(UPGRADE["Going back"])
    space.wait_ready(PODS)
    assert images(space, "aerobee-broker-a") == [RELEASED] * 3


def test_the_nameservers_service_of_a_former_release_is_replaced(
    shell: Shell, space: Space
) -> None:
    """Its address cannot be taken away, as the page says."""
    path = "/api/v1/namespaces/aerobee/services/aerobee-nameserver"
    service = space.api.get(path)
    shell.run(["kubectl -n aerobee delete service aerobee-nameserver"])
    former = {key: service["spec"][key] for key in ("selector", "ports")}
    space.api.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "aerobee-nameserver", "namespace": "aerobee"},
            "spec": former,
        }
    )
    with pytest.raises(Failed, match="clusterIP"):
        shell.run(["kubectl apply -k ."])
    shell.run(UPGRADE["Once: the nameservers' Service"])
    assert space.api.get(path)["spec"]["clusterIP"] == "None"


def check_executed(shell: Shell) -> None:
    """Commands for pods are ones that their programs take."""
    for _, words in shell.executed():
        if words[0] == "timeout":
            words = words[words.index("aerobee") :]
        if words[0] == "aerobee":
            parsed(words[1:])
        else:
            assert words[0] in ("etcdctl", "python3"), words


@pytest.mark.parametrize("page", ["upgrade", "kubernetes", "replace-a-broker"])
def test_every_section_with_commands_is_carried_out_here(page: str) -> None:
    """One that is added needs a test."""
    commands = sections(OPERATIONS / f"{page}.md")
    assert set(commands) == CARRIED_OUT[page]


def test_a_survivor_s_group_gets_its_setting_and_loses_it(shell: Shell, space: Space) -> None:
    def have_setting() -> set[str]:
        return {
            pod["metadata"]["name"]
            for pod in space.pods_of("aerobee-broker-a")
            for one in pod["spec"]["containers"][0]["env"]
            if one["name"] == MIN_IN_SYNC
        }

    # Groups wait, as they do after each `apply`.
    shell.run(["kubectl apply -k ."])
    commands = PROCEDURES["A group below its minimum, for good"]
    undoing = next(at for at, one in enumerate(commands) if one.endswith("REPLICAS-"))
    shell.run(commands[:undoing])
    assert "aerobee-broker-a-0" in have_setting()
    shell.run(commands[undoing:])
    assert not have_setting()
    check_executed(shell)


def test_etcd_s_survivor_is_saved_and_goes_on_alone(shell: Shell, space: Space) -> None:
    claims = claims_of(space)
    shell.run(PROCEDURES["etcd: the majority is lost for good"])
    assert (shell.folder / "etcd-before-forcing.tar").exists()
    etcd = space.api.get(f"{STATEFUL_SETS}/aerobee-etcd")["spec"]
    arguments = etcd["template"]["spec"]["containers"][0]["args"]
    assert "--initial-cluster-state=existing" in arguments
    assert "--force-new-cluster" not in arguments
    assert [pod["metadata"]["name"] for pod in space.pods_of("aerobee-etcd")] == ["aerobee-etcd-0"]
    left = claims_of(space)
    assert left["data-aerobee-etcd-0"] == claims["data-aerobee-etcd-0"]
    assert not {"data-aerobee-etcd-1", "data-aerobee-etcd-2"} & set(left)
    check_executed(shell)
    # The page's last word: apply your overlay.
    shell.run(["kubectl apply -k ."])
    space.wait_ready(PODS)


@pytest.mark.parametrize("with_snapshot", [True, False])
def test_all_of_etcd_gets_new_claims(shell: Shell, space: Space, *, with_snapshot: bool) -> None:
    commands = PROCEDURES["etcd: all members are lost"]
    second = [at for at, one in enumerate(commands) if "deployment/aerobee-nameserver" in one][2]
    claims = claims_of(space)
    shell.run(commands[:second] if with_snapshot else commands[second:])
    space.wait_ready(PODS)
    for name, claim in claims_of(space).items():
        assert (claims[name] != claim) == name.startswith("data-aerobee-etcd"), name
    assert not space.pods_of("aerobee-volume-tools")
    assert not space.job_pods_of("aerobee-restore-etcd")
    check_executed(shell)


def test_a_replica_s_claim_is_free_for_the_tools_while_its_pod_is_away(
    shell: Shell, space: Space
) -> None:
    claims = claims_of(space)
    shell.run(PROCEDURES["A damaged folder"])
    space.wait_ready(PODS)
    assert claims_of(space) == claims
    ours = [words for pod, words in shell.executed() if pod == "pod/aerobee-volume-tools"]
    assert [words[:3] for words in ours] == [
        ["aerobee", "store", "verify"],
        ["aerobee", "store", "repair"],
    ]
    check_executed(shell)


def test_a_lost_node_gives_its_pods_away_and_a_lost_claim_is_made_anew(
    shell: Shell, space: Space
) -> None:
    lost = "aerobee-broker-a-2"
    pod = space.api.get(f"/api/v1/namespaces/aerobee/pods/{lost}")
    claims, node = claims_of(space), pod["spec"]["nodeName"]
    taint, delete_claim, *others = REPLACE["Kubernetes"]
    assert taint in PROCEDURES["A pod is Terminating, a node is gone"]
    undo = re.findall(r"`(kubectl taint nodes NODE [^`]+-)`", PROCEDURES_PAGE.read_text())
    shell.run([taint.replace("NODE", node)])
    wait_until(lambda: is_away(space, lost, pod["metadata"]["uid"]), "the pod leaves the node")
    shell.run([one.replace("NODE", node) for one in undo])
    assert len(undo) == 1
    shell.run([delete_claim, *others])
    space.wait_ready(PODS)
    changed = {name for name, claim in claims_of(space).items() if claims[name] != claim}
    assert changed == {f"data-{lost}"}
    check_executed(shell)


def is_away(space: Space, name: str, uid: str) -> bool:
    """Whether a pod is gone, and another one has its name or none."""
    return all(pod["metadata"]["uid"] != uid for pod in space.pods_of(name[:-2]))


def claims_of(space: Space) -> dict[str, str]:
    """The identity of each claim, by name."""
    claims = space.objects("api/v1", "persistentvolumeclaims")
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in claims}
