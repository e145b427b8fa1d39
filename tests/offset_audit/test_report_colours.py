"""The page's colours, light and dark: text and signs are clear to weak eyes too (WCAG 2, AA)."""

from __future__ import annotations

import re
from importlib import resources

import pytest

CSS = (resources.files("aerobee.offset_audit.outputs.report") / "report.css").read_text("utf-8")
GROUNDS = ("page", "card", "sunk")
SEVERITIES = ("critical", "error", "warning", "ok")
TEXT_MIN = 4.5
SHAPE_MIN = 3.0
Colour = tuple[float, float, float]


def colours(theme: int) -> dict[str, Colour]:
    """By name; `theme`: 0 light, 1 dark."""
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", CSS)
    found = {}
    for name, *both in pairs:
        text = both[theme]
        red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))
        found[name] = (red, green, blue)
    return found


def luminance(colour: Colour) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Colour, other: Colour) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def mixed(over: Colour, under: Colour, opacity: float) -> Colour:
    red, green, blue = (a * opacity + b * (1 - opacity) for a, b in zip(over, under, strict=True))
    return red, green, blue


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(theme: int) -> None:
    known = colours(theme)
    inks = ("ink", "quiet", "link", *SEVERITIES, "info")
    pairs = [(ink, ground) for ink in inks for ground in GROUNDS]
    pairs += [(ink, f"{wash}-wash") for ink in ("ink", "quiet") for wash in (*SEVERITIES, "info")]
    pairs += [("error", "error-wash"), ("link", "info-wash"), ("page", "ink")]
    weak = {
        (ink, ground): round(contrast(known[ink], known[ground]), 2)
        for ink, ground in pairs
        if contrast(known[ink], known[ground]) < TEXT_MIN
    }
    assert weak == {}
    pale = re.search(r"\.chip\[aria-pressed=\"false\"\] \{ opacity: ([.\d]+)", CSS)
    assert pale is not None
    shown = mixed(known["ink"], known["page"], float(pale[1]))
    assert contrast(shown, mixed(known["card"], known["page"], float(pale[1]))) >= TEXT_MIN


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_lines_signs_and_frames_can_be_seen(theme: int) -> None:
    known = colours(theme)
    shapes = (*(f"series-{n}" for n in range(6)), *SEVERITIES, "info", "quiet")
    assert {one for one in shapes if contrast(known[one], known["card"]) < SHAPE_MIN} == set()
    assert {
        one for one in SEVERITIES if contrast(known[one], known[f"{one}-wash"]) < SHAPE_MIN
    } == set()


def test_nothing_on_the_page_moves_by_itself() -> None:
    assert not re.search(r"animation|transition|scroll-behavior|@keyframes", CSS)
