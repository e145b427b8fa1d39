"""A rendered overlay as running pods: what StatefulSet and Deployment controllers do of it that
matters here, that is their pods, their claims, and a rolling update from the highest ordinal down.

Owns: the pods of one cluster and the folders of their volumes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.kubernetes.manifests import Manifests, PodTemplate
from tests.kubernetes.pods.engine import Engine, open_engine
from tests.kubernetes.pods.kubelet import Pod, Stopped, make_folder
from tests.kubernetes.pods.name_server import NameServer
from tests.kubernetes.pods.play_file import pod_names, service_names

READY_TIMEOUT_S = 90.0
TOOLS = "aerobee-tools"
ACCOUNT_LINES = 40
"""Of each container's log."""


class PodCluster:
    """Use `open_cluster`. Pods are made, and not yet started."""

    def __init__(self, engine: Engine, manifests: Manifests, mounts: Mapping[str, Path]) -> None:
        self.manifests = manifests
        self.pods: dict[str, Pod] = {}
        self._engine = engine
        self._mounts = mounts
        self._names = NameServer(engine.gateway, self._addresses)
        self._names.start()

    def add(self, *owners: str) -> None:
        """The pods of these StatefulSets and Deployments."""
        for template in self.manifests.pods():
            if template.name not in owners:
                continue
            for ordinal in range(template.replicas):
                pod = Pod(
                    self._engine,
                    template,
                    ordinal,
                    folders=self._folders(template, ordinal),
                    mounts=self._mounts if template.name == TOOLS else {},
                )
                self.pods[pod.name] = pod

    def of(self, owner: str) -> list[Pod]:
        """By ordinal."""
        return [pod for pod in self.pods.values() if pod.template.name == owner]

    @property
    def tools(self) -> Pod:
        (pod,) = self.of(TOOLS)
        return pod

    async def start(self, *owners: str) -> None:
        """All pods of these at once."""
        await asyncio.gather(*(pod.start() for owner in owners for pod in self.of(owner)))

    async def stop(self, *owners: str) -> list[Stopped]:
        """All pods of these at once."""
        pods = [pod for owner in owners for pod in self.of(owner)]
        return await asyncio.gather(*(pod.stop() for pod in pods))

    async def ready(self, *owners: str, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Until all pods of these are; how long that took."""
        pods = [pod for owner in owners for pod in self.of(owner)]
        return await self._until_ready(pods, timeout_s)

    async def _until_ready(self, pods: list[Pod], timeout_s: float = READY_TIMEOUT_S) -> float:
        began_s = time.monotonic()
        while not all(pod.is_ready for pod in pods):
            for pod in pods:
                if (reason := pod.probes.must_restart) is not None:
                    raise AssertionError(f"{pod.name}: {reason}")
            if time.monotonic() - began_s > timeout_s:
                late = {pod.name: pod.probes.reason for pod in pods if not pod.is_ready}
                raise AssertionError(f"not ready: {late}")
            await asyncio.sleep(0.05)
        return time.monotonic() - began_s

    async def replace(
        self, pod: Pod, *, image: str | None = None, min_ready_s: float
    ) -> tuple[Stopped, float]:
        """One step of a rolling update: how the pod ended, and the new one's time to be ready.

        Args:
            image: what the new one runs; None for the same.
            min_ready_s: for so long it must have been ready; the manifests' 30 s are for caches of
                DNS, of which there are none here.
        """
        stopped = await pod.stop()
        if image is not None:
            pod.template = _with_image(pod.template, image)
        began_s = time.monotonic()
        await pod.start()
        await self._until_ready([pod])
        ready_s = time.monotonic() - began_s
        await asyncio.sleep(min_ready_s)
        assert pod.is_ready, pod.probes.reason
        return stopped, ready_s

    async def next_image(self, image: str) -> str:
        """The image under another name and with another id, as the next release has."""
        made = f"localhost/{self._engine.prefix}:next"
        await self._engine.run(
            "build", "--quiet", "--tag", made, "-", text=f"FROM {image}\nLABEL release=next\n"
        )
        return made

    def must_restart(self) -> dict[str, str]:
        """The pods whose containers a kubelet would have restarted, and why."""
        return {
            pod.name: pod.probes.must_restart
            for pod in self.pods.values()
            if pod.is_running and pod.probes.must_restart is not None
        }

    async def account(self) -> str:
        """The end of each container's log, for a person who looks for the cause. All of the logs,
        and what is on the volumes, stays where the account says."""
        self._engine.keeps_folder = True
        logs = self._engine.folder / "logs"
        logs.mkdir(exist_ok=True)
        parts = [f"logs and volumes are kept in {self._engine.folder} until the next run"]
        for pod in self.pods.values():
            log = pod.log + await pod.log_of_sandbox()
            (logs / f"{pod.name}.log").write_text(log)
            state = "ready" if pod.is_ready else "not ready"
            parts.append(f"--- {pod.name} at {pod.address}, {state}")
            parts += log.splitlines()[-ACCOUNT_LINES:]
        return "\n".join(parts)

    async def close(self) -> None:
        for pod in self.pods.values():
            await pod.close()
        self._names.close()

    def _addresses(self, name: str) -> list[str] | None:
        """For the name server's threads, from the pods as they are at the moment. A Service with an
        address of its own is here a name for all of its pods that are ready."""
        found = None
        for pod in list(self.pods.values()):
            is_headless = name in pod_names(self.manifests, pod.template, pod.ordinal)
            if is_headless or name in service_names(self.manifests, pod.template):
                found = found or []
                if pod.has_address and (is_headless or pod.is_ready):
                    found.append(pod.address)
        return found

    def _folders(self, template: PodTemplate, ordinal: int) -> dict[str, Path]:
        group = template.spec["securityContext"]["fsGroup"]
        name = f"{template.name}-{ordinal}"
        folders = {}
        for volume in template.volume_names:
            folders[volume] = make_folder(self._engine.folder / name / volume, group)
        for volume in template.spec.get("volumes", ()):
            if "configMap" in volume:
                data = self.manifests.config(volume["configMap"]["name"])["data"]
                for file, text in data.items():
                    (folders[volume["name"]] / file).write_text(text)
        return folders


def _with_image(template: PodTemplate, image: str) -> PodTemplate:
    spec = {**template.spec}
    spec["containers"] = [{**one, "image": image} for one in spec["containers"]]
    return dataclasses.replace(template, spec=spec)


@asynccontextmanager
async def open_cluster(
    manifests: Manifests, *owners: str, mounts: Mapping[str, Path]
) -> AsyncIterator[PodCluster]:
    """The pods of the owners; `mounts` are what the pod of tools gets beside, by path. What fails
    inside is told with an account; what a test finds, its fixtures have to tell."""
    async with open_engine() as engine:
        cluster = PodCluster(engine, manifests, mounts)
        cluster.add(*owners)
        try:
            yield cluster
        except BaseException:
            print(await cluster.account())
            raise
        finally:
            await cluster.close()
