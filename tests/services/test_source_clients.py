"""How feeds and their links are asked for: where nobody wrote an address down, it leads to nothing private."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import fields_dict

from cormorant.rules.schedules import Schedule
from cormorant.rules.search.outcomes import SourceError
from cormorant.rules.settings.fields import Setting
from cormorant.rules.settings.watch import SubscriptionSettings
from cormorant.rules.watch.feeds import Subscription
from cormorant.services.source_clients import FEED_TIMEOUT_S, SourceClients
from cormorant.testing import SimulatedClock, in_line
from tests.clients.mounted import mounted
from tests.environments import environment_of
from tests.stand_ins.feeds import feed_host


def subscription(url: str, **how: Any) -> Subscription:
    now = SimulatedClock().now()
    return Subscription(name="one", url=url, schedule=Schedule(every_s=60.0), next_attempt_at=now, added_at=now, **how)


async def test_a_feed_is_asked_with_what_is_known_of_it() -> None:
    asker = SourceClients(environment_of(offload=in_line, clock=SimulatedClock()))
    async with mounted(feed_host().answer) as server:
        url = f"{server.url}/harbour-lights.xml"
        first = await asker.feed(subscription(url))
        again = await asker.feed(subscription(url, etag=first.etag, last_modified=first.last_modified))

    assert len(first.items) == 3
    assert again.is_unchanged


def test_no_time_of_the_client_is_shorter_than_a_check_may_be_told_to_take() -> None:
    longest = fields_dict(SubscriptionSettings)["check_timeout_s"].metadata[Setting.KEY].high

    assert longest < FEED_TIMEOUT_S


async def test_a_feed_that_moved_by_itself_and_a_link_of_a_feed_lead_to_nothing_private() -> None:
    asker, feeds = SourceClients(environment_of(offload=in_line, clock=SimulatedClock())), feed_host()
    async with mounted(feeds.answer) as server:
        url = f"{server.url}/harbour-lights.xml"
        for asking in (asker.feed(subscription(url, has_moved=True)), asker.fetch_link(url)):
            with pytest.raises(SourceError, match="private|loopback|own network"):
                await asking

    assert feeds.asked == []
