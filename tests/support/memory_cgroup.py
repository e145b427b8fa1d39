"""A process whose memory the kernel limits, as a container's is; needs root and a writable tree of
cgroups, of either version."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import wait_until

_TREES = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max", "memory.peak"),
)


@dataclass(frozen=True)
class Limited:
    """What runs in the group."""

    process: subprocess.Popen[bytes]
    group: Path

    def oom_kills(self) -> int:
        """How many processes the kernel has ended."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                for line in (self.group / name).read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        raise AssertionError(f"{self.group} does not tell of kills")

    def resident_max_bytes(self) -> int:
        """The peak of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1_024


def own_group(name: str, limit_bytes: int) -> Path | None:
    """A group with this limit; None: there can be none here."""
    for tree, limit, _ in _TREES:
        group = tree / name
        try:
            group.mkdir()
        except OSError:
            continue
        with contextlib.suppress(OSError):
            (group / limit).write_text(str(limit_bytes))
            return group
        group.rmdir()
    return None


@contextmanager
def limited(
    command: Sequence[str | Path], limit_bytes: int, log: Path, name: str
) -> Iterator[Limited | None]:
    """Run a program in a group of its own; None: there are no groups here."""
    group = own_group(f"aerobee-test-{os.getpid()}-{name}", limit_bytes)
    if group is None:
        yield None
        return
    script = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", *map(str, command)],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Limited(process, group)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        wait_until(lambda: not (group / "cgroup.procs").read_text().strip())
        group.rmdir()
