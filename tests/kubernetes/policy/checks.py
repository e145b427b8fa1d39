"""All checks of the manifests, by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.kubernetes.manifests import Manifests
from tests.kubernetes.policy import (
    availability,
    command_lines,
    network,
    pod_security,
    references,
    serving,
)

Check = Callable[[Manifests], Iterator[str]]

WHOLE: tuple[Check, ...] = (
    availability.budgets_keep_a_quorum,
    network.only_intended_pairs_talk,
    serving.brokers_are_who_they_are_for_ever,
    serving.brokers_keep_messages_on_their_claims,
    serving.etcd_members_know_each_other,
)
"""Make sense only of a cluster."""

CHECKS: tuple[Check, ...] = (
    pod_security.host_is_out_of_reach,
    pod_security.nobody_is_root,
    pod_security.no_container_has_privileges,
    pod_security.only_volumes_are_written,
    pod_security.no_pod_has_rights,
    pod_security.the_namespace_enforces_it,
    pod_security.images_are_pinned,
    references.names_exist,
    references.services_exist,
    references.variables_are_known,
    references.selectors_match,
    serving.ports_are_those_of_the_product,
    serving.nameservers_ask_etcd_as_it_listens,
    serving.services_lead_to_ports,
    serving.brokers_are_reached_while_they_are_not_ready,
    serving.probes_ask_what_is_served,
    serving.metrics_are_found,
    availability.replicas_are_spread,
    availability.stateful_sets_start_in_any_order,
    availability.resources_are_said,
    availability.memory_pressure_evicts_others_first,
    availability.memory_budgets_follow_the_limit,
    availability.etcd_has_memory_for_its_file,
    availability.ends_are_waited_for,
    command_lines.command_lines_are_accepted,
    *WHOLE,
)


def name_of(check: Check) -> str:
    """For the names of tests."""
    return check.__name__
