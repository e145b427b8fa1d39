"""What a run concludes from two views of the registry, around its reading of the brokers."""

from __future__ import annotations

from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.sources.live.asking import RegistryView
from aerobee.offset_audit.sources.live.snapshots import registry_rows, standing
from aerobee.offset_audit.tables import COLUMNS
from aerobee.v1 import common_pb2, nameserver_pb2


def view(version: int, topics: dict[str, int], epochs: dict[str, int]) -> RegistryView:
    """Topics by the revision of their last change, groups by epoch."""
    return RegistryView(
        nameserver_pb2.ClusterDescription(
            cluster="c",
            version=version,
            groups=[
                nameserver_pb2.GroupRecord(broker_name=name, epoch=epoch, revision=version)
                for name, epoch in epochs.items()
            ],
        ),
        nameserver_pb2.ListTopicsResponse(
            version=version,
            topics=[
                common_pb2.TopicConfig(name=name, revision=revision, queues_by_broker={"a": 4})
                for name, revision in topics.items()
            ],
        ),
    )


def rows(of: RegistryView, table: str) -> list[dict[str, object]]:
    names = schema(COLUMNS[table]).names
    return [dict(zip(names, row, strict=True)) for row in registry_rows(of)[table]]


def test_what_changed_while_brokers_were_asked_is_left_out() -> None:
    first = view(10, {"stays": 3, "deleted": 4, "changed": 5}, {"a": 7, "b": 1, "gone": 2})
    then = view(14, {"stays": 3, "changed": 12, "made": 13}, {"a": 7, "b": 2, "new": 1})
    stood = standing(first, then)
    (topic,) = rows(stood, "registry_topics")
    assert (topic["topic"], topic["topic_revision"], topic["revision"]) == ("stays", 3, 10)
    assert [row["broker_name"] for row in rows(stood, "registry_groups")] == ["a"]
    assert len(rows(first, "registry_topics")) == 3, "the view that was given is as it was"
