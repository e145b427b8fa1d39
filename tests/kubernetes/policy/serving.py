"""Ports, probes and addresses: what is asked is served, there and under that name.

Each check takes the manifests and yields a sentence for everything that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from aerobee.runtime.health import Question
from tests.kubernetes.manifests import EXAMPLE_NODE_IP, Manifests, Object, PodTemplate
from tests.kubernetes.policy.availability import SERVICES, broker_settings
from tests.kubernetes.policy.references import matches

PORTS = {
    "nameserver": {"grpc": 8081, "health": 10912, "metrics": 5557},
    "broker": {"grpc": 10911, "health": 10912, "metrics": 5557},
    "etcd": {"client": 2379, "peer": 2380, "metrics": 2381},
}
PROBES = {
    "startupProbe": Question.STARTUP,
    "livenessProbe": Question.LIVENESS,
    "readinessProbe": Question.READINESS,
}
ETCD_PATHS = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
ETCD_WITH_PROBES = (3, 5, 11)
"""The first etcd that answers /livez and /readyz."""
ETCD_MEMBERS = "aerobee.dev/etcd-members"
ETCD_CERTIFICATES = tuple(
    f"AEROBEE_NAMESERVER_ETCD_TLS_{one}" for one in ("CA", "CERTIFICATE", "KEY")
)
LISTENING = {"grpc": "listen", "health": "health", "metrics": "metrics"}


def ports_of(pod: PodTemplate) -> dict[str, int]:
    """Name -> number of what the containers declare."""
    return {
        one["name"]: one["containerPort"]
        for container in pod.containers
        for one in container.get("ports", ())
    }


def ports_are_those_of_the_product(manifests: Manifests) -> Iterator[str]:
    """Declared ports are what the mounted files tell the services to listen on."""
    for pod in manifests.pods():
        if pod.component not in SERVICES:
            continue
        if ports_of(pod) != PORTS[pod.component]:
            yield f"{pod}: has ports {ports_of(pod)}"
        if pod.component == "etcd":
            yield from _etcd_listens(pod)
            continue
        settings = broker_settings(manifests, pod)
        for name, key in LISTENING.items():
            told: Any = settings.get(key, {})
            told = told if isinstance(told, str) else told.get("listen", "nowhere")
            if told != f"0.0.0.0:{PORTS[pod.component][name]}":
                yield f"{pod}: {name} is served on {told}"


def _etcd_listens(pod: PodTemplate) -> Iterator[str]:
    words = pod.containers[0]["args"]
    ports = PORTS["etcd"]
    for port, schemes in (
        ("client", ("http", "https")),
        ("peer", ("http", "https")),
        ("metrics", ("http",)),
    ):
        flag = f"--listen-{port}-urls="
        if not any(f"{flag}{scheme}://0.0.0.0:{ports[port]}" in words for scheme in schemes):
            yield f"{pod}: {port} is not served"


def nameservers_ask_etcd_as_it_listens(manifests: Manifests) -> Iterator[str]:
    """With certificates on both sides, or on none."""
    for etcd in manifests.pods_of("etcd"):
        words = etcd.containers[0]["args"]
        has_tls = {f"--{side}-client-urls=https://" for side in ("listen", "advertise")}
        said = {flag for flag in has_tls if any(word.startswith(flag) for word in words)}
        is_secured = bool(said)
        if said and said != has_tls:
            yield f"{etcd}: listens and is advertised in two ways"
        if is_secured != ("--client-cert-auth=true" in words):
            yield f"{etcd}: asks nobody for a certificate, or cannot"
        for nameserver in manifests.pods_of("nameserver"):
            known = nameserver.environment(nameserver.containers[0], 0)
            if any(is_secured != (one in known) for one in ETCD_CERTIFICATES):
                yield f"{nameserver}: does not ask etcd as it listens"


def services_lead_to_ports(manifests: Manifests) -> Iterator[str]:
    """Each port of a Service is one of the pods behind it, under the number that clients use."""
    for one in manifests.of_kind("Service"):
        name, selector = one["metadata"]["name"], _without_pod_name(one["spec"]["selector"])
        for pod in manifests.pods():
            if not matches({"matchLabels": selector}, pod.labels):
                continue
            ports = ports_of(pod)
            for port in one["spec"]["ports"]:
                target = port.get("targetPort", port["port"])
                if target not in ports and target not in ports.values():
                    yield f"Service {name}: {pod} has no port {target}"
                elif _is_headless(one) and ports.get(str(target), target) != port["port"]:
                    # A headless Service changes no numbers: clients would find nobody there.
                    yield f"Service {name}: port {port['port']} is {ports.get(str(target))} there"


def brokers_are_reached_while_they_are_not_ready(manifests: Manifests) -> Iterator[str]:
    """Readiness is for updates. While nameservers or etcd are away no broker is ready, and clients
    that know one go on with it; a nameserver that is not ready has nothing to tell."""
    for one in manifests.of_kind("Service"):
        name, spec = one["metadata"]["name"], one["spec"]
        leads_to = {
            pod.component
            for pod in manifests.pods()
            if matches({"matchLabels": _without_pod_name(spec["selector"])}, pod.labels)
        }
        if "broker" in leads_to and not spec.get("publishNotReadyAddresses"):
            yield f"Service {name}: leads nowhere while its brokers are not ready"
        if "nameserver" in leads_to and spec.get("publishNotReadyAddresses"):
            yield f"Service {name}: leads to nameservers that know no routes"


def outside_addresses_lead_to_their_brokers(manifests: Manifests) -> Iterator[str]:
    """Every replica of every group listens outside, and a Service leads from the address that
    clients outside are told to that replica and to nobody else."""
    services = [
        one
        for one in manifests.of_kind("Service")
        if one["metadata"].get("labels", {}).get("aerobee.dev/outside") == "true"
    ]
    for pod in manifests.pods_of("broker"):
        (container,) = pod.containers
        for ordinal, instance in enumerate(pod.instances):
            environment = pod.environment(container, ordinal)
            listen = environment.get("AEROBEE_BROKER_OUTSIDE_LISTEN", "")
            address = environment.get("AEROBEE_BROKER_OUTSIDE_ADDRESS", "")
            if listen != f"0.0.0.0:{ports_of(pod).get('outside')}":
                yield f"{instance}: listens outside on {listen or 'nothing'}"
            labels = {**pod.labels, "statefulset.kubernetes.io/pod-name": instance}
            mine = [
                one for one in services if matches({"matchLabels": one["spec"]["selector"]}, labels)
            ]
            if [_outside_address(one) for one in mine] != [address]:
                yield f"{instance}: no Service leads from {address or 'outside'} to it alone"
            for one in mine:
                if [port["targetPort"] for port in one["spec"]["ports"]] != ["outside"]:
                    yield f"{instance}: clients outside are led to its inside listener"


def _outside_address(service: Object) -> str:
    (port,) = service["spec"]["ports"]
    if service["spec"]["type"] == "NodePort":
        return f"{EXAMPLE_NODE_IP}:{port['nodePort']}"
    names = service["metadata"]["annotations"]
    return f"{names['external-dns.alpha.kubernetes.io/hostname']}:{port['port']}"


def _is_headless(service: Object) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def _without_pod_name(selector: Object) -> Object:
    return {
        name: value
        for name, value in selector.items()
        if name != "statefulset.kubernetes.io/pod-name"
    }


def probes_ask_what_is_served(manifests: Manifests) -> Iterator[str]:
    """Every service is asked all three questions, on its health port, by their names."""
    for pod in manifests.pods():
        if pod.component not in SERVICES:
            continue
        (container,) = pod.containers
        ports = ports_of(pod)
        for name, question in PROBES.items():
            probe = container.get(name)
            if probe is None:
                yield f"{pod}: has no {name}"
            elif pod.component == "etcd":
                asked = probe.get("httpGet", {})
                if asked.get("path") != ETCD_PATHS[name] or asked.get("port") != "metrics":
                    yield f"{pod}: {name} asks {asked}"
            else:
                asked = probe.get("grpc", {})
                if asked.get("port") != ports.get("health") or asked.get("service") != question:
                    yield f"{pod}: {name} asks {asked}"
            if name != "startupProbe" and probe and probe.get("initialDelaySeconds"):
                yield f"{pod}: {name} waits although there is a startupProbe"
        if pod.component == "etcd" and _version(container) < ETCD_WITH_PROBES:
            yield f"{pod}: {container['image']} does not answer its probes"


def _version(container: Object) -> tuple[int, ...]:
    found = re.search(r":v?(\d+)\.(\d+)\.(\d+)", container["image"])
    # Pinned by digest alone: whoever did that knows.
    return tuple(map(int, found.groups())) if found else ETCD_WITH_PROBES


def metrics_are_found(manifests: Manifests) -> Iterator[str]:
    """By annotations, and by a Service for those who go by Services."""
    for pod in manifests.pods():
        if pod.component not in SERVICES:
            continue
        annotations = pod.owner["spec"]["template"]["metadata"].get("annotations", {})
        expected = {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(ports_of(pod).get("metrics")),
            "prometheus.io/path": "/metrics",
        }
        if annotations != expected:
            yield f"{pod}: Prometheus is told {annotations}"
        services = [
            one
            for one in manifests.of_kind("Service")
            if matches({"matchLabels": one["spec"]["selector"]}, pod.labels)
            and any(port["name"] == "metrics" for port in one["spec"]["ports"])
        ]
        if len(services) != 1:
            yield f"{pod}: {len(services)} Services lead to its metrics"


def brokers_are_who_they_are_for_ever(manifests: Manifests) -> Iterator[str]:
    """Name, id and address do not change with a restart, and no two brokers share them."""
    seen: dict[tuple[str, str], str] = {}
    for pod in manifests.pods_of("broker"):
        (container,) = pod.containers
        group = pod.labels.get("aerobee.dev/broker-group", "")
        for ordinal, instance in enumerate(pod.instances):
            environment = pod.environment(container, ordinal)
            name = environment.get("AEROBEE_BROKER_BROKER_NAME", "")
            number = environment.get("AEROBEE_BROKER_BROKER_ID", "")
            if name != group or number != str(ordinal):
                yield f"{instance}: calls itself {name}/{number}"
            if (name, number) in seen:
                yield f"{instance}: is the same broker as {seen[name, number]}"
            seen[name, number] = instance
            service = pod.owner["spec"]["serviceName"]
            expected = f"{instance}.{service}.{pod.namespace}.svc:{PORTS['broker']['grpc']}"
            if environment.get("AEROBEE_BROKER_ADDRESS") != expected:
                yield f"{instance}: is told to be found at {environment['AEROBEE_BROKER_ADDRESS']}"


def etcd_members_know_each_other(manifests: Manifests) -> Iterator[str]:
    """By names that outlive their addresses; and the nameservers know all of them."""
    for pod in manifests.pods_of("etcd"):
        (container,) = pod.containers
        service, place = pod.owner["spec"]["serviceName"], pod.namespace
        is_secured = "--peer-client-cert-auth=true" in container["args"]
        scheme = "https" if is_secured else "http"
        members = {one: f"{scheme}://{one}.{service}.{place}.svc:2380" for one in pod.instances}
        expected = ",".join(f"{name}={url}" for name, url in members.items())
        for ordinal, instance in enumerate(pod.instances):
            environment = pod.environment(container, ordinal)
            if environment.get("INITIAL_CLUSTER") != expected:
                yield f"{instance}: is told of {environment.get('INITIAL_CLUSTER')}"
        for claim in pod.owner["spec"]["volumeClaimTemplates"]:
            # What cannot be changed keeps members from being added that the others do not know.
            if claim["metadata"].get("labels", {}).get(ETCD_MEMBERS) != str(pod.replicas):
                yield f"{pod}: takes other members than it has over a running etcd"
        told = {f"{one}.{service}:2379" for one in pod.instances}
        for nameserver in manifests.pods_of("nameserver"):
            settings = broker_settings(manifests, nameserver)
            if set(settings["etcd"]["endpoints"]) != told:
                yield f"{nameserver}: looks for etcd at {settings['etcd']['endpoints']}"
        yield from _etcd_is_kept_small(pod)


def _etcd_is_kept_small(pod: PodTemplate) -> Iterator[str]:
    (container,) = pod.containers
    flags = dict(one.removeprefix("--").partition("=")[::2] for one in container["args"])
    if flags.get("auto-compaction-mode") != "periodic" or not flags.get(
        "auto-compaction-retention"
    ):
        yield f"{pod}: keeps every revision"
    if int(flags.get("quota-backend-bytes", 0)) <= 0:
        yield f"{pod}: grows without bound"
    if flags.get("name") != "$(POD_NAME)":
        yield f"{pod}: members have other names than their pods"
    mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    claims = {one["metadata"]["name"] for one in pod.owner["spec"]["volumeClaimTemplates"]}
    folder = flags.get("data-dir", "")
    if not any(folder.startswith(f"{path}/") for path, name in mounts.items() if name in claims):
        yield f"{pod}: {folder} is not on its claim"


def brokers_keep_messages_on_their_claims(manifests: Manifests) -> Iterator[str]:
    """The folder of the store lies below the mount of a claim."""
    for pod in manifests.pods_of("broker"):
        (container,) = pod.containers
        claims = {one["metadata"]["name"] for one in pod.owner["spec"]["volumeClaimTemplates"]}
        paths = [one["mountPath"] for one in container["volumeMounts"] if one["name"] in claims]
        folder = str(broker_settings(manifests, pod).get("store_root", ""))
        if not any(folder.startswith(f"{path}/") for path in paths):
            yield f"{pod}: {folder} is not on its claim"
