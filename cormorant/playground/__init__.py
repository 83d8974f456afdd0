"""Stand-ins on loopback for the systems outside, so that Cormorant can be tried without an account. Never a part of a real service."""

from cormorant.playground.catalogue import PlayedCatalogue
from cormorant.playground.http import StandInRequest, StandInResponse
from cormorant.playground.indexer import Habits, Indexer
from cormorant.playground.server import Playground, open_playground
from cormorant.playground.slskd import SlskdStandIn

__all__ = [
    "Habits",
    "Indexer",
    "PlayedCatalogue",
    "Playground",
    "SlskdStandIn",
    "StandInRequest",
    "StandInResponse",
    "open_playground",
]
