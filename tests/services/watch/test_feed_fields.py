"""A new field of a feed: named once in each layer, and found by all of them."""

from __future__ import annotations

import attrs

from cormorant.rules.settings.watch import FeedSettings, other_feed_settings
from cormorant.rules.watch.feeds import Subscription
from cormorant.services.watch.views import SubscriptionBody, SubscriptionOut
from storage.tables import FEEDS


def test_a_field_without_code_of_its_own_has_one_name_in_every_layer() -> None:
    others = other_feed_settings().keys()

    for cls in (FeedSettings, Subscription, SubscriptionBody, SubscriptionOut):
        assert others <= attrs.fields_dict(cls).keys(), cls
    assert others <= set(FEEDS.c.keys())


def test_every_fact_that_is_shown_is_one_of_the_feed_or_has_a_name_of_its_own() -> None:
    own_names = {"every_s", "cron", "zone", "adaptive", "first_check", "hand_to", "last_checked_at", "last_success_at"}

    assert attrs.fields_dict(SubscriptionOut).keys() - attrs.fields_dict(Subscription).keys() == own_names
