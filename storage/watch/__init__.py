"""Transactions over watches, wants and handovers."""
