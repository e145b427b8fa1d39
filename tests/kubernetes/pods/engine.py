"""Runs podman, and leaves nothing behind.

Owns: one network, one folder, and a prefix that all names made by one run begin with. The prefix
says which process made them; what a killed run left is removed by the next one, and nothing of
anybody else is ever touched.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Network
from pathlib import Path

from tests.kubernetes.containers import find_podman

PREFIX = "aerobee-pods"
COMMAND_TIMEOUT_S = 60.0
FOLDERS = Path("/var/tmp")
"""Not among pytest's: a volume's folder must outlast whatever clears those, be it a run of other
tests with the same --basetemp. A broker whose folder is gone fails, as it should."""


class PodmanFailed(Exception):
    """Says which command, and what podman said."""


class Engine:
    """Use `open_engine`."""

    def __init__(self, configuration: Path, folder: Path) -> None:
        self.prefix = folder.name
        self.folder = folder
        """Of this run alone."""
        self.keeps_folder = False
        """Whether the folder stays, for a person who looks for the cause, until the next run."""
        self._configuration = configuration
        self._subnet: IPv4Network | None = None
        self._addresses_given = 1

    @property
    def network(self) -> str:
        return self.prefix

    @property
    def gateway(self) -> str:
        """This machine in the pods' network."""
        assert self._subnet is not None
        return str(self._subnet[1])

    def next_address(self) -> str:
        """One that no pod of this run had before."""
        assert self._subnet is not None
        self._addresses_given += 1
        return str(self._subnet[self._addresses_given])

    async def run(
        self, *arguments: str, text: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> str:
        """What podman writes to its standard output.

        Raises:
            PodmanFailed: another exit code than 0.
            TimeoutError: it took too long.
        """
        output, _ = await self.run_for_both(*arguments, text=text, timeout_s=timeout_s)
        return output

    async def run_for_both(
        self, *arguments: str, text: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> tuple[str, str]:
        """The same with its standard error."""
        process = await self.start(*arguments)
        try:
            async with asyncio.timeout(timeout_s):
                told = await process.communicate((text or "").encode())
        except BaseException:
            if process.returncode is None:
                process.kill()
            raise
        output, complaint = (part.decode(errors="replace") for part in told)
        if process.returncode != 0:
            raise PodmanFailed(
                f"podman {' '.join(arguments)}: exit code {process.returncode}: "
                f"{complaint[-2_000:]}{output[-500:]}"
            )
        return output, complaint

    async def start(
        self, *arguments: str, line_bytes_max: int = 1 << 16
    ) -> asyncio.subprocess.Process:
        """With pipes at its standard input, output and error."""
        return await asyncio.create_subprocess_exec(
            "podman",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=line_bytes_max,
            env={**os.environ, "CONTAINERS_CONF": str(self._configuration)},
        )

    async def open(self) -> None:
        for name in await self._leftovers():
            await self._remove_all(name)
            shutil.rmtree(FOLDERS / name, ignore_errors=True)
        await self.run("network", "create", "--disable-dns", self.network)
        (described,) = json.loads(await self.run("network", "inspect", self.network))
        self._subnet = IPv4Network(described["subnets"][0]["subnet"])

    async def close(self) -> None:
        await self._remove_all(self.prefix)
        if not self.keeps_folder:
            shutil.rmtree(self.folder)

    async def _remove_all(self, prefix: str) -> None:
        pods = await self._names("pod", "ps", f"name=^{prefix}-", "{{.Name}}")
        # Podman itself takes one after the other.
        removing = [self.run("pod", "rm", "--force", "--time", "0", pod) for pod in pods]
        await asyncio.gather(*removing)
        images = await self._names("images", "", f"reference=localhost/{prefix}", "{{.ID}}")
        if images:
            await self.run("rmi", "--force", *images)
        if prefix in await self._names("network", "ls", f"name=^{prefix}$", "{{.Name}}"):
            await self.run("network", "rm", "--force", "--time", "0", prefix)

    async def _leftovers(self) -> list[str]:
        """Prefixes of runs whose process is gone."""
        found = {folder.name for folder in FOLDERS.glob(f"{PREFIX}-*-*")}
        found.update(await self._names("network", "ls", f"name=^{PREFIX}-[0-9]+-", "{{.Name}}"))
        return [name for name in found if not Path("/proc", name.split("-")[2]).exists()]

    async def _names(self, what: str, how: str, criterion: str, template: str) -> Sequence[str]:
        words = [word for word in (what, how) if word]
        return (await self.run(*words, "--filter", criterion, "--format", template)).split()


@asynccontextmanager
async def open_engine() -> AsyncIterator[Engine]:
    """With a network and a folder of its own; whatever happens, nothing is left of them, but for a
    folder that is to be kept.

    Raises:
        NoContainers: there is no podman.
    """
    folder = FOLDERS / f"{PREFIX}-{os.getpid()}-{secrets.token_hex(2)}"
    folder.mkdir(mode=0o755)
    engine = Engine(find_podman(folder).conf, folder)
    try:
        await engine.open()
        yield engine
    finally:
        await engine.close()
