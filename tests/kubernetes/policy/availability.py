"""What may be away at once, where pods go, what they get, and how long they have to end.

Each check takes the manifests and yields a sentence for everything that is wrong.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from aerobee.broker import run as broker_life
from aerobee.broker.config import BrokerConfig
from aerobee.broker.groups import member_streams
from aerobee.broker.offsets import journal
from aerobee.cli import drain
from aerobee.nameserver.config import NameserverConfig
from tests.kubernetes.manifests import Manifests, Object, PodTemplate
from tests.kubernetes.policy.references import matches
from tests.support.command_parsing import parsed

SERVICES = ("broker", "nameserver", "etcd")
CLOSE_S = 20.0
"""For tables and files to be written and closed, on a slow disk: nothing else bounds it."""
DNS_CACHE_S = 30
"""So long caches keep a name's former address, as Kubernetes sets its DNS up."""
ETCD_STOP_S = 20.0
"""etcd hands its leadership over (at most 7 s) and closes; no constant of ours."""
START_S = 2.0
"""For a command to start in a container that has a core."""


def budgets_keep_a_quorum(manifests: Manifests) -> Iterator[str]:
    """After every eviction that a budget allows, enough are left to go on."""
    for pod in manifests.pods():
        if pod.component not in SERVICES:
            continue
        budgets = [
            one["spec"]
            for one in manifests.of_kind("PodDisruptionBudget")
            if matches(one["spec"]["selector"], pod.labels)
        ]
        if len(budgets) != 1:
            yield f"{pod}: {len(budgets)} budgets"
            continue
        (budget,) = budgets
        if pod.replicas == 1:
            # Nobody can go on without the only one; a budget that kept it would keep its node
            # from ever being emptied.
            if budget.get("maxUnavailable") != 1:
                yield f"{pod}: its node can never be emptied"
            continue
        left = budget.get("minAvailable", pod.replicas - budget.get("maxUnavailable", pod.replicas))
        if left < _needed(manifests, pod):
            yield f"{pod}: {left} of {pod.replicas} may be left, {_needed(manifests, pod)} needed"
        if left >= pod.replicas:
            yield f"{pod}: no node with one of them can ever be emptied"
        if pod.component != "nameserver" and budget.get("unhealthyPodEvictionPolicy") not in (
            None,
            "IfHealthyBudget",
        ):
            yield f"{pod}: one that is not ready, and may be the last, can always be evicted"


def _needed(manifests: Manifests, pod: PodTemplate) -> int:
    if pod.component == "etcd":
        return pod.replicas // 2 + 1
    if pod.component == "broker":
        replication = broker_settings(manifests, pod).get("replication", {})
        # Two at least: one that has everything, and one that takes over from it.
        return max(int(replication.get("min_insync_replicas", 1)), pod.replicas // 2 + 1)
    return 1


def broker_settings(manifests: Manifests, pod: PodTemplate) -> dict[str, Any]:
    """The file that a service reads."""
    (config,) = (one["configMap"] for one in pod.spec["volumes"] if "configMap" in one)
    ((_, text),) = manifests.get("ConfigMap", config["name"])["data"].items()
    return tomllib.loads(text)


def replicas_are_spread(manifests: Manifests) -> Iterator[str]:
    """Never two of a quorum on one node, and over zones where there are some."""
    for pod in manifests.pods():
        if pod.component not in SERVICES:
            continue
        rules = pod.spec.get("affinity", {}).get("podAntiAffinity", {})
        required = rules.get("requiredDuringSchedulingIgnoredDuringExecution", [])
        preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution", [])
        if pod.kind == "StatefulSet":
            if [one["topologyKey"] for one in required] != ["kubernetes.io/hostname"]:
                yield f"{pod}: two of them may be on one node"
        elif required:
            # Then a rollout would need one node more than there are pods.
            yield f"{pod}: cannot be replaced where nodes are few"
        elif not preferred:
            yield f"{pod}: all of them may be on one node"
        zones = [one["topologyKey"] for one in pod.spec.get("topologySpreadConstraints", ())]
        if "topology.kubernetes.io/zone" not in zones:
            yield f"{pod}: all of them may be in one zone"


def stateful_sets_start_in_any_order(manifests: Manifests) -> Iterator[str]:
    """Members need each other to become ready, so none may wait for another to be."""
    for one in manifests.of_kind("StatefulSet"):
        name, spec = one["metadata"]["name"], one["spec"]
        if spec.get("podManagementPolicy") != "Parallel":
            yield f"{name}: one waits for another"
        if spec.get("updateStrategy", {}).get("type") != "RollingUpdate":
            yield f"{name}: is not updated by itself"
        if spec["updateStrategy"].get("rollingUpdate", {}).get("maxUnavailable", 1) != 1:
            yield f"{name}: several are replaced at once"
        service = manifests.find("Service", spec.get("serviceName", ""))
        if service is None or not service["spec"].get("publishNotReadyAddresses"):
            yield f"{name}: members are not found until they are ready"
        is_broker = one["metadata"]["labels"]["app.kubernetes.io/component"] == "broker"
        if is_broker and spec.get("minReadySeconds", 0) < DNS_CACHE_S:
            yield f"{name}: whoever becomes master in an update may not be found"
        kept = spec.get("persistentVolumeClaimRetentionPolicy", {})
        if kept != {"whenDeleted": "Retain", "whenScaled": "Retain"}:
            yield f"{name}: its claims go with it"
    for one in manifests.of_kind("Deployment"):
        strategy = one["spec"].get("strategy", {})
        is_service = one["metadata"]["labels"]["app.kubernetes.io/component"] in SERVICES
        if is_service and strategy.get("rollingUpdate", {}).get("maxUnavailable") != 0:
            yield f"{one['metadata']['name']}: fewer serve while it is replaced"


def resources_are_said(manifests: Manifests) -> Iterator[str]:
    """Requests of all, limits of what cannot be taken back, none of what only delays."""
    for pod in manifests.pods():
        for container in pod.containers:
            resources = container.get("resources", {})
            requests, limits = resources.get("requests", {}), resources.get("limits", {})
            for one in ("cpu", "memory"):
                if one not in requests:
                    yield f"{pod}: {container['name']} asks for no {one}"
            if "memory" not in limits:
                yield f"{pod}: {container['name']} may take all memory of its node"
            if "cpu" in limits:
                yield f"{pod}: {container['name']} is throttled, and its leases end"


def memory_pressure_evicts_others_first(manifests: Manifests) -> Iterator[str]:
    """Where nothing may be evicted: page cache counts as memory in use, so a pod that may use more
    than it asks for is among the first to go."""
    for pod in manifests.pods():
        if pod.component not in SERVICES:
            continue
        resources = pod.containers[0]["resources"]
        if pod.replicas > 1 and resources["requests"]["memory"] != resources["limits"]["memory"]:
            yield f"{pod}: asks for less memory than it may use"
        if "priorityClassName" not in pod.spec:
            yield f"{pod}: goes as soon as any other pod"


def etcd_has_memory_for_its_file(manifests: Manifests) -> Iterator[str]:
    """It maps the whole file, and two of them while it is defragmented."""
    for pod in manifests.pods_of("etcd"):
        (container,) = pod.containers
        words = " ".join(container.get("args", ()))
        # Without the argument it is 2 GiB.
        (quota,) = re.findall(r"--quota-backend-bytes=(\d+)", words) or (2**31,)
        limit = container["resources"].get("limits", {}).get("memory", "0Mi")
        if 2 * int(quota) > _bytes_of(limit):
            yield f"{pod}: twice its quota of {quota} bytes is more than {limit}"


def _bytes_of(quantity: str) -> int:
    number, unit = quantity[:-2], quantity[-2:]
    return int(number) * {"Mi": 2**20, "Gi": 2**30}[unit]


def memory_budgets_follow_the_limit(manifests: Manifests) -> Iterator[str]:
    """A broker derives them from its container's limit, if there is one and no file says
    otherwise."""
    for pod in manifests.pods_of("broker"):
        if "memory" not in pod.containers[0].get("resources", {}).get("limits", {}):
            yield f"{pod}: counts the memory of its node as its own"
        replication = broker_settings(manifests, pod).get("replication", {})
        if replication.get("slave_read_bytes"):
            yield f"{pod}: replication.slave_read_bytes does not follow the limit"


def ends_are_waited_for(manifests: Manifests) -> Iterator[str]:
    """The kubelet kills nobody who is still within the bounds of an orderly end."""
    for pod in manifests.pods():
        if pod.component not in SERVICES:
            continue
        given = pod.spec.get("terminationGracePeriodSeconds", 30)
        needed = stop_bound_s(pod)
        if given < needed:
            yield f"{pod}: killed after {given} s, may need {needed:.1f} s"
        if "preStop" not in pod.containers[0].get("lifecycle", {}) and pod.component != "etcd":
            yield f"{pod}: nothing is handed over before it ends"


def stop_bound_s(pod: PodTemplate) -> float:
    """Longest that preStop and an orderly stop of this pod's service take."""
    if pod.component == "etcd":
        return ETCD_STOP_S
    hook = pod.containers[0].get("lifecycle", {}).get("preStop", {})
    before = _hook_s(hook)
    if pod.component == "nameserver":
        return before + NameserverConfig().stop_grace_ms / 1_000
    return before + broker_stop_s()


def broker_stop_s() -> float:
    """The sum of the bounds of `Run._stop`, and time to close files."""
    return (
        broker_life.DRAIN_TIMEOUT_S
        + member_streams.LEAVE_S
        + journal.CLEAN_END_TIMEOUT_S
        + broker_life.REPLICATE_TIMEOUT_S
        # Once as a slave, once more at the end.
        + 2 * broker_life.LEAVE_TIMEOUT_S
        + BrokerConfig(store_root=_NOWHERE).stop_grace_ms / 1_000
        + CLOSE_S
    )


def _hook_s(hook: Object) -> float:
    """Longest that a hook takes: a pause, or `aerobee broker drain`."""
    if "sleep" in hook:
        return float(hook["sleep"]["seconds"])
    if "exec" not in hook:
        return 0.0
    given_ms = parsed(hook["exec"]["command"][1:]).params.get("timeout_ms", 0)
    # Its time is for all of it; the last answer may come so much later.
    return START_S + (float(given_ms) + drain.ANSWER_TIMEOUT_MS) / 1_000


_NOWHERE: Any = "nowhere"
