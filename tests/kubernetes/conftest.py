"""Each overlay is rendered once for all tests of the manifests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kubernetes.manifests import Manifests
from tests.kubernetes.rendering import (
    MANIFESTS,
    NAMESPACE,
    OVERLAYS,
    CannotRender,
    render,
    render_overlay,
)

Overlay = Callable[[str], Manifests]


@pytest.fixture(scope="session")
def overlay() -> Overlay:
    """An overlay's objects by its name; `audit` and `audit-spark` alone, `ha+audit` together,
    `namespace+ha` with what is applied before it."""
    try:
        rendered = {name: render_overlay(name) for name in OVERLAYS}
        rendered[NAMESPACE] = render(MANIFESTS / NAMESPACE)
    except CannotRender as error:
        pytest.skip(str(error))

    def by_name(name: str) -> Manifests:
        first, *others = (rendered[one] for one in name.split("+"))
        for other in others:
            first = first + other
        return first.copy()

    return by_name
