"""What may stand in objects: Kubernetes' own kinds by its schemas, strictly, so that a misspelt key
is an error; those of operators by the part of their rules that is used here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import kubernetes_validate
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import best_match  # type: ignore[import-untyped]
from referencing import Registry, Resource

from tests.kubernetes.manifests import Object

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_BY_NAME = {"type": "object", "additionalProperties": _TEXT}
_MEMORY = {"type": "string", "pattern": "^[1-9][0-9]*[kmgt]$"}
_DURATION = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}
_OBJECT = {"type": "object"}
_OBJECTS = {"type": "array", "items": _OBJECT}


def _only(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _whole(api_version: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = _only(("name",), name=_TEXT, namespace=_TEXT, labels=_BY_NAME, annotations=_BY_NAME)
    return _only(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


_SPARK_POD = {
    "cores": {"type": "integer", "minimum": 1},
    "memory": _MEMORY,
    "memoryOverhead": _TEXT,
    "serviceAccount": _TEXT,
    "labels": _BY_NAME,
    "annotations": _BY_NAME,
    "env": _OBJECTS,
    "podSecurityContext": _OBJECT,
    "securityContext": _OBJECT,
    "volumeMounts": _OBJECTS,
    "affinity": _OBJECT,
    "nodeSelector": _BY_NAME,
    "tolerations": _OBJECTS,
}
_POD_REQUIRED = ("cores", "memory", "serviceAccount")

SPARK_APPLICATION = _whole(
    "sparkoperator.k8s.io/v1beta2",
    "SparkApplication",
    _only(
        ("type", "mode", "sparkVersion", "image", "mainApplicationFile", "driver", "executor"),
        type={"enum": ["Java", "Python", "Scala", "R"]},
        pythonVersion={"enum": ["2", "3"]},
        mode={"enum": ["cluster", "client"]},
        sparkVersion=_TEXT,
        image=_TEXT,
        imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
        mainApplicationFile={"type": "string", "pattern": "^local:///"},
        arguments=_TEXTS,
        sparkConf=_BY_NAME,
        hadoopConf=_BY_NAME,
        restartPolicy=_only(
            ("type",),
            type={"enum": ["Never", "OnFailure", "Always"]},
            onFailureRetries={"type": "integer", "minimum": 0},
            onFailureRetryInterval={"type": "integer", "minimum": 1},
        ),
        timeToLiveSeconds={"type": "integer", "minimum": 0},
        volumes=_OBJECTS,
        driver=_only(_POD_REQUIRED, **_SPARK_POD),
        executor=_only(_POD_REQUIRED, **_SPARK_POD, instances={"type": "integer", "minimum": 1}),
    ),
)

SERVICE_MONITOR = _whole(
    "monitoring.coreos.com/v1",
    "ServiceMonitor",
    _only(
        ("selector", "endpoints"),
        selector=_only((), matchLabels=_BY_NAME, matchExpressions=_OBJECTS),
        endpoints={
            "type": "array",
            "minItems": 1,
            "items": _only(
                ("port",),
                port=_TEXT,
                path=_TEXT,
                interval=_DURATION,
                scrapeTimeout=_DURATION,
                relabelings=_OBJECTS,
            ),
        },
    ),
)

_RULE = {
    "oneOf": [
        _only(
            ("alert", "expr", "labels", "annotations"),
            alert=_TEXT,
            expr=_TEXT,
            labels=_BY_NAME,
            annotations=_BY_NAME,
            **{"for": {"type": "string", "pattern": "^[0-9]+(s|m|h|d)$"}},
        ),
        _only(("record", "expr"), record=_TEXT, expr=_TEXT),
    ]
}
PROMETHEUS_RULE = _whole(
    "monitoring.coreos.com/v1",
    "PrometheusRule",
    _only(
        ("groups",),
        groups={
            "type": "array",
            "minItems": 1,
            "items": _only(
                ("name", "rules"),
                name=_TEXT,
                interval=_DURATION,
                rules={"type": "array", "minItems": 1, "items": _RULE},
            ),
        },
    ),
)

_ISSUER = {
    "oneOf": [
        _only(("selfSigned",), selfSigned=_only()),
        _only(("ca",), ca=_only(("secretName",), secretName=_TEXT)),
    ]
}
_CERTIFICATE = _only(
    ("secretName", "issuerRef"),
    secretName=_TEXT,
    issuerRef=_only(("name",), name=_TEXT, kind=_TEXT),
    isCA={"type": "boolean"},
    commonName=_TEXT,
    dnsNames=_TEXTS,
    ipAddresses=_TEXTS,
    usages={
        "type": "array",
        "items": {"enum": ["digital signature", "server auth", "client auth"]},
    },
    duration=_DURATION,
    renewBefore=_DURATION,
    privateKey=_only(
        (),
        algorithm={"enum": ["RSA", "ECDSA", "Ed25519"]},
        size={"type": "integer"},
        rotationPolicy={"enum": ["Always", "Never"]},
    ),
)
CERT_MANAGER = {
    "oneOf": [
        _whole("cert-manager.io/v1", "Issuer", _ISSUER),
        _whole("cert-manager.io/v1", "Certificate", _CERTIFICATE),
    ]
}

VOLUME_SNAPSHOT = _whole(
    "snapshot.storage.k8s.io/v1",
    "VolumeSnapshot",
    _only(
        ("source",),
        volumeSnapshotClassName=_TEXT,
        source=_only(("persistentVolumeClaimName",), persistentVolumeClaimName=_TEXT),
    ),
)

OF_OPERATORS = {
    "snapshot.storage.k8s.io/v1": VOLUME_SNAPSHOT,
    "cert-manager.io/v1": CERT_MANAGER,
    "sparkoperator.k8s.io/v1beta2": SPARK_APPLICATION,
    "monitoring.coreos.com/v1": {"oneOf": [SERVICE_MONITOR, PROMETHEUS_RULE]},
}


class NotValid(Exception):
    """An object that an API server would refuse, or of which it would drop something."""


def kubernetes_version() -> str:
    """The newest one whose schemas are here, such as `1.37`."""
    return str(kubernetes_validate.latest_version())


class Schemas:
    """The schemas of one Kubernetes version; its definitions, some megabytes, are read once."""

    def __init__(self, version: str) -> None:
        self._folder = (
            resources.files(kubernetes_validate)
            / "kubernetes-json-schema"
            / f"v{version}-local-strict"
        )
        definitions = json.loads((self._folder / "_definitions.json").read_text())
        self._registry = Resource.from_contents(definitions) @ Registry()
        self._validators: dict[str, Draft202012Validator] = {}

    def check(self, one: Object) -> None:
        """Raises NotValid with what is wrong with the object."""
        schema = OF_OPERATORS.get(one["apiVersion"])
        if schema is None:
            self._check_core(one)
            return
        _judge(Draft202012Validator(schema), one)
        for part in _core_parts(one):
            self._check_core(part)

    def _check_core(self, one: Object) -> None:
        # The schemas' file names: rbac.authorization.k8s.io/v1 is rbac-v1.
        group, _, version = one["apiVersion"].rpartition("/")
        name = "-".join(filter(None, (one["kind"].lower(), group.split(".")[0], version)))
        if name not in self._validators:
            try:
                schema = json.loads((self._folder / f"{name}.json").read_text())
            except FileNotFoundError:
                raise NotValid(f"there is no {one['kind']} in {one['apiVersion']}") from None
            registry = Resource.from_contents(schema) @ self._registry
            self._validators[name] = Draft202012Validator(schema, registry=registry)
        _judge(self._validators[name], one)


def _judge(validator: Draft202012Validator, one: Object) -> None:
    error = best_match(validator.iter_errors(one))
    if error is not None:
        name = one.get("metadata", {}).get("name")
        place = "/".join(map(str, error.absolute_path))
        raise NotValid(f"{one.get('kind')} {name}: {place}: {error.message}")


def _core_parts(one: Object) -> list[Object]:
    """Parts of an operator's object that Kubernetes' own schemas can judge, as pods."""
    if one["kind"] != "SparkApplication":
        return []
    spec = one["spec"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "part", "labels": spec[role].get("labels", {})},
            "spec": {
                "securityContext": spec[role].get("podSecurityContext", {}),
                "volumes": spec.get("volumes", []),
                "containers": [
                    {
                        "name": role,
                        "securityContext": spec[role].get("securityContext", {}),
                        "env": spec[role].get("env", []),
                        "volumeMounts": spec[role].get("volumeMounts", []),
                    }
                ],
            },
        }
        for role in ("driver", "executor")
    ]
