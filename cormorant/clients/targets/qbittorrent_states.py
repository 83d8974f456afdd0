"""What does the state that qBittorrent gives a torrent mean for the parcel?"""

from __future__ import annotations

from cormorant.rules.watch.handovers import ParcelState, ParcelStatus

# Before Web API 2.11 "stopped" was "paused".
_DONE = {"uploading", "stalledUP", "queuedUP", "forcedUP", "checkingUP", "pausedUP", "stoppedUP"}
_RUNNING = {
    "downloading",
    "metaDL",
    "forcedMetaDL",
    "forcedDL",
    "queuedDL",
    "checkingDL",
    "checkingResumeData",
    "allocating",
    "moving",
    "stalledDL",
}
_STOPPED = {"pausedDL", "stoppedDL"}
_FAILED = {
    "error": "qBittorrent reports an error; its log has the reason, often a full disk or missing rights",
    "missingFiles": "its files are missing",
}


def receipt_of_state(state: str, *, torrent_id: str) -> ParcelStatus:
    """What is told of a torrent in this state.

    >>> [receipt_of_state(state, torrent_id="x").standing.value for state in ("stalledUP", "stoppedDL", "error", "new")]
    ['done', 'present', 'failed', 'unknown']
    >>> receipt_of_state("stalledDL", torrent_id="x").is_stalled
    True
    """
    if state in _DONE:
        return ParcelStatus(target_id=torrent_id, standing=ParcelState.DONE)
    if state in _FAILED:
        return ParcelStatus(target_id=torrent_id, standing=ParcelState.FAILED, reason=_FAILED[state])
    if state in _STOPPED:
        return ParcelStatus(target_id=torrent_id, standing=ParcelState.PRESENT, reason="it is stopped in qBittorrent")
    if state == "stalledDL":
        why = "it is stalled: no peer sends anything"
        return ParcelStatus(target_id=torrent_id, standing=ParcelState.RUNNING, reason=why, is_stalled=True)
    if state in _RUNNING:
        return ParcelStatus(target_id=torrent_id, standing=ParcelState.RUNNING)
    return ParcelStatus(target_id=torrent_id, standing=ParcelState.UNKNOWN, reason=f"its state is {state[:40]!r}")
