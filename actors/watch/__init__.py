"""Actors that check artists, feeds, saved searches, prices and handovers."""
