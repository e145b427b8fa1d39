"""What the nameserver announces becomes the broker's topics."""

from __future__ import annotations

from typing import Any

from aerobee.broker.cluster.topic_directives import AnnouncedTopic, apply_topics
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable


def announced(name: str, queue_count: int = 4, **changes: Any) -> AnnouncedTopic:
    return AnnouncedTopic(
        **{
            "name": name,
            "queue_count": queue_count,
            "perm": 6,
            "order": False,
            "revision": 9,
            **changes,
        }
    )


def test_topics_are_added_changed_and_removed() -> None:
    table = TopicTable()
    apply_topics(table, [announced("a"), announced("b")], metadata_revision=9, is_complete=False)
    assert table.names() == ["a", "b"]
    assert table.metadata_revision == 9
    gone = apply_topics(
        table,
        [announced("a", 8, perm=4), announced("b", deleted=True)],
        metadata_revision=10,
        is_complete=False,
    )
    assert gone == ["b"]
    config = table.get("a")
    assert config is not None
    assert (config.read_queue_count, config.write_queue_count, config.perm) == (8, 8, 4)


def test_a_complete_list_forgets_what_was_announced_earlier_but_not_the_stores_own() -> None:
    table = TopicTable({"own": TopicConfig(name="own")})
    apply_topics(table, [announced("a"), announced("b")], metadata_revision=1, is_complete=True)
    gone = apply_topics(table, [announced("b")], metadata_revision=2, is_complete=True)
    assert gone == ["a"]
    assert table.names() == ["b", "own"]


def test_a_history_is_taken_with_its_lower_revision_and_survives_a_restart() -> None:
    table = TopicTable()
    apply_topics(table, [], metadata_revision=9, metadata_history="former", is_complete=True)
    apply_topics(table, [], metadata_revision=3, metadata_history="new", is_complete=True)
    apply_topics(table, [], metadata_revision=4, is_complete=False)
    again = TopicTable.load(table.snapshot_bytes(1))
    assert (again.metadata_revision, again.metadata_history) == (4, "new")


def test_a_topic_without_queues_here_is_not_kept() -> None:
    table = TopicTable()
    apply_topics(table, [announced("a", 0)], metadata_revision=1, is_complete=False)
    assert table.names() == []


def test_members_that_only_apache_knows_stay_with_their_topic() -> None:
    known = TopicConfig(name="a", revision=1, unknown={"groupId": "x"})
    table = TopicTable({"a": known})
    apply_topics(table, [announced("a", 8)], metadata_revision=2, is_complete=False)
    config = table.get("a")
    assert config is not None
    assert config.unknown == {"groupId": "x"}


def test_what_only_the_folder_says_of_a_topic_is_not_announced_away() -> None:
    of_apache = TopicConfig(
        name="a",
        filter_type="MULTI_TAG",
        sys_flag=1,
        attributes={"queue.type": "BatchCQ", "message.type": "FIFO"},
    )
    table = TopicTable({"a": of_apache})
    apply_topics(table, [announced("a")], metadata_revision=2, is_complete=False)
    config = table.get("a")
    assert config is not None
    assert (config.filter_type, config.sys_flag, config.revision) == ("MULTI_TAG", 1, 9)
    assert config.attributes == {"queue.type": "BatchCQ", "message.type": "FIFO"}
    later = announced("a", revision=10, attributes={"message.type": "NORMAL"})
    apply_topics(table, [later], metadata_revision=3, is_complete=False)
    config = table.get("a")
    assert config is not None
    assert config.attributes == {"queue.type": "BatchCQ", "message.type": "NORMAL"}
    apply_topics(table, [announced("a", revision=11)], metadata_revision=4, is_complete=False)
    config = table.get("a")
    assert config is not None
    assert config.attributes == {"queue.type": "BatchCQ"}
