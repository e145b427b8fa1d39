"""For users' tests: clusters that start at once, one of them in virtual time, and faults in them.

The names are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.testing import faults
    from aerobee.testing.real_cluster import RealCluster
    from aerobee.testing.virtual_cluster import VirtualCluster
    from aerobee.testing.virtual_time import NotVirtual

__all__ = ["NotVirtual", "RealCluster", "VirtualCluster", "faults"]

_MODULES = {
    "NotVirtual": "aerobee.testing.virtual_time",
    "RealCluster": "aerobee.testing.real_cluster",
    "VirtualCluster": "aerobee.testing.virtual_cluster",
}


def __getattr__(name: str) -> object:
    try:
        if name == "faults":
            return import_module("aerobee.testing.faults")
        from aerobee.runtime.lazy_names import load_name

        return load_name(globals(), _MODULES, name)
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] == "aerobee":
            raise
        raise ModuleNotFoundError(
            f"clusters of aerobee.testing have brokers, which need {error.name}: "
            "pip install '.[server]' in a checkout",
            name=error.name,
        ) from None
