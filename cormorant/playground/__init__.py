"""Stand-ins on loopback for the systems outside, so that Cormorant can be tried without an account. Never a part of a real service."""

from cormorant.playground.server import Playground, open_playground

__all__ = ["Playground", "open_playground"]
