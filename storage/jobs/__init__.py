"""Transactions over jobs and workers."""
