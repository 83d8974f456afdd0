"""Actors that admit searches and send requests to sources."""
