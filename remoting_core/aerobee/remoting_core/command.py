"""One frame's content: a request, or the answer to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

ANSWER: Final = 0b01
ONE_WAY: Final = 0b10
SUCCESS: Final = 0
OWN_LANGUAGE: Final = "PYTHON"
OWN_VERSION: Final = 479
"""Apache's number of release 5.3.3: clients decide by it what they may ask for."""

NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})


class Encoding(IntEnum):
    """How a header is written, as its frame says."""

    JSON = 0
    BINARY = 1
    """Apache's ROCKETMQ."""


@dataclass(slots=True)
class Command:
    """What a frame carries. Each end counts its own `opaque`; an answer repeats its request's."""

    code: int
    """Of a request: what to do; of an answer: 0, or why not."""
    fields: Mapping[str, str] = field(default_factory=lambda: NO_FIELDS)
    """A field that is absent means null."""
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str = ""
    """Of an answer: the reason, for people."""
    language: str = OWN_LANGUAGE
    version: int = OWN_VERSION
    encoding: Encoding = Encoding.JSON

    @property
    def is_answer(self) -> bool:
        return bool(self.flag & ANSWER)

    @property
    def is_one_way(self) -> bool:
        """Its sender waits for no answer."""
        return bool(self.flag & ONE_WAY)

    def answer(
        self,
        code: int = SUCCESS,
        fields: Mapping[str, str] = NO_FIELDS,
        body: bytes = b"",
        remark: str = "",
    ) -> Command:
        """The answer to this request, in its encoding."""
        return Command(
            code, fields, body, self.opaque, ANSWER, remark=remark, encoding=self.encoding
        )
