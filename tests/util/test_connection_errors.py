"""The causes of connection failures: all HTTP clients of dynsched explain them alike."""

import errno
import http.client
import socket
import ssl

import pytest
import requests.exceptions
import urllib3.exceptions

from dynsched.util.connection_errors import Cause, ConnectionFailure, find_failure


def of_tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


def of_certificate(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "verify failed")
    error.verify_code, error.verify_message = code, "the reason"
    return error


CERTIFICATE = "TLS: its certificate is"
TUNNEL = OSError("Tunnel connection failed: 403 Forbidden")
FAILURES: dict[Cause, list[tuple[Exception, str]]] = {
    Cause.HOST: [(socket.gaierror(-2, "no name"), "cannot resolve its host name (no name)")],
    Cause.REFUSED: [(ConnectionRefusedError(111, "Connect call failed"), "connection refused")],
    Cause.TIMEOUT: [(TimeoutError(), "no answer in time")],
    Cause.BROKEN: [
        (error, "the connection broke")
        for error in (ConnectionResetError(), http.client.RemoteDisconnected(),
                      http.client.IncompleteRead(b""), ssl.SSLEOFError())
    ],
    Cause.NOT_HTTP: [(http.client.BadStatusLine("SSH"), Cause.NOT_HTTP.value)],
    Cause.NOT_TLS: [(of_tls("WRONG_VERSION_NUMBER"), Cause.NOT_TLS.value)],
    Cause.ALERT: [(of_tls("TLSV1_ALERT_UNKNOWN_CA"),
                   "TLS: the server refused the connection (unknown ca)")],
    Cause.TLS: [(of_tls("NO_CIPHERS"), "TLS failed (no ciphers)")],
    Cause.UNTRUSTED: [(of_certificate(19), f"{CERTIFICATE} not trusted (the reason)")],
    Cause.OTHER_HOST: [(of_certificate(62), f"{CERTIFICATE} for another host (the reason)")],
    Cause.INVALID: [(of_certificate(10), f"{CERTIFICATE} not valid (the reason)")],
    Cause.PROXY: [(TUNNEL, "the proxy refused to connect to it (403 Forbidden)")],
    Cause.SYSTEM: [(OSError(errno.EHOSTUNREACH, "No route to host"),
                    "the connection failed (No route to host)")],
}  # fmt: skip


@pytest.mark.parametrize("cause", FAILURES, ids=lambda cause: cause.name)
def test_each_error_has_a_cause_and_a_text(cause) -> None:
    for error, text in FAILURES[cause]:
        found = find_failure(error)
        assert found is not None
        assert (found.cause, str(found)) == (cause, text)


def test_the_cause_is_found_inside_the_exceptions_of_libraries() -> None:
    inner = ConnectionRefusedError(111, "Connection refused")
    wrapped = requests.exceptions.ConnectionError(
        urllib3.exceptions.MaxRetryError(None, "/", urllib3.exceptions.ProtocolError("x", inner))  # type: ignore[arg-type]
    )
    assert find_failure(wrapped) == ConnectionFailure(Cause.REFUSED)
    assert find_failure(KeyError("x")) is None
