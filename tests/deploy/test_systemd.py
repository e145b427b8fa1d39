"""The units in deploy/systemd, and what the page about hosts with many cores makes of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
PAGE = (ROOT / "docs" / "operations" / "many-cores.md").read_text()
INSTALL = (ROOT / "docs" / "operations" / "install.md").read_text()


def directives(unit: str) -> list[tuple[str, str]]:
    text = (UNITS / unit).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


@pytest.mark.parametrize("unit", ["etcd.service", "aerobee-nameserver.service"])
def test_a_unit_is_the_one_that_the_installation_page_shows(unit: str) -> None:
    shown = INSTALL.split(f"# /etc/systemd/system/{unit}\n")[1].split("```")[0].strip()
    kept = [line for line in (UNITS / unit).read_text().splitlines() if line != "LimitNOFILE=65536"]
    assert [line for line in shown.splitlines() if line != "LimitNOFILE=65536"] == kept


def test_the_template_differs_from_the_single_broker_only_in_its_name() -> None:
    shown = INSTALL.split("# /etc/systemd/system/aerobee-broker.service\n")[1].split("```")[0]
    single = {line for line in shown.splitlines() if "=" in line and not line.startswith("#")}
    own = {f"{name}={value}" for name, value in directives("aerobee-broker@.service")}
    differing = {line.partition("=")[0] for line in single ^ own}
    assert differing == {
        *("Description", "PartOf", "Environment", "EnvironmentFile", "ExecStop", "WantedBy")
    }


def test_a_broker_accepts_what_template_and_page_give_it(tmp_path: Path) -> None:
    """The shared file of the installation page without what each broker has for itself."""
    shared = INSTALL.split("# /etc/aerobee/broker.toml\n")[1].split("```")[0]
    own = ("broker_name", "listen", "store_root", "[health]", "[metrics]")
    file = tmp_path / "broker.toml"
    file.write_text("\n".join(line for line in shared.splitlines() if not line.startswith(own)))
    environment = {
        value.partition("=")[0]: value.partition("=")[2].replace("%i", "broker-a")
        for name, value in directives("aerobee-broker@.service")
        if name == "Environment"
    }
    lines = re.search(r"<< END\n(.*?)\nEND", PAGE, re.DOTALL)
    assert lines is not None
    for line in lines[1].splitlines():
        name, _, value = line.partition("=")
        value = value.replace("$(hostname)", "mq-1").replace("$((port + 1))", "10912")
        environment[name] = value.replace("$((port + 2))", "10913").replace("$port", "10911")
    done = subprocess.run(
        [sys.executable, "-m", "aerobee.cli", "config", "check", str(file), "--service", "broker"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the broker accepts it" in done.stdout
