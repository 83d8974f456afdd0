"""Addresses of sites and proxies: which are accepted, which mean the same, and that none is ever shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.addresses import normalised, proxy_problem, web_address_problem


@pytest.mark.parametrize(
    "address",
    ["http://a", "https://a.example:8443/x/y/", "HTTP://A", "http://[::1]:9696/1", "http://10.0.0.1", "https://ü.de"],
)
def test_addresses_of_sites_are_accepted(address: str) -> None:
    assert web_address_problem(address) is None


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        *(
            (text, "it is not the address of a site")
            for text in ("", "hunter2", "ftp://a", "//a/b", "http:a", "http://")
        ),
        *((text, "it is not the address") for text in ("http:///x", "http://:80/x", "http://a:x/", "http://a:65536")),
        *(
            (text, "it is not the address")
            for text in (
                "http://a b",
                "http://a\n",
                "http://[::1",
                "http://[::1]a",
                "http://[::g]",
                "http://.",
                "http://a..b",
                "http://a:",
                "http://a:0/",
                "http://a\\b",
            )
        ),
        ("http://me@a", "a user or password stands before the host"),
        ("http://me:hunter2@a", "a user or password stands before the host"),
        ("http://@a", "a user or password stands before the host"),
        ("http://a/api?apikey=hunter2", "a ? or # stands in it"),
        ("http://a/api#hunter2", "a ? or # stands in it"),
        ("http://a?", "a ? or # stands in it"),
    ],
)
def test_what_is_no_address_of_a_site_is_refused_with_the_reason(address: str, problem: str) -> None:
    told = web_address_problem(address) or ""

    assert told.startswith(problem)
    assert "hunter2" not in told


@pytest.mark.parametrize("address", ["http://gate:3128", "https://me:pw@gate/", "http://[::1]:1"])
def test_addresses_of_proxies_are_accepted(address: str) -> None:
    assert proxy_problem(address) is None


@pytest.mark.parametrize(
    "address", ["gate:1080", "socks5://gate:1080", "http://", "http://gate/path", "http://gate?x", "hunter2"]
)
def test_what_is_no_address_of_a_proxy_is_refused(address: str) -> None:
    assert (proxy_problem(address) or "").startswith("it is not the address of a proxy; write http or ")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a", "HTTP://A:80/"),
        ("https://a:443/x", "https://a/x//"),
        ("http://a./x", "http://a/x"),
        ("http://[::1]:80", "http://[::1]/"),
    ],
)
def test_two_ways_to_write_an_address_are_the_same(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    "other", ["https://a/x", "http://a:443/x", "http://b/x", "http://a/X", "http://a/x/y", "http://a"]
)
def test_other_addresses_are_not_the_same(other: str) -> None:
    assert normalised("http://a/x") != normalised(other)


@given(st.text(max_size=40) | st.text("htps:/@[]?#.%a1\\ ", max_size=40).map("http://{}".format))
def test_whatever_is_written_is_accepted_or_refused_and_what_is_accepted_stays_so(text: str) -> None:
    problems = web_address_problem(text), proxy_problem(text)

    if problems[0] is None:
        assert web_address_problem(normalised(text)) is None
        assert normalised(normalised(text)) == normalised(text)
