"""Asks whether a Docker or Podman daemon answers, without the library that talks to it: that takes long to import."""

from __future__ import annotations

import http.client
import socket

PING_SECONDS = 2.0


def ping(address: str) -> str:
    """Return "" when a daemon answers at `address` within two seconds, else what is wrong."""
    scheme, _, rest = address.partition("://")
    if scheme == "unix":
        connection: http.client.HTTPConnection = _UnixConnection(rest)
    elif scheme in {"tcp", "http"}:
        connection = http.client.HTTPConnection(rest.rstrip("/"), timeout=PING_SECONDS)
    else:
        return "only unix:// and tcp:// are looked at; to use it all the same: --engine docker"
    try:
        connection.request("GET", "/_ping")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
    finally:
        connection.close()
    return "" if status == http.HTTPStatus.OK else f"answered with status {status}"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PING_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PING_SECONDS)
        self.sock.connect(self._path)
