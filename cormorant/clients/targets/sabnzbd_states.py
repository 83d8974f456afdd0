"""What does the state that SABnzbd gives a job mean for the parcel?"""

from __future__ import annotations

from cormorant.clients.targets.file_names import clean_name
from cormorant.rules.watch.handovers import Parcel, ParcelState, ParcelStatus

_TITLE_BYTES_MAX = 150
_WAITING = {"Idle", "Queued", "Propagating"}


def job_name(parcel: Parcel) -> str:
    """A name for the job that holds our key, by which alone it can be recognised.

    What stands in double braces, after a slash or after "password=" SABnzbd would take for a password.

    >>> from cormorant.rules.watch.handovers import ParcelKind
    >>> job_name(Parcel(key="want-7", title="AC/DC {{live}}", kind=ParcelKind.NZB))
    'AC DC live (want-7)'
    """
    bare = parcel.title.replace("{", " ").replace("}", " ").replace("=", " ")
    return f"{clean_name(bare, bytes_max=_TITLE_BYTES_MAX)} ({parcel.key})"


def is_named(name: str, key: str) -> bool:
    """Whether a job has the name of the parcel with this key. SABnzbd may put dots or underscores for spaces.

    >>> is_named("AC_DC_(want-7)", "want-7"), is_named("AC DC (want-71)", "want-7")
    (True, False)
    """
    return f"({key})" in name


def receipt_of_queue(status: str, *, job_id: str) -> ParcelStatus:
    """What is told of a job in the queue.

    >>> receipt_of_queue("Downloading", job_id="x").standing.value, receipt_of_queue("Paused", job_id="x").standing.value
    ('running', 'present')
    """
    if status == "Paused":
        return ParcelStatus(target_id=job_id, standing=ParcelState.PRESENT, reason="it is paused in SABnzbd")
    standing = ParcelState.PRESENT if status in _WAITING else ParcelState.RUNNING
    return ParcelStatus(target_id=job_id, standing=standing)


def receipt_of_history(status: str, *, job_id: str, failure: str) -> ParcelStatus:
    """What is told of a job in the history. `failure` is SABnzbd's own reason, fit to be shown.

    >>> receipt_of_history("Extracting", job_id="x", failure="").standing.value
    'running'
    """
    if status == "Completed":
        return ParcelStatus(target_id=job_id, standing=ParcelState.DONE)
    if status == "Failed":
        why = failure or "SABnzbd gives no reason"
        return ParcelStatus(target_id=job_id, standing=ParcelState.FAILED, reason=why)
    return ParcelStatus(target_id=job_id, standing=ParcelState.RUNNING)
