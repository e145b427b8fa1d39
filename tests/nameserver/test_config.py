"""What an operator may set, and what is refused at birth."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.nameserver.config import NameserverConfig
from aerobee.runtime.config import keys_of, load_config
from aerobee.runtime.errors import InvalidArgument


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        ({"cluster": "a/b"}, "cluster"),
        ({"cluster": ""}, "cluster"),
        ({"listen": "8081"}, "host:port"),
        ({"etcd.endpoints": ()}, "endpoints"),
        ({"etcd.endpoints": ("http://a:2379",)}, "host:port"),
        ({"etcd.call_timeout_ms": 0}, "call_timeout_ms"),
        ({"topics.default_queues_per_group": 0}, "default_queues_per_group"),
        ({"topics.queues_max": 0}, "queues_max"),
        ({"topics.spread_timeout_ms": -1}, "spread_timeout_ms"),
        ({"broker_lease.default_ms": 500}, "default_ms"),
        ({"broker_lease.min_ms": 10}, "min_ms"),
        ({"stop_grace_ms": -1}, "stop_grace_ms"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(overrides: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidArgument, match=word):
        load_config(NameserverConfig, environment_prefix="AEROBEE_NAMESERVER", overrides=overrides)


def test_every_setting_has_a_default_and_an_environment_variable() -> None:
    loaded = load_config(
        NameserverConfig,
        environment_prefix="AEROBEE_NAMESERVER",
        environment={
            "AEROBEE_NAMESERVER_ETCD_ENDPOINTS": "etcd-0.etcd:2379, [::1]:2379",
            "AEROBEE_NAMESERVER_TOPICS_AUTO_CREATE": "off",
        },
    )
    assert loaded.config.etcd.endpoints == ("etcd-0.etcd:2379", "[::1]:2379")
    assert not loaded.config.topics.auto_create
    assert loaded.origins["topics.auto_create"] == "AEROBEE_NAMESERVER_TOPICS_AUTO_CREATE"
    assert len(keys_of(NameserverConfig)) == len(loaded.origins)


def test_a_broker_that_names_no_lease_gets_one_that_default_sessions_outlive() -> None:
    """docs/consumer-groups.md: a lease and a second stay below 0.65 of a session of 10 s."""
    assert NameserverConfig().broker_lease.default_ms + 1_000 < 0.65 * 10_000
