"""Lag over time, the heat map of queues, and the drill-down by group and by topic."""

from __future__ import annotations

from aerobee.offset_audit.outputs.report.charts import (
    Series,
    age_scale,
    legend,
    line_chart,
    nice_scale,
    sparkline,
)
from aerobee.offset_audit.outputs.report.data import (
    Failed,
    GroupRow,
    PairRow,
    Progress,
    QueueRow,
    ReportData,
    TopicRow,
)
from aerobee.offset_audit.outputs.report.formats import NOT_KNOWN, age, counted, number, short
from aerobee.offset_audit.outputs.report.markup import Markup, joined, name, tag
from aerobee.offset_audit.outputs.report.overview import state_bar, state_chip

_LINES = 6


def lag_over_time(data: ReportData) -> Markup:
    """The groups that are furthest behind, in messages and in time."""
    ordered = sorted(data.groups, key=_greatest_lag, reverse=True)
    shown = [group for group in ordered if group.points][:_LINES]
    if not shown:
        return tag("p", "No group has committed an offset.", class_="nothing")
    labels = [group.group for group in shown]
    more = data.totals.groups - len(shown)
    runs = len({point.run_at_ms for group in shown for point in group.points})
    if runs < 2:
        return tag(
            "p",
            "This is the first run with this history: lines begin with the next one.",
            class_="more",
        )
    return joined(
        legend(labels),
        tag(
            "div",
            _lag_chart(shown, "Unread messages of the groups furthest behind"),
            _age_chart(shown, "Age of the oldest unread message"),
            class_="two",
        ),
        tag(
            "p",
            f"and {counted(more, 'more group')}. Each group below has its own chart.",
            class_="more",
        )
        if more > 0
        else None,
    )


def _greatest_lag(group: GroupRow) -> tuple[int, int]:
    known = [point.lag for point in group.points if point.lag is not None]
    return max(known, default=-1), group.progress.lag or 0


def _lag_chart(groups: list[GroupRow], label: str) -> Markup:
    return line_chart(
        [
            Series(one.group, tuple((point.run_at_ms, point.lag) for point in one.points))
            for one in groups
        ],
        label=label,
        scale_of=nice_scale,
        write=short,
        axis="unread messages",
    )


def _age_chart(groups: list[GroupRow], label: str) -> Markup:
    return line_chart(
        [
            Series(one.group, tuple((point.run_at_ms, point.age_ms) for point in one.points))
            for one in groups
        ],
        label=label,
        scale_of=age_scale,
        write=age,
        axis="age of the oldest unread",
    )


def groups(data: ReportData) -> Markup:
    """One entry for each group, opened on demand."""
    more = data.totals.groups - len(data.groups)
    if not data.groups:
        return tag("p", "No group has committed an offset.", class_="nothing")
    return joined(
        tag("div", *(_group(one, data) for one in data.groups), class_="entries"),
        tag("p", f"and {counted(more, 'more group')} with less to report.", class_="more")
        if more > 0
        else None,
    )


def topics(data: ReportData) -> Markup:
    more = data.totals.topics - len(data.topics)
    if not data.topics:
        return tag("p", "No topic was read.", class_="nothing")
    return joined(
        tag("div", *(_topic(one, data) for one in data.topics), class_="entries"),
        tag("p", f"and {counted(more, 'more topic')} with less to report.", class_="more")
        if more > 0
        else None,
    )


def _summary(title: str, facts: list[tuple[str, str]], state: str | None, spark: Markup) -> Markup:
    return tag(
        "summary",
        tag("span", name(title), class_="entry-name"),
        state_chip(state) if state else None,
        spark,
        tag(
            "span",
            *(tag("span", tag("b", value), f" {label}") for label, value in facts),
            class_="entry-facts",
        ),
    )


def _noun(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def _lag_facts(progress: Progress, data: ReportData) -> list[tuple[str, str]]:
    facts = [("unread", NOT_KNOWN if progress.lag is None else short(progress.lag))]
    if progress.matching_lag is not None:
        facts.append(("match the filter", short(progress.matching_lag)))
    if progress.first_unread_ms is not None and progress.lag:
        facts.append(("behind", age(max(data.run.judged_at_ms - progress.first_unread_ms, 0))))
    if progress.unknown:
        facts.append((f"{_noun(progress.unknown, 'queue')} not known", number(progress.unknown)))
    return facts


def _failed_facts(failed: Failed | None) -> list[tuple[str, str]]:
    """Zero is left out; unknown is not."""
    if failed is None:
        return []
    facts = [
        ("sent", failed.sent),
        ("finished", failed.finished),
        ("wait for a retry", failed.waiting),
        ("to be retried", failed.again),
        (_noun(failed.dead or 0, "dead letter"), failed.dead),
    ]
    return [
        (label, NOT_KNOWN if count is None else short(count))
        for label, count in facts
        if count != 0
    ]


def _group(group: GroupRow, data: ReportData) -> Markup:
    facts = _lag_facts(group.progress, data)
    if group.members is not None:
        facts.append((_noun(group.members, "member"), number(group.members)))
    facts += _failed_facts(group.failed)
    more = group.topics - len(group.pairs)
    charts = tag(
        "div",
        _lag_chart([group], f"Unread messages of group {group.group}"),
        _age_chart([group], f"Age of the oldest unread message of group {group.group}"),
        class_="two",
    )
    return tag(
        "details",
        _summary(
            group.group,
            facts,
            group.progress.worst_state,
            sparkline([(point.run_at_ms, point.lag) for point in group.points]),
        ),
        tag(
            "div",
            state_bar(group.progress, label=f"Queues of group {group.group} by state"),
            charts if len(group.points) > 1 else None,
            *(_pair(pair, pair.topic, "topic", data) for pair in group.pairs),
            tag("p", f"and {counted(more, 'more topic')}.", class_="more") if more > 0 else None,
            _findings_link(group.group),
            class_="entry-body",
        ),
        class_="entry",
    )


def _topic(topic: TopicRow, data: ReportData) -> Markup:
    messages = NOT_KNOWN if topic.messages is None else short(topic.messages)
    facts = [(_noun(topic.messages or 0, "message"), messages)]
    if topic.queues is not None:
        facts.append((_noun(topic.queues, "queue"), number(topic.queues)))
    if topic.waiting:
        facts.append(("waiting", short(topic.waiting)))
    facts.append((_noun(topic.groups, "group"), number(topic.groups)))
    if topic.groups:
        facts += _lag_facts(topic.progress, data)
    more = topic.groups - len(topic.pairs)
    return tag(
        "details",
        _summary(
            topic.topic, facts, topic.progress.worst_state if topic.groups else None, Markup()
        ),
        tag(
            "div",
            tag("p", "No group has committed an offset here.", class_="quiet")
            if not topic.groups
            else state_bar(topic.progress, label=f"Queues of topic {topic.topic} by state"),
            *(_pair(pair, pair.group, "group", data, can_open=False) for pair in topic.pairs),
            tag("p", f"and {counted(more, 'more group')}.", class_="more") if more > 0 else None,
            _findings_link(topic.topic),
            class_="entry-body",
        ),
        class_="entry",
    )


def _findings_link(words: str) -> Markup:
    return tag(
        "p",
        tag(
            "button",
            "Findings that name it",
            type="button",
            class_="link needs-script",
            data_find=words,
        ),
    )


def _pair(
    pair: PairRow, title: str, kind: str, data: ReportData, *, can_open: bool = True
) -> Markup:
    facts = _lag_facts(pair.progress, data)
    head = tag(
        "h3",
        tag("span", f"{kind} ", class_="quiet"),
        name(title),
        state_chip(pair.progress.worst_state),
        tag(
            "span",
            *(tag("span", tag("b", value), f" {label}") for label, value in facts),
            class_="entry-facts",
        ),
    )
    if not can_open or not pair.queues:
        return tag("div", head, class_="pair")
    more = pair.progress.queues - len(pair.queues)
    return tag(
        "div",
        head,
        _queue_table(pair, data),
        tag("p", f"and {counted(more, 'more queue')} with less to report.", class_="more")
        if more > 0
        else None,
        class_="pair",
    )


def _queue_table(pair: PairRow, data: ReportData) -> Markup:
    heads = ("queue", "state", "unread", "behind", "committed", "last commit", "held by")
    return tag(
        "div",
        tag(
            "table",
            tag(
                "caption",
                f"Queues of topic {pair.topic} for group {pair.group}, worst first",
                class_="hidden",
            ),
            tag("thead", tag("tr", *(_head(head) for head in heads))),
            tag("tbody", *(_queue(queue, data) for queue in pair.queues)),
            class_="queues",
        ),
        class_="scrolls",
        tabindex="0",
        role="region",
        aria_label=f"Queues of {pair.topic} for {pair.group}",
    )


def _head(label: str) -> Markup:
    return tag(
        "th", label, scope="col", class_="wide" if label in ("committed", "held by") else None
    )


def _queue(queue: QueueRow, data: ReportData) -> Markup:
    now = data.run.judged_at_ms
    behind = "up to date" if queue.lag == 0 else NOT_KNOWN
    if queue.lag and queue.first_unread_ms is not None:
        behind = age(max(now - queue.first_unread_ms, 0))
    committed = number(queue.committed_offset)
    if queue.max_offset is not None:
        committed = f"{committed} of {number(queue.max_offset)}"
    unread = number(queue.lag)
    if queue.matching_lag is not None:
        unread = f"{unread} ({number(queue.matching_lag)} match)"
    last = NOT_KNOWN
    if queue.committed_at_ms is not None:
        last = f"{age(max(now - queue.committed_at_ms, 0))} ago"
    return tag(
        "tr",
        tag("th", name(queue.broker_name), f" {queue.queue_id}", scope="row"),
        tag("td", state_chip(queue.state)),
        tag("td", unread, class_="figure"),
        tag("td", behind, class_="figure"),
        tag("td", committed, class_="figure"),
        tag("td", last, class_="figure"),
        tag("td", name(queue.holder) if queue.holder else "nobody"),
    )
