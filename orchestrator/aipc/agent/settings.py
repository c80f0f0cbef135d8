"""The table `[agent]` of a matrix: which model, in which mode, and within which bounds."""

from __future__ import annotations

import enum
import math
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from aipc.tables import decode
from runtimes.contract import Json, Misused

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"[!-~]+")
_SEEDS = 2**31


class Mode(enum.StrEnum):
    """When the agent works."""

    OFF = "off"
    REPAIR = "repair"
    DRIVE = "drive"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is asked of the agent and of its model.

    Attributes:
        mode: never, only after the rules are exhausted, or from the export on.
        base_url: of an OpenAI-compatible server, for instance `http://127.0.0.1:9997/v1`; "" for none.
        model: the name that this server knows the model by.
        key_variable: the environment variable that holds the server's key; where it is not set, no key is sent.
        steps: most decisions of a session.
        calls: most calls of the model.
        tokens: most tokens of prompts and answers together.
        seconds: most wall time of a session.
        cost: most that the tokens may cost, in the currency of the prices; 0 is no bound.
        price_in: of a million tokens of prompts.
        price_out: of a million tokens of answers.
        temperature: of the model, where the agent asks for no other.
        model_sha256: of local weights, so that a transcript says whose it is; "" where nobody knows.
        seed: of the model's sampling, sent with each call; 0 leaves it to the server.
    """

    mode: Mode = Mode.OFF
    base_url: str = ""
    model: str = ""
    key_variable: str = "AIPC_AGENT_KEY"
    steps: int = 20
    calls: int = 40
    tokens: int = 200_000
    seconds: int = 1800
    cost: float = 0.0
    price_in: float = 0.0
    price_out: float = 0.0
    temperature: float = 0.0
    model_sha256: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.base_url:
            _check_url(self.base_url)
            if not self.model:
                raise Misused("model: missing beside base_url; give the name that the server knows the model by")
        # Not shown: what is no name of a variable may be the key itself.
        if not _VARIABLE.fullmatch(self.key_variable):
            raise Misused("key_variable: no name of an environment variable; write the name, never the key itself")
        for name in ("steps", "calls", "tokens", "seconds"):
            if getattr(self, name) < 1:
                raise Misused(f"{name}: {getattr(self, name)} is not above 0; give a whole number from 1")
        if not 0 <= self.seed < _SEEDS:
            raise Misused(f"seed: {self.seed} is not from 0 to 2**31 - 1; give such a number")
        for name in ("cost", "price_in", "price_out", "temperature"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise Misused(f"{name}: {value} is not a number from 0; give one")
        if self.cost and not (self.price_in or self.price_out):
            raise Misused(f"cost: {self.cost} bounds nothing without prices; give price_in and price_out too")
        if self.model_sha256 and not _SHA256.fullmatch(self.model_sha256):
            raise Misused(
                f"model_sha256: {self.model_sha256!r} is not 64 hex digits in lower case; give the file's sha256"
            )


def from_table(table: Json, where: str) -> Settings:
    """Return the settings in `table`; without a mode it is `repair` where a base URL is given, else `off`.

    Args:
        table: what TOML gave for `[agent]`.
        where: the file, for errors.

    Raises:
        UsageError: something in it does not fit.
    """
    if isinstance(table, Mapping) and table.get("base_url") and "mode" not in table:
        table = {**table, "mode": Mode.REPAIR.value}
    return decode(Settings, table, where, "agent")


def _check_url(url: str) -> None:
    """Refuse what is no plain URL of a server; one that may hold a secret is not shown."""
    what = "base_url: "
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Misused(f"{what}no URL; give one such as http://127.0.0.1:9997/v1") from error
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise Misused(
            f"{what}holds a user, a password, a query or a fragment; leave it out, a key goes into key_variable"
        )
    if parts.scheme not in {"http", "https"}:
        raise Misused(
            f"{what}{url!r} begins with neither http:// nor https://; give one such as http://127.0.0.1:9997/v1"
        )
    if not parts.hostname or port == 0 or not _URL.fullmatch(url):
        raise Misused(
            f"{what}{url!r} names no host, or holds what a URL cannot; give one such as http://127.0.0.1:9997/v1"
        )
