"""Who owns whom, in which order, with which graces? The whole tree, to be read aloud."""

from __future__ import annotations

from attrs import frozen

from cormorant.rules.ports import Chance, Emit
from cormorant.rules.restarts import Strategy
from storage.database import Database
from supervisors.child import ChildSpec
from supervisors.supervisor import Supervisor


@frozen(kw_only=True)
class Parts:
    """What the tree is made of."""

    database: Database
    emit: Emit
    chance: Chance
    stop_total_s: float


def tree(parts: Parts) -> Supervisor:
    """The root: started in this order, stopped in reverse."""
    return Supervisor(
        [
            ChildSpec("storage", parts.database, grace_s=5.0),
        ],
        name="root",
        strategy=Strategy.ONE_FOR_ONE,  # addresses survive a restart, so a crash of one need not end the others
        intensity=3,
        period_s=5.0,
        stop_total_s=parts.stop_total_s,
        emit=parts.emit,
        chance=parts.chance,
    )
