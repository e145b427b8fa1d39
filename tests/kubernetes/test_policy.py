"""What always holds of the manifests; `policy/` says each of it, `test_policy_spoiled.py` that
nothing of it can be broken unseen.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aerobee.offset_audit.outputs.summary import EXIT_CODES
from aerobee.offset_audit.run import exit_codes
from tests.kubernetes.conftest import Overlay
from tests.kubernetes.manifests import Manifests
from tests.kubernetes.policy.checks import CHECKS, WHOLE, Check, name_of
from tests.kubernetes.rendering import MANIFESTS, render_with

CLUSTERS = ("single", "namespace+ha", "ha+audit", "ha+audit-spark")
ALONE = ("audit", "audit-spark")


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
@pytest.mark.parametrize("name", CLUSTERS)
def test_of_a_cluster(overlay: Overlay, name: str, check: Check) -> None:
    assert list(check(overlay(name))) == []


@pytest.mark.parametrize("check", [one for one in CHECKS if one not in WHOLE], ids=name_of)
@pytest.mark.parametrize("name", ALONE)
def test_of_an_overlay_that_is_applied_beside_one(
    overlay: Overlay, name: str, check: Check
) -> None:
    assert list(check(overlay(name))) == []


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_of_a_cluster_whose_etcd_asks_for_certificates(secured: Manifests, check: Check) -> None:
    assert list(check(secured)) == []


@pytest.fixture(scope="module")
def secured(overlay: Overlay, tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    """`ha` with upkeep of etcd, TLS and access control, and the Secrets of its README."""
    overlay("ha")  # skips where nothing can be rendered
    folder = tmp_path_factory.mktemp("secured")
    files = ("ca.crt", "tls.crt", "tls.key")
    for name in (*files, "cluster-secret"):
        (folder / name).write_text(name)
    return render_with(
        folder,
        namespace="aerobee",
        resources=["overlays/ha"],
        components=[
            f"components/{one}"
            for one in (
                *("etcd-upkeep", "volume-snapshots"),
                *("etcd-tls", "etcd-peer-tls", "tls", "access"),
            )
        ],
        secretGenerator=[
            {"name": name, "type": "kubernetes.io/tls", "files": list(files)}
            for name in ("aerobee-etcd-server", "aerobee-etcd-client", "aerobee-node-tls")
        ]
        + [{"name": "aerobee-cluster-secret", "files": ["cluster-secret"]}],
        generatorOptions={"disableNameSuffixHash": True},
    )


def test_an_audit_that_found_something_is_not_run_again(overlay: Overlay) -> None:
    """What would end the same way fails the job at once; what may pass is tried again."""
    job = overlay("audit").get("CronJob", "aerobee-audit")["spec"]["jobTemplate"]["spec"]
    (final,) = (one for one in job["podFailurePolicy"]["rules"] if one["action"] == "FailJob")
    (container,) = job["template"]["spec"]["containers"]
    assert final["onExitCodes"]["containerName"] == container["name"]
    findings = {code for code in EXIT_CODES.values() if code}
    same_again = {exit_codes.USAGE, exit_codes.NOTHING_THERE, exit_codes.CANNOT_WRITE}
    assert set(final["onExitCodes"]["values"]) == findings | same_again


@pytest.mark.parametrize(
    "path",
    [
        one.relative_to(MANIFESTS)
        for one in MANIFESTS.rglob("*.yaml")
        if re.search(r"^ +(requests|limits):$", one.read_text(), re.MULTILINE)
    ],
    ids=str,
)
def test_every_number_of_resources_has_its_reason(path: Path) -> None:
    """A comment before the first one of each block, and before each that it does not cover."""
    lines = (MANIFESTS / path).read_text().splitlines()
    for at, line in enumerate(lines):
        if line.strip() in ("requests:", "limits:"):
            assert lines[at + 1].strip().startswith("# "), f"{path}:{at + 1}"
