"""What follows from how a handler ended: the class of the error decides, never its text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.jobs.states import RetryPolicy, Verb
from cormorant.rules.jobs.verdicts import DONE, Cancel, Fail, Retry, Snooze, Verdict, verdict_on

POLICY = RetryPolicy(base_s=100, cap_s=1e6)


class Hopeless(Exception):
    is_permanent = True


class Passing(Exception):
    is_permanent = False


def judge(error: BaseException | None, *, attempts: int = 0) -> Verdict:
    return verdict_on(error, attempts=attempts, policy=POLICY, jitter=0.5)


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("as a nursery raises it", errors)


def test_a_handler_that_returns_is_done() -> None:
    assert judge(None) is DONE
    assert DONE.verb is Verb.COMPLETE


@pytest.mark.parametrize(
    ("error", "verb"),
    [
        (ValueError("no"), Verb.RETRY),
        (Passing("later"), Verb.RETRY),
        (Hopeless("never"), Verb.FAIL),
        (Retry("again"), Verb.RETRY),
        (Snooze(5), Verb.SNOOZE),
        (Fail("gone"), Verb.FAIL),
        (Cancel("unwanted"), Verb.CANCEL),
        (ValueError("fail cancel snooze permanent"), Verb.RETRY),
    ],
)
def test_the_class_of_the_error_decides(error: Exception, verb: Verb) -> None:
    assert judge(error).verb is verb
    assert judge(group(error)).verb is verb
    assert judge(group(group(error))).verb is verb


@pytest.mark.parametrize("error", [ValueError("no"), Retry("again"), Fail("gone"), Cancel("unwanted"), Hopeless()])
def test_the_error_is_kept_with_the_verdict(error: Exception) -> None:
    assert judge(error).error is error


def test_a_snooze_is_no_error_and_lasts_as_long_as_it_says() -> None:
    verdict = judge(Snooze(90))

    assert verdict == Verdict(verb=Verb.SNOOZE, delay_s=90)


@pytest.mark.parametrize(("attempts", "delay_s"), [(0, 100), (1, 200), (2, 400), (5, 3200)])
def test_a_failed_attempt_waits_by_how_many_failed_before(attempts: int, delay_s: float) -> None:
    assert judge(ValueError("no"), attempts=attempts).delay_s == delay_s
    assert judge(Retry("again"), attempts=attempts).delay_s == delay_s


def test_a_retry_may_name_its_own_delay_and_nothing_is_a_delay_too() -> None:
    assert judge(Retry("again", delay_s=7), attempts=5).delay_s == 7
    assert judge(Retry("at once", delay_s=0), attempts=5).delay_s == 0


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, math.inf, 1e300])
def test_a_delay_that_no_calendar_holds_is_refused_where_it_is_made(seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        Snooze(seconds)
    with pytest.raises(ValueError, match="cannot be"):
        Retry("again", delay_s=seconds)


@pytest.mark.parametrize(
    ("errors", "verb"),
    [
        ([Snooze(5), Snooze(9)], Verb.SNOOZE),
        ([Snooze(5), Retry("again")], Verb.RETRY),
        ([Retry("again"), Cancel("unwanted")], Verb.CANCEL),
        ([Snooze(5), Retry("again"), Cancel("unwanted"), Fail("gone")], Verb.FAIL),
        ([ValueError("no"), Fail("gone")], Verb.FAIL),
        ([ValueError("no"), Cancel("unwanted")], Verb.CANCEL),
        ([ValueError("no"), Snooze(5)], Verb.RETRY),
        ([ValueError("no"), Hopeless("never")], Verb.FAIL),
        ([Snooze(5), Hopeless("never")], Verb.FAIL),
        ([Retry("again"), Hopeless("never")], Verb.RETRY),
    ],
)
def test_of_a_group_the_strictest_word_counts(errors: list[Exception], verb: Verb) -> None:
    assert judge(group(*errors)).verb is verb
    assert judge(group(*reversed(errors))).verb is verb


def test_a_group_of_plain_errors_is_kept_whole() -> None:
    both = group(ValueError("one"), KeyError("two"))

    assert judge(both).error is both


def test_the_delay_of_a_retry_in_a_group_is_the_one_it_names() -> None:
    assert judge(group(ValueError("no"), group(Retry("again", delay_s=7)))).delay_s == 7


words = st.sampled_from([Fail("f"), Cancel("c"), Retry("r"), Snooze(1), ValueError("v"), Hopeless("h")])


@pytest.mark.slow("a hundred groups")
@given(st.lists(words, min_size=1, max_size=6), st.integers(0, 50), st.floats(0, 1, exclude_max=True))
def test_no_group_is_milder_than_its_strictest_word(errors: list[Exception], attempts: int, jitter: float) -> None:
    strictness = [Verb.SNOOZE, Verb.RETRY, Verb.CANCEL, Verb.FAIL]
    spoken = [error for error in errors if isinstance(error, Fail | Cancel | Retry | Snooze)]

    verdict = verdict_on(group(*errors), attempts=attempts, policy=POLICY, jitter=jitter)

    strictest = max((strictness.index(judge(error).verb) for error in spoken), default=0)
    assert strictness.index(verdict.verb) >= strictest
    assert 0 <= verdict.delay_s <= POLICY.cap_s
