"""How a URL is reached: directly, or through the proxy that the environment names, as other programs do."""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from aipc.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Route:
    """How to ask for a URL.

    Attributes:
        host: to connect to: the URL's, or the proxy's.
        port: of that host; None for the usual one.
        tunnel: host and port to ask an HTTP proxy for, None where there is none or it forwards by itself.
        secure: TLS is spoken, with the URL's own host.
        target: of the request line.
        headers: of the request, for the proxy.
        tunnel_headers: of the request for the tunnel.
    """

    host: str
    port: int | None
    tunnel: tuple[str, int | None] | None
    secure: bool
    target: str
    headers: Mapping[str, str]
    tunnel_headers: Mapping[str, str]

    def connection(self, seconds: float) -> http.client.HTTPConnection:
        """Return a connection that is not made yet; making it takes so many seconds at most."""
        made = (
            http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=ssl.create_default_context())
            if self.secure
            else http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        )
        if self.tunnel:
            made.set_tunnel(*self.tunnel, headers=dict(self.tunnel_headers))
        return made


def find_route(url: str) -> Route:
    """Return how to ask for `url`: through the proxy of `http_proxy` and `https_proxy` but for hosts in `no_proxy`.

    Raises:
        UsageError: such a variable holds no URL of an HTTP proxy.
    """
    parts = urllib.parse.urlsplit(url)
    host, secure, path = parts.hostname or "", parts.scheme == "https", parts.path or "/"
    named = urllib.request.getproxies().get(parts.scheme, "")
    if not named or urllib.request.proxy_bypass(parts.netloc):
        direct: Mapping[str, str] = {}
        return Route(
            host=host, port=parts.port, tunnel=None, secure=secure, target=path, headers=direct, tunnel_headers=direct
        )
    proxy = urllib.parse.urlsplit(named if "://" in named else f"http://{named}")
    try:
        port = proxy.port
    except ValueError:
        port = 0
    if proxy.scheme != "http" or not proxy.hostname or port == 0:
        # Not shown: it may hold a password.
        raise UsageError(
            f"{parts.scheme}_proxy: no URL of an HTTP proxy; give one such as http://proxy:3128, or unset it"
        )
    user = f"{urllib.parse.unquote(proxy.username or '')}:{urllib.parse.unquote(proxy.password or '')}"
    shown = {"Proxy-Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if proxy.username else {}
    return Route(
        host=proxy.hostname,
        port=port or 80,
        tunnel=(host, parts.port) if secure else None,
        secure=secure,
        target=path if secure else url,
        headers={} if secure else shown,
        tunnel_headers=shown if secure else {},
    )
