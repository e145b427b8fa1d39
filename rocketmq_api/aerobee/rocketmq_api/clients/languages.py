"""What the clients of each language cannot do, so that they need different answers.

Each entry was observed with the version that is named; newer ones may be fixed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aerobee.rocketmq_api.clients.backoff import Form
from apache.rocketmq.v2 import definition_pb2 as v2

_BY_HEADER: Final[dict[str, v2.Language]] = {
    "JAVA": v2.JAVA,
    "CPP": v2.CPP,
    "DOTNET": v2.DOT_NET,
    "GO": v2.GOLANG,
    "RUST": v2.RUST,
    "PYTHON": v2.PYTHON,
    "PHP": v2.PHP,
    # The name that the Node client sends.
    "HTTP": v2.NODE_JS,
    "NODE_JS": v2.NODE_JS,
    "RUBY": v2.RUBY,
}

_RUST_CODES_UPTO: Final = (5, 0, 0)
# The last version that takes the seconds of growing delays for milliseconds.
_NODE_MS_UPTO: Final = (1, 0, 8)


@dataclass(frozen=True, slots=True)
class Traits:
    """What answers to a client have to respect."""

    delays: Form = Form.OWN
    needs_plain_body: bool = False
    """It inflates zlib labelled as gzip, and gives its user an empty body for real gzip."""
    lacks_body_empty: bool = False
    """It terminates on an unknown code, and does not know MESSAGE_BODY_EMPTY."""
    settings_again_ms: int | None = None
    """Send its settings again this long after the first time: with several topics it starts waiting
    for them only after it has received them, and would ask again after 300 s."""


def language_of(header: str, user_agent: v2.UA | None = None) -> v2.Language:
    """From the call's metadata, `x-mq-language`, or else from the settings."""
    language = _BY_HEADER.get(header.upper())
    if language is not None:
        return language
    return v2.LANGUAGE_UNSPECIFIED if user_agent is None else user_agent.language


def traits_of(language: v2.Language, version: str) -> Traits:
    """The traits of a client by its own description; unknown ones are assumed to have no
    limitations."""
    if language == v2.PYTHON:
        # Ignores growing delays: 1 s and 17 attempts. Reads whole seconds.
        return Traits(delays=Form.LISTED)
    if language == v2.NODE_JS:
        # Reads no list: no delay at all, and with ordered delivery a dead letter after the first
        # failure.
        is_old = _numbers(version) <= _NODE_MS_UPTO
        return Traits(
            delays=Form.GROWING_SECONDS_FOR_MS if is_old else Form.GROWING,
            settings_again_ms=1_500,
        )
    if language == v2.RUST:
        return Traits(lacks_body_empty=_numbers(version) <= _RUST_CODES_UPTO)
    if language == v2.CPP:
        return Traits(needs_plain_body=True)
    return Traits()


def _numbers(version: str) -> tuple[int, ...]:
    """The numeric parts of `1.0.8`; none for other text."""
    return tuple(int(part) for part in re.findall("[0-9]{1,9}", version.partition("-")[0])[:4])
