"""TLS contexts for our clients and servers, and errors about their files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from dynsched.util.files import fingerprint
from dynsched.util.formatting import one_line

File = str | Path | None


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Files of a server. With ``client_ca``, clients other than probes need a certificate of it."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class TlsFilesError(ValueError):
    """Files that are readable but not usable. The message is one line that names them."""


def fingerprints(*files: File) -> tuple[tuple[int, ...], ...]:
    """Values that change with the content of the files. Take them before loading the files, so that
    a change in between is noticed the next time. OSError names the file.
    """
    return tuple(fingerprint(file) for file in files if file)


def make_context(
    purpose: ssl.Purpose,
    *,
    cert: File = None,
    key: File = None,
    ca: File = None,
    ca_data: str = "",
    verify: bool = True,
) -> ssl.SSLContext:
    """A context from the current PEM files. Without ``ca`` or ``ca_data`` (its content), a client
    trusts the public CAs. Raises TlsFilesError, or an OSError that names the file.
    """
    try:
        context = ssl.create_default_context(purpose, cafile=ca, cadata=ca_data or None)
    except ssl.SSLError:
        where = f"the CA file {ca}" if ca else "the CA's data"
        raise TlsFilesError(f"{where} holds no certificate in PEM form") from None
    except OSError as error:
        error.filename = ca
        raise
    # As in Go, a CA without an authority key identifier (old kubeadm) is accepted.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert:
        _load_pair(context, cert, key)
    return context


def _load_pair(context: ssl.SSLContext, cert: str | Path, key: File) -> None:
    pair = f"the certificate {cert} with the key {key}"
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFilesError(f"{pair}: the key belongs to another certificate") from None
        why = one_line((error.reason or str(error)).replace("_", " ").lower())
        raise TlsFilesError(f"{pair} cannot be used ({why}); both must be PEM") from None
    except OSError as error:
        error.filename = cert
        raise
    except ValueError:
        raise TlsFilesError(
            f"{pair}: the key is encrypted; give one without a passphrase"
        ) from None


def _no_passphrase() -> str:
    # Without this callback OpenSSL would prompt on the terminal, and block.
    raise ValueError
