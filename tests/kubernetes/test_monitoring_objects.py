"""Rules and dashboard of deploy/monitoring, as the objects that the components make of them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

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


def test_grafana_finds_the_dashboard_as_it_is(objects: Manifests) -> None:
    one = objects.get("ConfigMap", "aerobee-dashboard")
    assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert one["data"] == {"aerobee.json": DASHBOARD.read_text("utf-8")}
    # `kubectl apply` keeps the whole object in an annotation.
    assert len(DASHBOARD.read_bytes()) < 200_000
