"""Transactions over sources, requests and answers."""
