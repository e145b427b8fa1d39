"""Property names that have a meaning, and the values that a client's message may have for them.

One table for everyone: brokers use it to refuse what clients send, and clients refuse what users
make with the same text. A name for a feature that does not exist yet is refused until it does, so
that no stored message changes its meaning later. Messages already stored, and those of Apache's
brokers, are not checked.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aerobee.store.format.properties import (
    NAME_END,
    VALUE_END,
    PropertyIllegal,
    PropertyName,
)


class Allowed(NamedTuple):
    """What a property of a client's message may contain."""

    form: str
    """A regular expression for the whole value; empty: no value may be sent."""
    advice: str
    """Follows the name in the error text for any other value."""

    def refusal(self, name: str) -> str:
        """That error text; it does not show the value."""
        return f"property {name[:40]} {self.advice}"


MESSAGE_ID_LENGTH_MAX: Final = 255

_ANYTHING: Final = Allowed(".*", "")
_DELAY_MS: Final = Allowed(
    "[0-9]{1,18}", "must be a whole number, not negative; correct it or leave it out"
)
_TRANSACTION: Final = Allowed(
    "", "is set by brokers when a message begins a transaction; leave it out"
)
_LIGHT_QUEUES: Final = Allowed(
    "", "asks for light queues or inner batches, which are not supported; leave it out"
)
_PRIORITY: Final = Allowed(
    "[0-9]{1,10}", "must be a whole number, not negative; correct it or leave it out"
)
_LITE: Final = Allowed("", "asks for a kind of message that is not supported; leave it out")
_BROKERS: Final = Allowed("", "is set only by brokers; leave it out")
_READERS: Final = Allowed(
    "", "is set by clients when they receive a message, and never sent; leave it out"
)

_N: Final = PropertyName
NAMES: Final[dict[str, Allowed]] = {
    # What clients send.
    # Senders make ids in several ways: 32 to 56 hexadecimal digits, or texts of their own. Any of
    # them can be part of a recall handle.
    _N.UNIQ_KEY: Allowed(
        f"[!-~]{{1,{MESSAGE_ID_LENGTH_MAX}}}",
        f"must be a message id of 1 to {MESSAGE_ID_LENGTH_MAX} visible ASCII characters; correct "
        "it or leave it out",
    ),
    _N.WAIT: Allowed("(?i:true|false)", "must be true or false; correct it or leave it out"),
    _N.CRC32: Allowed("[0-9]{10}", "must have ten digits, which brokers set; leave it out"),
    _N.BORN_TIMESTAMP: Allowed(
        "[0-9]{1,19}", "must be a time in ms since 1970; correct it or leave it out"
    ),
    # How a message asks for later delivery.
    _N.DELAY: Allowed(
        "[0-9]{1,9}", "must be the number of a delay level; correct it or leave it out"
    ),
    **dict.fromkeys((_N.TIMER_DELAY_SEC, _N.TIMER_DELAY_MS, _N.TIMER_DELIVER_MS), _DELAY_MS),
    # Opaque to brokers; any meaning is between clients.
    **dict.fromkeys(
        (
            _N.KEYS,
            _N.TAGS,
            _N.SHARDING_KEY,
            _N.PGROUP,
            _N.BORN_HOST,
            _N.BUYER_ID,
            _N.CLUSTER,
            _N.INSTANCE_ID,
            _N.MSG_REGION,
            _N.MSG_TYPE,
            _N.TRACE_ON,
            _N.TRACE_CONTEXT,
            _N.CORRELATION_ID,
            _N.REPLY_TO_CLIENT,
            _N.TTL,
            _N.ARRIVE_TIME,
            _N.PUSH_REPLY_TIME,
            _N.TRANSFER_FLAG,
            _N.CORRECTION_FLAG,
            _N.MQ2_FLAG,
            _N.DUP_INFO,
            _N.EXTEND_UNIQ_INFO,
            _N.FORWARD_QUEUE_ID,
            _N.REDIRECT,
            _N.TRANSACTION_ID,
            _N.CLIENT,
            _N.CHECK_IMMUNITY_TIME_IN_SECONDS,
        ),
        _ANYTHING,
    ),
    # Features that brokers do not provide.
    _N.TRAN_MSG: _TRANSACTION,
    _N.TRAN_PREPARED_QUEUE_OFFSET: _TRANSACTION,
    _N.TRANSACTION_CHECK_TIMES: _TRANSACTION,
    _N.INNER_NUM: _LIGHT_QUEUES,
    _N.INNER_BASE: _LIGHT_QUEUES,
    _N.INNER_MULTI_DISPATCH: _LIGHT_QUEUES,
    _N.INNER_MULTI_QUEUE_OFFSET: _LIGHT_QUEUES,
    _N.PRIORITY: _PRIORITY,
    _N.LITE_TOPIC: _LITE,
    # Set by others, not by clients.
    **dict.fromkeys(
        (
            _N.REAL_TOPIC,
            _N.REAL_QID,
            _N.RETRY_TOPIC,
            _N.TIMER_OUT_MS,
            _N.TIMER_ENQUEUE_MS,
            _N.TIMER_DEQUEUE_MS,
            _N.TIMER_ROLL_TIMES,
            _N.TIMER_DELAY_LEVEL,
            _N.TIMER_DEL_UNIQKEY,
            _N.ORIGIN_MESSAGE_ID,
            _N.RECONSUME_TIME,
            _N.MAX_RECONSUME_TIMES,
            _N.ORIGIN_QUEUE_ID,
            _N.ORIGIN_QUEUE_OFFSET,
            _N.DLQ_ORIGIN_TOPIC,
            _N.DLQ_ORIGIN_MESSAGE_ID,
            _N.DLQ_GROUP,
            _N.DLQ_ATTEMPTS,
            _N.DLQ_REASON_CLASS,
            _N.DLQ_REASON,
            _N.DLQ_MEMBER,
            _N.DLQ_TIME_MS,
            _N.DLQ_RESENDS,
            _N.POP_CK,
            _N.POP_CK_OFFSET,
            _N.FIRST_POP_TIME,
            _N.PRODUCER,
        ),
        _BROKERS,
    ),
    _N.MIN_OFFSET: _READERS,
    _N.MAX_OFFSET: _READERS,
    _N.CONSUME_START_TIME: _READERS,
}

PREFIXES: Final[dict[str, Allowed]] = {"TIMER_": _BROKERS, "__RMQ.TRANSIENT.": _READERS}
"""Names with this prefix are treated alike, including unknown ones."""
_PREFIXES: Final = tuple(PREFIXES)


def allowed_of(name: str) -> Allowed | None:
    """None for a user's own name."""
    allowed = NAMES.get(name)
    if allowed is None and name.startswith(_PREFIXES):
        allowed = next(PREFIXES[prefix] for prefix in _PREFIXES if name.startswith(prefix))
    return allowed


def check_property(name: str, value: str) -> None:
    """Raises PropertyIllegal for anything that no client's message may carry."""
    allowed = allowed_of(name)
    if allowed is None or not value:  # readers ignore a property without a value
        return
    if re.fullmatch(allowed.form, value, re.DOTALL) is None:
        raise PropertyIllegal(allowed.refusal(name))


def may_be_illegal(joined: bytes) -> bool:
    """Whether `check_property` may refuse one of these, each after VALUE_END; False is certain.

    Costs about 0.1 us per message; `check_property` for each of its properties would take 3.
    """
    return _SUSPECT.search(joined) is not None


def without_received(properties: bytes) -> bytes:
    """Without what brokers and readers add to a message: one that was received can be sent on."""
    if not may_be_illegal(VALUE_END + properties):
        return properties
    kept = [
        segment
        for segment in properties.split(VALUE_END)
        if segment and allowed_of(_name_in(segment)) not in _RECEIVED
    ]
    return b"".join(segment + VALUE_END for segment in kept)


_RECEIVED: Final = (_BROKERS, _READERS)


def _name_in(segment: bytes) -> str:
    return segment.partition(NAME_END)[0].decode("utf-8", "replace")


def _suspect_pattern() -> re.Pattern[bytes]:
    """Finds 0x02, then a name that may not be sent, or one whose value has another form."""
    by_first: dict[str, list[str]] = {}
    name_end = NAME_END.decode()
    value_end = VALUE_END.decode()
    for name, allowed in NAMES.items():
        if allowed is _ANYTHING or name.startswith(_PREFIXES):
            continue
        rest = re.escape(name[1:]) + name_end
        if allowed.form:
            rest += f"(?!{allowed.form}{value_end})"
        by_first.setdefault(name[0], []).append(rest)
    for prefix in PREFIXES:
        legal = "|".join(
            f"{name[len(prefix) :]}{name_end}{allowed.form}{value_end}"
            for name, allowed in NAMES.items()
            if name.startswith(prefix) and allowed.form
        )
        rest = re.escape(prefix[1:]) + (f"(?!{legal})" if legal else "")
        by_first.setdefault(prefix[0], []).append(rest)
    # The unique key is in nearly every message: its branch comes first.
    firsts = sorted(by_first, key=lambda first: (first != _N.UNIQ_KEY[0], first))
    branches = "|".join(f"{first}(?:{'|'.join(by_first[first])})" for first in firsts)
    return re.compile(f"{value_end}(?:{branches})".encode())


_SUSPECT: Final = _suspect_pattern()
