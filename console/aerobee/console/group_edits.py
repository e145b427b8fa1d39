"""Creating and changing a group's settings: how its failed messages are delivered again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote

from aerobee.cli.moments import parse_delay_ms
from aerobee.cli.retry_words import retry_lines
from aerobee.client_core.admin_client import AdminClient
from aerobee.client_core.admin_groups import BackOff, Group, GroupRetry
from aerobee.console.editing import Field, Plan, Subject, differences, whole
from aerobee.console.visit import Visit
from aerobee.domain.names import check_group_name
from aerobee.runtime.errors import GroupNotFound, InvalidArgument

BACK_OFFS: Final[Mapping[str, str]] = {
    "": "as now",
    "levels": "the delay levels of the brokers",
    "exponential": "growing times",
}
ORDERS: Final[Mapping[str, str]] = {"": "as now", "yes": "yes", "no": "no"}


async def new_group(visit: Visit) -> Subject:
    async def plan(values: Mapping[str, str]) -> Plan:
        name = values["group"]
        check_group_name(name)
        try:
            await visit.admin.groups.describe(name)
        except GroupNotFound:
            return _plan(visit.admin, name, None, values)
        raise InvalidArgument(f"group {name!r} is there already: change it on its page")

    return Subject(
        title="Create a group",
        fields=(
            Field(
                "group",
                "Name",
                is_required=True,
                help="a consumer that joins creates its group, too; here it gets settings first",
            ),
            *_fields(None),
        ),
        plan=plan,
        back="/groups",
        back_name="Groups",
        command="aerobee group configure NAME --retries-max 3",
    )


async def one_group(visit: Visit) -> Subject:
    name = visit.name()
    group = await visit.admin.groups.describe(name)

    async def plan(values: Mapping[str, str]) -> Plan:
        return _plan(visit.admin, name, group, values)

    return Subject(
        title=f"Change {name}",
        fields=_fields(group),
        plan=plan,
        back=f"/groups/{quote(name, safe='')}",
        back_name=name,
        command=f"aerobee group configure {name} --retries-max 3",
    )


def _fields(group: Group | None) -> tuple[Field, ...]:
    known = {each.retries_max for each in group.retry.values()} if group else set()
    retries = str(known.pop()) if len(known) == 1 else ""
    return (
        Field(
            "retries",
            "Retries",
            retries,
            help="after so many a message becomes a dead letter; empty: as now",
        ),
        Field("back_off", "Wait before each", choices=BACK_OFFS),
        Field("initial", "Growing times: first", help="such as 5s"),
        Field("longest", "Growing times: at most", help="such as 2h"),
        Field("multiplier", "Growing times: times as long each time", help="such as 2"),
        Field("ordered", "In order of message groups", choices=ORDERS),
    )


def _plan(admin: AdminClient, name: str, group: Group | None, values: Mapping[str, str]) -> Plan:
    before = dict(group.retry) if group else {}
    retries_max = whole(values["retries"], "Retries") if values["retries"] else None
    back_off, by_levels = _back_off(values), values["back_off"] == "levels"
    ordered = {"yes": True, "no": False}.get(values["ordered"])
    if group is None and (retries_max, back_off, by_levels, ordered) == (None, None, False, None):
        raise InvalidArgument(
            "a group without members exists by its settings: choose at least one of them"
        )

    async def do() -> str:
        after = await admin.groups.configure(
            name,
            retries_max=retries_max,
            back_off=back_off,
            by_delay_levels=by_levels,
            ordered=ordered,
        )
        return f"Group {name}: {'; '.join(retry_lines(after))}."

    rows = [("Group", "", name)] if group is None else []
    if retries_max is not None:
        now = _said(before, lambda each: f"{each.retries_max:,}")
        rows.append(("Retries", now, f"{retries_max:,}"))
    if back_off is not None or by_levels:
        rows.append(("Wait before each", _said(before, _waits), _wanted(back_off)))
    if ordered is not None:
        now = _said(before, lambda each: "yes" if each.ordered else "no")
        rows.append(("In order of message groups", now, "yes" if ordered else "no"))
    return Plan(
        act="configure group",
        on=name,
        differences=differences(rows),
        do=do,
        notes=["failed messages that wait already keep their times"] if group else [],
    )


def _back_off(values: Mapping[str, str]) -> BackOff | None:
    """Raises InvalidArgument."""
    if values["back_off"] != "exponential":
        if values["initial"] or values["longest"] or values["multiplier"]:
            raise InvalidArgument("times and a multiplier belong to growing times: choose these")
        return None
    try:
        initial_ms, longest_ms = (
            parse_delay_ms(values[each]) if values[each] else 0 for each in ("initial", "longest")
        )
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    multiplier = whole(values["multiplier"], "Multiplier", least=1) if values["multiplier"] else 0
    return BackOff(initial_ms, longest_ms, multiplier)


def _said(before: Mapping[str, GroupRetry], text: Callable[[GroupRetry], str]) -> str:
    """Of all brokers, or, if they differ, of each."""
    found = {broker: text(each) for broker, each in before.items()}
    if len(set(found.values())) <= 1:
        return next(iter(found.values()), "")
    return "; ".join(f"{broker}: {each}" for broker, each in sorted(found.items()))


def _waits(retry: GroupRetry) -> str:
    if retry.back_off is not None:
        return _wanted(retry.back_off)
    return "a list of steps" if retry.steps_ms else BACK_OFFS["levels"]


def _wanted(back_off: BackOff | None) -> str:
    if back_off is None:
        return BACK_OFFS["levels"]
    first = f"{back_off.initial_ms:,} ms" if back_off.initial_ms else "the default"
    longest = f"{back_off.max_ms:,} ms" if back_off.max_ms else "the default"
    times = back_off.multiplier or 2
    return f"first {first}, then {times} times as long, at most {longest}"
