"""Topics whose queues Apache keeps in `batchconsumequeue/`; they are left there.

An inner batch of such a topic is one record with many messages; an entry in an ordinary consume
queue would count it as a single one.
"""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.store.engine.disk import Disk
from aerobee.store.format.json_config import parse_object

_TOPICS_FILE = "config/topics.json"


class BatchTopics:
    """Reads the topics' configurations once, on the first query."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._names: frozenset[str] | None = None

    def __contains__(self, topic: str) -> bool:
        if self._names is None:
            self._names = self._read()
        return topic in self._names

    def _read(self) -> frozenset[str]:
        """Empty if the file cannot be read; loading the table reports that."""
        try:
            document = parse_object(self._disk.read_file(_TOPICS_FILE))
        except (OSError, ValueError):
            return frozenset()
        beans = _object(document.get("topicConfigTable"))
        return frozenset(
            str(name)
            for name, bean in beans.items()
            if _object(_object(bean).get("attributes")).get("queue.type") == "BatchCQ"
        )


def _object(value: object) -> Mapping[object, object]:
    return value if isinstance(value, dict) else {}
