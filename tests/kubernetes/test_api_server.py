"""A real API server accepts the manifests, and real controllers make of them what they should.

There are no kubelets: a stand-in says of every pod that was placed that it is ready. So this shows
admission, defaults, claims, placement, endpoints and the order of updates, and nothing of what runs
inside the pods.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.api_server.client import Api, Object, Refused
from tests.kubernetes.api_server.control_plane import running_control_plane
from tests.kubernetes.api_server.definitions import add_definitions
from tests.kubernetes.api_server.nodes import ZONES, add_nodes, add_volumes, kubelets
from tests.kubernetes.api_server.programs import VERSION, built_programs
from tests.kubernetes.api_server.space import Space, is_ready
from tests.kubernetes.conftest import Overlay
from tests.kubernetes.manifests import Manifests
from tests.kubernetes.policy.availability import broker_settings
from tests.kubernetes.rendering import NAMESPACE, OVERLAYS, render_with
from tests.kubernetes.test_render import COMPONENTS, folders_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(300)]

NODES = 6
PODS_OF_HA = {
    "aerobee-etcd": 3,
    "aerobee-nameserver": 2,
    "aerobee-broker-a": 3,
    "aerobee-broker-b": 3,
}
PODS_OF_SINGLE = dict.fromkeys(("aerobee-etcd", "aerobee-nameserver", "aerobee-broker-a"), 1)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    programs = built_programs()
    if programs is None:
        pytest.skip(f"Kubernetes {VERSION} is not built: `make k8s-test` builds it with Go")
    with running_control_plane(programs, tmp_path_factory.mktemp("control-plane")) as api:
        add_volumes(api, add_nodes(api, NODES), each=16)
        add_definitions(api)
        with kubelets(api):
            yield api


def _in_namespace(
    folder: Path, namespace: str, resources: list[str], **kustomization: object
) -> Manifests:
    """An overlay in a namespace of its own, as a user would place it."""
    folder.mkdir()
    return render_with(
        folder, namespace=namespace, resources=[NAMESPACE, *resources], **kustomization
    )


@pytest.fixture(scope="module")
def ha(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Space:
    """The overlay ha beside the audit, everything ready."""
    folder = tmp_path_factory.mktemp("ha")
    manifests = _in_namespace(folder / "ha", "ha", resources=["overlays/ha"])
    audit = _in_namespace(folder / "audit", "ha", resources=["overlays/audit"])
    assert api.apply_all((manifests + audit).objects) == ()
    space = Space(api, "ha")
    space.wait_ready(PODS_OF_HA)
    return space


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_overlay_is_accepted_without_a_warning(api: Api, overlay: Overlay, name: str) -> None:
    api.apply_all(overlay(NAMESPACE).objects)
    assert api.apply_all(overlay(name).objects, dryRun="All") == ()


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_component_is_accepted_without_a_warning(
    api: Api, overlay: Overlay, name: str, tmp_path: Path
) -> None:
    api.apply_all(overlay(NAMESPACE).objects)
    mine = render_with(
        tmp_path,
        namespace="aerobee",
        resources=["overlays/ha"],
        components=folders_of(name),
    )
    assert api.apply_all(mine.objects, dryRun="All") == ()


def test_the_server_warns_and_refuses_where_it_should(api: Api, overlay: Overlay) -> None:
    single = overlay("single")
    account = single.get("ServiceAccount", "aerobee")
    api.apply_all([*overlay(NAMESPACE).objects, account])
    misspelt = copy.deepcopy(single.get("Service", "aerobee-nameserver"))
    misspelt["spec"]["sessionAfinity"] = "None"
    with pytest.raises(Refused, match="sessionAfinity"):
        api.apply(misspelt, dryRun="All")
    privileged = copy.deepcopy(single.get("Deployment", "aerobee-nameserver"))
    del privileged["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
    warnings = api.apply(privileged, dryRun="All").warnings
    assert any("runAsNonRoot" in warning for warning in warnings)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged", "namespace": "aerobee"},
        "spec": privileged["spec"]["template"]["spec"],
    }
    with pytest.raises(Refused, match='violates PodSecurity "restricted'):
        api.apply(pod, dryRun="All")


def test_a_single_cluster_gets_its_pods(api: Api, tmp_path: Path) -> None:
    single = _in_namespace(tmp_path / "single", "single", resources=["overlays/single"])
    assert api.apply_all(single.objects) == ()
    Space(api, "single").wait_ready(PODS_OF_SINGLE)


def test_etcd_does_not_become_two_when_ha_is_applied_over_a_single_cluster(
    api: Api, tmp_path: Path
) -> None:
    """Its one member would go on alone, and the new ones make a cluster of their own."""
    single = _in_namespace(tmp_path / "single", "grown", resources=["overlays/single"])
    ha = _in_namespace(tmp_path / "ha", "grown", resources=["overlays/ha"])
    assert api.apply_all(single.objects) == ()
    for name in ("aerobee-etcd", "aerobee-broker-a"):
        with pytest.raises(Refused, match="updates to statefulset spec"):
            api.apply(ha.get("StatefulSet", name), dryRun="All")
    # What is not refused finds the one member that there is.
    for pod in ha.pods_of("nameserver"):
        endpoints = broker_settings(ha, pod)["etcd"]["endpoints"]
        (known,) = broker_settings(single, single.pods_of("nameserver")[0])["etcd"]["endpoints"]
        assert known in endpoints


def test_replicas_are_on_nodes_of_their_own_and_in_all_zones(ha: Space) -> None:
    for owner in ("aerobee-etcd", "aerobee-broker-a", "aerobee-broker-b"):
        nodes = [pod["spec"]["nodeName"] for pod in ha.pods_of(owner)]
        assert len(set(nodes)) == PODS_OF_HA[owner]
        zones = {ZONES[int(node.removeprefix("node-")) % len(ZONES)] for node in nodes}
        assert len(zones) == len(ZONES)


def test_every_claim_is_bound_and_stays_when_its_pod_goes(ha: Space) -> None:
    claims = ha.objects("api/v1", "persistentvolumeclaims")
    of_pods = [claim for claim in claims if claim["metadata"]["name"].startswith("data-")]
    assert len(of_pods) == sum(PODS_OF_HA.values()) - PODS_OF_HA["aerobee-nameserver"]
    assert {claim["status"]["phase"] for claim in of_pods} == {"Bound"}
    # Nothing would remove them with the pod or its set.
    assert not any(claim["metadata"].get("ownerReferences") for claim in of_pods)


@pytest.mark.parametrize("service", PODS_OF_HA)
def test_a_service_leads_to_exactly_its_pods(ha: Space, service: str) -> None:
    def addresses() -> set[str]:
        return {
            address
            for one in ha.objects("apis/discovery.k8s.io/v1", "endpointslices")
            if one["metadata"]["labels"].get("kubernetes.io/service-name") == service
            for endpoint in one.get("endpoints") or ()
            for address in endpoint["addresses"]
        }

    pods = {pod["status"]["podIP"] for pod in ha.pods_of(service)}
    wait_until(lambda: addresses() == pods, f"{service} leads to {pods}")


def test_a_replica_keeps_its_name_when_its_pod_is_made_anew(ha: Space) -> None:
    def hosts() -> dict[str, str]:
        return {
            endpoint["hostname"]: endpoint["addresses"][0]
            for one in ha.objects("apis/discovery.k8s.io/v1", "endpointslices")
            if one["metadata"]["labels"].get("kubernetes.io/service-name") == "aerobee-broker-b"
            for endpoint in one.get("endpoints") or ()
        }

    wait_until(lambda: len(hosts()) == 3, "all replicas have names")
    before = hosts()["aerobee-broker-b-1"]
    ha.api.request("DELETE", "/api/v1/namespaces/ha/pods/aerobee-broker-b-1")
    wait_until(
        lambda: hosts().get("aerobee-broker-b-1", before) != before,
        "the name leads to a new address",
    )


def test_disruption_budgets_let_one_replica_go_and_no_second(ha: Space) -> None:
    def allowed() -> dict[str, int]:
        return {
            budget["metadata"]["name"]: budget["status"].get("disruptionsAllowed", 0)
            for budget in ha.objects("apis/policy/v1", "poddisruptionbudgets")
        }

    ha.wait_ready(PODS_OF_HA)
    wait_until(lambda: allowed() == dict.fromkeys(PODS_OF_HA, 1), "one of each may go")


def test_the_cron_job_makes_the_audits_job(ha: Space) -> None:
    path = "/apis/batch/v1/namespaces/ha/cronjobs/aerobee-audit"
    ha.api.merge(path, {"spec": {"schedule": "* * * * *"}})

    def succeeded() -> bool:
        jobs = ha.objects("apis/batch/v1", "jobs")
        return any(job["status"].get("succeeded") == 1 for job in jobs)

    wait_until(succeeded, "an audit has run", timeout_s=90)
    ha.api.merge(path, {"spec": {"suspend": True}})
    (pod, *_) = ha.job_pods_of("aerobee-audit")
    assert pod["spec"]["containers"][0]["args"][0] == "audit"


def test_an_upgrade_replaces_one_replica_at_a_time_from_the_highest_down(
    api: Api, tmp_path: Path
) -> None:
    """From a release before this one: another image, another configuration file."""
    now = _in_namespace(tmp_path / "now", "upgrade", resources=["overlays/ha"])
    before = _in_namespace(
        tmp_path / "before",
        "upgrade",
        resources=["overlays/ha"],
        images=[{"name": "aerobee", "newTag": "0.0.9"}],
        configMapGenerator=[
            {
                "name": "aerobee-broker-config",
                "behavior": "merge",
                "literals": ["note=as it was"],
            }
        ],
    )
    assert api.apply_all(before.objects) == ()
    space = Space(api, "upgrade")
    space.wait_ready(PODS_OF_HA)
    old = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in space.pods()}
    replaced: list[str] = []
    away_max: dict[str, int] = {}

    def upgraded() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in space.pods()}
        for owner in ("aerobee-broker-a", "aerobee-broker-b"):
            names = [f"{owner}-{ordinal}" for ordinal in range(3)]
            away = [name for name in names if name not in pods or not is_ready(pods[name])]
            away_max[owner] = max(away_max.get(owner, 0), len(away))
            for name in names:
                is_new = name in pods and pods[name]["metadata"]["uid"] != old[name]
                if is_new and name not in replaced:
                    replaced.append(name)
        return len(replaced) == 6 and all(map(is_ready, pods.values()))

    assert api.apply_all(now.objects) == ()
    # Pods say that they are ready since long ago, so nobody waits minReadySeconds here.
    wait_until(upgraded, "all replicas are new", timeout_s=120)
    for owner in ("aerobee-broker-a", "aerobee-broker-b"):
        mine = [name for name in replaced if name.startswith(owner)]
        assert mine == [f"{owner}-{ordinal}" for ordinal in (2, 1, 0)]
        assert away_max[owner] <= 1


def test_a_survivor_gets_its_setting_only_when_its_pod_is_deleted(api: Api, tmp_path: Path) -> None:
    """docs/operations/kubernetes.md, a group below its minimum: a StatefulSet waits for pods that
    are not ready, from the highest ordinal down, and so never comes to the one that runs."""
    mine = _in_namespace(tmp_path / "mine", "survivor", resources=["overlays/ha"])
    assert api.apply_all(mine.objects) == ()
    space = Space(api, "survivor")
    space.wait_ready(PODS_OF_HA)
    nodes = [f"/api/v1/nodes/node-{at}" for at in range(NODES)]
    set_path = "/apis/apps/v1/namespaces/survivor/statefulsets/aerobee-broker-a"
    setting = "AEROBEE_BROKER_REPLICATION_MIN_INSYNC_REPLICAS"

    def pod(ordinal: int) -> Object | None:
        name = f"aerobee-broker-a-{ordinal}"
        return next((one for one in space.pods() if one["metadata"]["name"] == name), None)

    def has_setting(ordinal: int) -> bool:
        found = pod(ordinal)
        environment = found["spec"]["containers"][0]["env"] if found is not None else ()
        return any(one["name"] == setting and one["value"] == "1" for one in environment)

    survivor = pod(0)
    assert survivor is not None
    home = f"/api/v1/nodes/{survivor['spec']['nodeName']}"
    try:
        # There is room for nobody but the survivor.
        for node in nodes:
            api.merge(node, {"spec": {"unschedulable": node != home}})
        for ordinal in (1, 2):
            api.request("DELETE", f"/api/v1/namespaces/survivor/pods/aerobee-broker-a-{ordinal}")
        (container,) = api.get(set_path)["spec"]["template"]["spec"]["containers"]
        container["env"].append({"name": setting, "value": "1"})
        api.merge(set_path, {"spec": {"template": {"spec": {"containers": [container]}}}})
        wait_until(lambda: has_setting(2), "the highest ordinal is of the new revision")
        assert not has_setting(0)
        api.request("DELETE", "/api/v1/namespaces/survivor/pods/aerobee-broker-a-0")
        wait_until(lambda: has_setting(0), "the survivor has its setting")
        wait_until(lambda: is_ready(pod(0) or {"status": {}}), "the survivor is ready")
    finally:
        for node in nodes:
            api.merge(node, {"spec": {"unschedulable": False}})


def test_without_room_in_a_zone_a_replica_waits_where_zones_are_a_rule(
    api: Api, tmp_path: Path
) -> None:
    """`components/zones`: it does not join another zone's replica, as it does by default."""
    nodes = [f"/api/v1/nodes/node-{at}" for at in range(NODES)]
    try:
        for at, node in enumerate(nodes):
            api.merge(node, {"spec": {"unschedulable": ZONES[at % len(ZONES)] == ZONES[2]}})
        for name, components in (("loose", []), ("strict", ["components/zones"])):
            mine = _in_namespace(
                tmp_path / name, name, resources=["overlays/ha"], components=components
            )
            assert api.apply_all(mine.objects) == ()
        Space(api, "loose").wait_ready({"aerobee-broker-a": 3})
        strict = Space(api, "strict")

        def placed() -> int:
            return sum(map(is_ready, strict.pods_of("aerobee-broker-a")))

        wait_until(lambda: placed() == 2, "two replicas are in the two zones that have room")
        why = [event["message"] for event in strict.objects("api/v1", "events")]
        assert any("topology spread constraints" in text for text in why), why
        assert placed() == 2
    finally:
        for node in nodes:
            api.merge(node, {"spec": {"unschedulable": False}})
    strict.wait_ready({"aerobee-broker-a": 3})
