"""All mutants, by the part of the core that they are put into."""

from __future__ import annotations

from typing import Final

from tests.mutants.clients import CLIENTS
from tests.mutants.consuming import CONSUMING
from tests.mutants.groups import GROUPS
from tests.mutants.nameserver import NAMESERVER
from tests.mutants.recurring import RECURRING
from tests.mutants.replication import REPLICATION
from tests.mutants.retries import RETRIES
from tests.mutants.security import SECURITY
from tests.mutants.store import STORE
from tests.mutants.timers import TIMERS
from tests.mutants.transactions import TRANSACTIONS

MUTANTS: Final = (
    *(
        *STORE,
        *REPLICATION,
        *GROUPS,
        *CLIENTS,
        *CONSUMING,
        *NAMESERVER,
        *TIMERS,
        *RETRIES,
        *TRANSACTIONS,
    ),
    *RECURRING,
    *SECURITY,
)
