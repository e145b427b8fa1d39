"""The rule files of this folder as one object for the Prometheus operator.

    python deploy/monitoring/prometheus_rule.py     writes deploy/k8s/components/prometheus-rules

A test compares what it would write with what is there.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = ("alerts.yaml", "etcd_alerts.yaml", "objectives.yaml")
TARGET = HERE.parent / "k8s" / "components" / "prometheus-rules" / "rules.yaml"
HEAD = """\
# Made by deploy/monitoring/prometheus_rule.py from the files of rules there, which say why.
# A Prometheus that takes only rules with a label of its own (a Helm chart's
# `release`) needs it by a patch.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: aerobee
  labels: {app.kubernetes.io/name: aerobee}
spec:
  groups:
"""


def text() -> str:
    """The object."""
    return HEAD + "".join(_groups(HERE / name) for name in FILES)


def _groups(file: Path) -> str:
    """What is below `groups:` of a file, further in."""
    lines = file.read_text("utf-8").partition("\ngroups:\n")[2].splitlines()
    return "".join(f"  {line}\n" if line else "\n" for line in lines)


if __name__ == "__main__":
    TARGET.write_text(text(), "utf-8")
