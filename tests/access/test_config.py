"""Settings of access control, and what a node says of them at its start."""

from __future__ import annotations

import pytest

from aerobee.access.config import AccessConfig, open_door
from aerobee.runtime.errors import InvalidArgument


@pytest.mark.parametrize("listen", ["0.0.0.0:8081", "[::]:8081", "10.0.0.1:8081", "mq-1:8081"])
def test_an_open_door_is_told(listen: str) -> None:
    (risk,) = open_door(AccessConfig(), listen)
    assert "every one of them may read, send and delete everything" in risk.sentence
    shut = AccessConfig(enabled=True, cluster_secret_file="/etc/aerobee/cluster-secret")
    assert list(open_door(shut, listen)) == []
    assert list(open_door(AccessConfig(), "127.0.0.1:8081")) == []


def test_access_control_without_a_cluster_secret_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="cluster_secret_file"):
        AccessConfig(enabled=True)
