"""Requests that must be refused, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import grpc

from aerobee.runtime import errors

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND


@dataclass(frozen=True)
class Refused:
    """A request that must be refused, with which error, and what its message must say."""

    what: str
    request: Callable[[], object]
    error: type[errors.AerobeeError]
    words: tuple[str, ...]
    status: grpc.StatusCode = INVALID

    def __str__(self) -> str:
        return self.what

    def check(self, error: errors.AerobeeError) -> None:
        assert type(error) is self.error, repr(error)
        for word in self.words:
            assert word in str(error), str(error)
