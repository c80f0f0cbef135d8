"""The key of the model's server: it comes from a variable, goes into one header, and out of all else it is taken."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping

from aipc.errors import UsageError
from runtimes.contract import Json

STARS = "***"
"""What stands in the place of a key."""

_LEAST = 8
_KEY = re.compile(rf"[A-Za-z0-9._~+/=:-]{{{_LEAST},}}")


class Key:
    """A key, or none where its value is "". Neither its `repr` nor its `str` shows it."""

    def __init__(self, value: str = "") -> None:
        """Hold `value`, and the ways in which a server may write it back."""
        quoted = urllib.parse.quote(value, safe="")
        self._value = value
        # JSON may write / as \/; where that is inside a string which is JSON again, it stays.
        self._forms = tuple(dict.fromkeys((value, value.replace("/", "\\/"), quoted, quoted.lower()))) if value else ()

    def __bool__(self) -> bool:
        return bool(self._value)

    def header(self) -> Mapping[str, str]:
        """Return the header that shows the key to the server."""
        return {"Authorization": f"Bearer {self._value}"} if self else {}

    def scrub(self, value: Json) -> Json:
        """Return `value` with stars where the key was, in names as in values."""
        if isinstance(value, str):
            return self._clean(value)
        if isinstance(value, Mapping):
            return {self._clean(str(name)): self.scrub(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.scrub(item) for item in value]
        return value

    def _clean(self, text: str) -> str:
        # No form has a star in it, so what is left and right of one makes no new one.
        for form in self._forms:
            text = text.replace(form, STARS)
        return text


def read_key(variable: str) -> Key:
    """Return the key in the environment variable `variable`; none where it is not set.

    Raises:
        UsageError: what it holds cannot be a key; it is not shown.
    """
    value = os.environ.get(variable, "").strip()
    if value and not _KEY.fullmatch(value):
        raise UsageError(
            f"{variable}: no key of {_LEAST} or more letters, digits and . _ ~ + / = : -; "
            "set it to the server's key, or unset it for a server that wants none"
        )
    return Key(value)
