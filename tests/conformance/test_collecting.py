"""Prices on the mock clock: each source asked in its turn, through its gates, and what its answer means for the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
from sqlalchemy import Connection
from trio.testing import MockClock

from cormorant.rules.errors import CommitUnknown, CormorantError, NotFound, SetInFile
from cormorant.rules.jobs.states import JobState
from cormorant.rules.search.outcomes import CredentialsRefused, SourceRefused
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.search.reservations import pause
from cormorant.rules.settings.watch import PriceSettings, options_from
from cormorant.rules.watch.prices import PriceAlert, PriceCollected, PriceLeftOut, PriceValued
from cormorant.testing import BROKEN, ScriptedSource, named_sources
from storage.jobs.reports import JobView
from storage.search import source_states
from storage.search.sources import SourceRecord
from storage.watch.prices import Collected
from storage.watch.watches import WatchTakenOut
from supervisors import Service
from tests.conformance.searching import SearchPlace, search_place


class Shop(ScriptedSource):
    """Sells what is in stock, unless the script has an error."""

    def __init__(self, *script: Any, stock: Sequence[tuple[str, int]] = (("Morgan Dollar", 100),)) -> None:
        super().__init__(*script)
        self.stock = list(stock)
        self.unusable: tuple[Result, ...] = ()

    async def __call__(self, source: SourceRecord, request: SearchRequest) -> SearchPage:
        await super().__call__(source, request)
        return SearchPage(results=tuple(sold(title, cents) for title, cents in self.stock) + self.unusable)


def sold(title: str, cents: int) -> Result:
    said = {"price_cents": (str(cents),), "price_type": ("sold",), "price_id": (f"{title} {cents}",)}
    return Result(title=title, guid=title, link="", protocol="web", attributes=said)


def service_of(place: SearchPlace, **chosen: Any) -> Service:
    named = named_sources(*place.sources, spacing_s=0.0, pace_s=0.0)
    kinds = {name: attrs.evolve(each, kind="prices") for name, each in named.items()}
    return place.service(**{"sources": kinds} | chosen)


async def job_of(service: Service, number: int = 1) -> JobView:
    return await service.jobs.show(number)


@pytest.mark.slow("a whole service")
async def test_sources_are_asked_two_seconds_apart_and_what_they_state_is_valued(clock: MockClock) -> None:
    with search_place(a=Shop(), b=Shop(stock=[("Morgan Dollar", 300)]), c=Shop(stock=[])) as place:
        async with service_of(place) as service:
            await service.prices.add("coin", PriceSettings(title="Morgan  Dollar", year="1881", above="1.50"))
            await trio.sleep(10)
            view = await service.prices.show("coin")
            history = await service.prices.history("coin")
            jobs = [await job_of(service, number) for number in (1, 2, 3)]

    asked = [round(source.asked_at[0]) for source in place.sources.values()]
    assert asked == [0, 2, 4]
    assert place.sources["a"].requests == [SearchRequest(query="Morgan Dollar", params={"year": "1881"})]
    assert view.valuation is not None
    assert (view.valuation.cents, view.valuation.points, len(view.points)) == (200, 2, 2)
    assert [each.cents for each in history] == [200, 100]
    assert [job.state for job in jobs] == [JobState.SUCCEEDED] * 3, "an empty answer is an answer"
    assert [(each.source, each.points) for each in place.events.of(PriceCollected)] == [("a", 1), ("b", 1), ("c", 0)]
    assert [each.cents for each in place.events.of(PriceValued)] == [100, 200]
    assert [(each.side, each.cents) for each in place.events.of(PriceAlert)] == [("above", 200)]


@pytest.mark.slow("a whole service")
@pytest.mark.parametrize("is_written", [False, True])
async def test_an_alert_whose_commit_is_in_doubt_is_told_once(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    with search_place(a=Shop()) as place:
        run, cut = place.gateway.run, list[float]()

        async def cut_once(function: Callable[..., Any], *args: Any, **words: Any) -> Any:
            def undone(connection: Connection, *args: Any, **words: Any) -> Any:
                with connection.begin_nested() as step:
                    done = function(connection, *args, **words)
                    if isinstance(done, Collected) and not is_written:
                        step.rollback()
                return done

            done = await run(function if cut else undone, *args, **words)
            if isinstance(done, Collected) and not cut:
                cut.append(trio.current_time())
                raise CommitUnknown("the line was cut")
            return done

        monkeypatch.setattr(place.gateway, "run", cut_once)
        async with service_of(place) as service:
            await service.prices.add("coin", PriceSettings(title="Morgan Dollar", below="1.50"))
            await trio.sleep(60)
            view = await service.prices.show("coin")

    assert (len(cut), len(view.points), len(view.alerts)) == (1, 1, 1)
    assert [(each.side, each.cents) for each in place.events.of(PriceAlert)] == [("below", 100)]


@pytest.mark.slow("a whole service")
async def test_what_is_no_price_is_told_also_when_it_comes_from_the_cache_and_the_others_go_on(
    clock: MockClock,
) -> None:
    shop = Shop()
    bad = Result(title="x", guid="x", link="", protocol="web", attributes={"price_problem": ('"x" is no price',)})
    shop.unusable = (bad, bad, attrs.evolve(bad, attributes={"price_problem": ("-5 is no price",)}))
    with search_place(a=shop) as place:
        async with service_of(place) as service:
            for name in ("one", "two"):
                await service.prices.add(name, PriceSettings(title="Morgan Dollar"))
                await trio.sleep(10)
            values = [view.valuation and view.valuation.cents for view in await service.prices.all_views()]

    assert (len(shop.asked_at), values) == (1, [100, 100])
    assert [(each.price, each.items, each.why) for each in place.events.of(PriceLeftOut)] == [
        ("one", 3, '"x" is no price; -5 is no price'),
        ("two", 3, '"x" is no price; -5 is no price'),
    ]


@pytest.mark.slow("a whole service")
async def test_what_was_answered_lately_is_not_asked_again_and_a_second_job_joins(clock: MockClock) -> None:
    with search_place(a=Shop()) as place:
        async with service_of(place) as service:
            await service.prices.add("one", PriceSettings(title="Morgan Dollar"))
            assert (await service.prices.check("one")).name == "one"
            await service.prices.add("two", PriceSettings(title="MORGAN dollar"))
            await trio.sleep(10)
            values = [view.valuation and view.valuation.cents for view in await service.prices.all_views()]

    assert len(place.sources["a"].asked_at) == 1, "one key in the cache"
    assert values == [100, 100]


@pytest.mark.slow("a whole service")
@pytest.mark.parametrize(
    ("error", "state", "next_state"),
    [
        (CredentialsRefused("bad key"), JobState.FAILED, JobState.FAILED),
        (SourceRefused("no such thing"), JobState.FAILED, JobState.SUCCEEDED),
        (BROKEN, JobState.RETRYABLE, JobState.SUCCEEDED),
    ],
)
async def test_what_a_source_says_decides_about_the_job(
    clock: MockClock, error: Exception, state: JobState, next_state: JobState
) -> None:
    with search_place(a=Shop(error, [])) as place:
        async with service_of(place) as service:
            await service.prices.add("one", PriceSettings(title="Morgan Dollar"))
            await trio.sleep(10)
            first = await job_of(service, 1)
            await service.prices.add("two", PriceSettings(title="Peace Dollar"))
            await trio.sleep(10)
            second = await job_of(service, 2)

    assert (first.state, second.state) == (state, next_state)
    if isinstance(error, CredentialsRefused):
        assert len(place.sources["a"].asked_at) == 1, "a dead key is not tried again"


@pytest.mark.slow("half an hour of a service")
async def test_a_paused_source_is_asked_when_its_pause_ends(clock: MockClock) -> None:
    with search_place(a=Shop()) as place:
        async with service_of(place) as service:
            await trio.sleep(1)
            record = service.sources.directory.by_name["a"].record
            until = place.clock.now().replace(minute=30, second=0, microsecond=0)
            await service.transaction(
                source_states.change,
                record.id,
                lambda source: pause(source, until=until),
                configured=record.limits,
            )
            await service.prices.add("one", PriceSettings(title="Morgan Dollar"))
            await trio.sleep(60)
            waiting = await job_of(service)
            await trio.sleep(1800)
            done = await job_of(service)

    assert (waiting.state, waiting.attempts, waiting.run_at) == (JobState.PENDING, 0, until)
    assert (done.state, done.attempts) == (JobState.SUCCEEDED, 0)
    assert [round(at) for at in place.sources["a"].asked_at] == [1800]


@pytest.mark.slow("a whole service")
async def test_a_source_that_is_unknown_disabled_or_no_shop_fails_the_job(clock: MockClock) -> None:
    with search_place(a=Shop()) as place:
        named = named_sources("a", "b", spacing_s=0.0)
        off = {"a": named["a"], "b": attrs.evolve(named["b"], kind="prices", enabled=False)}
        async with service_of(place, sources=off) as service:
            await service.prices.add("one", PriceSettings(title="Morgan Dollar", search=("b",)))
            [one] = await service.prices.all_views()
            payloads: list[Any] = [{"intake": one.intake.id, "source": name} for name in ("nobody", "a")]
            for payload in [*payloads, {"intake": True}, {"intake": 77, "source": "a"}]:
                await service.enqueue("collect", payload)
            await trio.sleep(10)
            jobs = [await job_of(service, number) for number in range(1, 6)]

    assert [job.state for job in jobs] == [JobState.FAILED] * 4 + [JobState.CANCELLED]
    assert place.sources["a"].asked_at == []


@pytest.mark.slow("ten minutes of two services")
async def test_those_of_the_settings_file_are_asked_at_their_time(clock: MockClock) -> None:
    said = {"coin": PriceSettings(title="Morgan Dollar", every_s=600.0, below="150.00", search=("a",))}
    with search_place(a=Shop()) as place:
        async with service_of(place, prices=said) as service:
            await trio.sleep(590)
            early = len(place.events.of(PriceCollected))
            await trio.sleep(50)
            with pytest.raises(SetInFile, match=r"prices\.coin"):
                await service.prices.remove("coin")
        async with service_of(place) as service:
            await trio.sleep(700)
            idle = await service.prices.show("coin")
            with pytest.raises(WatchTakenOut, match=r"prices\.coin"):
                await service.prices.check("coin")
            await service.prices.remove("coin")
            with pytest.raises(NotFound):
                await service.prices.show("coin")

    assert idle.valuation is not None, "what was collected stays until it is removed by hand"
    assert (early, len(place.events.of(PriceCollected))) == (1, 2)
    assert len(place.sources["a"].asked_at) == 1, "what was answered within the hour is in the cache"
    assert [(each.side, each.limit_cents) for each in place.events.of(PriceAlert)] == [("below", 15_000)]


@pytest.mark.slow("half an hour of a service")
async def test_one_that_is_paused_is_asked_by_hand_only_until_it_is_resumed(clock: MockClock) -> None:
    with search_place(a=Shop(BROKEN, [])) as place:
        async with service_of(place) as service:
            await service.prices.add("one", PriceSettings(title="Morgan Dollar", every_s=300.0))
            await trio.sleep(10)
            await service.prices.pause("one")
            await trio.sleep(1000)
            retried = await job_of(service)
            asked = [len(place.sources["a"].asked_at)]
            await service.prices.check("one")
            await trio.sleep(10)
            asked.append(len(place.sources["a"].asked_at))
            await service.prices.resume("one")
            await trio.sleep(60)

    assert retried.state is JobState.CANCELLED, "what waited for its next attempt is not asked either"
    assert asked == [1, 2]
    assert len(place.events.of(PriceCollected)) == 2


@pytest.mark.slow("a whole service")
async def test_what_cannot_be_watched_is_told(clock: MockClock) -> None:
    told: list[str] = []
    wrong: list[dict[str, Any]] = [
        {"name": "No Name"},
        {"name": "taken"},
        {"every_s": 1.0},
        {"search": ["b"]},
        {"currency": "Taler"},
    ]
    with search_place(a=Shop()) as place:
        async with service_of(place) as service:
            await service.prices.add("taken", PriceSettings(title="x"))
            for words in wrong:
                try:
                    options = options_from(PriceSettings, {"title": "Morgan"} | words)
                    await service.prices.add(words.get("name", "free"), options)
                except CormorantError as refused:
                    told.append(str(refused))

    expected = [
        "name: ",
        "'taken' already",
        "every: 1s is out of range; allowed: 1m to 365d",
        "no source of prices 'b'; there are a",
        "currency",
    ]
    assert [words in text for words, text in zip(expected, told, strict=True)] == [True] * len(expected)
