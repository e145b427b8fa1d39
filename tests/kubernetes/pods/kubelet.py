"""One pod of the manifests in podman: started, probed, drained, stopped and killed as by a kubelet.

Owns: the pod's sandbox and its probes. Each start is a new sandbox with an address that no pod had
before; what lies in claims stays.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.kubernetes.manifests import Object, PodTemplate
from tests.kubernetes.pods.engine import Engine, PodmanFailed
from tests.kubernetes.pods.play_file import Sandbox, play_document
from tests.kubernetes.pods.prober import Prober

LOG_LINES_MAX = 2_000
KEEPER_S = 600


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a pod ended."""

    exit_code: int
    hook_s: float
    """What preStop took."""
    elapsed_s: float


class Pod:
    """One ordinal of one template. `mounts`: more folders of this machine, read-only, by path."""

    def __init__(
        self,
        engine: Engine,
        template: PodTemplate,
        ordinal: int,
        *,
        folders: Mapping[str, Path],
        mounts: Mapping[str, Path] | None = None,
    ) -> None:
        self.name = f"{template.name}-{ordinal}"
        self.template = template
        self.ordinal = ordinal
        self.address = ""
        self.log = ""
        """Of the sandboxes before this one."""
        self._engine = engine
        self._folders = dict(folders)
        self._mounts = dict(mounts or {})
        self._prober: Prober | None = None
        self._probing: asyncio.Task[None] | None = None

    @property
    def container(self) -> Object:
        (container,) = self.template.spec["containers"]
        found: Object = container
        return found

    @property
    def _pod_name(self) -> str:
        return f"{self._engine.prefix}-{self.name}"

    @property
    def _container_name(self) -> str:
        return f"{self._pod_name}-{self.container['name']}"

    @property
    def is_running(self) -> bool:
        """It was started, and nobody stopped it."""
        return self._prober is not None

    @property
    def has_address(self) -> bool:
        """From its start to its end, with the time in which it is being stopped."""
        return self.address != ""

    @property
    def is_ready(self) -> bool:
        return self._prober is not None and self._prober.is_ready

    @property
    def probes(self) -> Prober:
        """Of the present start."""
        assert self._prober is not None
        return self._prober

    def folder(self, volume: str) -> Path:
        return self._folders[volume]

    async def start(self) -> None:
        """A new sandbox, at another address."""
        assert not self.is_running
        self.address = self._engine.next_address()
        folders = dict(self._folders)
        document = play_document(
            self.template,
            self.ordinal,
            Sandbox(
                name=self._pod_name,
                address=self.address,
                dns_server=self._engine.gateway,
                folders=folders,
            ),
        )
        self._add_mounts(document)
        await self._engine.run(
            *("kube", "play", "--quiet"),
            *("--network", f"{self._engine.network}:ip={self.address}", "-"),
            text=yaml.safe_dump(document),
        )
        self._probe()

    async def stop(self) -> Stopped:
        """The hook, SIGTERM, and SIGKILL when the grace period ends; the sandbox is removed."""
        began_s = time.monotonic()
        grace_s = float(self.template.spec["terminationGracePeriodSeconds"])
        await self._end_probes()
        await self._run_hook(grace_s)
        hook_s = time.monotonic() - began_s
        left_s = max(2, round(grace_s - hook_s))
        await self._engine.run(
            "stop", "--time", str(left_s), self._container_name, timeout_s=left_s + 30
        )
        exit_code = int(await self._inspect("{{.State.ExitCode}}"))
        elapsed_s = time.monotonic() - began_s
        self.log += await self.log_of_sandbox()
        self.address = ""
        await self._engine.run("pod", "rm", "--force", "--time", "0", self._pod_name)
        return Stopped(exit_code, hook_s, elapsed_s)

    async def kill(self) -> float:
        """kill -9 of its first process; the container is started again in the same sandbox. When
        that was, in seconds of the monotonic clock."""
        await self._end_probes()
        async with self._sandbox_kept():
            killed_s = time.monotonic()
            await self._engine.run("kill", "--signal", "KILL", self._container_name)
            await self._engine.run("wait", self._container_name)
            await self._engine.run("start", self._container_name)
        self._probe()
        return killed_s

    @asynccontextmanager
    async def _sandbox_kept(self) -> AsyncIterator[None]:
        """Podman takes a sandbox down when its last container ends; a start that meets that leaves
        a container that runs and counts as stopped. So another one stays in it meanwhile."""
        name = f"{self._pod_name}-keeper"
        await self._engine.run(
            *("run", "--detach", "--pod", self._pod_name, "--name", name, "--pull=never"),
            *("--entrypoint=python3", self.container["image"]),
            *("-c", f"import time; time.sleep({KEEPER_S})"),
        )
        try:
            yield
        finally:
            await self._engine.run("rm", "--force", "--time", "0", name)

    async def execute(
        self,
        *command: str,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> str:
        """Runs a command in its container; what that wrote.

        Raises:
            PodmanFailed: it ended with another code than 0.
        """
        settings = [f"--env={name}={value}" for name, value in (environment or {}).items()]
        return await self._engine.run(
            "exec", *settings, self._container_name, *command, timeout_s=timeout_s
        )

    async def spawn(
        self, *command: str, environment: Mapping[str, str], bytes_max: int
    ) -> asyncio.subprocess.Process:
        """The same, with pipes to it; lines may be `bytes_max` long."""
        settings = [f"--env={name}={value}" for name, value in environment.items()]
        return await self._engine.start(
            *("exec", "--interactive", *settings, self._container_name, *command),
            line_bytes_max=bytes_max,
        )

    async def process_id(self) -> int:
        """Of its first process, here."""
        return int(await self._inspect("{{.State.Pid}}"))

    async def image_id(self) -> str:
        """Of what it runs."""
        return await self._inspect("{{.Image}}")

    async def log_of_sandbox(self) -> str:
        """What its container wrote to standard error: our services log there."""
        with suppress(PodmanFailed):
            _, log = await self._engine.run_for_both(
                "logs", "--tail", str(LOG_LINES_MAX), self._container_name
            )
            return log
        return ""

    async def close(self) -> None:
        """The probes alone; pods end with their network."""
        await self._end_probes()

    def _add_mounts(self, document: Object) -> None:
        (container,) = document["spec"]["containers"]
        for number, (path, folder) in enumerate(self._mounts.items()):
            name = f"mount-{number}"
            volume = {"name": name, "hostPath": {"path": str(folder), "type": "Directory"}}
            document["spec"]["volumes"].append(volume)
            container["volumeMounts"].append({"name": name, "mountPath": path, "readOnly": True})

    def _probe(self) -> None:
        self._prober = Prober(self.container, self.address)
        self._probing = asyncio.create_task(self._prober.run(), name=f"probes of {self.name}")

    async def _end_probes(self) -> None:
        self._prober = None
        if self._probing is not None:
            probing, self._probing = self._probing, None
            probing.cancel()
            with suppress(asyncio.CancelledError):
                await probing

    async def _run_hook(self, grace_s: float) -> None:
        hook = self.container.get("lifecycle", {}).get("preStop", {})
        if "exec" in hook:
            await self.execute(*hook["exec"]["command"], timeout_s=grace_s)
        elif "sleep" in hook:
            await asyncio.sleep(hook["sleep"]["seconds"])

    async def _inspect(self, template: str) -> str:
        return (
            await self._engine.run("inspect", "--format", template, self._container_name)
        ).strip()


def make_folder(path: Path, group: int) -> Path:
    """As a volume comes to a pod with an fsGroup."""
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, 0, group)
    path.chmod(0o2775)
    return path


def memory_bytes(process_id: int) -> int:
    """Resident, of one process."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
