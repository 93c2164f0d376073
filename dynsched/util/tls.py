"""TLS contexts, for what we ask and for what we serve; what is wrong with a file."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from dynsched.util.files import fingerprint
from dynsched.util.formatting import one_line

File = str | Path | None


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """To serve with. With ``client_ca`` callers need a certificate of it, but for probes."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class TlsFilesError(ValueError):
    """Files that can be read, but not used. The message is a line that names them."""


def fingerprints(*files: File) -> tuple[tuple[int, ...], ...]:
    """Differ when the content of one of the files does. OSError, which names the file. To be taken
    before the files are loaded, so that a change in between is seen the next time.
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
    """A context with these PEM files, as they are now; without a CA (``ca_data``: its content), a
    client trusts the public authorities. TlsFilesError, or an OSError that names the file.
    """
    try:
        context = ssl.create_default_context(purpose, cafile=ca, cadata=ca_data or None)
    except ssl.SSLError:
        where = f"the CA file {ca}" if ca else "the CA's data"
        raise TlsFilesError(f"{where} holds no certificate in PEM form") from None
    except OSError as error:
        error.filename = ca
        raise
    # As Go: a CA without an authority key identifier (old kubeadm) is still a CA.
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
    # Without this OpenSSL asks at the terminal, and whoever waits hangs.
    raise ValueError
