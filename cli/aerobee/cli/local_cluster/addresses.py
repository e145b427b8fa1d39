"""What is said of a cluster that serves: where everything is, for people and for programs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Final

from aerobee.access.credentials import CLUSTER_SECRET_VARIABLE
from aerobee.cli.local_cluster import plan as planning
from aerobee.cli.local_cluster.plan import ClusterPlan

CLUSTER_DEFAULT: Final = "aerobee"
METRICS_VARIABLE: Final = "AEROBEE_BROKER_METRICS_LISTEN"


def ready_lines(plan: ClusterPlan, elapsed_s: float, console: str = "") -> list[str]:
    """One fact a line, then what to type next. `console`: where it is, or why there is none."""
    facts = {
        **({"console": console} if console else {}),
        "nameserver": plan.announced(plan.nameserver_address),
        **{replica.name: plan.announced(address) for replica, address in plan.brokers.items()},
        "etcd": plan.etcd_address,
        "data": str(plan.data),
        "logs": str(plan.logs),
        **({"authority": str(plan.tls.ca)} if plan.is_encrypted else {}),
        **_outside(plan),
        "metrics": _metrics(plan),
    }
    width = max(map(len, facts))
    is_usual = not plan.host and plan.ports.nameserver == planning.NAMESERVER_PORT
    where = "" if is_usual else f" --nameserver {plan.announced(plan.nameserver_address)}"
    where += "" if plan.cluster == CLUSTER_DEFAULT else f" --cluster {plan.cluster}"
    if plan.is_encrypted:
        where += f" --tls-ca {shlex.quote(str(plan.tls.ca))}"
        if plan.broker_settings.get("tls.client_auth") == "required":
            own = plan.tls.client_certificate, plan.tls.client_key
            where += " --tls-certificate {} --tls-key {}".format(*map(shlex.quote, map(str, own)))
    may = ""
    if plan.access:
        may = f"env {CLUSTER_SECRET_VARIABLE}={shlex.quote(str(plan.cluster_secret_file))} "
    return [
        f"ready in {elapsed_s:.1f} s",
        *(f"  {name:{width}}  {value}" for name, value in facts.items()),
        "next, in another terminal:",
        f"  echo hello | {may}aerobee produce trial{where}",
        f"  {may}aerobee consume trial --group readers --count 1{where}",
        f"  {may}aerobee doctor{where}",
    ]


def _metrics(plan: ClusterPlan) -> str:
    """Where they are shown, as far as it is known before the processes choose their ports."""
    shown = [url for address in _services(plan).values() if (url := plan.metrics(address))]
    if shown:
        return " ".join(f"http://{address}/metrics" for address in shown)
    named = plan.broker_settings.get("metrics.listen") or os.environ.get(METRICS_VARIABLE, "")
    if not named:
        return "off (--metrics serves them)"
    if named.endswith(":0"):
        return "each log names its address"
    return f"http://{named}/metrics"


def _outside(plan: ClusterPlan) -> dict[str, str]:
    """The addresses of the second listeners, as clients outside are told them."""
    told = [found[1] for each in _services(plan).values() if (found := plan.outside(each))]
    return {"outside": " ".join(told)} if told else {}


def _services(plan: ClusterPlan) -> dict[str, str]:
    """The addresses of the processes that are Aerobee's, by their names."""
    brokers = {replica.name: address for replica, address in plan.brokers.items()}
    return {"nameserver": plan.nameserver_address, **brokers}


def ready_document(
    plan: ClusterPlan, pids: Mapping[str, int | None], console: str = ""
) -> dict[str, object]:
    """The ready file, for scripts and tests: addresses and process ids of a serving cluster."""
    return {
        "cluster": plan.cluster,
        "data": str(plan.data),
        "nameserver": plan.nameserver_address,
        "etcd": plan.etcd_address,
        **({"console": console} if console else {}),
        **_tls_document(plan),
        **_second_document(plan),
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


def _tls_document(plan: ClusterPlan) -> dict[str, object]:
    if not plan.is_encrypted:
        return {}
    tls = plan.tls
    files = {"ca": tls.ca, "certificate": tls.client_certificate, "key": tls.client_key}
    return {"tls": {name: str(path) for name, path in files.items()}}


def _second_document(plan: ClusterPlan) -> dict[str, object]:
    services = _services(plan)
    outside = {name: told[1] for name, each in services.items() if (told := plan.outside(each))}
    metrics = {name: at for name, each in services.items() if (at := plan.metrics(each))}
    return {
        **({"outside": outside} if outside else {}),
        **({"metrics": metrics} if metrics else {}),
    }
