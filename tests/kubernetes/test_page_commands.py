"""Commands of the pages for operators, carried out as they stand there, by the real `kubectl` on a
real API server with its controllers and scheduler.

What they do inside pods is shown elsewhere (test_procedure_commands.py, tests/docs): no pod runs
anything here, and every command for one is parsed alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.api_server.client import Api, Object
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
PODS = {
    "aerobee-etcd": 3,
    "aerobee-nameserver": 2,
    "aerobee-broker-a": 3,
    "aerobee-broker-b": 3,
}
COMPONENTS = ["components/held-rollouts", "components/etcd-upkeep"]
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


def check_executed(shell: Shell) -> None:
    """Commands for pods are ones that their programs take."""
    for _, words in shell.executed():
        if words[0] == "timeout":
            words = words[words.index("aerobee") :]
        if words[0] == "aerobee":
            parsed(words[1:])
        else:
            assert words[0] in ("etcdctl", "python3"), words


def stateful_set(space: Space, name: str) -> Object:
    return space.api.get(f"/apis/apps/v1/namespaces/aerobee/statefulsets/{name}")
