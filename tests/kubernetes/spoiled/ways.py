"""Ways to spoil manifests that are right: one thing in one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kubernetes.manifests import Manifests, Object
from tests.kubernetes.policy.checks import Check

Spoil = Callable[[Manifests], None]
Spoiled = list[tuple[Check, Spoil]]

BROKER, ETCD = ("StatefulSet", "aerobee-broker-b"), ("StatefulSet", "aerobee-etcd")
NAMESERVER, TOOLS = ("Deployment", "aerobee-nameserver"), ("Deployment", "aerobee-tools")
AUDIT = ("CronJob", "aerobee-audit")


def pod(manifests: Manifests, which: tuple[str, str]) -> Object:
    """A pod template's spec."""
    spec: Object = manifests.get(*which)["spec"]
    spec = spec["jobTemplate"]["spec"] if which[0] == "CronJob" else spec
    found: Object = spec["template"]["spec"]
    return found


def container(manifests: Manifests, which: tuple[str, str]) -> Object:
    found: Object = pod(manifests, which)["containers"][0]
    return found


def put(which: tuple[str, str], *path: str | int, value: Any) -> Spoil:
    """Set a value below a pod's spec; None removes it."""

    def spoil(manifests: Manifests) -> None:
        _put(pod(manifests, which), path, value)

    return spoil


def put_in(which: tuple[str, str], *path: str | int, value: Any) -> Spoil:
    """The same below the first container."""
    return put(which, "containers", 0, *path, value=value)


def put_object(which: tuple[str, str], *path: str | int, value: Any) -> Spoil:
    """The same below the whole object."""

    def spoil(manifests: Manifests) -> None:
        _put(manifests.get(*which), path, value)

    return spoil


def _put(target: Any, path: tuple[str | int, ...], value: Any) -> None:
    for step in path[:-1]:
        target = target.setdefault(step, {}) if isinstance(target, dict) else target[step]
    if value is None:
        del target[path[-1]]
    elif isinstance(target, list) and path[-1] == len(target):
        target.append(value)
    else:
        target[path[-1]] = value


def remove(kind: str, name: str) -> Spoil:
    def spoil(manifests: Manifests) -> None:
        manifests.objects.remove(manifests.get(kind, name))

    return spoil


def rename(kind: str, name: str) -> Spoil:
    return put_object((kind, name), "metadata", "name", value="renamed")


def edit_file(config: str, key: str, old: str, new: str) -> Spoil:
    def spoil(manifests: Manifests) -> None:
        data = manifests.config(config)["data"]
        assert old in data[key], f"{old} is not in {key}"
        data[key] = data[key].replace(old, new)

    return spoil


def variable(which: tuple[str, str], name: str, value: str | None, rename: str = "") -> Spoil:
    """Give a variable a value, remove it, or rename it."""

    def spoil(manifests: Manifests) -> None:
        environment = container(manifests, which)["env"]
        (one,) = (one for one in environment if one["name"] == name)
        if rename:
            one["name"] = rename
        elif value is None:
            environment.remove(one)
        else:
            one.pop("valueFrom", None)
            one["value"] = value

    return spoil


def argument(which: tuple[str, str], old: str, new: str) -> Spoil:
    def spoil(manifests: Manifests) -> None:
        arguments = container(manifests, which)["args"]
        assert any(old in one for one in arguments), arguments
        arguments[:] = [one.replace(old, new) for one in arguments]

    return spoil


def policy(name: str, *path: str | int, value: Any) -> Spoil:
    return put_object(("NetworkPolicy", name), "spec", *path, value=value)


def peer(**labels: str) -> Object:
    return {"podSelector": {"matchLabels": labels}}
