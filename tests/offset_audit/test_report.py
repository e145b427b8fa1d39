"""The HTML report: complete in itself, bounded, safe from names, honest about what is not known."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aerobee.offset_audit.checks.registry import all_checks
from aerobee.offset_audit.outputs.report.charts import age_scale, nice_scale
from aerobee.offset_audit.outputs.report.data import (
    Bounds,
    CheckCount,
    FindingRow,
    HeatCell,
    HeatRow,
    LagPoint,
    Progress,
    ReportData,
    Totals,
)
from aerobee.offset_audit.outputs.report.formats import age, number, short, volume
from aerobee.offset_audit.outputs.report.render import heat_step, render
from aerobee.offset_audit.outputs.verdict import page_of
from tests.offset_audit.sample_report import MINUTE_MS, NOW_MS, sample

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><svg onload=alert(1)>",
    "{{ script }}",
    "javascript:alert(1)",
    "&lt;b&gt;&#0;",
    "\x00\x1b[31m\ud800\u202egnp.exe",
    "-->]]><!--",
)


class Page(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, element: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((element, dict(attrs)))
        if element not in {"meta", "link", "input", "br"}:
            self.open.append(element)

    def handle_endtag(self, element: str) -> None:
        assert self.open.pop() == element

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def named(text: str) -> ReportData:
    """The sample with `text` wherever a user may choose a name."""
    data = sample()
    finding = FindingRow(
        check="STUCK",
        severity="WARNING",
        evidence=text,
        affected=1,
        command=text,
        topic=text,
        group=text,
        broker_name=text,
        state=text,
        previous_state=text,
    )
    group = dataclasses.replace(
        data.groups[0],
        group=text,
        pairs=tuple(
            dataclasses.replace(
                pair,
                group=text,
                topic=text,
                queues=tuple(
                    dataclasses.replace(queue, holder=text, broker_name=text)
                    for queue in pair.queues
                ),
            )
            for pair in data.groups[0].pairs
        ),
    )
    cell = HeatCell(text, 0, 1, 5, None, "STUCK")
    return dataclasses.replace(
        data,
        run=dataclasses.replace(data.run, cluster=text, run_id=text, sources=(text,)),
        findings=(finding,),
        groups=(group,),
        topics=(dataclasses.replace(data.topics[0], topic=text),),
        heat=(HeatRow(text, text, 1, (cell,)),),
        brokers=(
            dataclasses.replace(data.brokers[0], error=text, address=text, broker_name=text),
            dataclasses.replace(data.brokers[1], version=text, address=text, role=text),
        ),
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_names_never_become_markup(text: str) -> None:
    plain, page = Page(render(named("harmless"))), Page(render(named(text)))
    assert [one for one, _ in page.tags] == [one for one, _ in plain.tags]
    assert [set(attributes) for _, attributes in page.tags] == [
        set(attributes) for _, attributes in plain.tags
    ]
    assert not [name for _, found in page.tags for name in found if name.startswith("on")]
    assert not [found for _, found in page.tags if "alert" in (found.get("href") or "")]
    render(named(text)).encode()


def test_the_page_is_sound_html_with_unique_ids_and_labels_that_point_somewhere() -> None:
    page = Page(render(sample()))
    assert page.open == []
    ids = [found["id"] for _, found in page.tags if "id" in found]
    assert len(ids) == len(set(ids))
    for _, found in page.tags:
        for key in ("aria-labelledby", "data-copies"):
            assert found.get(key) is None or found[key] in ids
        href = found.get("href") or ""
        assert not href.startswith("#") or href[1:] in ids


def test_the_page_reaches_for_nothing_outside_itself() -> None:
    text = render(sample())
    page = Page(text)
    assert not [found for _, found in page.tags if "src" in found]
    assert {found["href"] for element, found in page.tags if element == "link"} == {"data:,"}
    assert not re.search(r"url\(|@import", text)
    policy = next(found["content"] for _, found in page.tags if "http-equiv" in found)
    assert "default-src 'none'" in (policy or "")
    assert "unsafe" not in (policy or "")
    assert not re.search(r'\sstyle="', text), "the page's own policy forbids style attributes"


def test_everything_that_acts_has_a_name_and_everything_that_scrolls_takes_the_keyboard() -> None:
    page = Page(render(sample()))
    for element, found in page.tags:
        if "role" in found and found["role"] in {"img", "region", "group"}:
            assert found.get("aria-label")
        if found.get("class") in {"scrolls", "chart", "heat-cells"}:
            assert found.get("tabindex") == "0"
        if element == "svg" and found.get("class") != "lines":
            assert found.get("aria-hidden") == "true"


def test_what_is_left_out_is_counted() -> None:
    data = sample()
    more = dataclasses.replace(
        data,
        counts=(*data.counts, CheckCount("LAG", "WARNING", 90_000)),
        totals=dataclasses.replace(data.totals, brokers=100, groups=2_000, topics=2_000),
    )
    text = "".join(Page(render(more)).text)
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    assert "and 90,000 more findings not shown here" in text
    assert "and 94 more brokers" in text
    assert "and 1,992 more groups" in text
    assert "and 1,996 more topics" in text
    assert "90,000 findings of 90,005" in text


def test_the_page_of_the_greatest_size_stays_below_three_megabytes() -> None:
    data, bounds = sample(), Bounds()
    long = "t" * 127
    pair = dataclasses.replace(data.groups[0].pairs[0], topic=long, group=long)
    points = tuple(LagPoint(run * 60_000, 10**9 + run, 10**8) for run in range(61))
    groups = tuple(
        dataclasses.replace(
            data.groups[0],
            group=f"{long}{n}",
            points=points,
            pairs=(pair,) * (bounds.pairs // bounds.groups),
            topics=50,
        )
        for n in range(bounds.groups)
    )
    bare = dataclasses.replace(pair, queues=())
    topics = tuple(
        dataclasses.replace(data.topics[0], topic=f"{long}{n}", pairs=(bare,) * bounds.pairs_each)
        for n in range(bounds.topics)
    )
    cells = tuple(HeatCell(long, n, 9, 10**9, 1, "STUCK") for n in range(bounds.heat_cells))
    heat = tuple(HeatRow(long, long, 576, cells) for _ in range(bounds.heat_rows))
    finding = dataclasses.replace(data.findings[2], topic=long, group=long, evidence="e" * 300)
    text = render(
        dataclasses.replace(
            data,
            groups=groups,
            topics=topics,
            heat=heat,
            findings=(finding,) * bounds.findings,
            brokers=data.brokers * (bounds.brokers // len(data.brokers)),
        )
    )
    assert len(text.encode()) < 3_000_000


def test_an_empty_run_is_healthy_and_says_what_it_did_not_see() -> None:
    empty = dataclasses.replace(
        sample(),
        totals=Totals(0, 0, 0, 0, 0, Progress(0, None, None, 0, None, {})),
        counts=(),
        findings=(),
        brokers=(),
        groups=(),
        topics=(),
        heat=(),
    )
    text = "".join(Page(render(empty)).text)
    assert "No findings" in text
    assert "Stored bytes were not read." in text
    assert "not asked: GAP, CORRUPT" in text
    assert "Nothing was found." in text
    assert "not known" in text


@pytest.mark.parametrize(
    ("severity", "words"),
    [
        ("CRITICAL", "1 critical finding, 3 notes"),
        ("ERROR", "1 error, 3 notes"),
        ("WARNING", "1 warning, 3 notes, no errors"),
        ("INFO", "4 notes, no errors"),
    ],
)
def test_the_verdict_counts_and_never_says_that_nothing_is_lost(severity: str, words: str) -> None:
    data = dataclasses.replace(
        sample(), counts=(CheckCount("A", "INFO", 3), CheckCount("B", severity, 1))
    )
    text = "".join(Page(render(data)).text)
    assert words in text
    assert "othing is lost" not in text


def test_each_command_says_whether_it_cures_or_only_shows() -> None:
    text = "".join(Page(render(sample())).text)
    assert "This command shows; cures without --dry-run:" in text
    assert "This command shows:" in text


def test_what_is_not_known_breaks_the_line_and_is_no_zero() -> None:
    data = sample()
    points = tuple(LagPoint(NOW_MS + n, None if n == 2 else 10 * n, None) for n in range(5))
    group = dataclasses.replace(data.groups[0], group="broken-line", points=points)
    text = render(dataclasses.replace(data, groups=(group,)))
    drawn = [found["d"] or "" for one, found in Page(text).tags if one == "path" and "d" in found]
    assert [path for path in drawn if path.count("M") == 2 and path.count("L") == 2]


def test_scales_begin_at_zero_reach_the_largest_value_and_have_few_ticks() -> None:
    for values in ([], [0], [1], [7], [9_999], [3, 5_000_000], [0, 10**12], [0.0, 3.0]):
        for scale in (nice_scale(values), age_scale(values)):
            assert scale.ticks[0] == 0
            assert scale.ticks[-1] == scale.top >= max(values, default=0)
            assert 2 <= len(scale.ticks) <= 7
            shares = [scale.share(tick) for tick in scale.ticks]
            assert shares == sorted(shares)
            assert (shares[0], shares[-1]) == (0, 1)


def test_numbers_and_ages_read_well() -> None:
    assert number(None) == "not known"
    assert number(1234567) == "1,234,567"
    shorts = [short(n) for n in (0, 999, 2_000, 12_340, 34_000_000)]
    assert [one.replace("\N{NO-BREAK SPACE}", " ") for one in shorts] == [
        "0",
        "999",
        "2,000",
        "12.3 k",
        "34 M",
    ]
    volumes = [volume(n).replace("\N{NO-BREAK SPACE}", " ") for n in (1, 12_340, 734_003_200)]
    assert volumes == ["1 B", "12.3 kB", "734 MB"]
    ages = [
        age(n).replace("\N{NO-BREAK SPACE}", " ") for n in (0, 40, 1_500, 3_660_000, 90_061_000)
    ]
    assert ages == ["0 ms", "40 ms", "1 s", "1 h 1 min", "1 d 1 h"]
    assert age(None) == "not known"
    assert age(-2_000).startswith("\N{MINUS SIGN}")


def test_heat_goes_by_powers_of_ten() -> None:
    assert [heat_step(lag) for lag in (None, -4, 0, 1, 9, 10, 999, 10**6, 10**12)] == [
        None,
        0,
        0,
        1,
        1,
        2,
        3,
        7,
        7,
    ]


def test_findings_that_differ_in_little_are_folded_beyond_three() -> None:
    data = sample()
    one = data.findings[3]
    assert one.check == "STOPPED"
    few = dataclasses.replace(data, findings=(one,) * 3)
    assert "<details>" not in render(few).partition('id="finding-list"')[2].partition("</ol>")[0]
    several = tuple(
        dataclasses.replace(
            one, group=f"g-{place}", topic=f"t-{place}", command=f"aerobee group show g-{place}"
        )
        for place in range(9)
    )
    text = render(dataclasses.replace(data, findings=several))
    page = "".join(Page(text).text).replace("\N{NO-BREAK SPACE}", " ")
    assert (
        "6 more STOPPED findings · topics t-3, t-4, t-5, t-6 and 2 more"
        " · groups g-3, g-4, g-5, g-6 and 2 more" in page
    )
    before, _, folded = text.partition("<details>")
    assert (before + folded).count('<li class="finding ') == 9
    assert before.count('<li class="finding ') == 3
    for place in range(9):
        assert f'id="command-{place}">aerobee group show g-{place}</code>' in text
        assert f'data-copies="command-{place}"' in text


def test_each_finding_links_to_its_check_on_the_page() -> None:
    page = Page(render(sample()))
    links = [found["href"] for element, found in page.tags if element == "a"]
    for finding in sample().findings:
        assert f"#check-{finding.check.lower()}" in links
    assert "docs/audit-findings.md#stopped" in "".join(page.text)


def test_ages_are_taken_from_the_moment_that_the_run_judges_by() -> None:
    data = sample()
    year_ms = 365 * 24 * 60 * MINUTE_MS
    later = dataclasses.replace(data.run, run_at_ms=NOW_MS + year_ms)
    text = "".join(Page(render(dataclasses.replace(data, run=later))).text)
    # First seen, and new in this run, are moments of runs.
    assert "since 365" in text.replace("\N{NO-BREAK SPACE}", " ")
    for shown in (data, dataclasses.replace(data, run=later)):
        text = "".join(Page(render(shown)).text).replace("\N{NO-BREAK SPACE}", " ")
        assert "Oldest unread53 min" in text
        assert "14 min 55 sbehind" in text.replace("s behind", "sbehind")


def test_each_finding_says_where_the_documentation_explains_it() -> None:
    docs = Path(__file__).resolve().parents[2]
    headings = re.findall(r"(?m)^### (.*)$", (docs / "docs/audit-findings.md").read_text("utf-8"))
    anchors = {one.lower().replace(",", "").replace(" ", "-") for one in headings}
    for check in all_checks():
        page, _, anchor = page_of(check.name).partition("#")
        assert page == "docs/audit-findings.md"
        assert anchor in anchors, check.name


def test_a_first_run_has_no_lines_of_one_point() -> None:
    data = sample()
    groups = tuple(dataclasses.replace(one, points=one.points[-1:]) for one in data.groups)
    text = render(dataclasses.replace(data, groups=groups))
    assert "lines begin with the next one" in text
    assert "Unread messages of the groups furthest behind" not in text
