"""A small client of Kubernetes' API that keeps what kubectl only prints: the warnings.

Every write asks for strict validation, so a field that the server does not know is refused.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRICT = {"fieldManager": "aerobee-tests", "force": "true", "fieldValidation": "Strict"}


class Refused(Exception):
    """The server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    document: Object
    warnings: tuple[str, ...]


class Api:
    """One server, as a user who may do everything."""

    def __init__(self, address: str, token: str, certificate: Path) -> None:
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cafile=str(certificate))
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Raises Refused for an answer that is no success, OSError when nobody answers."""
        url = f"https://{self._address}{path}"
        if query:
            url += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(
            url,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={**self._headers, "Content-Type": content_type},
        )
        try:
            with urllib.request.urlopen(request, timeout=20, context=self._tls) as response:
                text = response.read()
                warnings = tuple(response.headers.get_all("Warning") or ())
        except urllib.error.HTTPError as error:
            raise Refused(error.code, _message(error.read())) from None
        document = json.loads(text) if text.startswith(b"{") else {"text": text.decode()}
        return Answer(document, warnings)

    def get(self, path: str, **query: str) -> Object:
        return self.request("GET", path, query=query).document

    def items(self, path: str, **query: str) -> list[Object]:
        found: list[Object] = self.get(path, **query)["items"]
        return found

    def apply(self, document: Object, **query: str) -> Answer:
        """Server-side apply, as `kubectl apply --server-side --force-conflicts`."""
        return self.request(
            "PATCH",
            self.path_of(document),
            body=document,
            content_type=APPLY,
            query={**STRICT, **query},
        )

    def apply_all(self, documents: Sequence[Object], **query: str) -> tuple[str, ...]:
        """All of them, namespaces and definitions first; returns every warning."""
        first = ("Namespace", "CustomResourceDefinition")
        ordered = sorted(documents, key=lambda document: document["kind"] not in first)
        return tuple(
            f"{document['kind']} {document['metadata']['name']}: {warning}"
            for document in ordered
            for warning in self.apply(document, **query).warnings
        )

    def merge(self, path: str, change: Mapping[str, Any]) -> Object:
        return self.request("PATCH", path, body=change, content_type=MERGE).document

    def path_of(self, document: Object) -> str:
        """The path of one object."""
        metadata = document["metadata"]
        base, namespaced = self._resource(document["apiVersion"], document["kind"])
        root, _, plural = base.rpartition("/")
        if namespaced:
            root = f"{root}/namespaces/{metadata.get('namespace', 'default')}"
        return f"{root}/{plural}/{metadata['name']}"

    def _resource(self, version: str, kind: str) -> tuple[str, bool]:
        if (version, kind) not in self._paths:
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for resource in self.get(root)["resources"]:
                if "/" not in resource["name"]:
                    place = (f"{root}/{resource['name']}", resource["namespaced"])
                    self._paths[version, resource["kind"]] = place
        return self._paths[version, kind]


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
