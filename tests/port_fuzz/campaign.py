"""One attack on one cluster, with a watchman among the attackers, and the judgement of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.port_fuzz import judge
from tests.port_fuzz.caller import Tally
from tests.port_fuzz.clerk import Waits
from tests.port_fuzz.cluster import WATCHED_GROUP, WATCHED_TOPIC, Cluster, Shape, cluster
from tests.port_fuzz.watchman import Log, Seen

SEEDS_OF_A_PHASE: Final = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Of one attack."""

    requests: int
    seed: int = 1
    callers: int = 2
    """Processes."""
    level_s: float = 20.0
    """How long the watchman is alone before the attack."""
    rest_s: float = 60.0
    """How long memory has afterwards until it is judged."""
    insiders: bool = False
    """Nodes and super users also do what changes who is master; nobody watches then."""


@dataclass
class Report:
    """What was done, what came of it, and what is wrong with that."""

    shape: Shape
    tally: Tally = field(default_factory=Tally)
    attacks: Counter[str] = field(default_factory=Counter)
    frames: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


def attack(folder: Path, shape: Shape, plan: Plan) -> Report:
    with cluster(folder, shape) as attacked, ExitStack() as stack:
        return _Attack(attacked, plan, stack, folder).run()


class _Attack:
    def __init__(
        self,
        attacked: Cluster,
        plan: Plan,
        stack: ExitStack,
        folder: Path,
    ) -> None:
        self._cluster, self._plan, self._stack, self._folder = attacked, plan, stack, folder
        self.report = Report(attacked.shape)
        self._attacker_cpu_s = 0.0

    def run(self) -> Report:
        plan, attacked, report = self._plan, self._cluster, self.report
        watchman = clerk = None
        if not plan.insiders:
            watchman = self._watchman()
            clerk = self._clerk(watchman.pid)
            _tell(watchman, "level")
            time.sleep(plan.level_s)
        memory, logs, began_s = attacked.own_bytes(), attacked.log_bytes(), time.monotonic()
        if watchman is not None:
            _tell(watchman, "attack")
        cpu_s = attacked.cpu_s()
        self._attack()
        used = [f"{name} {now_s - cpu_s[name]:.1f}" for name, now_s in attacked.cpu_s().items()]
        report.lines.append(
            f"seconds of CPU: {', '.join(used)}; callers {report.tally.cpu_s:.1f}, "
            f"attacker {self._attacker_cpu_s:.1f}"
        )
        attack_s = time.monotonic() - began_s
        if watchman is not None:
            _tell(watchman, "rest")
        log_bytes = attacked.log_bytes() - logs
        allowed = judge.LOG_BYTES_FREE + int(attack_s * judge.LOG_BYTES_PER_S_MAX)
        report.lines.append(
            f"{attack_s:.0f} s, {report.tally.messages / attack_s:,.0f} requests/s; logs grew by "
            f"{log_bytes:,} bytes of {allowed:,}"
        )
        if log_bytes > allowed:
            report.told.append(f"the logs grew by {log_bytes:,} bytes in {attack_s:.0f} s")
        time.sleep(plan.rest_s)
        if watchman is not None and clerk is not None:
            _tell(watchman, "end")
            assert watchman.wait(120) == 0
            clerk.stdin.close()
            clerk.wait(30)
            self._judge_watch()
        self._judge_processes()
        self._judge_memory(memory)
        report.told += report.tally.faults
        report.told += attacked.bugs()
        return report

    # ----------------------------------------------------------------------------- processes

    def _program(self, module: str, *arguments: str, **environment: str) -> Any:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.port_fuzz.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Where the scheduler shares processors out by session, each has a share of its own.
            start_new_session=True,
            env={**os.environ, **environment},
        )
        self._stack.callback(_end, process)
        return process

    def _watchman(self) -> Any:
        file = str(self._folder / "watched.json")
        process = self._program(
            "watchman", self._cluster.address, WATCHED_TOPIC, WATCHED_GROUP, file,
            **self._cluster.environment,
        )  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        return process

    def _clerk(self, watchman: int) -> Any:
        pids = {judge.WATCHMAN: watchman, **self._cluster.pids}
        words = [f"{name}={pid}" for name, pid in pids.items()]
        return self._program("clerk", str(self._folder / "waits.json"), *words)

    def _attack(self) -> None:
        plan, report = self._plan, self.report
        orders = self._cluster.orders(
            first_seed=plan.seed,
            step=plan.callers,
            requests=plan.requests // plan.callers,
            spares_cluster=not plan.insiders,
        )
        callers = []
        for number in range(plan.callers):
            file = self._folder / f"orders-{number}.json"
            file.write_text(json.dumps(asdict(replace(orders, first_seed=plan.seed + number))))
            callers.append(self._program("caller", str(file)))
        attacker = self._program("attacker", str(self._folder / "orders-0.json"), str(plan.seed))
        for caller in callers:
            said, _ = caller.communicate()
            assert caller.returncode == 0, "a caller failed"
            report.tally.add(Tally.read(said))
        said, _ = attacker.communicate("end\n")
        assert attacker.returncode == 0, "the attacker failed"
        found = json.loads(said)
        self._attacker_cpu_s = float(found["cpu_s"])
        report.frames.update(found["sent"])
        report.attacks.update(found["done"])

    # ----------------------------------------------------------------------------- judgement

    def _judge_watch(self) -> None:
        document = json.loads((self._folder / "watched.json").read_text())
        log = Log([Seen(**one) for one in document["messages"]], document["errors"])
        machine = judge.Machine(Waits(**json.loads((self._folder / "waits.json").read_text())))
        level, during = (judge.watch(log, name, machine) for name in ("level", "attack"))
        for name, watch in (("before", level), ("during", during)):
            self.report.lines.append(f"sends {name}: {watch.sends}")
            self.report.lines.append(f"deliveries {name}: {watch.deliveries}")
        self.report.told += judge.complaints_of(level, during)
        self.report.told += judge.lost_or_doubled(log.messages, log.errors)

    def _judge_processes(self) -> None:
        elections = self._cluster.elections()
        if elections != self._cluster.shape.replica_sets and not self._plan.insiders:
            self.report.told.append(f"there were {elections} elections: somebody lost a lease")
        dead = self._cluster.dead()
        if dead:
            self.report.told.append(f"processes ended: {dead}; {self._cluster.up.said()[-2_000:]}")

    def _judge_memory(self, before: dict[str, int]) -> None:
        now = self._cluster.own_bytes()
        for name, size in now.items():
            grown = size - before.get(name, size)
            self.report.lines.append(
                f"{name}: {before.get(name, 0) >> 20} MiB before, {size >> 20} MiB after "
                f"{self._plan.rest_s:.0f} s of rest"
            )
            if name != "etcd" and grown > judge.GROWTH_BYTES_MAX:
                self.report.told.append(f"{name} has grown by {grown:,} bytes")


def _tell(process: Any, line: str) -> None:
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _end(process: Any) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        stream.close()
