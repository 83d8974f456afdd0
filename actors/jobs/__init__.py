"""Actors that claim, run and settle jobs."""
