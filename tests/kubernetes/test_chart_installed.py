"""A release on a real API server: installed, upgraded, rolled back, removed, installed again.

No kubelets, as in test_api_server.py: pods that were placed are said to be ready.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.api_server.client import Api, Object
from tests.kubernetes.api_server.control_plane import running_control_plane
from tests.kubernetes.api_server.nodes import add_nodes, add_volumes, kubelets
from tests.kubernetes.api_server.programs import VERSION, built_programs
from tests.kubernetes.helm import CHART, SINGLE, NoHelm, Refused, helm, run_helm
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(300)]

NAMESPACE = "messages"
LEVEL = "pod-security.kubernetes.io/enforce"
CLAIMS = {"data-aerobee-broker-a-0", "data-aerobee-etcd-0"}


class Release:
    """The chart as the release `aerobee`."""

    def __init__(self, api: Api, kubeconfig: Path) -> None:
        self._api = api
        self._kubeconfig = kubeconfig

    def run(self, *words: str) -> str:
        return run_helm(*words, "-n", NAMESPACE, "--kubeconfig", str(self._kubeconfig))

    def names(self, plural: str, group: str = "api/v1") -> set[str]:
        return {one["metadata"]["name"] for one in self.objects(plural, group)}

    def objects(self, plural: str, group: str = "api/v1") -> list[Object]:
        return self._api.items(f"/{group}/namespaces/{NAMESPACE}/{plural}")

    def settings_of_the_pod(self) -> str:
        """The ConfigMap that the broker's pod has, or nothing."""
        for pod in self.objects("pods"):
            if pod["metadata"]["name"] == "aerobee-broker-a-0":
                volumes = pod["spec"]["volumes"]
                return next(str(one["configMap"]["name"]) for one in volumes if "configMap" in one)
        return ""


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    programs = built_programs()
    if programs is None:
        pytest.skip(f"Kubernetes {VERSION} is not built: `make k8s-test` builds it with Go")
    try:
        helm()
    except NoHelm as error:
        pytest.skip(str(error))
    with running_control_plane(programs, tmp_path) as api:
        add_volumes(api, add_nodes(api, 3), each=4)
        labels = {LEVEL: "restricted"}
        metadata = {"name": NAMESPACE, "labels": labels}
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        with kubelets(api):
            yield Release(api, tmp_path / "kubeconfig.json")


def test_a_release_lives_and_comes_back_with_its_claims(release: Release) -> None:
    chart = (str(CHART), "--values", str(SINGLE))
    notes = release.run("install", "aerobee", *chart)
    assert f"aerobee-nameserver.{NAMESPACE}.svc:8081" in notes
    assert "No access control" in notes
    wait_until(release.settings_of_the_pod, "the broker's pod is there")
    first = release.settings_of_the_pod()

    # Pods get a changed setting, and the former file stays for those that wait.
    changed = "broker.config.store.retention.file_reserved_hours=24"
    release.run("upgrade", "aerobee", *chart, "--set", changed)
    wait_until(lambda: release.settings_of_the_pod() not in ("", first), "the pod was replaced")
    second = release.settings_of_the_pod()
    assert {first, second} <= release.names("configmaps")

    # What would make two of one etcd is refused, and the release can go on from there.
    with pytest.raises(Refused, match="updates to statefulset spec"):
        release.run("upgrade", "aerobee", *chart, "--set", "etcd.replicas=3")
    sets = {one["metadata"]["name"]: one for one in release.objects("statefulsets", "apis/apps/v1")}
    assert sets["aerobee-etcd"]["spec"]["replicas"] == 1
    release.run("rollback", "aerobee", "1")
    wait_until(lambda: release.settings_of_the_pod() == first, "the pod has its former settings")

    release.run("uninstall", "aerobee")
    wait_until(lambda: not release.names("pods"), "all pods are gone")
    assert release.names("persistentvolumeclaims") == CLAIMS
    assert {first, second} <= release.names("configmaps")
    release.run("install", "aerobee", *chart)
    wait_until(lambda: release.settings_of_the_pod() == first, "the pod is there again")
    assert release.names("persistentvolumeclaims") == CLAIMS
