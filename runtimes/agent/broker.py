"""The agent's one way out: a Unix socket, behind which the host asks the language model and does the jobs."""

from __future__ import annotations

import http.client
import json
import socket  # noqa: TID251 - a Unix socket, which the host has mounted; a job has no other way out
from collections.abc import Mapping
from pathlib import Path

from runtimes.contract import Json

CHAT = "/v1/chat/completions"
JOBS = "/jobs"
MOST_BYTES = 4 << 20
"""No answer is longer."""


class Gone(Exception):
    """Nothing can be had from the broker any more: it is not there, or does not speak as agreed."""


class Late(Exception):
    """There was no answer in time."""


class Rejected(Exception):
    """The broker's answer is an error.

    Attributes:
        status: of HTTP.
        kind: the broker's word for it, such as `budget`.
        message: what is wrong, in a sentence.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def post(path: Path, route: str, body: Mapping[str, Json], seconds: float) -> Mapping[str, Json]:
    """Return the broker's answer.

    Args:
        path: of its socket.
        route: `CHAT` or `JOBS`.
        body: what is asked.
        seconds: the longest wait for the next bytes.

    Raises:
        Rejected: it is an error.
        Late: the time is over.
        Gone: the connection failed, or what came is no answer.
    """
    if seconds <= 0:
        raise Late
    connection = _Connection(path, seconds)
    try:
        connection.request("POST", route, json.dumps(body).encode(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        status, content = response.status, response.read(MOST_BYTES + 1)
        # Told how much to read, http.client takes half an answer for a whole one.
        missing = response.length or 0
    except TimeoutError as error:
        raise Late from error
    except (OSError, http.client.HTTPException) as error:
        named = f"{type(error).__name__}: {error}"
        raise Gone(f"the broker's socket {path.name}: {named}; the host ended it, or it died") from error
    finally:
        connection.close()
    if missing and len(content) <= MOST_BYTES:
        raise Gone(f"the broker's answer ends {missing} bytes too early; the host ended it, or it died")
    return _read(status, content)


def _read(status: int, content: bytes) -> Mapping[str, Json]:
    try:
        # What is half a character becomes a question mark: a result could not hold it.
        data = plain(json.loads(content[: MOST_BYTES + 1]))
    except (ValueError, RecursionError) as error:
        raise Gone(f"the broker answered {status} with no JSON that can be used: {error}") from error
    if len(content) > MOST_BYTES or not isinstance(data, dict):
        raise Gone(f"the broker answered {status} with no JSON object of at most {MOST_BYTES} bytes")
    if status == http.HTTPStatus.OK:
        return data
    told = data.get("error")
    if not isinstance(told, dict) or not isinstance(told.get("message"), str):
        raise Gone(f"the broker answered {status} without saying why")
    raise Rejected(status, str(told.get("type", "")), told["message"])


def plain(data: Json) -> Json:
    """Return `data` as it can be written into a result: no half characters.

    Raises:
        ValueError: it holds NaN or an infinity.
    """
    whole = json.dumps(data, ensure_ascii=False, allow_nan=False)
    return json.loads(whole.encode("utf-8", "replace"))
