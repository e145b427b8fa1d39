"""Every object is one that the newest Kubernetes knows, key by key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.conftest import Overlay
from tests.kubernetes.rendering import NAMESPACE, OVERLAYS, render_with
from tests.kubernetes.schemas import NotValid, Schemas, kubernetes_version
from tests.kubernetes.test_render import COMPONENTS, folders_of


@pytest.fixture(scope="module")
def schemas() -> Schemas:
    return Schemas(kubernetes_version())


@pytest.mark.parametrize("name", [*OVERLAYS, NAMESPACE])
def test_every_object_of_an_overlay_is_valid(overlay: Overlay, schemas: Schemas, name: str) -> None:
    for one in overlay(name).objects:
        schemas.check(one)


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMPONENTS)
def test_every_object_of_a_component_is_valid(
    overlay: Overlay, schemas: Schemas, name: str, tmp_path: Path
) -> None:
    mine = render_with(tmp_path, resources=["overlays/ha"], components=folders_of(name))
    for one in mine.objects:
        schemas.check(one)


@pytest.mark.parametrize("name", [*OVERLAYS, NAMESPACE])
def test_a_misspelt_key_of_any_object_is_seen(
    overlay: Overlay, schemas: Schemas, name: str
) -> None:
    for one in overlay(name).objects:
        one.setdefault("spec" if "spec" in one else "metadata", {})["replicaz"] = 2
        with pytest.raises(NotValid, match="replicaz"):
            schemas.check(one)


def test_a_misspelt_key_deep_in_a_pod_is_seen(overlay: Overlay, schemas: Schemas) -> None:
    for name in OVERLAYS:
        manifests = overlay(name)
        for pod in manifests.pods():
            context = pod.spec["securityContext"]
            context["runAsNonRooot"] = context.pop("runAsNonRoot")
            with pytest.raises(NotValid, match="runAsNonRooot"):
                schemas.check(pod.owner)


def test_a_kind_that_nobody_knows_is_refused(schemas: Schemas) -> None:
    with pytest.raises(NotValid, match="PodSecurityPolicy"):
        schemas.check(
            {"apiVersion": "policy/v1beta1", "kind": "PodSecurityPolicy", "metadata": {"name": "x"}}
        )
