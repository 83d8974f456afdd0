"""Decisions about artists, feeds, saved searches, prices, wants and handovers."""
