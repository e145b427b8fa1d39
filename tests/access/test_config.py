"""Settings of access control, and what a node says of them at its start."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from aerobee.access.config import AccessConfig, open_door
from aerobee.broker.config import BrokerConfig
from aerobee.broker.config_risks import broker_risks
from aerobee.nameserver.config import EtcdConfig, EtcdTlsConfig, NameserverConfig
from aerobee.rpc.tls_config import NodeTlsConfig
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


def test_secrets_that_every_user_of_the_machine_can_read_are_told() -> None:
    # Folders of tests are closed; this one is not.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        files = [folder / each for each in ("cluster-secret", "etcd.key", "node.key")]
        for file in files:
            file.touch(0o604)
        secret, etcd_key, node_key = map(str, files)
        access = AccessConfig(cluster_secret_file=secret)
        tls = NodeTlsConfig(certificate="node.crt", key=node_key)
        etcd = EtcdConfig(tls=EtcdTlsConfig(ca="ca.crt", certificate="etcd.crt", key=etcd_key))

        def told() -> list[str]:
            nameserver = NameserverConfig(access=access, tls=tls, etcd=etcd)
            broker = BrokerConfig(store_root=folder, access=access, tls=tls)
            risks = [*nameserver.risks(), *broker_risks(broker)]
            return [
                risk.sentence for risk in risks if "every user of this machine" in risk.sentence
            ]

        assert len(told()) == 5
        assert f"tls.key is {node_key}" in told()[0]
        folder.chmod(0o750)
        assert told() == []
        folder.chmod(0o755)
        for file in files:
            file.chmod(0o640)
        assert told() == []
