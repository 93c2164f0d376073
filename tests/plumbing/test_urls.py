"""URLs that a person typed."""

from __future__ import annotations

import pytest

from dynsched.plumbing.urls import parse_http_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://a:9000", "http://a:9000"),
        ("https://a/path", "https://a/path"),
        ("a:9000", "http://a:9000"),
        ("[::1]:9000", "http://[::1]:9000"),
    ],
)
def test_a_scheme_may_be_left_out(text: str, url: str) -> None:
    assert parse_http_url(text).geturl() == url


NO_URLS = [
    "",
    "ftp://a",
    "a:b",
    "http:/a",
    "https:/a",
    "http//a",
    "a:0",
    "a:99999",
    "u:p@a",
    "[::1",
]


@pytest.mark.parametrize("text", NO_URLS)
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"URL|[Pp]ort"):
        parse_http_url(text)
