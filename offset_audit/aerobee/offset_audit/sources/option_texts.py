"""Options of a source as Spark gives them: texts by names of any case, checked when they are taken.

Every method raises InvalidArgument that says which option is wrong, and how to write it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from aerobee.runtime.errors import InvalidArgument

_SECURITY_PREFIXES: Final = ("tls.", "credentials.")


class OptionTexts:
    """What was given; an empty text is as none."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._texts = {name.lower(): str(text).strip() for name, text in given.items()}

    def __iter__(self) -> Iterator[str]:
        """The given names, in lower case."""
        return iter(self._texts)

    def text(self, name: str, default: str = "") -> str:
        return self._texts.get(name.lower()) or default

    def names(self, name: str) -> tuple[str, ...]:
        """Those between commas, each once."""
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.text(name).split(",")))))

    def number(self, name: str, default: int, *, lowest: int = 0) -> int:
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdecimal()) or int(text) < lowest:
            raise InvalidArgument(
                f"option {name} is {text!r:.40}, not a whole number of {lowest} or more"
            )
        return int(text)

    def flag(self, name: str, default: bool = False) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise InvalidArgument(f"option {name} is {text!r:.40}, neither true nor false")
        return text == "true" if text else default

    def refuse_protection(self) -> None:
        """Calls are not protected by options of a source: that would protect some of them."""
        for name, text in self._texts.items():
            if name == "tls.enabled" and text.lower() == "false":
                continue
            if name.startswith(_SECURITY_PREFIXES):
                kind, variables = "credentials", "AEROBEE_CREDENTIALS_FILE"
                if name.startswith("tls."):
                    kind = "TLS"
                    variables = "AEROBEE_TLS_CA, AEROBEE_TLS_CERTIFICATE and AEROBEE_TLS_KEY"
                raise InvalidArgument(
                    f"option {name} is not supported: set {kind} by the environment, {variables}, "
                    "of executors too, and leave it out"
                )


def meant(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Which of the known names was perhaps mistyped; empty: none."""
    by_lower = {one.lower(): one for one in known}
    return by_lower.get(next(iter(get_close_matches(name, by_lower, 1, likeness)), ""), "")
