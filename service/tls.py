"""The certificate that the server shows."""

import ssl

from service.settings import Settings, flag


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """What connections are encrypted with; None: they are not.

    Raises:
        ValueError: there is a key without a certificate, or they do not belong together.
        OSError: a file cannot be read.
    """
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise ValueError(f"{flag('tls_key')} needs {flag('tls_cert')}, the key's certificate")
        return None
    for path in filter(None, (settings.tls_cert, settings.tls_key)):
        # OpenSSL does not say which file it is that is not there.
        with open(path, "rb"):
            pass
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password OpenSSL would ask for one, on a terminal that may not be there.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except ssl.SSLError as error:
        raise ValueError(
            f"{flag('tls_cert')} {settings.tls_cert} and {flag('tls_key')} {settings.tls_key} are "
            f"no certificate and its key in PEM, without a password ({error.reason or error})"
        ) from None
    return context
