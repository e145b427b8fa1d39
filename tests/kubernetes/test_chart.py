"""The chart makes the objects of the manifests, and good ones of values that no overlay has.

Nobody writes an object twice: templates are made of deploy/k8s by deploy/helm/generate.py.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.conftest import Overlay
from tests.kubernetes.helm import CHART, ROOT, SINGLE, NoHelm, Refused, helm, run_helm, template
from tests.kubernetes.manifests import Manifests, Object
from tests.kubernetes.policy import serving
from tests.kubernetes.policy.checks import CHECKS
from tests.kubernetes.rendering import render_with, renderer
from tests.kubernetes.schemas import Schemas, kubernetes_version
from tests.kubernetes.test_render import folders_of

RUNBOOKS = "https://wiki.example.net/aerobee/alerts"
DECLARED = "topics:\n  orders: {queues: 8}\n"
TLS_SECRETS = ("aerobee-node-tls", "aerobee-etcd-server", "aerobee-etcd-client")
EVERY_JOB_AND_SECRET: dict[str, Any] = {
    "zones": {"required": True},
    "etcdUpkeep": {"enabled": True},
    "volumeSnapshots": {"enabled": True},
    "apply": {"enabled": True, "file": DECLARED},
    "etcd": {"tls": {"enabled": True, "peers": True}},
    "tls": {"enabled": True},
    "access": {"enabled": True},
    "certManager": {"enabled": True},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True, "runbookBase": RUNBOOKS},
        "dashboard": {"enabled": True},
    },
}
COMPONENTS = (
    *(
        "zones",
        "etcd-upkeep",
        "volume-snapshots",
        "apply",
        "etcd-tls",
        "etcd-peer-tls",
        "tls",
        "access",
    ),
    *("cert-manager", "service-monitors", "prometheus-rules", "dashboard"),
)
OUTSIDE = {"clientNetworks": ["192.0.2.0/24"]}


@pytest.fixture(scope="module", autouse=True)
def _needs_helm() -> None:
    try:
        helm()
    except NoHelm as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_templates_are_up_to_date(overlay: Overlay) -> None:
    overlay("ha")  # skips where nothing can be rendered
    done = subprocess.run(
        [sys.executable, str(CHART.parent / "generate.py"), "--check"],
        env={**os.environ, "KUSTOMIZE": " ".join(renderer())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_no_condition_can_say_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A component that takes something away, or moves it, must be thought about."""
    monkeypatch.syspath_prepend(str(CHART.parent))
    tree = importlib.import_module("template_tree")
    plain = {"replicas": 1, "args": ["--a=1", "--b=2"], "env": [{"name": "A"}]}
    assert tree.merged(plain, plain, "c", set()) == plain
    for changed in (
        {"replicas": 1, "args": ["--a=1", "--b=2"]},
        {**plain, "args": ["--a=1"]},
        {**plain, "args": ["--b=2", "--a=1"]},
        {**plain, "env": {"A": "1"}},
    ):
        with pytest.raises(tree.Unclear):
            tree.merged(plain, changed, "c", set())


def test_the_chart_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_helm_finds_nothing_to_complain_of() -> None:
    assert "0 chart(s) failed" in run_helm("lint", "--strict", str(CHART))


def test_without_values_it_is_the_overlay_ha(overlay: Overlay, tmp_path: Path) -> None:
    assert _compared(template(tmp_path)) == _compared(overlay("namespace+ha"))


def test_a_file_of_values_is_the_overlay_single(overlay: Overlay, tmp_path: Path) -> None:
    assert _compared(template(tmp_path, SINGLE)) == _compared(overlay("namespace+single"))


@pytest.mark.parametrize(
    ("values", "components"),
    [
        (EVERY_JOB_AND_SECRET, COMPONENTS),
        ({"access": {"clusterSecret": True}}, ("cluster-secret",)),
    ],
    ids=["everything", "cluster-secret"],
)
def test_values_are_components(
    overlay: Overlay, tmp_path: Path, values: dict[str, Any], components: tuple[str, ...]
) -> None:
    overlay("ha")  # skips where nothing can be rendered
    theirs = render_with(
        tmp_path,
        resources=["namespace", "overlays/ha"],
        components=[f"components/{one}" for one in components],
        namespace="aerobee",
    )
    mine = template(tmp_path, **values)
    declared = mine.find("ConfigMap", "aerobee-declared")
    if "apply" in components:
        assert declared is not None
        # A kustomization's own; the chart has it from the value.
        assert declared["data"] == {"cluster.yaml": DECLARED}
    mine.objects = [one for one in mine.objects if one is not declared]
    assert _compared(mine) == _compared(theirs)


@pytest.mark.parametrize(
    ("kind", "component"),
    [("loadBalancer", "outside-load-balancers"), ("nodePort", "outside-node-ports")],
)
def test_clients_outside_are_served_as_the_components_do(
    overlay: Overlay, tmp_path: Path, kind: str, component: str
) -> None:
    overlay("ha")  # skips where nothing can be rendered
    theirs = render_with(
        tmp_path,
        resources=["namespace", "overlays/ha"],
        components=folders_of(component),
    )
    mine = template(tmp_path, outside={"type": kind, **OUTSIDE})
    assert _compared(mine) == _compared(theirs)


def test_each_group_has_node_ports_of_its_own(tmp_path: Path) -> None:
    groups = [
        {"name": "broker-a"},
        {"name": "broker-x", "replicas": 5},
        {"name": "broker-c", "firstNodePort": 30950},
    ]
    mine = template(tmp_path, broker={"groups": groups}, outside={"type": "nodePort", **OUTSIDE})
    assert list(serving.outside_addresses_lead_to_their_brokers(mine)) == []
    assert list(serving.services_lead_to_ports(mine)) == []
    ports = {
        service["metadata"]["name"]: service["spec"]["ports"][0]["nodePort"]
        for service in mine.of_kind("Service")
        if service["spec"].get("type") == "NodePort"
    }
    assert len(ports) == 1 + 3 + 5 + 3
    assert ports["aerobee-broker-a-2-outside"] == 30912
    assert ports["aerobee-broker-x-4-outside"] == 30924
    assert ports["aerobee-broker-c-0-outside"] == 30950


def test_what_no_overlay_has_keeps_every_rule_of_the_manifests(tmp_path: Path) -> None:
    mine = template(
        tmp_path,
        namespace="messages",
        **EVERY_JOB_AND_SECRET
        | {
            "broker": {
                "groups": [
                    {"name": "broker-a"},
                    {"name": "broker-x", "replicas": 5, "storageSize": "500Gi", "partition": 5},
                ],
                "resources": {"requests": {"memory": "8Gi"}, "limits": {"memory": "8Gi"}},
                "storage": {"className": "fast"},
                "nodeSelector": {"disk": "nvme"},
                "tolerations": [{"key": "messages", "operator": "Exists"}],
            },
            "etcd": {"replicas": 5, "tls": {"enabled": True, "peers": True}},
            "image": {
                "repository": "registry.example.net/aerobee",
                "digest": "sha256:" + "0a" * 32,
                "pullSecrets": [{"name": "registry"}],
            },
        },
    )
    schemas = Schemas(kubernetes_version())
    for one in mine.objects:
        schemas.check(one)
        assert one["metadata"].get("namespace", "messages") == "messages"
    for pod in mine.pods():
        if pod.component != "etcd":
            image = pod.containers[0]["image"]
            assert image == "registry.example.net/aerobee@sha256:" + "0a" * 32
        assert pod.spec["imagePullSecrets"] == [{"name": "registry"}]
    (pod,) = (one for one in mine.pods_of("broker") if one.name == "aerobee-broker-x")
    assert pod.replicas == 5
    assert pod.owner["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 5}
    assert pod.spec["nodeSelector"] == {"disk": "nvme"}
    claim = pod.owner["spec"]["volumeClaimTemplates"][0]["spec"]
    assert claim["storageClassName"] == "fast"
    assert claim["resources"]["requests"]["storage"] == "500Gi"
    config = tomllib.loads(mine.config("aerobee-broker-config")["data"]["broker.toml"])
    assert config["replication"]["mode"] == "sync_master"
    assert _findings(mine) == []


def test_the_example_of_its_page_keeps_every_rule_of_the_manifests(tmp_path: Path) -> None:
    """Also the keys of its settings are ones that the services know."""
    page = (CHART / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    values = yaml.safe_load(example)
    values["image"]["digest"] = values["image"]["digest"].replace("...", "0a" * 32)
    mine = template(tmp_path, **values)
    assert len(mine.pods_of("broker")) == 3
    assert _findings(mine) == []


def test_an_etcd_of_ones_own_takes_the_place_of_the_charts(tmp_path: Path) -> None:
    endpoints = ["etcd-0.example.net:2379", "etcd-1.example.net:2379"]
    external = {"endpoints": endpoints, "networks": ["203.0.113.0/28"]}
    mine = template(tmp_path, etcd={"external": external, "tls": {"enabled": True}})
    names = [one["metadata"]["name"] for one in mine.objects]
    assert not [name for name in names if "aerobee-etcd" in name]
    config = tomllib.loads(mine.config("aerobee-nameserver-config")["data"]["nameserver.toml"])
    assert config["etcd"]["endpoints"] == endpoints
    (pod,) = mine.pods_of("nameserver")
    assert "AEROBEE_NAMESERVER_ETCD_TLS_CA" in pod.environment(pod.containers[0])
    egress = mine.get("NetworkPolicy", "aerobee-nameserver")["spec"]["egress"]
    assert {
        "to": [{"ipBlock": {"cidr": "203.0.113.0/28"}}],
        "ports": [{"protocol": "TCP", "port": 2379}],
    } in egress


def test_a_changed_setting_replaces_pods_and_keeps_the_file_of_those_that_are_left(
    tmp_path: Path,
) -> None:
    before, after = (
        template(tmp_path, broker={"config": {"metrics": {"listen": listen}}})
        for listen in ("0.0.0.0:5557", "[::]:5557")
    )
    old, new = (one.config("aerobee-broker-config") for one in (before, after))
    assert old["metadata"]["name"] != new["metadata"]["name"]
    assert old["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    for manifests, config in ((before, old), (after, new)):
        for pod in manifests.pods_of("broker"):
            (volume,) = (one for one in pod.spec["volumes"] if one["name"] == "config")
            assert volume["configMap"]["name"] == config["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"broker": {"replica": 3}}, "at '/broker': additional properties 'replica' not allowed"),
        ({"etcd": {"replicas": 2}}, "at '/etcd/replicas': value must be one of 1, 3, 5"),
        ({"image": {"tag": 0.2}}, "at '/image/tag': got number, want string"),
        ({"image": {"digest": "latest"}}, 'image.digest is "latest": write sha256:'),
        ({"broker": {"groups": [{"name": "orders"}]}}, 'the name "orders": write broker-'),
        ({"broker": {"groups": [{"name": "broker-a"}] * 2}}, "broker.groups has broker-a twice"),
        ({"broker": {"replicas": 1}}, "set more replicas, or lower it"),
        ({"broker": {"replicas": 2}}, "stop its writes until the pod is back"),
        ({"monitoring": {"prometheusRule": {"enabled": True}}}, "a page that does not exist"),
        (
            {
                "monitoring": {
                    "prometheusRule": {
                        "enabled": True,
                        "runbookBase": "https://aerobee.example/docs/operations/alerts.md",
                    }
                }
            },
            "set monitoring.prometheusRule.runbookBase",
        ),
        ({"outside": {"type": "nodePort"}}, "set outside.clientNetworks"),
        ({"etcd": {"tls": {"peers": True}}}, "etcd.tls.peers uses the certificates"),
        ({"etcd": {"external": {"endpoints": ["etcd:2379"]}}}, "set etcd.external.networks"),
        (
            {
                "outside": {"type": "nodePort", **OUTSIDE},
                "broker": {
                    "groups": [{"name": "broker-a"}, {"name": "broker-b", "firstNodePort": 30910}]
                },
            },
            "two groups have the node ports 30910 to 30919: set firstNodePort of group broker-b",
        ),
        ({"apply": {"enabled": True}}, "--set-file apply.file=cluster.yaml"),
        ({"priorityClass": {"name": ""}}, "priorityClass.create needs priorityClass.name"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_wrong_value_is_refused_in_a_sentence(
    tmp_path: Path, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Refused) as refused:
        template(tmp_path, **copy.deepcopy(values))
    assert sentence in str(refused.value)


def test_groups_without_a_spare_replica_must_be_meant(tmp_path: Path) -> None:
    mine = template(tmp_path, broker={"replicas": 2, "writesMayPause": True})
    assert [pod.replicas for pod in mine.pods_of("broker")] == [2, 2]
    # A single copy is no group that a drain could leave below its minimum.
    alone = {"replicas": 1, "config": {"replication": None}}
    assert template(tmp_path, broker=alone).pods_of("broker")[0].replicas == 1


def test_links_of_alerts_lead_where_the_value_says(tmp_path: Path) -> None:
    rule = {"enabled": True, "runbookBase": RUNBOOKS, "labels": {"release": "prometheus"}}
    mine = template(tmp_path, monitoring={"prometheusRule": rule}).get("PrometheusRule", "aerobee")
    assert mine["metadata"]["labels"]["release"] == "prometheus"
    for group in mine["spec"]["groups"]:
        for one in group["rules"]:
            if "alert" in one:
                link = one["annotations"]["runbook_url"]
                assert link == f"{RUNBOOKS}#{one['alert'].lower()}"


def _findings(mine: Manifests) -> list[str]:
    """Of the rules of the manifests, where the Secrets are there that a user makes."""
    tls = dict.fromkeys(("ca.crt", "tls.crt", "tls.key"), "")
    mine.objects += [_secret(name, tls) for name in TLS_SECRETS]
    mine.objects.append(_secret("aerobee-cluster-secret", {"cluster-secret": ""}))
    return [finding for check in CHECKS for finding in check(mine)]


def _secret(name: str, data: dict[str, str]) -> Object:
    metadata = {
        "name": name,
        "labels": {"app.kubernetes.io/name": "aerobee"},
    }
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def _compared(manifests: Manifests) -> dict[tuple[str, str], Object]:
    """Each object by kind and name, without what only one of the two programs writes: labels of a
    release, and Helm's word that an object is to stay. Settings are compared by what they say, and
    names in certificates as far as there are such groups: the chart knows them, kustomize not."""
    groups = {pod.name for pod in manifests.pods_of("broker")}
    text = json.dumps([one for one in manifests.objects if one["kind"] != "Namespace"])
    text = text.replace(RUNBOOKS, "https://aerobee.example/docs/operations/alerts.md")
    text = re.sub(r"(aerobee-(?:broker|nameserver)-config)-[a-z0-9]{10}", r"\1", text)
    found: dict[tuple[str, str], Object] = {}
    for one in json.loads(text):
        metadata = one["metadata"]
        metadata["labels"] = {
            name: value
            for name, value in metadata["labels"].items()
            if name.partition("/")[2]
            not in ("chart", "managed-by", "instance", "part-of", "version")
        }
        annotations = metadata.pop("annotations", {})
        annotations.pop("helm.sh/resource-policy", None)
        if annotations:
            metadata["annotations"] = annotations
        if one["kind"] != "PriorityClass":
            metadata.setdefault("namespace", "aerobee")
        if "dnsNames" in one.get("spec", {}):
            names = one["spec"]["dnsNames"]
            one["spec"]["dnsNames"] = [
                name
                for name in names
                if not name.startswith("*.aerobee-broker-") or name.split(".")[1] in groups
            ]
        if one["kind"] == "ConfigMap":
            one["data"] = {
                name: tomllib.loads(text) if name.endswith(".toml") else text
                for name, text in one["data"].items()
            }
        found[one["kind"], metadata["name"]] = one
    return found
