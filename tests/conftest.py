"""What all tests share: property tests take the same examples everywhere and judge results, not the
speed of a busy machine; nothing that a test starts finds or leaves anything in the user's home.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.property_runs import register_profiles

register_profiles()
settings.load_profile("fixed")


FIRST = ("test_healthy_cluster.py",)
"""Takes minutes: begun last, it would keep one worker long after the others have nothing to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in FIRST)


def share_java_classes(home: Path) -> None:
    """What Java keeps of its classes, as a link from a home, so that some thirty JVMs of a run
    start in a third of the time; it stays in this environment, for other runs."""
    shared = Path(sys.prefix) / ".java-classes"
    shared.mkdir(exist_ok=True, mode=0o700)
    link = home / ".cache" / "aerobee" / "java-classes"
    link.parent.mkdir(parents=True)
    link.symlink_to(shared, target_is_directory=True)


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder as HOME, of this process and of all that it starts: broadcasting consumers
    keep their offsets there, and would go on where an earlier run of the tests ended."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        share_java_classes(folder)
        yield folder
