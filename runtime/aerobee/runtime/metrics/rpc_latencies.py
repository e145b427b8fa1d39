"""How long calls took, by operation and outcome, with RocketMQ's names where they exist.

Owns: one histogram for each pair that occurred: methods are the served ones and outcomes those of
`aerobee.runtime.errors`, so there are not many.
"""

from __future__ import annotations

from aerobee.runtime.metrics.families import HistogramFamily
from aerobee.runtime.metrics.histogram import Histogram

BOUNDS_MS = (1, 3, 5, 10, 100, 1_000, 3_000)
"""RocketMQ's."""
SEND_MESSAGE = "send_message"

_REQUEST_CODES = {
    "Send": SEND_MESSAGE,
    "Pull": "pull_message",
    "CommitOffsets": "update_consumer_offset",
    "QueryOffsets": "query_consumer_offset",
    "QueryBounds": "get_max_offset",
    "SearchByTimestamp": "search_offset_by_timestamp",
    "ResetOffsets": "invoke_broker_to_reset_offset",
    "GetStats": "get_broker_runtime_info",
    "GetMessage": "view_message_by_id",
    "QueryMessages": "query_message",
    "QueryRoute": "get_routeinfo_by_topic",
    "DescribeCluster": "get_broker_cluster_info",
    "ListTopics": "get_all_topic_list_from_nameserver",
}


class RpcLatencies:
    """On the loop."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, str], Histogram] = {}
        self._request_codes = dict(_REQUEST_CODES)

    def answered(self, method: str, outcome: str, elapsed_s: float) -> None:
        """A call of a method was answered."""
        code = self._request_codes.get(method)
        if code is None:
            code = self._request_codes[method] = snake_case(method)
        self.observe(code, outcome, elapsed_s)

    def observe(self, request_code: str, outcome: str, elapsed_s: float) -> None:
        name = request_code, outcome
        histogram = self._histograms.get(name)
        if histogram is None:
            histogram = self._histograms[name] = Histogram(BOUNDS_MS)
        histogram.observe(elapsed_s * 1_000)

    def family(self) -> HistogramFamily:
        family = HistogramFamily(
            "rocketmq_rpc_latency",
            "Time from a request to its answer, in milliseconds.",
            ("protocol_type", "request_code", "response_code"),
        )
        for (request_code, outcome), histogram in self._histograms.items():
            family.add(histogram.copy(), "grpc", request_code, outcome)
        return family


def snake_case(name: str) -> str:
    """`TopicNotFound` -> `topic_not_found`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
