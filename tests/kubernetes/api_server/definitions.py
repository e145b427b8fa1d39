"""Definitions of the kinds that operators bring, as open as a definition can be.

They let objects of these kinds be stored and told apart by scope; their fields are judged by
tests/kubernetes/schemas.py.
"""

from __future__ import annotations

from functools import partial

from tests.kubernetes.api_server.client import Api, Object
from tests.support.waiting import wait_until

KINDS = (
    ("cert-manager.io", "v1", "Certificate", "certificates"),
    ("cert-manager.io", "v1", "Issuer", "issuers"),
    ("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
)


def add_definitions(api: Api) -> None:
    """Make the operators' kinds known, and wait until they are."""
    for group, version, kind, plural in KINDS:
        api.apply(_definition(group, version, kind, plural))
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}"
        wait_until(partial(_is_established, api, path), f"{kind} is served")


def _is_established(api: Api, path: str) -> bool:
    conditions = api.get(path).get("status", {}).get("conditions")
    # The server fills them in a moment after it has the definition: first with null.
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions or ())


def _definition(group: str, version: str, kind: str, plural: str) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Groups below k8s.io want to be told who agreed; nobody has to for a test.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
