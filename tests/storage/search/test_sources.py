"""Which sources there are; and that renaming, removing and adding one again never forgets what was spent."""

from __future__ import annotations

from datetime import time

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from cormorant.rules.errors import AlreadyExists
from cormorant.rules.search.limits import SourceLimits
from cormorant.rules.search.reservations import Reserved, SourceClosedNow
from cormorant.rules.secrets import Secret
from cormorant.rules.units import zone_of
from storage.search import sources
from storage.search.source_rows import dump_limits, load_limits
from storage.search.sources import BY_COMMAND, CONFIGURED, AddressInUse, UnknownSource
from tests.storage.job_store import NOW, at
from tests.storage.search.test_source_states import undone
from tests.storage.source_store import add_source, ask, end, look, record_of, spend

ONE_A_DAY = SourceLimits(spacing_s=0, pace_s=0, per_day=1)


def names(connection: Connection) -> list[str]:
    """Those in use."""
    return [source.name for source in sources.all_sources(connection)]


def test_a_source_is_given_back_as_it_was_added(connection: Connection) -> None:
    limits = SourceLimits(per_day=300, reset=time(4, 30), reset_zone=zone_of("Europe/Berlin"))
    record = record_of(key=Secret("sesame"), proxy=Secret("http://p"), limits=limits)

    added = sources.add(connection, record, now=NOW)

    assert sources.find(connection, "a") == added
    assert evolve(added, id=0) == record
    assert added.key.reveal() == "sesame"


def test_two_sources_cannot_have_one_name_nor_one_account(connection: Connection) -> None:
    add_source(connection, "a")

    with pytest.raises(AlreadyExists, match="choose another name"):
        add_source(connection, "a", identity="http://other.test")
    with pytest.raises(AddressInUse, match="in use already as 'a'"):
        add_source(connection, "b", identity="http://a.test")


def test_an_unknown_source_is_named_with_those_that_are_there(connection: Connection) -> None:
    add_source(connection, "a")

    with pytest.raises(UnknownSource, match="there are a"):
        sources.find(connection, "b")
    with pytest.raises(UnknownSource):
        sources.remove(connection, "b", now=NOW)


def test_a_source_that_was_removed_and_comes_back_under_another_name_goes_on_from_what_was_spent(
    connection: Connection,
) -> None:
    source = add_source(connection, "a", limits=ONE_A_DAY)
    end(connection, source, spend(connection, source, limits=ONE_A_DAY), limits=ONE_A_DAY)

    sources.remove(connection, "a", now=at(1))
    gone = names(connection)
    again = sources.add(connection, record_of("b", identity="http://a.test"), now=at(2))

    assert (gone, names(connection), again.id) == ([], ["b"], source)
    assert isinstance(ask(connection, again.id, now=at(3), limits=ONE_A_DAY), SourceClosedNow)
    assert isinstance(ask(connection, again.id, now=at(86_400), limits=ONE_A_DAY), Reserved)


def test_a_source_may_be_renamed_and_reached_differently(connection: Connection) -> None:
    source = add_source(connection, "a")
    spend(connection, source)

    changed = sources.change(connection, evolve(sources.find(connection, "a"), name="b", url="http://x"), now=at(1))

    assert (changed.id, names(connection)) == (source, ["b"])
    assert look(connection, source).state.query.last_seq == 1


def test_a_source_is_not_renamed_to_a_name_that_is_taken(connection: Connection) -> None:
    add_source(connection, "a")
    add_source(connection, "b")

    with pytest.raises(AlreadyExists, match="'b'"):
        sources.change(connection, evolve(sources.find(connection, "a"), name="b"), now=at(1))


def test_a_source_that_is_another_account_now_begins_anew_and_the_old_one_is_kept_apart(connection: Connection) -> None:
    source = add_source(connection, "a")
    spend(connection, source)

    other = sources.change(connection, evolve(sources.find(connection, "a"), identity="other"), now=at(1))
    back = sources.change(connection, evolve(other, identity="http://a.test"), now=at(2))

    assert (other.id != source, back.id, names(connection)) == (True, source, ["a"])
    assert look(connection, other.id).state.query.last_seq == 0
    assert look(connection, source).state.query.last_seq == 1


def test_the_configured_sources_become_those_of_the_file_and_the_others_are_left_alone(connection: Connection) -> None:
    add_source(connection, "mine")
    sources.set_configured(connection, [record_of("a"), record_of("b")], now=NOW)
    first = {each.name: each.id for each in sources.all_sources(connection)}

    sources.set_configured(
        connection, [record_of("a", limits=ONE_A_DAY), record_of("c", identity="http://b.test")], now=at(1)
    )

    found = {each.name: each for each in sources.all_sources(connection)}
    assert {name: each.origin for name, each in found.items()} == {
        "a": CONFIGURED,
        "c": CONFIGURED,
        "mine": BY_COMMAND,
    }
    assert (found["a"].id, found["c"].id) == (first["a"], first["b"])
    assert found["a"].limits == ONE_A_DAY


def test_two_configured_sources_may_swap_their_names(connection: Connection) -> None:
    sources.set_configured(connection, [record_of("a"), record_of("b")], now=NOW)
    before = {each.name: each.id for each in sources.all_sources(connection)}

    swapped = [record_of("a", identity="http://b.test"), record_of("b", identity="http://a.test")]
    sources.set_configured(connection, swapped, now=at(1))

    after = {each.name: each.id for each in sources.all_sources(connection)}
    assert after == {"a": before["b"], "b": before["a"]}


def test_what_a_source_can_do_is_kept(connection: Connection) -> None:
    source = add_source(connection)
    before = sources.caps(connection, source)

    sources.set_caps(connection, source, {"search": ["q"]}, now=at(5))

    assert (before, sources.caps(connection, source)) == (None, ({"search": ["q"]}, at(5)))


CHANGES = st.lists(
    st.tuples(st.sampled_from(["remove", "add", "rename", "configure", "spend"]), st.sampled_from(["a", "b", "c"])),
    max_size=25,
)


@pytest.mark.slow("many statements for each example")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES)
def test_whatever_becomes_of_its_name_an_account_never_forgets_what_was_spent(
    connection: Connection, changes: list[tuple[str, str]]
) -> None:
    with undone(connection):
        spent, source = 0, add_source(connection, "a", identity="one account")
        for number, (kind, name) in enumerate(changes):
            record = record_of(name, identity="one account")
            there = names(connection)
            if kind == "remove" and there:
                sources.remove(connection, there[0], now=at(number))
            elif kind == "add" and not there:
                assert sources.add(connection, record, now=at(number)).id == source
            elif kind == "rename" and there:
                sources.change(connection, evolve(sources.find(connection, there[0]), name=name), now=at(number))
            elif kind == "configure":
                sources.set_configured(connection, [record], now=at(number))
            elif kind == "spend":
                end(connection, source, spend(connection, source, now=at(number)), now=at(number))
                spent += 1
            assert look(connection, source).state.query.last_seq == spent
            assert len(names(connection)) <= 1


COUNT = st.none() | st.integers(1, 1_000_000)


@pytest.mark.slow("a hundred examples")
@given(
    st.builds(
        SourceLimits,
        spacing_s=st.floats(0, 86_400),
        pace_s=st.floats(0, 86_400),
        per_minute=COUNT,
        per_hour=COUNT,
        per_day=COUNT,
        per_month=COUNT,
        grabs_per_hour=COUNT,
        grabs_per_day=COUNT,
        grabs_per_month=COUNT,
        reset=st.none() | st.times(),
        reset_zone=st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns"]).map(zone_of),
        in_flight_max=st.integers(1, 1_000_000),
        reserve_interactive=st.floats(0, 0.9),
    )
)
def test_limits_come_back_exactly_as_they_were(limits: SourceLimits) -> None:
    assert load_limits(dump_limits(limits)) == limits


def test_a_source_of_other_settings_is_not_usable_and_keys_come_from_the_own_settings(connection: Connection) -> None:
    own, other = record_of("own", key=Secret("own-key")), record_of("other", key=Secret("other-key"))
    sources.set_configured(connection, [own, other], now=NOW)
    sources.add(connection, record_of("added", key=Secret("added-key")), now=NOW)

    usable = sources.usable_sources(connection, [own])

    assert [(each.name, each.key.reveal()) for each in usable] == [("added", "added-key"), ("own", "own-key")]
    assert {each.name: each.key.reveal() for each in sources.all_sources(connection)} == {
        "added": "added-key",
        "other": "",
        "own": "",
    }
