"""An option of a feed is named once in each layer, and found by all of them."""

from __future__ import annotations

import attrs

from cormorant.rules.settings.watch import FeedSettings
from cormorant.rules.watch.feeds import Subscription
from cormorant.rules.watch.watches import fields_set_by
from cormorant.services.watch.views import SubscriptionBody, SubscriptionOut
from storage.tables import FEEDS


def test_every_option_can_be_given_and_is_shown() -> None:
    options = attrs.fields_dict(FeedSettings).keys()

    assert options <= attrs.fields_dict(SubscriptionBody).keys()
    assert options <= attrs.fields_dict(SubscriptionOut).keys()


def test_every_option_is_stored() -> None:
    options = attrs.fields_dict(FeedSettings).keys()
    stored = fields_set_by(FeedSettings, Subscription)

    assert options - set(stored.values()) == {"every_s", "cron", "zone", "first_check"}, "the schedule and takes_first"
    assert stored.keys() | {"every_s", "cron", "zone", "takes_first"} <= set(FEEDS.c.keys())


def test_every_fact_that_is_shown_is_one_of_the_feed_or_has_a_name_of_its_own() -> None:
    own_names = {"every_s", "cron", "zone", "adaptive", "first_check", "hand_to", "next_check_at"}
    own_names |= {"last_checked_at", "last_success_at"}

    assert attrs.fields_dict(SubscriptionOut).keys() - attrs.fields_dict(Subscription).keys() == own_names
