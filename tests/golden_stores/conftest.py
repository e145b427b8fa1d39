"""The golden stores, extracted, with what their manifests say."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import differences, without_answers
from tests.support.plain_folder import Sizes
from tests.support.plain_store import PlainStore

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
NAMES = ("clean-small", "crashed", "crashed-torn", "retained", "ipv6-v2")
# Keys of a manifest that say how the store came to be, not what it holds.
PRODUCED = frozenset(
    {
        *("name", "description", "producedBy", "snapshotTime", "brokerConfig"),
        *("specialSends", "acknowledged", "alteration"),
    }
)

Json = Any


@functools.cache
def _extracted(name: str) -> Path:
    """A folder with the store, unpacked once for all tests of this process; it is only copied."""
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        # Debian's Python 3.11 is older than the filters, Python 3.14 asks for one.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
    return folder


class GoldenStore:
    """One extracted store and what its manifest says."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.manifest: Json = json.loads((GOLDEN / f"{name}.json").read_text())
        self.root = folder / name
        shutil.copytree(_extracted(name) / name, self.root)
        self.config: dict[str, str] = self.manifest["config"]
        self.segment_bytes = int(self.config["mappedFileSizeCommitLog"])

    @property
    def sizes(self) -> Sizes:
        return Sizes.of(self.config)

    @property
    def topics(self) -> Json:
        """The manifest's topics, without the answers to special questions."""
        return without_answers(self.manifest["topics"])

    @property
    def content(self) -> Json:
        """All that the manifest says of the folder's content; not what only the producer knew.

        A record at which Apache's recovery began to index again stands twice in its index. Once is
        as good.
        """
        content = {key: value for key, value in self.manifest.items() if key not in PRODUCED}
        answers = [
            [topic, key, list(dict.fromkeys(offsets))]
            for topic, key, offsets in content["index"]["answers"]
        ]
        return {**content, "index": {**content["index"], "answers": answers}}

    def files(self) -> dict[str, bytes]:
        """Each file below the folder, to see whether anything changed it."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and path.name != "timerwheel"
        }


@pytest.fixture
def compare() -> Callable[[Json, Json], list[str]]:
    """The differences between what is expected and what came, as lines."""
    return differences


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenStore:
    """A fresh copy of each store, one test after the other."""
    return GoldenStore(request.param, tmp_path)


@pytest.fixture
def extract_golden(tmp_path: Path) -> Callable[[str], GoldenStore]:
    """Extracts the store of that name."""
    return lambda name: GoldenStore(name, tmp_path)


@pytest.fixture
def plain_store() -> type[PlainStore]:
    """The simple reader: PlainStore(root, segment_bytes)."""
    return PlainStore
