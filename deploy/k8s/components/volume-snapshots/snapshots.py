"""A VolumeSnapshot of one replica of each broker group, and the oldest removed; run by a CronJob.

The replica is the ready one with the highest number: ready means in sync, and a claim without a pod
may be of a replica that was removed long ago. A group that is added later is found by its pods.

Environment:
    KEEP: how many snapshots of each claim stay.
    SNAPSHOT_CLASS: the driver's class; without it the default one.

A snapshot counts once it is ready to use. Older ones are removed only then, so that a driver that
fails leaves what there was. Exit code 1: at least one group has no new snapshot.
"""

from __future__ import annotations

import datetime
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = "https://kubernetes.default.svc"
GROUP = "snapshot.storage.k8s.io/v1"
BROKERS = "app.kubernetes.io/name%3Daerobee,app.kubernetes.io/component%3Dbroker"
OF_GROUP = "aerobee.dev/broker-group"
NUMBER = "apps.kubernetes.io/pod-index"
OF_CLAIM = "aerobee.dev/claim"
READY_TIMEOUT_S = 1_200
LOOK_EVERY_S = 5.0


class Api:
    """VolumeSnapshots and brokers of this pod's namespace."""

    def __init__(self, server: str = SERVER, account: Path = ACCOUNT) -> None:
        namespace = (account / "namespace").read_text().strip()
        self._snapshots = f"{server}/apis/{GROUP}/namespaces/{namespace}/volumesnapshots"
        self._pods = f"{server}/api/v1/namespaces/{namespace}/pods"
        # Read once: tokens are renewed, but a job is short.
        self._token = (account / "token").read_text().strip()
        is_secured = server.startswith("https:")
        self._tls = ssl.create_default_context(cafile=account / "ca.crt") if is_secured else None

    def brokers(self) -> list[Any]:
        items: list[Any] = self._call("GET", f"{self._pods}?labelSelector={BROKERS}")["items"]
        return items

    def create(self, document: Any) -> None:
        self._call("POST", self._snapshots, document)

    def get(self, name: str) -> Any:
        return self._call("GET", f"{self._snapshots}/{name}")

    def of_claim(self, claim: str) -> list[Any]:
        which = f"?labelSelector={OF_CLAIM}%3D{claim}"
        items: list[Any] = self._call("GET", self._snapshots + which)["items"]
        return items

    def delete(self, name: str) -> None:
        self._call("DELETE", f"{self._snapshots}/{name}")

    def _call(self, method: str, url: str, document: Any = None) -> Any:
        body = None if document is None else json.dumps(document).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30, context=self._tls) as answer:
            return json.loads(answer.read())


def claims_of(pods: list[Any]) -> dict[str, str | None]:
    """Of each broker group the claim to save; None: no replica of it is ready."""
    found: dict[str, tuple[int, str] | None] = {}
    for pod in pods:
        labels = pod["metadata"]["labels"]
        group = labels[OF_GROUP]
        best = found.setdefault(group, None)
        conditions = (pod.get("status") or {}).get("conditions") or ()
        if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
            volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
            claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
            found[group] = max(best or (-1, ""), (int(labels[NUMBER]), claim))
    return {group: best and best[1] for group, best in sorted(found.items())}


def take(api: Api, claim: str, now: datetime.datetime, snapshot_class: str = "") -> str:
    """The name of a new snapshot, once it is ready. RuntimeError says why it is not."""
    name = f"{claim}-{now:%Y%m%dt%H%M%Sz}"
    spec: dict[str, Any] = {"source": {"persistentVolumeClaimName": claim}}
    if snapshot_class:
        spec["volumeSnapshotClassName"] = snapshot_class
    labels = {"app.kubernetes.io/name": "aerobee", OF_CLAIM: claim}
    metadata = {"name": name, "labels": labels}
    api.create({"apiVersion": GROUP, "kind": "VolumeSnapshot", "metadata": metadata, "spec": spec})
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    status: Any = {}
    while time.monotonic() < deadline_s:
        status = api.get(name).get("status") or {}
        if status.get("readyToUse"):
            return name
        time.sleep(LOOK_EVERY_S)
    raise RuntimeError(
        f"{name} is not ready: {status.get('error', {}).get('message', 'no reason')}"
    )


def remove_older(api: Api, claim: str, keep: int) -> list[str]:
    """Remove all but the newest `keep` that are ready, and what never became ready."""
    found = sorted(api.of_claim(claim), key=lambda one: str(one["metadata"]["name"]))
    ready = [one for one in found if (one.get("status") or {}).get("readyToUse")]
    kept = {one["metadata"]["name"] for one in ready[-keep:]}
    gone = [one["metadata"]["name"] for one in found if one["metadata"]["name"] not in kept]
    for name in gone:
        api.delete(name)
    return gone


def main() -> int:
    """Every group, also after one that failed."""
    api, failed = Api(), False
    claims = claims_of(api.brokers())
    if not claims:
        print("no broker has a pod: nothing to save", file=sys.stderr, flush=True)
        return 1
    for group, claim in claims.items():
        try:
            if claim is None:
                raise RuntimeError("no replica is ready, so none is known to have all messages")
            now = datetime.datetime.now(datetime.UTC)
            print(take(api, claim, now, os.environ.get("SNAPSHOT_CLASS", "")), flush=True)
            for name in remove_older(api, claim, int(os.environ["KEEP"])):
                print(f"removed {name}", flush=True)
            subprocess.run(["aerobee", "etcd", "note-backup", group], check=True)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            reason = error.read().decode() if isinstance(error, urllib.error.HTTPError) else error
            print(f"{group}: {reason}", file=sys.stderr, flush=True)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
