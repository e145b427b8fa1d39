"""What a request means for each source: whom to ask, and which stores there are."""

from __future__ import annotations

from collections.abc import Mapping

from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from aerobee.offset_audit.sources.live.options import LiveOptions, parse_options
from aerobee.offset_audit.sources.store.options import StoreOptions


def live_named(request: AuditRequest) -> dict[str, str]:
    """Whom to ask, and the options for all sources."""
    named = dict(request.source_options)
    if request.nameservers:
        named["nameservers"] = request.nameservers
    if request.cluster is not None:
        named["cluster"] = request.cluster
    if request.brokers:
        named["brokers"] = request.brokers
    return named


def live_options(request: AuditRequest, more: Mapping[str, str] | None = None) -> LiveOptions:
    """What the sources of live brokers are told."""
    return parse_options({**live_named(request), **(more or {})})


def options_of(request: AuditRequest, place: StorePlace) -> dict[str, str]:
    """What the sources of stores and journals at rest are told of one `--store`."""
    options = {"checkBodies": "true", **request.source_options}
    if place.broker_name is not None:
        options["name"] = place.broker_name
    if place.broker_id is not None:
        options["brokerId"] = str(place.broker_id)
    return options


def store_options(request: AuditRequest, place: StorePlace) -> StoreOptions:
    """The same, checked."""
    return StoreOptions.parse({**options_of(request, place), "path": place.path})
