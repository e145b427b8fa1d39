"""Rules and dashboard of deploy/monitoring, as the objects that the components make of them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.conftest import Overlay
from tests.kubernetes.manifests import Manifests
from tests.kubernetes.rendering import MANIFESTS, render_with
from tests.support.monitoring import DASHBOARD, FOLDER, rules


@pytest.fixture
def objects(overlay: Overlay, tmp_path: Path) -> Manifests:
    overlay("ha")  # skips where nothing can be rendered
    return render_with(
        tmp_path,
        namespace="messages",
        resources=["overlays/ha"],
        components=["components/dashboard", "components/prometheus-rules"],
    )


def test_the_written_rules_are_those_of_the_files() -> None:
    written = MANIFESTS / "components" / "prometheus-rules" / "rules.yaml"
    maker = runpy.run_path(str(FOLDER / "prometheus_rule.py"))
    assert written.read_text("utf-8") == maker["text"](), (
        "run python deploy/monitoring/prometheus_rule.py"
    )


def test_the_object_has_every_rule(objects: Manifests) -> None:
    one = objects.get("PrometheusRule", "aerobee")
    assert one["metadata"]["namespace"] == "messages"
    assert [rule for group in one["spec"]["groups"] for rule in group["rules"]] == rules()


def test_links_of_alerts_lead_where_a_user_says(overlay: Overlay, tmp_path: Path) -> None:
    """By the example of the page, word for word; what is read by it alone is not applied."""
    overlay("ha")  # skips where nothing can be rendered
    readme = (MANIFESTS / "README.md").read_text("utf-8")
    (example,) = (
        one
        for one in re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
        if "aerobee-runbooks" in one
    )
    mine = render_with(tmp_path, **_below_deploy(yaml.safe_load(example)))
    assert not [one for one in mine.of_kind("ConfigMap") if "runbooks" in one["metadata"]["name"]]
    groups = mine.get("PrometheusRule", "aerobee")["spec"]["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        if "record" in rule:
            assert "annotations" not in rule
            continue
        link = f"https://git.example.net/aerobee/docs/operations/alerts.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook_url"] == link


def _below_deploy(kustomization: dict[str, Any]) -> dict[str, Any]:
    for key in ("resources", "components"):
        kustomization[key] = [one.removeprefix("../") for one in kustomization[key]]
    return kustomization


def test_grafana_finds_the_dashboard_as_it_is(objects: Manifests) -> None:
    one = objects.get("ConfigMap", "aerobee-dashboard")
    assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert one["data"] == {"aerobee.json": DASHBOARD.read_text("utf-8")}
    # `kubectl apply` keeps the whole object in an annotation.
    assert len(DASHBOARD.read_bytes()) < 200_000
