"""Documents of megabytes, compared so that the result is readable."""

from __future__ import annotations

from typing import Any

Json = Any


def without_answers(topics: Json) -> Json:
    """A section `topics` without the answers to special questions."""
    return {
        topic: {
            queue_id: {
                key: value
                for key, value in queue.items()
                if key not in ("outOfRange", "offsetByTime")
            }
            for queue_id, queue in queues.items()
        }
        for topic, queues in topics.items()
    }


def differences(expected: Json, actual: Json, at: str = "") -> list[str]:
    """Where two documents differ, one line each."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            line
            for key in sorted(expected.keys() | actual.keys())
            for line in differences(expected.get(key, "-"), actual.get(key, "-"), f"{at}/{key}")
        ]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = enumerate(zip(expected, actual, strict=True))
        return [line for i, pair in pairs for line in differences(*pair, f"{at}[{i}]")]
    if expected == actual and type(expected) is type(actual):
        return []
    return [f"{at}: expected {str(expected)[:120]}, got {str(actual)[:120]}"]
