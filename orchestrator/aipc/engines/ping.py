"""Asks whether a Docker or Podman daemon answers, without the library that talks to it: that takes long to import."""

from __future__ import annotations

import http.client
import socket

PING_SECONDS = 2.0


def ping(address: str) -> str:
    """Return "" when a daemon of this machine answers at `address` within two seconds, else what is wrong.

    Jobs mount this machine's files, so only a socket of this machine will do.
    """
    scheme, _, path = address.partition("://")
    if scheme != "unix":
        return "it is no unix:// socket, and a daemon over the network cannot see this machine's files"
    connection = _UnixConnection(path)
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
