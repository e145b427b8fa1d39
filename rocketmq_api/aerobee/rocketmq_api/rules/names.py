"""Names of topics and groups in namespaces.

namespace `shop`, name `orders`             shop%orders
namespace `shop`, name `%DLQ%billing`       %DLQ%shop%billing
without a namespace                         the name
"""

from __future__ import annotations

import re
from typing import Final

from aerobee.domain.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

NAMESPACE_LENGTH_MAX: Final = 64

# Without `%`, so that a stored name can be read in only one way.
_NAMESPACE: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAMESPACE_LENGTH_MAX}}}")


def is_namespace(text: str) -> bool:
    """Whether a namespace may be called so."""
    return _NAMESPACE.fullmatch(text) is not None


def stored_name(namespace: str, name: str) -> str:
    """The name in a store. Without a namespace it is the name itself."""
    if not namespace:
        return name
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return f"{prefix}{namespace}%{name[len(prefix) :]}"
    return f"{namespace}%{name}"
