"""librdkafka in the wheel `confluent-kafka`, unpacked into its own folder."""

from __future__ import annotations

import sys
from pathlib import Path

from aerobee.cli.failures import EnvironmentFailure
from peers.fetching import cache_folder, install_wheel

VERSION = "2.16.1"
SUMS = {
    "3.11": "24f613cc81a856b6fbb2d7d11044a9aa770044eecc1f83ff84618688b056be06",
    "3.12": "fdb2c4d53e84e10f4e567f4e74bba45d0ce90276b81259c3fc58df6960caabf5",
    "3.13": "ea772c30cfa618fcdfbc25756e3f7b4c5a221b0bffda98031293f8ffb7169609",
}


class Librdkafka:
    """For the Python running this."""

    def __init__(self) -> None:
        self._python = f"{sys.version_info.major}.{sys.version_info.minor}"

    @property
    def folder(self) -> Path:
        return cache_folder() / f"confluent-kafka-{VERSION}-python{self._python}"

    @property
    def source(self) -> str:
        return f"confluent-kafka {VERSION} (librdkafka), from PyPI, by pip or uv (4 MB)"

    async def fetch(self, into: Path) -> None:
        if self._python not in SUMS:
            raise EnvironmentFailure(
                f"librdkafka: no checksum is known for Python {self._python}; use one of "
                f"{', '.join(SUMS)}"
            )
        requirement = f"confluent-kafka=={VERSION} --hash=sha256:{SUMS[self._python]}"
        await install_wheel(requirement, into, python=self._python, platform="manylinux_2_28")
