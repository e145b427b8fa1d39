"""Every overlay and component renders, and what a user may want to change can be changed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from aerobee.access.config import AccessConfig
from aerobee.broker.config import BrokerConfig
from aerobee.rpc.tls_config import NodeTlsConfig
from aerobee.runtime.config import load_config
from tests.kubernetes.conftest import Overlay
from tests.kubernetes.manifests import EXAMPLE_ZONE, Manifests
from tests.kubernetes.policy import availability, serving
from tests.kubernetes.policy.network import allowed
from tests.kubernetes.rendering import MANIFESTS, NAMESPACE, OVERLAYS, render, render_with

COMPONENTS = (
    "access",
    "apply",
    "cert-manager",
    "cluster-secret",
    "dashboard",
    "console",
    "etcd-peer-tls",
    "etcd-tls",
    "etcd-upkeep",
    "held-rollouts",
    "outside-load-balancers",
    "outside-node-ports",
    "prometheus-rules",
    "service-monitors",
    "tls",
    "volume-snapshots",
    "zones",
)
CLAIMS_PATCH = """
- {op: add, path: /spec/volumeClaimTemplates/0/spec/storageClassName, value: fast}
- {op: replace, path: /spec/volumeClaimTemplates/0/spec/resources/requests/storage, value: 500Gi}
"""
BROKERS = {"kind": "StatefulSet", "labelSelector": "app.kubernetes.io/component=broker"}


def test_no_overlay_is_left_out_of_the_tests() -> None:
    assert {one.name for one in (MANIFESTS / "overlays").iterdir()} == set(OVERLAYS)


def test_no_component_is_left_out_of_the_tests() -> None:
    """`tools` is part of the overlays; `audit-credentials` is for the audit's, which have tests."""
    found = {one.name for one in (MANIFESTS / "components").iterdir()}
    assert found == {*COMPONENTS, "tools", "audit-credentials"}


def test_a_single_cluster_has_one_of_each(overlay: Overlay) -> None:
    assert _sizes(overlay("single")) == {
        "aerobee-nameserver": 1,
        "aerobee-tools": 1,
        "aerobee-broker-a": 1,
        "aerobee-etcd": 1,
    }


def test_a_cluster_for_production_has_replicas_of_everything(overlay: Overlay) -> None:
    assert _sizes(overlay("ha")) == {
        "aerobee-nameserver": 2,
        "aerobee-tools": 1,
        "aerobee-broker-a": 3,
        "aerobee-broker-b": 3,
        "aerobee-etcd": 3,
    }


def test_everything_stands_in_one_namespace_and_says_what_it_belongs_to(overlay: Overlay) -> None:
    for name in (*OVERLAYS, NAMESPACE):
        for one in overlay(name).objects:
            labels = one["metadata"]["labels"]
            assert labels["app.kubernetes.io/name"] == "aerobee", one
            assert labels["app.kubernetes.io/part-of"] == "aerobee", one
            if one["kind"] not in ("Namespace", "PriorityClass"):
                assert one["metadata"]["namespace"] == "aerobee", one


def test_who_deletes_an_overlay_keeps_the_claims_of_its_services(overlay: Overlay) -> None:
    """They go with their namespace, so no overlay has it; and sets of pods leave theirs behind."""
    for name in OVERLAYS:
        gone = overlay(name)
        assert not gone.of_kind("Namespace"), name
        for one in gone.of_kind("StatefulSet"):
            kept = one["spec"]["persistentVolumeClaimRetentionPolicy"]
            assert kept["whenDeleted"] == "Retain", name
    # Shared by clusters, so not for one of them to take away.
    assert {one["kind"] for one in overlay(NAMESPACE).objects} == {"Namespace", "PriorityClass"}


def test_users_set_image_size_storage_and_namespace(overlay: Overlay, tmp_path: Path) -> None:
    mine = render_with(
        tmp_path,
        resources=[NAMESPACE, "overlays/ha"],
        namespace="messages",
        images=[{"name": "aerobee", "newName": "registry.example.net/aerobee", "newTag": "0.2.0"}],
        replicas=[{"name": "aerobee-nameserver", "count": 4}],
        patches=[{"target": BROKERS, "patch": CLAIMS_PATCH}],
    )
    assert _sizes(mine)["aerobee-nameserver"] == 4
    namespace = mine.of_kind("Namespace")[0]["metadata"]
    assert namespace["name"] == "messages"
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    places = {one["metadata"].get("namespace") for one in mine.objects}
    assert places == {"messages", None}
    for pod in mine.pods():
        if pod.component != "etcd":
            assert pod.containers[0]["image"] == "registry.example.net/aerobee:0.2.0"
    for pod in mine.pods_of("broker"):
        claim = pod.owner["spec"]["volumeClaimTemplates"][0]["spec"]
        assert claim["storageClassName"] == "fast"
        assert claim["resources"]["requests"]["storage"] == "500Gi"
        environment = pod.environment(pod.containers[0], 1)
        group = environment["AEROBEE_BROKER_BROKER_NAME"]
        expected = f"aerobee-{group}-1.aerobee-{group}.messages.svc:10911"
        assert environment["AEROBEE_BROKER_ADDRESS"] == expected


def test_zones_are_a_rule_where_the_component_says_so(overlay: Overlay, tmp_path: Path) -> None:
    overlay("ha")  # skips where nothing can be rendered
    mine = render_with(tmp_path, resources=["overlays/ha"], components=["components/zones"])
    for component, rule in (
        ("broker", ("DoNotSchedule", 3)),
        ("etcd", ("DoNotSchedule", 3)),
        ("nameserver", ("DoNotSchedule", None)),
    ):
        for pod in mine.pods_of(component):
            (spread,) = pod.spec["topologySpreadConstraints"]
            assert (spread["whenUnsatisfiable"], spread.get("minDomains")) == rule
            if component == "broker":
                assert pod.environment(pod.containers[0])["AEROBEE_BROKER_ZONE"] == EXAMPLE_ZONE


def test_a_group_that_is_added_as_the_page_says_takes_messages_and_can_be_verified(
    overlay: Overlay, tmp_path: Path
) -> None:
    """The block of the page, carried out beside a copy of the manifests: as many replicas as the
    other groups have, as much disk, the same settings, and a name in the certificate."""
    ha = overlay("ha")  # skips where nothing can be rendered
    page = (MANIFESTS.parents[1] / "docs" / "operations" / "add-capacity.md").read_text("utf-8")
    (block,) = re.findall(r"```sh\n(# Beside your kustomization.*?)```", page, re.DOTALL)
    shutil.copytree(MANIFESTS, tmp_path / "deploy" / "k8s")
    (mine := tmp_path / "mine").mkdir()
    subprocess.run(["sh", "-euc", block], cwd=mine, check=True)
    kustomization = {
        "resources": ["../deploy/k8s/overlays/ha", "broker-c"],
        "components": [f"../deploy/k8s/components/{one}" for one in ("tls", "cert-manager")],
    }
    (mine / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    made = render(mine)
    assert _sizes(made) == _sizes(ha) | {"aerobee-broker-c": 3}
    new, other = (
        next(pod for pod in made.pods() if pod.name == f"aerobee-broker-{letter}")
        for letter in "cb"
    )
    assert new.namespace == other.namespace == "aerobee"
    text = yaml.safe_dump(other.owner["spec"]).replace("broker-b", "broker-c")
    assert new.owner["spec"] == yaml.safe_load(text)
    names = made.get("Certificate", "aerobee-node-tls")["spec"]["dnsNames"]
    address = new.environment(new.containers[0], 2)["AEROBEE_BROKER_ADDRESS"]
    assert f"*.{address.partition(':')[0].partition('.')[2]}" in names
    for check in (availability.budgets_keep_a_quorum, availability.replicas_are_spread):
        assert list(check(made)) == []


def test_a_former_configuration_is_not_for_controllers_to_remove(
    overlay: Overlay, tmp_path: Path
) -> None:
    """Pods that have not been replaced yet mount it; also where a user gives another file."""
    overlay("ha")  # skips where nothing can be rendered
    (tmp_path / "broker.toml").write_text('cluster = "mine"')
    config = {"name": "aerobee-broker-config", "namespace": "aerobee", "behavior": "replace"}
    mine = render_with(
        tmp_path,
        resources=["overlays/ha"],
        configMapGenerator=[{**config, "files": ["broker.toml"]}],
    )
    for name in ("aerobee-broker-config", "aerobee-nameserver-config"):
        assert mine.config(name)["metadata"]["annotations"] == {
            "argocd.argoproj.io/sync-options": "Prune=false",
            "kustomize.toolkit.fluxcd.io/prune": "disabled",
        }


def test_images_are_found_in_every_kind_and_pinned_by_digest(
    overlay: Overlay, tmp_path: Path
) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    names = ("aerobee", "aerobee-audit", "aerobee-spark", "registry.k8s.io/etcd")
    for at, name in enumerate(OVERLAYS):
        (folder := tmp_path / str(at)).mkdir()
        mine = render_with(
            folder,
            resources=[f"overlays/{name}"],
            images=[{"name": one, "digest": digest} for one in names],
        )
        for pod in mine.pods():
            for container in pod.containers:
                assert container["image"].endswith(f"@{digest}"), f"{name}: {pod}"


def test_the_example_of_the_readme_renders(overlay: Overlay, tmp_path: Path) -> None:
    """But for the repository's address, a place for a digest, and a file of the user's."""
    readme = (MANIFESTS / "README.md").read_text()
    (text,) = re.findall(r"```yaml\n# kustomization.yaml\n(.*?)```", readme, re.DOTALL)
    example = yaml.safe_load(text.replace('"sha256:..."', f'"sha256:{"0" * 64}"'))
    (address,) = example["resources"]
    example["resources"] = [address.partition("//deploy/k8s/")[2].partition("?")[0]]
    ha = overlay("ha")
    (tmp_path / "broker.toml").write_text(ha.config("aerobee-broker-config")["data"]["broker.toml"])
    mine = render_with(tmp_path, **example)
    assert _sizes(mine) == _sizes(ha) | {"aerobee-broker-a": 5}
    for pod in mine.pods_of("broker"):
        claim = pod.owner["spec"]["volumeClaimTemplates"][0]["spec"]
        assert claim["storageClassName"] == "fast"


def test_a_changed_configuration_replaces_the_pods(overlay: Overlay, tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text('store_root = "/var/lib/aerobee/store"\n')
    mine = render_with(
        tmp_path,
        resources=["overlays/single"],
        configMapGenerator=[
            {
                "name": "aerobee-broker-config",
                "namespace": "aerobee",
                "behavior": "replace",
                "files": ["broker.toml"],
            }
        ],
    )
    assert _mounted_config(mine) != _mounted_config(overlay("single"))
    assert mine.config("aerobee-broker-config")["metadata"]["name"] == _mounted_config(mine)


def test_a_changed_file_of_topics_is_another_one_for_the_job(
    overlay: Overlay, tmp_path: Path
) -> None:
    """By its name, so that no run has half of one and half of the other."""
    overlay("ha")  # skips where nothing can be rendered
    names = set()
    for count in (4, 8):
        (folder := tmp_path / str(count)).mkdir()
        text = f"topics:\n  - {{name: orders, queues: {count}}}\n"
        (folder / "cluster.yaml").write_text(text)
        mine = render_with(
            folder,
            namespace="aerobee",
            resources=["overlays/ha"],
            components=["components/apply"],
            configMapGenerator=[{"name": "aerobee-declared", "files": ["cluster.yaml"]}],
        )
        (pod,) = mine.pods_of("apply")
        (name,) = (one["configMap"]["name"] for one in pod.spec["volumes"] if "configMap" in one)
        assert mine.get("ConfigMap", name)["data"] == {"cluster.yaml": text}
        names.add(name)
    assert len(names) == 2


@pytest.mark.parametrize("group", ["broker-a", "broker-b"])
def test_nothing_of_one_broker_group_selects_another(overlay: Overlay, group: str) -> None:
    labelled = {"aerobee.dev/broker-group": group}
    ha = overlay("ha")
    name = f"aerobee-{group}"
    assert ha.get("Service", name)["spec"]["selector"].items() >= labelled.items()
    for kind in ("StatefulSet", "PodDisruptionBudget"):
        selector = ha.get(kind, name)["spec"]["selector"]["matchLabels"]
        assert selector.items() >= labelled.items()
    (pod,) = (pod for pod in ha.pods() if pod.name == name)
    (term,) = pod.spec["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["labelSelector"]["matchLabels"].items() >= labelled.items()
    assert not labelled.items() <= ha.get("StatefulSet", "aerobee-etcd")["metadata"].items()


def folders_of(component: str) -> list[str]:
    """The folders of a component; the ways outside have one for each group."""
    folder = f"components/{component}"
    groups = ("broker-a", "broker-b") if component.startswith("outside") else ()
    return [folder, *(f"{folder}/{group}" for group in groups)]


EveryWayOutside = pytest.mark.parametrize(
    "component", [one for one in COMPONENTS if one.startswith("outside")]
)


@EveryWayOutside
def test_outside_a_broker_is_reached_while_it_is_not_ready(
    overlay: Overlay, component: str, tmp_path: Path
) -> None:
    overlay("ha")  # skips where nothing can be rendered
    mine = render_with(tmp_path, resources=["overlays/ha"], components=folders_of(component))
    check = serving.brokers_are_reached_while_they_are_not_ready
    assert list(check(mine)) == []
    for name in ("aerobee-broker-a-0-outside", "aerobee-nameserver-outside"):
        spoiled = mine.copy()
        spec = spoiled.get("Service", name)["spec"]
        spec["publishNotReadyAddresses"] = not spec.get("publishNotReadyAddresses", False)
        assert len(list(check(spoiled))) == 1


@EveryWayOutside
def test_outside_every_replica_of_every_group_has_an_address(
    overlay: Overlay, component: str, tmp_path: Path
) -> None:
    overlay("ha")  # skips where nothing can be rendered
    components = folders_of(component)
    mine = render_with(tmp_path, resources=["overlays/ha"], components=components)
    check = serving.outside_addresses_lead_to_their_brokers
    assert list(check(mine)) == []
    assert list(serving.services_lead_to_ports(mine)) == []
    for pod in mine.pods_of("broker"):
        (container,) = pod.containers
        environment = {**pod.environment(container, 0), "AEROBEE_BROKER_STORE_ROOT": "/store"}
        config = load_config(
            BrokerConfig, environment_prefix="AEROBEE_BROKER", environment=environment
        ).config
        assert config.outside.address != config.address
    # A group that was left out is seen.
    (folder := tmp_path / "a").mkdir()
    spoiled = render_with(folder, resources=["overlays/ha"], components=components[:2])
    said = list(check(spoiled))
    assert said
    assert all(one.startswith("aerobee-broker-b-") for one in said)


@EveryWayOutside
def test_with_an_outside_nodes_talk_as_without_it(
    overlay: Overlay, component: str, tmp_path: Path
) -> None:
    """By the same addresses, and may reach nothing more. Outside port or not, other pods may not
    come through it."""
    plain = overlay("ha")
    mine = render_with(tmp_path, resources=["overlays/ha"], components=folders_of(component))
    assert allowed(mine) == allowed(plain)
    inside = [
        [
            pod.environment(pod.containers[0], ordinal)["AEROBEE_BROKER_ADDRESS"]
            for pod in manifests.pods_of("broker")
            for ordinal in range(3)
        ]
        for manifests in (plain, mine)
    ]
    assert inside[0] == inside[1]
    policy = mine.get("NetworkPolicy", "aerobee-outside")["spec"]
    assert [rule["ports"] for rule in policy["ingress"]] == [
        [{"protocol": "TCP", "port": "outside"}]
    ]


@pytest.mark.parametrize("component", COMPONENTS)
def test_components_render_on_top_of_a_cluster(
    overlay: Overlay, component: str, tmp_path: Path
) -> None:
    plain = overlay("ha")
    mine = render_with(tmp_path, resources=["overlays/ha"], components=folders_of(component))
    assert mine.objects != plain.objects


def test_with_certificates_all_nodes_and_their_commands_speak_tls(
    overlay: Overlay, tmp_path: Path
) -> None:
    """From files that are there: the settings, the secret's keys, and the names in certificates."""
    overlay("ha")  # skips where nothing can be rendered
    mine = render_with(
        tmp_path,
        resources=["overlays/ha"],
        components=[
            *("components/apply", "components/tls"),
            *("components/etcd-tls", "components/cert-manager"),
        ],
    )
    made = {one["spec"]["secretName"]: one["spec"] for one in mine.of_kind("Certificate")}
    names = set(made["aerobee-node-tls"]["dnsNames"])
    pods = [*mine.pods_of("nameserver"), *mine.pods_of("broker"), *mine.pods_of("tools")]
    pods += mine.pods_of("apply")
    assert len(pods) == 5
    for pod in pods:
        (container,) = pod.containers
        environment = pod.environment(container, 0)
        assert environment["AEROBEE_TLS_CA"] == "/etc/aerobee-tls/ca.crt"
        secrets = {
            volume["secret"]["secretName"] for volume in pod.spec["volumes"] if "secret" in volume
        }
        assert "aerobee-node-tls" in secrets
        assert secrets <= set(made)
        mounts = {one["mountPath"] for one in container["volumeMounts"]}
        assert "/etc/aerobee-tls" in mounts
        if pod.component == "broker":
            address = environment["AEROBEE_BROKER_ADDRESS"].partition(":")[0]
            assert f"*.{address.partition('.')[2]}" in names
        if pod.component not in ("tools", "apply"):
            prefix = f"AEROBEE_{pod.component.upper()}"
            certificate, key, ca = (
                environment[f"{prefix}_TLS_{name}"] for name in ("CERTIFICATE", "KEY", "CA")
            )
            assert NodeTlsConfig(certificate=certificate, key=key, ca=ca).is_on
            assert {Path(path).parent for path in (certificate, key, ca)} == {
                Path("/etc/aerobee-tls")
            }
    assert {"aerobee-nameserver", "localhost"} <= names
    assert made["aerobee-node-tls"]["ipAddresses"] == ["127.0.0.1"]


def test_with_access_control_nodes_and_commands_prove_themselves(
    overlay: Overlay, tmp_path: Path
) -> None:
    """First by a secret that refuses nobody; then nodes ask for proofs."""
    overlay("ha")  # skips where nothing can be rendered
    for component in ("cluster-secret", "access"):
        (folder := tmp_path / component).mkdir()
        mine = render_with(
            folder,
            resources=["overlays/ha"],
            components=["components/apply", f"components/{component}"],
        )
        pods = [*mine.pods_of("nameserver"), *mine.pods_of("broker"), *mine.pods_of("tools")]
        pods += mine.pods_of("apply")
        assert len(pods) == 5
        for pod in pods:
            (container,) = pod.containers
            environment = pod.environment(container, 0)
            secret = environment["AEROBEE_CLUSTER_SECRET_FILE"]
            (volume,) = (one for one in pod.spec["volumes"] if "secret" in one)
            assert volume["secret"]["secretName"] == "aerobee-cluster-secret"
            assert {"name": volume["name"], "mountPath": str(Path(secret).parent)}.items() <= max(
                one.items() for one in container["volumeMounts"] if one["name"] == volume["name"]
            )
            if pod.component in ("tools", "apply"):
                continue
            prefix = f"AEROBEE_{pod.component.upper()}_ACCESS_"
            enabled = environment.get(f"{prefix}ENABLED", "false")
            assert enabled == ("true" if component == "access" else "false")
            file = environment[f"{prefix}CLUSTER_SECRET_FILE"]
            assert file == secret
            assert AccessConfig(enabled=enabled == "true", cluster_secret_file=file)


@pytest.mark.parametrize("name", ["audit", "audit-spark"])
def test_an_audit_signs_as_a_user_and_trusts_the_authority(
    overlay: Overlay, tmp_path: Path, name: str
) -> None:
    overlay("ha")  # skips where nothing can be rendered
    mine = render_with(
        tmp_path,
        resources=["overlays/ha", f"overlays/{name}"],
        components=["components/access", "components/tls", "components/audit-credentials"],
    )
    pods = mine.pods_of("audit")
    assert pods
    for pod in pods:
        for container in pod.containers:
            environment = pod.environment(container, 0)
            mounts = {one["mountPath"] for one in container["volumeMounts"]}
            for variable in ("AEROBEE_CREDENTIALS_FILE", "AEROBEE_TLS_CA"):
                assert str(Path(environment[variable]).parent) in mounts
        assert "aerobee-cluster-secret" not in str(pod.spec), "it is no operator"


def _sizes(manifests: Manifests) -> dict[str, int]:
    return {pod.name: pod.replicas for pod in manifests.pods()}


def _mounted_config(manifests: Manifests) -> str:
    (pod,) = manifests.pods_of("broker")
    (config,) = (one["configMap"] for one in pod.spec["volumes"] if "configMap" in one)
    name = config["name"]
    assert isinstance(name, str)
    return name
