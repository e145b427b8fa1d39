"""The members of an etcd cluster, asked over the JSON that etcd speaks beside gRPC.

For upkeep from a command or a job: each call blocks and is bounded in time. Nameservers have a
connection of their own (aerobee.nameserver.etcd); nothing here is used while they serve.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aerobee.runtime.errors import RegistryUnavailable

_QUICK_S = 15.0
_DEFRAGMENT_S = 300.0
"""A member is silent while it copies its whole database."""
_CHUNK_S = 60.0


@dataclass(frozen=True, slots=True)
class Member:
    """Who is one, and where its clients reach it."""

    id: int
    name: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member says of itself."""

    member: Member
    version: str
    is_leader: bool
    size: int
    """Bytes of the file, which count against the quota."""
    size_in_use: int
    """Bytes of these that hold something."""
    errors: tuple[str, ...] = ()
    """Alarms, and what else is wrong."""

    @property
    def gain(self) -> int:
        """Bytes that defragmenting would give back."""
        return self.size - self.size_in_use


class EtcdMembers:
    """One etcd cluster; `endpoints` are those of some of its members."""

    def __init__(self, endpoints: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        scheme = "http" if tls is None else "https"
        self._endpoints = [one if "://" in one else f"{scheme}://{one}" for one in endpoints]

    def members(self) -> list[Member]:
        """All of them, by name, also those that are away.

        Raises:
            RegistryUnavailable: no endpoint answers, or there is no majority.
        """
        found = self._anybody("cluster/member/list", {})["members"]
        members = [
            Member(int(one["ID"]), one.get("name", ""), one["clientURLs"][0])
            for one in found
            # One that was added and has never started has neither.
            if one.get("clientURLs")
        ]
        return sorted(members, key=lambda member: member.name)

    def status(self, member: Member) -> MemberStatus:
        """Raises RegistryUnavailable: it does not answer."""
        answer = self._ask(member.endpoint, "maintenance/status", {})
        size = int(answer.get("dbSize", 0))
        return MemberStatus(
            member,
            answer.get("version", ""),
            is_leader=answer.get("leader") == answer["header"]["member_id"],
            size=size,
            size_in_use=int(answer.get("dbSizeInUse", size)),
            errors=tuple(answer.get("errors", ())),
        )

    def defragment(self, member: Member) -> None:
        """Give the space back that holds nothing; the member answers nobody meanwhile.

        Raises:
            RegistryUnavailable: it does not answer, or refuses.
        """
        self._ask(member.endpoint, "maintenance/defragment", {}, _DEFRAGMENT_S)

    def snapshot(self, member: Member) -> Iterator[bytes]:
        """The member's whole state, piece by piece, with a SHA-256 of it at the end.

        Raises (while it is read):
            RegistryUnavailable: the member does not answer, or ends before the snapshot does.
        """
        try:
            with self._open(member.endpoint, "maintenance/snapshot", {}, _CHUNK_S) as answer:
                for line in answer:
                    document = json.loads(line)
                    if "result" not in document:
                        reason = document.get("error", document)
                        raise RegistryUnavailable(f"etcd at {member.endpoint}: {reason}")
                    yield base64.b64decode(document["result"].get("blob", ""))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _unavailable(member.endpoint, error) from error

    def put(self, key: str, value: bytes) -> None:
        """Write one key, which may happen twice. Raises RegistryUnavailable."""
        coded = {"key": _base64(key.encode()), "value": _base64(value)}
        try:
            self._anybody("kv/put", coded)
        except RegistryUnavailable:
            # While a leader is elected etcd gives up what came before.
            self._anybody("kv/put", coded)

    def _anybody(self, method: str, request: Any) -> Any:
        """The answer of the first endpoint that has one."""
        for endpoint in self._endpoints[:-1]:
            try:
                return self._ask(endpoint, method, request)
            except RegistryUnavailable:
                continue
        return self._ask(self._endpoints[-1], method, request)

    def _ask(self, endpoint: str, method: str, request: Any, timeout_s: float = _QUICK_S) -> Any:
        try:
            with self._open(endpoint, method, request, timeout_s) as answer:
                return json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _unavailable(endpoint, error) from error

    def _open(
        self, endpoint: str, method: str, request: Any, timeout_s: float
    ) -> http.client.HTTPResponse:
        body = json.dumps(request).encode()
        call = urllib.request.Request(f"{endpoint}/v3/{method}", body)
        answer: http.client.HTTPResponse = urllib.request.urlopen(
            call, timeout=timeout_s, context=self._tls
        )
        return answer


def _unavailable(endpoint: str, error: Exception) -> RegistryUnavailable:
    reason: object = error
    if isinstance(error, urllib.error.HTTPError):
        reason = error.read().decode(errors="replace").strip() or error
    elif isinstance(error, urllib.error.URLError):
        reason = error.reason
    return RegistryUnavailable(f"etcd at {endpoint} does not do it: {reason}")


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
