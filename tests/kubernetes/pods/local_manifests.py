"""The overlays as they are applied where images come from this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kubernetes.containers import NoContainers, find_podman, image_name, require_image
from tests.kubernetes.manifests import Manifests
from tests.kubernetes.rendering import MANIFESTS, CannotRender, render_with

SMALL_SEGMENTS = """
[store]
# Log segments of the usual 1 GiB are more than a test's disk should hold three times.
segment_bytes = 16777216
"""


def local_manifests(root: Path, name: str) -> Manifests:
    """An overlay with images of this machine and small log segments, changed as README.md of the
    manifests says that settings are changed. Skips the test where no pods can run."""
    server, etcd = image_name(), image_name("aerobee-etcd", "test")
    try:
        podman = find_podman(root)
        for image in (server, etcd):
            require_image(podman, image)
    except NoContainers as error:
        pytest.skip(str(error))
    if os.geteuid() != 0:
        pytest.skip("folders of other users are made for the pods, which only root can do")
    folder = root / "kustomization"
    folder.mkdir()
    overlay = MANIFESTS / "overlays" / name
    source = overlay if (overlay / "broker.toml").exists() else MANIFESTS / "base"
    (folder / "broker.toml").write_text((source / "broker.toml").read_text() + SMALL_SEGMENTS)
    config = {
        "name": "aerobee-broker-config",
        "namespace": "aerobee",
        "behavior": "replace",
        "files": ["broker.toml"],
    }
    try:
        return render_with(
            folder,
            resources=[f"overlays/{name}"],
            images=[_image("aerobee", server), _image("registry.k8s.io/etcd", etcd)],
            configMapGenerator=[config],
        )
    except CannotRender as error:
        pytest.skip(str(error))


def _image(name: str, local: str) -> dict[str, str]:
    new_name, new_tag = local.rsplit(":", 1)
    return {"name": name, "newName": new_name, "newTag": new_tag}
