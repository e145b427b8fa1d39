"""From `ReportData` to one HTML file: template, style and script, and the sections.

The page loads nothing from outside, and tells the browser so: its content policy allows its own
style and its own script (by their hash) and no address at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources

from aerobee.offset_audit.outputs.report import closing, overview, progress
from aerobee.offset_audit.outputs.report.data import ReportData
from aerobee.offset_audit.outputs.report.findings import findings
from aerobee.offset_audit.outputs.report.heat_map import heat_map
from aerobee.offset_audit.outputs.report.markup import Markup, escaped, joined

_PLACE = re.compile(r"\{\{ (\w+) \}\}")


def render(data: ReportData) -> str:
    """The whole page, as text to be written in UTF-8."""
    folder = resources.files("aerobee.offset_audit.outputs.report")
    style = (folder / "report.css").read_text("utf-8")
    script = (folder / "report.js").read_text("utf-8")
    cluster = data.run.cluster or "stores at rest"
    parts: Mapping[str, object] = {
        "title": f"Offset audit of {cluster}",
        "policy": _policy(style, script),
        "style": Markup(style),
        "script": Markup(script),
        "masthead": overview.masthead(data),
        "verdict": overview.verdict(data),
        "tiles": overview.tiles(data),
        "states": overview.state_bar(data.totals.progress, label="Queues of all groups by state"),
        "findings": findings(data),
        "lag": progress.lag_over_time(data),
        "heat": heat_map(data),
        "groups": progress.groups(data),
        "topics": progress.topics(data),
        "brokers": overview.brokers(data),
        "checks": closing.checks(data),
        "left_out": closing.left_out(data),
        "made_by": joined("Aerobee ", data.run.version, " · run ", data.run.run_id),
    }
    template = (folder / "template.html").read_text("utf-8")
    return _PLACE.sub(lambda place: escaped(parts[place[1]]), template)


def _policy(style: str, script: str) -> str:
    """Nothing but this page's own style and script, even if markup got in somewhere."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
