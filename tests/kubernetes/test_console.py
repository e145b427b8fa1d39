"""The console on Kubernetes: reached by what speaks https to browsers alone, with no rights."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.cli.commands.console import console
from aerobee.console.settings import ConsoleSettings
from tests.kubernetes.conftest import Overlay
from tests.kubernetes.manifests import Manifests
from tests.kubernetes.policy.network import allowed
from tests.kubernetes.rendering import render_with


@pytest.fixture
def rendered(overlay: Overlay, tmp_path: Path) -> Manifests:
    overlay("ha")  # skips where nothing can be rendered
    components = [f"components/{each}" for each in ("console", "tls", "access")]
    return render_with(tmp_path, resources=["overlays/ha"], components=components)


def test_the_command_starts_and_answers_its_probes(rendered: Manifests) -> None:
    (pod,) = rendered.pods_of("console")
    (container,) = pod.containers
    command, *arguments = container["args"]
    assert command == "console"
    environment = pod.environment(container, 0)
    given = [each.replace("$(CONSOLE_NAME)", environment["CONSOLE_NAME"]) for each in arguments]
    context = console.make_context("console", list(given))
    settings = ConsoleSettings(
        host=context.params["host"], names=context.params["names"], behind_tls=True
    )
    assert context.params["behind_proxy"]
    assert settings.known_hosts >= {"localhost", "console.example"}
    for probe in ("readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        (host,) = [each["value"] for each in asked["httpHeaders"] if each["name"] == "Host"]
        assert host in settings.known_hosts
        page = Path("console/aerobee/console") / asked["path"].removeprefix("/")
        assert (Path(__file__).parents[2] / page).is_file()
    (port,) = container["ports"]
    assert port["containerPort"] == context.params["port"]
    assert environment["AEROBEE_TLS_CA"] == "/etc/aerobee-tls/ca.crt"


def test_it_has_no_secret_of_the_cluster(rendered: Manifests) -> None:
    """Its visitors would have all rights."""
    (pod,) = rendered.pods_of("console")
    (container,) = pod.containers
    assert "AEROBEE_CLUSTER_SECRET_FILE" not in pod.environment(container, 0)
    secrets = [each["secret"] for each in pod.spec["volumes"] if "secret" in each]
    assert [each["secretName"] for each in secrets] == ["aerobee-node-tls"]
    assert [each["key"] for each in secrets[0]["items"]] == ["ca.crt"]


def test_only_its_proxy_reaches_it_and_it_reaches_only_the_cluster(rendered: Manifests) -> None:
    pairs = {each for each in allowed(rendered) if "console" in each[:2]}
    assert {each for each in pairs if each[1] == "console"} == {
        ("proxy of the console", "console", "http")
    }
    reached = {target for source, target, _ in pairs if source == "console"}
    assert reached == {"nameserver", "broker-a", "broker-b", "dns", "dns of the node"}
