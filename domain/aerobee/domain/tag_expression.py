"""Tag expressions, with which consumers select messages: `a || b`, `*`, empty."""

from __future__ import annotations

from aerobee.runtime.errors import FilterIllegal

ALL_TAGS = "*"
SEPARATOR = "||"
EXPRESSION_LENGTH_MAX = 16_384
_MISTAKEN_FOR_SEPARATOR = frozenset({"", "&", "&&", "and", "or", "*"})
_SUGGESTION_LENGTH_MAX = 80


def parse_tags(expression: str) -> tuple[str, ...] | None:
    """The wanted tags in the order written, each once; None means every message.

    Raises:
        FilterIllegal: it contains no tag, `*` beside other tags, or unprintable characters.
    """
    wanted = expression.strip()
    if wanted in ("", ALL_TAGS):
        return None
    if len(wanted) > EXPRESSION_LENGTH_MAX:
        raise FilterIllegal(
            f"the tag expression has {len(wanted)} characters; at most {EXPRESSION_LENGTH_MAX} are "
            "allowed"
        )
    tags = tuple(dict.fromkeys(tag for part in wanted.split(SEPARATOR) if (tag := part.strip())))
    if not tags:
        raise FilterIllegal(
            f"the tag expression {wanted[:40]!r} names no tag; write 'a || b', or '*' for all"
        )
    if ALL_TAGS in tags:
        raise FilterIllegal(
            f"the tag expression {wanted[:40]!r} mixes '*' with other tags; use '*' alone"
        )
    if not all(tag.isprintable() for tag in tags):
        raise FilterIllegal(f"the tag expression {wanted[:40]!r} has unprintable characters")
    return tags


def sendable_tags(expression: str) -> tuple[str, ...] | None:
    """As `parse_tags`, for our own clients. Also refuses parts that no message can have as its tag:
    consumers would silently skip the intended messages.

    Raises:
        FilterIllegal: as `parse_tags`; or `|` or white space inside a tag.
    """
    tags = parse_tags(expression)
    if tags is None or all("|" not in tag and len(tag.split()) == 1 for tag in tags):
        return tags
    words = (word.strip(",;") for word in expression.replace("|", " ").split())
    meant = f" {SEPARATOR} ".join(
        dict.fromkeys(word for word in words if word.lower() not in _MISTAKEN_FOR_SEPARATOR)
    )
    raise FilterIllegal(
        f"the tag expression {expression.strip()[:40]!r} can never match: a tag is one word "
        "without '|' and white space; write "
        + repr(meant if 0 < len(meant) <= _SUGGESTION_LENGTH_MAX else "paid || refunded")
    )
