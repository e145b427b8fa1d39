"""The ready file: a JSON document that exists while the cluster serves, for scripts and tests.

Replaced atomically, so a reader never sees half of it; it is written again when a process was
restarted and has another id, and removed when the cluster stops.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.local_cluster.plan import ClusterPlan


def ready_document(plan: ClusterPlan, pids: Mapping[str, int | None]) -> dict[str, object]:
    """Addresses and process ids of a serving cluster."""
    return {
        "cluster": plan.cluster,
        "data": str(plan.data),
        "nameserver": plan.nameserver_address,
        "etcd": plan.etcd_address,
        "brokers": [
            {
                "name": replica.broker_name,
                "id": replica.broker_id,
                "address": address,
                "pid": pids.get(replica.name),
            }
            for replica, address in plan.brokers.items()
        ],
        "pid": os.getpid(),
        "pids": dict(pids),
    }


def write_ready_file(path: Path, document: Mapping[str, object]) -> None:
    """Raises EnvironmentFailure when the file cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise EnvironmentFailure(
            f"cannot write the ready file {path}: {error.strerror}; choose another --ready-file"
        ) from error
