"""Every command line of the manifests, as the program itself takes it: parsed, never run.

Services load the file that is mounted for them, with the environment that their pod has.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.nameserver.config import NameserverConfig
from aerobee.offset_audit.run.arguments import parse_arguments
from aerobee.offset_audit.run.request import request_of
from aerobee.runtime.config import keys_of, load_config
from aerobee.runtime.errors import InvalidArgument
from tests.kubernetes.manifests import Manifests, Object, PodTemplate, command_line
from tests.support.command_parsing import parsed

SERVICES: dict[str, tuple[type[Any], str]] = {
    "broker": (BrokerConfig, "AEROBEE_BROKER"),
    "nameserver": (NameserverConfig, "AEROBEE_NAMESERVER"),
}
OTHER_PROGRAMS = {"etcd", "python3"}
"""Commands of images that are not ours, or not the `aerobee` of ours."""


def command_lines_are_accepted(manifests: Manifests) -> Iterator[str]:
    """Of containers, of hooks, and of Spark applications."""
    for pod in manifests.pods():
        if pod.kind == "SparkApplication":
            yield from _submitted(pod)
            continue
        for container in pod.containers:
            for ordinal in range(pod.replicas):
                environment = pod.environment(container, ordinal)
                for words in _words(container, environment):
                    if words[0] not in OTHER_PROGRAMS:
                        yield from _accepted(manifests, pod, container, words, environment)


def _words(container: Object, environment: Mapping[str, str]) -> Iterator[list[str]]:
    words = command_line(container, environment)
    yield words if "command" in container else ["aerobee", *words]
    for hook in container.get("lifecycle", {}).values():
        if "exec" in hook:
            # Nothing is expanded in hooks.
            yield list(hook["exec"]["command"])


def _submitted(pod: PodTemplate) -> Iterator[str]:
    try:
        parse_arguments(pod.owner["spec"].get("arguments", ()), program="submit.py")
    except InvalidArgument as error:
        yield f"{pod}: {error}"


def _accepted(
    manifests: Manifests,
    pod: PodTemplate,
    container: Object,
    words: Sequence[str],
    environment: Mapping[str, str],
) -> Iterator[str]:
    if words[0] != "aerobee":
        yield f"{pod}: {words[0]} is no program of the image"
        return
    with _environment(environment):
        try:
            context = parsed(words[1:])
            if context.info_name in SERVICES:
                _load(manifests, pod, container, context, environment)
            elif context.info_name == "audit":
                request_of(context.params)
        except (click.ClickException, InvalidArgument) as error:
            text = error.format_message() if isinstance(error, click.ClickException) else error
            yield f"{pod}: {' '.join(words)}: {text}"


def _load(
    manifests: Manifests,
    pod: PodTemplate,
    container: Object,
    context: click.Context,
    environment: Mapping[str, str],
) -> None:
    """The configuration, as the service would have it; raises InvalidArgument."""
    kind, prefix = SERVICES[str(context.info_name)]
    flags = {
        key.name: context.params.get("key_" + key.name.replace(".", "__")) for key in keys_of(kind)
    }
    with tempfile.TemporaryDirectory() as folder:
        path: Path | None = context.params["config"]
        file = _mounted(manifests, pod, container, path, Path(folder)) if path else None
        load_config(
            kind, environment_prefix=prefix, file=file, environment=environment, overrides=flags
        )


def _mounted(
    manifests: Manifests, pod: PodTemplate, container: Object, path: Path, folder: Path
) -> Path:
    """What lies at `path` in the container, as a file in `folder`; nothing, if nothing does."""
    for mount in container.get("volumeMounts", ()):
        for volume in pod.spec.get("volumes", ()):
            if mount["name"] != volume["name"] or Path(mount["mountPath"]) != path.parent:
                continue
            config = manifests.find("ConfigMap", volume.get("configMap", {}).get("name", ""))
            if config is not None and path.name in config["data"]:
                (folder / path.name).write_text(config["data"][path.name])
    return folder / path.name


@contextmanager
def _environment(environment: Mapping[str, str]) -> Iterator[None]:
    """The process's own variables are those of the container, for options that read them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith("AEROBEE_"):
                patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        yield
