"""Who last changed each committed offset, when, and how, according to the offset journal.

Owns: one packed number per queue of a group, in arrays, because a broker may have hundreds of
thousands of them; and the names of the clients, each once, while an offset refers to them. No I/O.

Invariant: what is unknown is absent, never guessed. Queue ids and clients beyond the limits are
unknown.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import NamedTuple

from aerobee.store.format.json_config import JsonValue

QUEUE_IDS_END = 65_536
CLIENTS_MAX = (1 << 20) - 1
TIME_END_MS = 1 << 42

_CLIENT_BITS = 20
_IS_RESET = 1 << _CLIENT_BITS
_HAS_NO_LEASE = 1 << (_CLIENT_BITS + 1)
_TIME_SHIFT = _CLIENT_BITS + 2
_CLIENT_MASK = (1 << _CLIENT_BITS) - 1
# The kinds of changes in the file: under a lease, without one, a reset.
_KINDS = (0, _HAS_NO_LEASE, _IS_RESET)


class LastChange(NamedTuple):
    """The newest change of one offset."""

    timestamp_ms: int
    client_id: str = ""
    is_reset: bool = False
    has_lease: bool = True
    """Whether the member presented its lease."""


class LastChanges:
    """By (topic, group) and queue id."""

    def __init__(self) -> None:
        # Indexed by queue id; 0: unknown.
        self._packed: dict[tuple[str, str], array[int]] = {}
        self._codes: dict[str, int] = {"": 0}
        self._clients: list[str] = [""]
        self._uses: list[int] = [0]
        self._free: list[int] = []

    def __len__(self) -> int:
        return sum(len(row) - row.count(0) for row in self._packed.values())

    @property
    def client_count(self) -> int:
        """The number of client names kept."""
        return len(self._codes) - 1

    def note(self, topic: str, group: str, queue_id: int, change: LastChange) -> None:
        """This is the newest change of the queue's offset."""
        row = self._packed.get((topic, group))
        is_kept = 0 < change.timestamp_ms < TIME_END_MS and queue_id < QUEUE_IDS_END
        if not is_kept:
            self.forget(topic, group, queue_id)
            return
        if row is None:
            row = self._packed[topic, group] = array("Q")
        if queue_id >= len(row):
            row.extend([0] * (queue_id + 1 - len(row)))
        before = row[queue_id] & _CLIENT_MASK
        code = self._codes.get(change.client_id)
        if code is None or code != before:
            code = self._use(change.client_id)
            self._release(before)
        row[queue_id] = change.timestamp_ms << _TIME_SHIFT | _kind_bits(change) | code

    def forget(self, topic: str, group: str, queue_id: int) -> None:
        """The offset has changed, and it is unknown how."""
        row = self._packed.get((topic, group))
        if row is not None and queue_id < len(row):
            self._release(row[queue_id] & _CLIENT_MASK)
            row[queue_id] = 0

    def remove(self, topic: str, group: str) -> None:
        """The group's offsets on the topic are gone."""
        for packed in self._packed.pop((topic, group), ()):
            self._release(packed & _CLIENT_MASK)

    def get(self, topic: str, group: str, queue_id: int) -> LastChange | None:
        """None: unknown."""
        row = self._packed.get((topic, group))
        if row is None or queue_id >= len(row) or not row[queue_id]:
            return None
        return self._unpack(row[queue_id])

    def newest_ms(self, topic: str, group: str) -> int:
        """When any of the queues last changed; 0: unknown."""
        return max(self._packed.get((topic, group), ()), default=0) >> _TIME_SHIFT

    def of_queues(self, topic: str, group: str) -> Mapping[int, LastChange]:
        """What is known of the queues, by queue id."""
        row = self._packed.get((topic, group), ())
        return {queue_id: self._unpack(packed) for queue_id, packed in enumerate(row) if packed}

    # ------------------------------------------------------------------------------ the file

    def row(self, topic: str, group: str) -> array[int]:
        """What is known of the queues, for `changes_text`; a copy."""
        row = self._packed.get((topic, group))
        return array("Q") if row is None else row[:]

    def clients(self) -> list[str]:
        """The names behind the codes of all rows; a copy."""
        return self._clients.copy()

    def load(
        self,
        changes: Mapping[str, JsonValue],
        clients: JsonValue,
        query: Callable[[str, str, int], int | None],
    ) -> None:
        """Load a file's content, for queues on which `query` knows an offset. What cannot be read
        is unknown."""
        names = clients if isinstance(clients, list) else []
        for key, row in changes.items():
            topic, _, group = key.partition("@")
            for text, value in row.items() if isinstance(row, dict) else ():
                change = _loaded(value, names)
                if change is None or not isinstance(text, str) or not text.isdecimal():
                    continue
                if query(group, topic, int(text)) is not None:
                    self.note(topic, group, int(text), change)

    def _unpack(self, packed: int) -> LastChange:
        return LastChange(
            packed >> _TIME_SHIFT,
            self._clients[packed & _CLIENT_MASK],
            bool(packed & _IS_RESET),
            not packed & _HAS_NO_LEASE,
        )

    # ------------------------------------------------------------------------------ clients

    def _use(self, client_id: str) -> int:
        """The client's code, counting one more offset; 0 if no more clients are kept."""
        code = self._codes.get(client_id)
        if code is None:
            if not self._free and len(self._clients) > CLIENTS_MAX:
                return 0
            if self._free:
                code = self._free.pop()
                self._clients[code] = client_id
            else:
                code = len(self._clients)
                self._clients.append(client_id)
                self._uses.append(0)
            self._codes[client_id] = code
        self._uses[code] += 1
        return code

    def _release(self, code: int) -> None:
        if code == 0:
            return
        self._uses[code] -= 1
        if not self._uses[code]:
            del self._codes[self._clients[code]]
            self._clients[code] = ""
            self._free.append(code)


def changes_text(row: array[int]) -> str:
    """JSON: what is known of the queues of a `LastChanges.row`; empty if nothing is."""
    changes = ",".join(
        f'"{queue_id}":[{packed >> _TIME_SHIFT},{packed & _CLIENT_MASK},'
        f"{_KINDS.index(packed & (_IS_RESET | _HAS_NO_LEASE))}]"
        for queue_id, packed in enumerate(row)
        if packed
    )
    return f"{{{changes}}}" if changes else ""


def _kind_bits(change: LastChange) -> int:
    if change.is_reset:
        return _IS_RESET
    return 0 if change.has_lease else _HAS_NO_LEASE


def _loaded(value: JsonValue, clients: list[JsonValue]) -> LastChange | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    timestamp_ms, code, kind = value
    if type(timestamp_ms) is not int or type(code) is not int or kind not in (0, 1, 2):
        return None
    client_id = clients[code] if 0 <= code < len(clients) else ""
    return LastChange(
        timestamp_ms,
        client_id if isinstance(client_id, str) else "",
        is_reset=kind == 2,
        has_lease=kind != 1,
    )
