"""Objects of deploy/k8s/procedures: valid, with no more rights than other pods, and of use."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from aerobee.cli.commands.etcd import etcd
from tests.docs.operations.machines import as_etcdutl_can, etcd_programs, restores_with_a_bump
from tests.kubernetes.conftest import Overlay
from tests.kubernetes.etcd_pods import PORTS, local_words, running, wait_until_healthy
from tests.kubernetes.manifests import Manifests, Object, PodTemplate
from tests.kubernetes.policy import availability, pod_security, references
from tests.kubernetes.rendering import MANIFESTS
from tests.kubernetes.schemas import Schemas, kubernetes_version
from tests.support.etcd_cluster import RunningMember, running_members
from tests.support.ports import free_ports

FOLDER = MANIFESTS / "procedures"
FILES = sorted(FOLDER.glob("*.yaml"))


def filled(name: str, **words: str) -> Object:
    """An object with its words in capitals replaced, as `sed` on the pages does."""
    text = (FOLDER / name).read_text("utf-8")
    for word, value in words.items():
        text = text.replace(word, value)
    found: Object = yaml.safe_load(text)
    return found


def example(file: Path) -> Object:
    return filled(
        file.name,
        CLAIM="data-aerobee-broker-a-2",
        SNAPSHOT="data-aerobee-broker-a-2-20261126t000000z",
        ORDINAL="1",
        TIME="20261126t000000z",
    )


def test_the_readme_names_every_file() -> None:
    named = re.findall(r"^\| `([\w.-]+)` \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(named) == [file.name for file in FILES]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_object_is_valid(file: Path) -> None:
    Schemas(kubernetes_version()).check(example(file))


def test_pods_of_procedures_may_do_no_more_than_others(overlay: Overlay) -> None:
    ha = overlay("ha")
    objects = [ha.get("ServiceAccount", "aerobee"), *map(example, FILES)]
    manifests = Manifests(objects)
    assert len(manifests.pods()) == 2
    for check in (
        pod_security.host_is_out_of_reach,
        pod_security.nobody_is_root,
        pod_security.no_container_has_privileges,
        pod_security.only_volumes_are_written,
        pod_security.no_pod_has_rights,
        pod_security.images_are_pinned,
        references.variables_are_known,
        availability.resources_are_said,
    ):
        assert list(check(manifests)) == []
    # And no Service of the cluster leads to them.
    for service in ha.of_kind("Service"):
        for pod in manifests.pods():
            assert not references.matches({"matchLabels": service["spec"]["selector"]}, pod.labels)


@pytest.mark.slow
def test_all_members_come_back_from_a_snapshot_that_the_job_saved(
    overlay: Overlay, tmp_path: Path
) -> None:
    """`aerobee etcd save` of a small etcd; the command line of the job for each ordinal, and those
    of the three pods over what it leaves."""
    programs = etcd_programs()
    (pods,) = overlay("ha").pods_of("etcd")
    (backups := tmp_path / "backups").mkdir()
    with running_members(tmp_path, 1, programs=programs) as (member,):
        member.put("/aerobee/aerobee/topics/orders", b"{}")
        done = CliRunner().invoke(etcd, ["save", str(backups), "--endpoints", member.endpoint])
        assert done.exit_code == 0, done.output
        before = member.put("/aerobee/aerobee/topics/lost", b"{}")
    (snapshot,) = backups.iterdir()
    ports = free_ports(len(pods.instances) * len(PORTS))
    with ExitStack() as stack:
        for ordinal, instance in enumerate(pods.instances):
            (tmp_path / instance).mkdir()
            shutil.copy(snapshot, tmp_path / instance / "etcd.db")
            job = filled("restore-etcd.yaml", ORDINAL=str(ordinal))
            (restoring,) = Manifests([job]).pods()
            words = local_words(_in_namespace(restoring, pods), pods, ports, tmp_path / instance)
            assert words[0] == "etcdutl"
            assert "--bump-revision=1000000000" in words
            words = [word for word in words if as_etcdutl_can(f" {word}")]
            subprocess.run([programs / words[0], *words[1:]], check=True, capture_output=True)
        for ordinal, instance in enumerate(pods.instances):
            words = local_words(pods, pods, ports, tmp_path / instance, ordinal)
            log = tmp_path / f"{instance}.log"
            process = stack.enter_context(running([str(programs / words[0]), *words[1:]], log))
            members = [RunningMember(instance, ports[ordinal * len(PORTS)], process)]
        for ordinal in range(len(pods.instances)):
            wait_until_healthy(ports[ordinal * len(PORTS) + 2])
        (last,) = members
        assert last.get("/aerobee/aerobee/topics/orders") == b"{}"
        assert last.get("/aerobee/aerobee/topics/lost") is None
        after = last.put("/aerobee/aerobee/topics/new", b"{}")
        assert after > before + 900_000_000 or not restores_with_a_bump()
        assert len(last.ask("cluster/member/list")["members"]) == len(pods.instances)


def _in_namespace(pod: PodTemplate, like: PodTemplate) -> PodTemplate:
    """As `kubectl -n` places it."""
    pod.owner["metadata"]["namespace"] = like.namespace
    (placed,) = Manifests([pod.owner]).pods()
    return placed
