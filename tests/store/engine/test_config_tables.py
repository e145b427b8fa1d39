"""topics.json, subscriptionGroup.json and consumerOffset.json as tables in memory."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.engine.tables import config_tables
from aerobee.store.engine.tables.config_tables import (
    ConsumerOffsetTable,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicTable,
)
from aerobee.store.format.json_config import parse_json

NOW_MS = 1_700_000_000_000

TOPICS = b"""{
	"dataVersion":{
		"counter":7,
		"stateVersion":0,
		"timestamp":1600000000000
	},
	"somethingNewer":[1,2],
	"topicConfigTable":{
		"TopicA":{
			"attributes":{
				"message.type":"FIFO"
			},
			"futureMember":{
				"deep":true
			},
			"order":true,
			"perm":4,
			"readQueueNums":8,
			"topicFilterType":"MULTI_TAG",
			"topicName":"TopicA",
			"topicSysFlag":1,
			"writeQueueNums":6
		}
	}
}"""

OFFSETS = b"""{
	"dataVersion":{
		"counter":3,
		"stateVersion":0,
		"timestamp":1600000000000
	},
	"groupTopicMap":{
		"GroupA":["TopicA"]
	},
	"offsetTable":{
		"TopicA@GroupA":{0:128,1:131
		},
		"%RETRY%GroupA@GroupA":{0:4
		},
		"no-separator":{0:1
		}
	}
}"""


def test_a_topic_of_apache_is_understood() -> None:
    config = TopicTable.load(TOPICS).get("TopicA")
    assert config == TopicConfig(
        name="TopicA",
        read_queue_count=8,
        write_queue_count=6,
        perm=4,
        order=True,
        filter_type="MULTI_TAG",
        sys_flag=1,
        attributes={"message.type": "FIFO"},
        unknown={"futureMember": {"deep": True}},
    )


def test_a_table_that_did_not_change_is_written_as_apache_wrote_it() -> None:
    assert TopicTable.load(TOPICS).snapshot_bytes(NOW_MS) == TOPICS


def test_a_change_keeps_unknown_members_and_raises_the_data_version() -> None:
    table = TopicTable.load(TOPICS)
    config = table.get("TopicA")
    assert config is not None
    assert table.put(replace(config, perm=6))
    document = json.loads(table.snapshot_bytes(NOW_MS))
    assert document["dataVersion"] == {"counter": 8, "stateVersion": 0, "timestamp": NOW_MS}
    assert document["somethingNewer"] == [1, 2]
    assert document["topicConfigTable"]["TopicA"]["perm"] == 6
    assert document["topicConfigTable"]["TopicA"]["futureMember"] == {"deep": True}
    later = json.loads(table.snapshot_bytes(NOW_MS + 5))
    assert later["dataVersion"]["counter"] == 8, "nothing changed in between"


def test_putting_the_same_topic_again_is_no_change() -> None:
    table = TopicTable()
    assert table.put(TopicConfig(name="orders"))
    assert not table.put(TopicConfig(name="orders"))
    assert table.changes == 1
    assert table.remove("orders")
    assert not table.remove("orders")
    assert table.names() == []


def test_metadata_revisions_survive_a_restart_and_stay_out_of_apaches_way() -> None:
    table = TopicTable()
    table.put(TopicConfig(name="announced", revision=12))
    table.put(TopicConfig(name="local"))
    table.metadata_revision = 15
    written = table.snapshot_bytes(NOW_MS)
    beans = json.loads(written)["topicConfigTable"]
    assert beans["announced"]["metadataRevision"] == 12
    assert "metadataRevision" not in beans["local"]
    again = TopicTable.load(written)
    assert again.metadata_revision == 15
    assert again.configs() == table.configs()


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'{"topicConfigTable":[]}',
        b'{"topicConfigTable":{"A":1}}',
        b'{"topicConfigTable":{"A":{"perm":"6"}}}',
        b'{"topicConfigTable":{"A":{"order":1}}}',
        b'{"topicConfigTable":{"A":{"attributes":{"x":1}}}}',
        b'{"topicConfigTable":{{"a":1}:{}}}',
        b'{"dataVersion":5}',
        b"{",
    ],
)
def test_a_file_of_another_shape_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        TopicTable.load(text)


def test_a_new_group_has_all_members_that_apache_expects() -> None:
    table = SubscriptionGroupTable()
    table.put(SubscriptionGroupConfig(name="GroupA", retry_times_max=3))
    document = json.loads(table.snapshot_bytes(NOW_MS))
    assert document["forbiddenTable"] == {}
    assert document["subscriptionGroupTable"]["GroupA"] == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "GroupA",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


def test_a_group_keeps_members_that_we_do_not_use() -> None:
    text = b'{"forbiddenTable":{"G":{"T":1}},"subscriptionGroupTable":{"G":{"brokerId":2}}}'
    table = SubscriptionGroupTable.load(text)
    assert table.get("G") == SubscriptionGroupConfig(name="G", unknown={"brokerId": 2})
    document = json.loads(table.snapshot_bytes(NOW_MS))
    assert document["forbiddenTable"] == {"G": {"T": 1}}
    assert document["subscriptionGroupTable"]["G"]["brokerId"] == 2
    assert table.names() == ["G"]
    assert table.remove("G")
    assert len(table) == 0


def test_offsets_with_bare_queue_ids_are_read() -> None:
    table = ConsumerOffsetTable.load(OFFSETS)
    assert table.groups() == ["GroupA"]
    assert table.of_group("GroupA") == {"TopicA": {0: 128, 1: 131}, "%RETRY%GroupA": {0: 4}}
    assert table.query("GroupA", "TopicA", 1) == 131
    assert table.query("GroupA", "TopicA", 2) is None
    assert table.query("nobody", "TopicA", 0) is None


def test_offsets_are_written_with_quoted_queue_ids_and_foreign_entries_are_kept() -> None:
    table = ConsumerOffsetTable.load(OFFSETS)
    table.commit("GroupA", "TopicA", 10, 7)
    table.commit("GroupA", "TopicA", 2, 5)
    assert table.snapshot_bytes(NOW_MS).decode() == (
        '{\n\t"dataVersion":{\n\t\t"counter":4,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
        '\t"offsetTable":{\n'
        '\t\t"%RETRY%GroupA@GroupA":{"0":4\n\t\t},\n'
        '\t\t"TopicA@GroupA":{"0":128,"1":131,"2":5,"10":7\n\t\t},\n'
        '\t\t"no-separator":{"0":1\n\t\t}\n\t}\n}'
    )


def test_a_topic_a_group_or_one_queue_can_be_forgotten() -> None:
    table = ConsumerOffsetTable()
    for group, topic, queue_id in (("g1", "a", 0), ("g1", "b", 0), ("g1", "b", 1), ("g2", "a", 0)):
        table.put(group, topic, queue_id, 5, 9)
    table.remove_all(None, "a")
    assert table.as_json() == {"b@g1": {"0": 5, "1": 5}}
    table.snapshot_bytes(NOW_MS)
    table.remove("g1", "b", 1)
    changes = table.changes
    table.remove("g1", "b", 1)
    table.remove("g1", "b", 7)
    table.remove_all("g1", "a")
    table.remove_all("nobody", None)
    assert (table.as_json(), table.changes) == ({"b@g1": {"0": 5}}, changes)
    assert table.epochs_min("g1", "b") == {0: 9}
    again = ConsumerOffsetTable.load(table.snapshot_bytes(NOW_MS))
    assert again.as_json() == table.as_json()
    table.remove_all("g1", None)
    assert (table.as_json(), table.groups(), table.group_count) == ({}, [], 0)


def test_an_equal_commit_is_no_change() -> None:
    table = ConsumerOffsetTable()
    table.commit("g", "t", 0, 5)
    table.commit("g", "t", 0, 5)
    assert table.changes == 1
    table.commit("g", "t", 0, 4)
    assert table.changes == 2, "a smaller offset is a reset"


def test_a_copy_of_a_groups_offsets_is_the_callers() -> None:
    table = ConsumerOffsetTable()
    table.commit("g", "t", 0, 5)
    table.of_group("g")["t"][0] = 9
    assert table.query("g", "t", 0) == 5


@pytest.mark.parametrize("queues", ['{"x":1}', '{"0":-1}', '{"0":"1"}', "[1]", '{"0":true}'])
def test_entries_of_another_shape_are_kept_as_they_are(queues: str) -> None:
    table = ConsumerOffsetTable.load(f'{{"offsetTable":{{"t@g":{queues}}}}}'.encode())
    assert table.groups() == []
    assert json.loads(table.snapshot_bytes(NOW_MS))["offsetTable"]["t@g"] == json.loads(queues)


legal_names = st.text("abcXYZ%_-|09", min_size=1, max_size=5)


@given(
    st.lists(
        st.tuples(legal_names, legal_names, st.integers(0, 20), st.integers(0, 2**62))
        | st.tuples(legal_names, st.just(""), st.just(0), st.just(0)),
        max_size=30,
    ),
    st.integers(0, 29),
)
def test_snapshots_hold_what_was_committed(
    steps: list[tuple[str, str, int, int]], snapshot_at: int
) -> None:
    """Against a plain dict; an early snapshot must not freeze what it prepared."""
    table = ConsumerOffsetTable()
    expected: dict[str, dict[str, int]] = {}
    for number, (topic, group, queue_id, offset) in enumerate(steps):
        if group:
            table.commit(group, topic, queue_id, offset)
            expected.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset
        else:
            table.remove_all(None, topic)
            expected = {key: value for key, value in expected.items() if key.split("@")[0] != topic}
        if number == snapshot_at:
            table.snapshot_bytes(NOW_MS)
    document = parse_json(table.snapshot_bytes(NOW_MS))
    assert isinstance(document, dict)
    assert document["offsetTable"] == expected
    assert ConsumerOffsetTable.load(table.snapshot_bytes(NOW_MS)).as_json() == expected


def test_a_table_of_many_renders_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written for each topic that comes; a thousand must not cost a million."""
    table = TopicTable()
    for number in range(200):
        table.put(TopicConfig(name=f"topic-{number}"))
    table.snapshot_bytes(1)
    rendered: list[str] = []
    bean_of = config_tables.topic_bean

    def counted(config: TopicConfig) -> dict[str, object]:
        rendered.append(config.name)
        return bean_of(config)

    monkeypatch.setattr(config_tables, "topic_bean", counted)
    table.put(TopicConfig(name="topic-7", perm=4))
    table.put(TopicConfig(name="new"))
    table.remove("topic-9")
    again = TopicTable.load(table.snapshot_bytes(2))
    assert sorted(rendered) == ["new", "topic-7"]
    assert again.configs() == table.configs()
    assert again.snapshot_bytes(3) == table.snapshot_bytes(3)
