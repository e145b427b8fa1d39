"""Nodes that exist only in the API, and a stand-in for their kubelets.

The stand-in does what controllers wait for and nothing more: a pod that the scheduler has placed
gets an address and is ready, one that is being deleted goes away.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import sleep

from tests.kubernetes.api_server.client import Api, Object, Refused
from tests.kubernetes.api_server.space import is_of_job

ZONES = ("zone-a", "zone-b", "zone-c")
CAPACITY = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "200Gi"}
STORAGE_CLASS = "by-hand"
BROKEN = "-broken"
"""The end of an image whose pods never become ready."""
SINCE = "2026-01-01T00:00:00Z"


def add_nodes(api: Api, count: int) -> list[str]:
    """Nodes in turn over three zones, ready to take pods; returns their names."""
    names = [f"node-{index}" for index in range(count)]
    for index, name in enumerate(names):
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": ZONES[index % len(ZONES)],
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        api.apply(node)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Registered",
            "message": "stands for a kubelet",
            "lastHeartbeatTime": SINCE,
            "lastTransitionTime": SINCE,
        }
        status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [ready]}
        api.merge(f"/api/v1/nodes/{name}/status", {"status": status})
    return names


def add_volumes(api: Api, nodes: list[str], *, each: int) -> None:
    """The default storage class, whose volumes wait for a pod's node, and some on every node."""
    api.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": STORAGE_CLASS,
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    for node, index in itertools.product(nodes, range(each)):
        api.apply(_volume(node, index))


def _volume(node: str, index: int) -> Object:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{node}-{index}"},
        "spec": {
            "capacity": {"storage": "500Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": STORAGE_CLASS,
            "local": {"path": f"/volumes/{index}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


@contextmanager
def kubelets(api: Api, *, interval_s: float = 0.1) -> Iterator[None]:
    """Stand in for every node's kubelet while inside."""
    ended = threading.Event()
    thread = threading.Thread(target=_stand_in, args=(api, ended, interval_s), name="kubelets")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stand_in(api: Api, ended: threading.Event, interval_s: float) -> None:
    addresses = (f"10.1.{high}.{low}" for high in range(256) for low in range(1, 255))
    while not ended.is_set():
        # Changed or gone since the list was made, or a server out of breath: the next round sees it
        # as it is.
        with suppress(Refused, OSError):
            for pod in api.items("/api/v1/pods"):
                if pod["spec"].get("nodeName"):
                    with suppress(Refused):
                        _attend(api, pod, addresses)
        sleep(interval_s)


def _attend(api: Api, pod: Object, addresses: Iterator[str]) -> None:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    if "deletionTimestamp" in metadata:
        api.request("DELETE", path, query={"gracePeriodSeconds": "0"})
    elif pod["status"].get("phase") == "Pending":
        address = next(addresses)
        api.merge(f"{path}/status", {"status": _status(pod, address, has_ended=is_of_job(pod))})


def _status(pod: Object, address: str, *, has_ended: bool) -> Object:
    """A job's pod has done its work at once; any other one is ready, unless its image is broken."""
    is_broken = any(one["image"].endswith(BROKEN) for one in pod["spec"]["containers"])
    ready = "False" if has_ended or is_broken else "True"
    conditions = [
        {"type": kind, "status": ready if "Ready" in kind else "True", "lastTransitionTime": SINCE}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    state = (
        {"terminated": {"exitCode": 0, "startedAt": SINCE, "finishedAt": SINCE}}
        if has_ended
        else {"running": {"startedAt": SINCE}}
    )
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "ready": ready == "True",
            "started": not has_ended,
            "restartCount": 0,
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]
    return {
        "phase": "Succeeded" if has_ended else "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": SINCE,
        "conditions": conditions,
        "containerStatuses": containers,
    }
