"""URLs that a person typed."""

import pytest

from dynsched.util.proxies import parse_http_url


def test_a_scheme_may_be_left_out() -> None:
    for text in ("http://a:9000", "https://a/path"):
        assert parse_http_url(text).geturl() == text
    for text in ("a:9000", "[::1]:9000"):
        assert parse_http_url(text).geturl() == f"http://{text}"


@pytest.mark.parametrize(
    "text",
    ["", "ftp://a", "a:b", *("http:/a", "https:/a", "http//a"), "a:0", "a:99999", "u:p@a", "[::1"],
)
def test_what_is_no_url_is_refused(text) -> None:
    with pytest.raises(ValueError, match=r"URL|[Pp]ort"):
        parse_http_url(text)
