"""One request at a time gets to the server, however a caller cuts what it sends."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynsched.api.transport import framing
from dynsched.api.transport.framing import (
    MAX_BYTES_AHEAD,
    MAX_HEAD_BYTES,
    MAX_HEAD_LINES,
    Framing,
    TooMuchError,
)

GET = b"GET /nodes HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /filter HTTP/1.1\r\nHost: x\r\ncontent-length:  5 \r\n\r\nhello"
CHUNKED = (
    b"POST /filter HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;what=ever\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
)
BARE = b"GET / HTTP/1.1\nHost: x\n\n"
REQUESTS = (GET, POST, CHUNKED, BARE)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


@given(
    st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=5),
    st.lists(st.integers(0), max_size=9),
)
def test_the_next_request_waits_for_the_answer(requests: list[bytes], cuts: list[int]) -> None:
    found = Framing()
    got = b"".join(found.take(piece) for piece in split(b"".join(requests), cuts))
    for number, request in enumerate(requests):
        assert got == request, number
        assert not found.in_head
        got = found.answered()
    assert got == b""
    assert not found.begun
    assert not found.ahead


@given(st.lists(st.integers(0), max_size=9))
def test_the_rest_of_a_body_that_is_answered_already_goes_through(cuts: list[int]) -> None:
    found = Framing()
    first, *others = split(POST + GET, [POST.index(b"hello") + 2, *cuts])
    got = found.take(first)
    got += found.answered()
    got += b"".join(found.take(piece) for piece in others)
    assert got == POST + GET


def test_empty_lines_before_a_request_are_no_request() -> None:
    found = Framing()
    assert found.take(b"\r\n\r\n") == b"\r\n\r\n"
    assert not found.begun
    assert found.take(GET[:9]) == GET[:9]
    assert found.begun
    assert found.in_head


CHUNKS = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = b"200\r\n" + b"x" * 512 + b"\r\n"


@pytest.mark.parametrize("step", [7, 5000, 1 << 20])
@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n", 431, "too long"),
        (b"GET / HTTP/1.1\r\n" + b"a:\r\n" * MAX_HEAD_LINES + b"\r\n", 431, "too long"),
        (GET + b"x" * (MAX_BYTES_AHEAD + 1), 400, "sent ahead"),
        (CHUNKS + b"1\r\nx\r\n" * 1000, 400, "chunks"),
        (CHUNKS + b"0\r\n" + b"x: y\r\n" * 1000, 400, "chunks"),
        (CHUNKS + b"1;" + b"e" * 2000, 400, "line before a chunk"),
    ],
)
def test_what_has_an_end(sent: bytes, status: int, said: str, step: int) -> None:
    found = Framing()
    pieces = [sent[start : start + step] for start in range(0, len(sent), step)]
    with pytest.raises(TooMuchError, match=said) as caught:
        list(map(found.take, pieces))
    assert caught.value.status == status


def test_what_is_as_long_as_it_may_be() -> None:
    rest = MAX_HEAD_BYTES - len(b"GET / HTTP/1.1\r\nX: \r\n\r\n")
    head = b"GET / HTTP/1.1\r\nX: " + b"y" * rest + b"\r\n\r\n"
    assert Framing().take(head) == head
    assert Framing().take(GET + b"x" * MAX_BYTES_AHEAD) == GET
    found = Framing()
    assert found.take(CHUNKS + LARGE)
    for _ in range(10_000):  # chunks of more than a byte have no end
        found.take(LARGE)
    assert framing.MAX_BYTES_AHEAD >= framing.MAX_HEAD_BYTES


def test_what_is_no_chunk_is_for_the_server_to_refuse() -> None:
    found = Framing()
    junk = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nmore"
    assert found.take(junk) == junk
    assert found.take(GET) == GET


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_any_bytes(pieces: list[bytes]) -> None:
    found, kept = Framing(), 0
    try:
        for piece in pieces:
            kept += len(piece) - len(found.take(piece))
            kept -= len(found.answered())
    except TooMuchError:
        return
    assert kept >= 0
