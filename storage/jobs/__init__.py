"""Transactions over jobs and workers."""

from storage.jobs.jobs import enqueue

__all__ = ["enqueue"]
