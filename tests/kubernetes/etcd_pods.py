"""Pods of etcd on this machine: their rendered command lines, with only the pods' names replaced by
addresses of this machine.
"""

from __future__ import annotations

import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kubernetes.manifests import PodTemplate, command_line

READY_TIMEOUT_S = 30.0
PORTS = (2379, 2380, 2381)


def local_words(
    pod: PodTemplate, members: PodTemplate, ports: list[int], folder: Path, ordinal: int = 0
) -> list[str]:
    """The command line of a pod that knows the pods of `members` by name, `folder` in place of its
    claim; `ports` are those of all members, three for each."""
    service, place = members.owner["spec"]["serviceName"], members.namespace
    local: dict[str, str] = {}
    for at, instance in enumerate(members.instances):
        for which, port in enumerate(PORTS):
            address = f"127.0.0.1:{ports[at * len(PORTS) + which]}"
            local[f"{instance}.{service}.{place}.svc:{port}"] = address
            if at == ordinal:
                local[f"0.0.0.0:{port}"] = address
    container = pod.containers[0]
    pattern = "|".join(map(re.escape, local))
    words = [
        re.sub(pattern, lambda found: local[found[0]], word).replace("/var/lib/etcd", str(folder))
        for word in command_line(container, pod.environment(container, ordinal))
    ]
    assert not any(".svc" in word for word in words), words
    return words


@contextmanager
def running(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that must not end by itself."""
    with log.open("wb") as output, subprocess.Popen(words, stderr=output) as process:
        try:
            yield process
            assert process.poll() is None, log.read_text()
        finally:
            process.kill()


def wait_until_healthy(port: int) -> None:
    """Healthy is a member that has a majority. (etcd of PyPI is too old for /readyz.)"""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if b'"true"' in answer.read():
                    return
        except (urllib.error.URLError, OSError):
            pass
        assert time.monotonic() < deadline_s, "no majority"
        time.sleep(0.1)
