"""A run of the suite: which scenarios there are, how each went, and what was expected."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rocketmq_remoting.suite.clusters import CLUSTERS, Cluster
from tests.rpc.core.interop.programs import Program

README = Path(__file__).with_name("README.md")
_ROW = re.compile(
    r"\| `(?P<scenarios>[^|]*)` \| (?P<server>\w+)(?P<either>, at times|, not yet)? \| .* \|"
)
AT_ONCE = 8
"""Scenarios beside each other: they mostly wait."""


@dataclass(frozen=True)
class Scenario:
    """One promise, as `Suite.java` lists it."""

    name: str
    cluster: str
    is_alone: bool
    topics: dict[str, int]
    """How many queues each has."""
    promise: str


@dataclass(frozen=True)
class Outcome:
    """How a scenario went; `why` is empty if its promise holds."""

    name: str
    took_s: float
    why: str


def scenarios_of(program: Program) -> list[Scenario]:
    """What its release of the client can try."""
    listed = subprocess.run(
        program.command_line("list"), capture_output=True, text=True, check=True
    )
    found = []
    for line in listed.stdout.splitlines():
        _, name, cluster, alone, queues, topics, promise = line.split("\t")
        wanted = dict.fromkeys(topics.split(","), int(queues))
        found.append(Scenario(name, cluster, alone == "true", wanted, promise))
    return found


def outcomes(
    program: Program, server: str, scenarios: Sequence[Scenario], folder: Path
) -> Iterator[Outcome]:
    """Runs them, each kind of cluster after the other, in new folders below `folder`."""
    for kind in sorted({each.cluster for each in scenarios}):
        wanted = [each for each in scenarios if each.cluster == kind]
        home = folder / f"{server}-{kind}"
        home.mkdir(parents=True)
        topics = {name: count for each in wanted for name, count in each.topics.items()}
        with CLUSTERS[server](home, kind, topics) as cluster:
            yield from _run(program, cluster, [each.name for each in wanted], home)


def _run(program: Program, cluster: Cluster, names: Sequence[str], home: Path) -> Iterator[Outcome]:
    with (home / "suite.log").open("w") as log:
        process = subprocess.Popen(
            program.command_line("run", cluster.address, str(AT_ONCE), *names),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "JDK_JAVA_OPTIONS": f"-Duser.home={home}"},
        )
    assert process.stdin is not None
    assert process.stdout is not None
    left = set(names)
    with process:
        try:
            for line in process.stdout:
                what, name, *rest = line.rstrip("\n").split("\t")
                if what == "ask":
                    process.stdin.write(_done(cluster, name, rest[0]) + "\n")
                    process.stdin.flush()
                    continue
                left.discard(name)
                yield Outcome(name, float(rest[0]), "" if what == "passed" else rest[1])
        finally:
            process.kill()
    for name in sorted(left):
        yield Outcome(name, 0.0, f"the suite ended before: {(home / 'suite.log').read_text()}")


def _done(cluster: Cluster, what: str, name: str) -> str:
    acts: dict[str, Callable[[str], None]] = {"kill": cluster.kill, "restart": cluster.restart}
    try:
        acts[what](name)
    except AssertionError as error:
        return f"error: {error!r}"
    return "done"


@dataclass(frozen=True)
class Difference:
    """Scenarios whose promise a server does not keep, or not always, or not yet."""

    pattern: str
    may_hold: bool


def differences(server: str, readme: str) -> list[Difference]:
    """README's table."""
    return [
        Difference(pattern, bool(row["either"]))
        for line in readme.splitlines()
        if (row := _ROW.fullmatch(line)) and row["server"].lower() == server
        for pattern in row["scenarios"].split("`, `")
    ]


def complaints(outcomes: Sequence[Outcome], known: Sequence[Difference]) -> list[str]:
    """What is not as README says."""
    found = []
    for each in outcomes:
        of_it = [one for one in known if fnmatch.fnmatchcase(each.name, one.pattern)]
        if each.why and not of_it:
            found.append(f"{each.name}: {each.why}")
        elif not each.why and of_it and not any(one.may_hold for one in of_it):
            found.append(f"{each.name}: the promise holds; README.md says that it does not")
    return found
