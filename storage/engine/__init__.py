"""Connections, transactions and dialects of both databases."""
