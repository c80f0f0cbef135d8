"""A model behind an OpenAI-compatible server: a call is tried a few times, and never longer than the session lasts."""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import aipc
from aipc.agent.exchange import BAD_REQUEST, ENDED, ErrorAnswer, Identity, check_answer, parse_object
from aipc.agent.key import Key
from aipc.agent.route import find_route
from aipc.agent.settings import Settings
from aipc.errors import UsageError
from aipc.tables import one_line
from runtimes.contract import Json, Misused

TRIES = 4
FIRST_DELAY_SECONDS = 1.0
"""Doubled with each try; half of it to one and a half times of it are waited."""

LARGEST_ANSWER_BYTES = 16 << 20
CONNECT_SECONDS = 30.0

_WORDS = 300
_RANDOM = random.SystemRandom().random
_OURS_TO_BLAME = frozenset({400, 413, 415, 422})
_PASSING = frozenset({408, 409, 425, 429})


class _Again(Exception):
    """A try that failed in a way that the next may not; `seconds` is how long the server asks to wait."""

    def __init__(self, what: str, seconds: float = 0.0) -> None:
        super().__init__(what)
        self.seconds = seconds


class Upstream:
    """The server at `[agent] base_url`."""

    def __init__(
        self,
        settings: Settings,
        key: Key,
        *,
        sleep: Callable[[float], object] | None = None,
        jitter: Callable[[], float] = _RANDOM,
    ) -> None:
        """Connect to nothing yet.

        Args:
            settings: where the server is, and the model's name there.
            key: is sent with each call, if there is one.
            sleep: waits so many seconds; by default until `cut` at the latest.
            jitter: returns a number from 0 to 1.

        Raises:
            UsageError: the settings name no server, or the environment a proxy that is none.
        """
        if not settings.base_url:
            raise UsageError("[agent] base_url: missing; give the URL of an OpenAI-compatible server")
        self._settings, self._key, self._jitter = settings, key, jitter
        self._url = f"{settings.base_url.rstrip('/')}/chat/completions"
        self._route = find_route(self._url)
        self._cut = threading.Event()
        self._sleep = sleep or self._cut.wait
        self._socket: socket.socket | None = None

    @property
    def identity(self) -> Identity:
        """The model, its hash where the settings have one, and its server."""
        settings = self._settings
        return Identity(
            model=settings.model, model_sha256=settings.model_sha256, synthetic=False, base_url=settings.base_url
        )

    def answer(self, request: Mapping[str, Json], left: Callable[[], float]) -> Mapping[str, Json]:
        """Return the server's answer; see `exchange.ChatModel`."""
        content = json.dumps({**request, "model": self._settings.model}).encode()
        for tries in range(1, TRIES + 1):
            try:
                return self._try(content, left)
            except _Again as again:
                failed = again
            seconds = left()
            if self._cut.is_set():
                raise self._end("the session was closed while it was asked", "")
            if tries == TRIES:
                break
            delay = max(failed.seconds, FIRST_DELAY_SECONDS * 2 ** (tries - 1) * (0.5 + self._jitter()))
            if delay >= seconds:
                what = f"{failed}; the next try is {delay:.0f} s away, and {seconds:.0f} s are left of the session"
                raise self._end(what, "", tries)
            self._sleep(delay)
        raise self._end(str(failed), "check that the server runs and that [agent] base_url is its URL", TRIES)

    def cut(self) -> None:
        """End the call that another thread waits for, and all later ones."""
        self._cut.set()
        self._shut()

    def _try(self, content: bytes, left: Callable[[], float]) -> Mapping[str, Json]:
        try:
            with self._connected(left()) as connection:
                headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
                headers |= {"User-Agent": f"aipc/{aipc.__version__}", **self._key.header(), **self._route.headers}
                connection.request("POST", self._route.target, content, headers)
                with connection.getresponse() as response:
                    body = response.read(LARGEST_ANSWER_BYTES + 1)
        except ssl.SSLCertVerificationError as error:
            advice = "if it is your own server, name its authority's certificate by SSL_CERT_FILE"
            raise self._end(f"its certificate is not trusted: {self._words(error)}", advice) from None
        except (socket.gaierror, UnicodeError) as error:  # a name that no host can have is the latter
            raise _Again(f"its host cannot be found: {self._words(error)}") from None
        except (OSError, http.client.HTTPException) as error:
            raise _Again(f"the connection failed: {self._words(error)}") from None
        # A body that ends early raises nothing when only so many bytes of it were wanted.
        if response.length and len(body) <= LARGEST_ANSWER_BYTES:
            raise _Again(f"half an answer: {response.length} of {len(body) + response.length} bytes are missing")
        if response.status != http.client.OK:
            self._refuse(response, body)
        return self._checked(body)

    def _refuse(self, response: http.client.HTTPResponse, body: bytes) -> None:
        """Raise what a status other than 200 means."""
        status, words = response.status, self._said(body)
        what = f"{status} {self._words(response.reason)}{words and ': '}{words}"
        if status in _OURS_TO_BLAME:
            raise ErrorAnswer(BAD_REQUEST, "request", f"the model's server refuses this request: {what}")
        if status in _PASSING or status >= 500:
            raise _Again(what, _seconds(response.headers.get("Retry-After", "")))
        raise self._end(what, self._advice(status))

    def _advice(self, status: int) -> str:
        variable = self._settings.key_variable
        if status in {401, 403}:
            state = "holds a key that it does not take" if self._key else "is not set"
            return f"the variable {variable} ([agent] key_variable) {state}"
        if status == 404:
            return "check [agent] base_url, which often ends in /v1, and [agent] model"
        return "check [agent] base_url" if status < 500 else ""

    def _checked(self, body: bytes) -> Mapping[str, Json]:
        if len(body) > LARGEST_ANSWER_BYTES:
            raise _Again(f"an answer of more than {LARGEST_ANSWER_BYTES >> 20} MiB")
        try:
            answer = parse_object(body, "its answer")
        except Misused as error:
            raise _Again(f"{self._words(error)}; it begins {self._said(body)!r}") from None
        if wrong := check_answer(answer):
            raise _Again(f"{wrong}: {self._said(body)}")
        return answer

    def _said(self, body: bytes) -> str:
        """Return the words in the body of an error: OpenAI's `error.message`, else as it is."""
        text = body.decode("utf-8", "replace")
        try:
            error = parse_object(body, "").get("error")
        except Misused:
            error = None
        if isinstance(error, Mapping) and isinstance(error.get("message"), str):
            text = error["message"]
        return self._words(text)

    def _words(self, said: object) -> str:
        """Return foreign words on one line, cut; without the key first, or half of it could be left."""
        text = one_line(str(self._key.scrub(str(said)))).strip()
        return text if len(text) <= _WORDS else f"{text[:_WORDS]}…"

    def _end(self, what: str, advice: str, tries: int = 1) -> ErrorAnswer:
        counted = f" ({tries} tries)" if tries > 1 else ""
        return ErrorAnswer(ENDED, "upstream", f"{self._url}: {what}{counted}{advice and '; '}{advice}")

    @contextlib.contextmanager
    def _connected(self, seconds: float) -> Iterator[http.client.HTTPConnection]:
        """Connect, and cut the connection after so many seconds, however much comes through it by then."""
        connection = self._route.connection(min(seconds, CONNECT_SECONDS))
        timer = threading.Timer(seconds, self._shut)
        try:
            connection.connect()
            # Kept here, since a connection hands it to its response and forgets it.
            self._socket = connection.sock
            self._socket.settimeout(None)
            timer.start()
            if self._cut.is_set():
                raise ConnectionAbortedError("the session is closed")
            yield connection
        finally:
            timer.cancel()
            self._socket = None
            connection.close()

    def _shut(self) -> None:
        now = self._socket
        if now is not None:
            with contextlib.suppress(OSError):
                # Of the plain socket, so that a thread which reads TLS from it sees an end and no broken object.
                socket.socket.shutdown(now, socket.SHUT_RDWR)


def _seconds(retry_after: str) -> float:
    """Return how many seconds the header Retry-After asks for; 0 where it is missing or says nothing."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(0.0, at - time.time())
