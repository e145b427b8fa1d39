"""The last offset audit: what a run left is shown, with what is new and cured; nothing else is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from aerobee.console import offset_audit_page
from aerobee.offset_audit.outputs.after import After
from aerobee.offset_audit.outputs.summary import SCHEMA_VERSION, Summary
from aerobee.runtime import errors
from tests.console.conftest import Open
from tests.console.fake_admin import NASTY, Cluster


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def finding(check: str, evidence: str, **others: Any) -> dict[str, Any]:
    place = dict.fromkeys(("cluster", "broker_name", "broker_id", "queue_id"))
    found = {"severity": "ERROR", "check": check, "evidence": evidence, "command": "aerobee x"}
    return {**place, **found, "topic": "orders", "group": "g", "first_seen_ms": 1, **others}


def left(folder: Path, **others: Any) -> None:
    """A run's summary, as the audit writes it."""
    open_ones = (finding("LOST", "3 messages are gone"), finding("STUCK", "it stands still"))
    after = After(
        "r1", 1, cured=(finding("JUMP", "it jumped"),), still=open_ones[1:], unknown=(),
        new=open_ones[:1], is_asked=False,
    )  # fmt: skip
    values: dict[str, Any] = {
        "run_id": "r2",
        "run_at_ms": 1_700_000_000_000,
        "judged_at_ms": 1_700_000_000_000,
        "took_ms": 1,
        "depth": "offsets",
        "engine": "local",
        "clusters": ("aerobee",),
        "version": "0.2.0",
        "counts": {"INFO": 0, "WARNING": 0, "ERROR": 2, "CRITICAL": 0},
        "checks": (),
        "findings": open_ones,
        "states": {},
        "groups": (),
        "groups_total": 0,
        "brokers": (),
        "brokers_total": 0,
        "brokers_answered": 0,
        "stages_ms": {},
        "rows": {},
        "after": after,
    }
    (folder / "summary.json").write_text(Summary(**(values | others)).text())


async def test_open_new_and_cured_findings_are_shown(
    tmp_path: Path, cluster: Cluster, browse: Open
) -> None:
    left(tmp_path)
    page = await (await browse(audit_results=str(tmp_path))).get("/offset-audit")
    text = text_of(page.text)
    assert "new ERROR LOST orders g 3 messages are gone" in text
    assert " new ERROR STUCK" not in text
    assert "Cured since the run before 1" in text
    assert "JUMP orders g it jumped" in text
    assert "Run r2" in text
    assert cluster.asked == ["cluster", "check_audit"], "a file, and whether the visitor may"
    assert "Offset audit</a>" in page.text


async def test_a_first_run_has_nothing_new_and_one_without_findings_says_so(
    tmp_path: Path, browse: Open
) -> None:
    left(tmp_path, after=None)
    browser = await browse(audit_results=str(tmp_path))
    text = text_of((await browser.get("/offset-audit")).text)
    assert "no run before" in text
    assert "new ERROR" not in text
    left(tmp_path, findings=(), counts={}, after=None)
    assert "Nothing was found." in (await browser.get("/offset-audit")).text


async def test_who_may_not_audit_sees_no_audit(
    tmp_path: Path, cluster: Cluster, browse: Open
) -> None:
    left(tmp_path)
    cluster.refused["check_audit"] = errors.AccessDenied("this needs Get on Cluster:aerobee")
    answer = await (await browse(audit_results=str(tmp_path))).get("/offset-audit")
    assert (answer.status_code, "3 messages" in answer.text) == (403, False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no audit with this --out has ended"),
        ("", "not the summary"),
        ("[]", "not the summary"),
        ('{"schema_version": 99}', "not the summary"),
        ("[" * 100_000, "not the summary"),
        ("x" * (offset_audit_page.BYTES_MAX + 1), "too large"),
    ],
    ids=["none", "empty", "list", "version", "deep", "large"],
)
async def test_a_file_that_is_no_summary_is_said_to_be_none(
    tmp_path: Path, browse: Open, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    page = await (await browse(audit_results=str(tmp_path))).get("/offset-audit")
    assert (page.status_code, said in page.text) == (200, True)


async def test_texts_of_an_audit_are_not_run(tmp_path: Path, browse: Open) -> None:
    left(tmp_path)
    path = tmp_path / "summary.json"
    document = json.loads(path.read_text())
    for each in (*document["findings"], *document["after"]["cured"]):
        each |= {"check": NASTY, "evidence": NASTY, "topic": NASTY, "command": NASTY}
    path.write_text(json.dumps(document | {"verdict": NASTY, "notes": [NASTY], "run_id": NASTY}))
    page = (await (await browse(audit_results=str(tmp_path))).get("/offset-audit")).text
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\u202e" not in page


async def test_without_a_folder_the_page_says_how_to_have_one(browse: Open) -> None:
    page = (await (await browse()).get("/offset-audit")).text
    assert "--audit-results DIR" in page
    assert "Offset audit</a>" not in page


def test_it_reads_the_version_that_audits_write() -> None:
    assert offset_audit_page.SCHEMA_VERSION == SCHEMA_VERSION
