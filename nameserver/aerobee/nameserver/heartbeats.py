"""PURE: what a broker's heartbeat may say. It is shown to operators, and written to etcd."""

from __future__ import annotations

from aerobee.nameserver.stored import EPOCH_MAX
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import nameserver_pb2

ADDRESS_LENGTH_MAX = 300
"""A DNS name has at most 253 characters."""
NAME_LENGTH_MAX = 100
"""Of an instance or an incarnation; brokers make 16 characters."""
TROUBLE_LENGTH_MAX = 1_000


def check_heartbeat(heartbeat: nameserver_pb2.BrokerHeartbeat) -> None:
    """Shortens and cleans what a broker says in its own words.

    Raises InvalidArgument: its numbers or names make no sense.
    """
    for name in (
        "log_epoch", "log_end", "resigned_epoch", "durable_end", "opened_end", "confirmed_end",
        "epoch",
    ):  # fmt: skip
        number = getattr(heartbeat, name)
        if not 0 <= number <= EPOCH_MAX:
            raise InvalidArgument(f"a heartbeat's {name} cannot be {number}")
    if heartbeat.HasField("successor_id") and heartbeat.successor_id < -1:
        raise InvalidArgument(f"successor id {heartbeat.successor_id} is negative")
    _check_text("address", heartbeat.address, ADDRESS_LENGTH_MAX)
    _check_text("instance", heartbeat.identity.instance, NAME_LENGTH_MAX)
    _check_text("incarnation", heartbeat.incarnation, NAME_LENGTH_MAX)
    _check_text("predecessor", heartbeat.predecessor, NAME_LENGTH_MAX)
    _check_text("metadata history", heartbeat.metadata_history, NAME_LENGTH_MAX)
    heartbeat.replication_trouble = _cleaned(heartbeat.replication_trouble, TROUBLE_LENGTH_MAX)


def _check_text(name: str, text: str, length_max: int) -> None:
    if len(text) > length_max or not text.isprintable() or " " in text:
        raise InvalidArgument(
            f"a heartbeat's {name} has at most {length_max} characters, without spaces and control "
            f"characters: {text[:length_max]!r}"
        )


def _cleaned(text: str, length_max: int) -> str:
    shown = text if len(text) <= length_max else text[:length_max] + "..."
    return "".join(one if one.isprintable() else " " for one in shown)
