"""The bound of a stop follows from the tree, and a stop in which every child overruns its grace keeps it."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
from trio.testing import MockClock

from actors.actor import ServedActor
from cormorant.rules.errors import SettingsError
from cormorant.rules.settings.service import NotifySettings
from cormorant.rules.settings.settings import JobSettings, ServiceSettings, Settings
from cormorant.rules.settings.watch import WatchlistSettings
from cormorant.rules.supervision import Place, may_wait_for
from supervisors import ChildSpec, OnExhausted, Supervisor
from supervisors.child import stop_bound_s
from tests.architecture import EVERYTHING, root_of
from tests.supervisors.probes import Journal, Script, StoppableProbe


@pytest.fixture
def journal() -> Journal:
    return Journal()


def stubborn(journal: Journal, name: str, grace_s: float) -> ChildSpec:
    probe = StoppableProbe(journal, name, Script(stop_s=10_000.0))
    return ChildSpec(name, probe, grace_s=grace_s, on_exhausted=OnExhausted.SET_ASIDE)


def stubborn_copy(supervisor: Supervisor, journal: Journal) -> tuple[Supervisor, list[Supervisor]]:
    """The same tree with children that never end by themselves, and all supervisors in it."""
    specs, below = list[ChildSpec](), list[Supervisor]()
    for spec in supervisor.specs:
        if isinstance(spec.run, Supervisor):
            run, deeper = stubborn_copy(spec.run, journal)
            below += deeper
            specs.append(ChildSpec(spec.name, run, grace_s=spec.grace_s))
        else:
            specs.append(stubborn(journal, spec.name, spec.grace_s))
    copy = Supervisor(specs, stop_total_s=supervisor.stop_total_s)
    return copy, [copy, *below]


def test_a_child_with_a_longer_grace_lengthens_the_bound(journal: Journal) -> None:
    children = [stubborn(journal, "a", 1.0), stubborn(journal, "b", 0.7)]
    below = Supervisor(children, name="below", added_s=2.0)

    assert below.stop_total_s == 3.7
    assert stop_bound_s([*children, ChildSpec("below", below)]) == 5.4
    assert stop_bound_s([*children, stubborn(journal, "c", 60.0)], added_s=2.0) == 63.7


@pytest.mark.slow("puts whole trees together")
def test_the_bound_of_the_service_follows_its_settings_and_its_children() -> None:
    usual, without = root_of(EVERYTHING).graces_s, root_of(attrs.evolve(EVERYTHING, notify=NotifySettings())).graces_s
    patient = attrs.evolve(
        EVERYTHING,
        service=ServiceSettings(stop_total_s=900.0),
        jobs=JobSettings(grace_s=JobSettings().grace_s + 100.0),
        watchlist=WatchlistSettings(shutdown_grace_s=WatchlistSettings().shutdown_grace_s + 1.0),
    )

    assert root_of(patient).graces_s == pytest.approx(usual + 101.0)
    [notifier] = [spec for spec in root_of(EVERYTHING).specs if spec.name == "notifier"]
    assert usual == pytest.approx(without + notifier.grace_s)


def test_a_service_with_every_child_stops_within_the_default() -> None:
    assert root_of(EVERYTHING).graces_s <= Settings().service.stop_total_s


@pytest.mark.slow("puts whole trees together")
def test_a_stop_that_is_shorter_than_its_bound_by_a_millisecond_is_refused() -> None:
    bound_s = root_of(EVERYTHING).graces_s
    just, short = (ServiceSettings(stop_total_s=round(bound_s - less_s, 6)) for less_s in (0.0, 0.001))

    assert root_of(attrs.evolve(EVERYTHING, service=just)).stop_total_s == bound_s
    with pytest.raises(SettingsError, match=r"service.stop_total: .* jobs 7.5s, .*; allowed: at least "):
        root_of(attrs.evolve(EVERYTHING, service=short))


async def test_a_stop_in_which_every_child_overruns_takes_exactly_the_bound(clock: MockClock, journal: Journal) -> None:
    tree = root_of(EVERYTHING)
    root, supervisors = stubborn_copy(tree, journal)

    async with root:
        for number, supervisor in enumerate(supervisors[1:]):  # each gets the children that it leaves room for
            left_s = supervisor.stop_total_s - supervisor.graces_s
            for twin in range(2):
                await supervisor.start_child(stubborn(journal, f"late {number} {twin}", left_s))
        report = await root.stop()

    assert report.took_s == pytest.approx(tree.graces_s, abs=1e-9)
    patient = {spec.name for each in supervisors for spec in each.specs if spec.grace_s}
    nested = {spec.name for each in supervisors for spec in each.specs if isinstance(spec.run, Supervisor)}
    assert {name.rpartition("/")[2] for name in report.forced} == patient - nested


def places_in(supervisor: Supervisor) -> Iterator[tuple[str, Place | None]]:
    for spec in supervisor.specs:
        if isinstance(spec.run, Supervisor):
            yield from places_in(spec.run)
        elif isinstance(spec.run, ServedActor):
            address = vars(spec.run)["_address"]
            yield address.name, address.place


def test_the_actors_of_the_service_may_wait_only_for_those_before_them() -> None:
    root = root_of(EVERYTHING)
    places = dict(places_in(root))
    order = list(places)

    assert {"dispatcher", "job_runner", "web", "price_ticker"} <= places.keys()
    assert all(place is not None and place.root is root for place in places.values())
    assert [
        (waiter, target)
        for waiter in order
        for target in order
        if may_wait_for(places[waiter], places[target]) != (order.index(target) < order.index(waiter))
    ] == []
