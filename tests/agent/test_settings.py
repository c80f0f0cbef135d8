"""What `[agent]` of a matrix may say, and what a key may be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aipc.agent.key import STARS, Key, read_key
from aipc.agent.settings import Mode, Settings, from_table
from aipc.agent.upstream import Upstream
from aipc.errors import UsageError

SERVER = {"base_url": "http://127.0.0.1:9997/v1", "model": "qwen"}
KEY_LETTERS = "ABCxyz019._~+/=:-"


def test_without_a_table_there_is_no_agent() -> None:
    assert from_table({}, "matrix.toml") == Settings()
    assert Settings().mode is Mode.OFF


def test_a_server_alone_means_repair_and_a_mode_is_kept() -> None:
    assert from_table(SERVER, "matrix.toml").mode is Mode.REPAIR
    assert from_table({**SERVER, "mode": "drive"}, "matrix.toml").mode is Mode.DRIVE
    assert from_table({**SERVER, "mode": "off"}, "matrix.toml").mode is Mode.OFF


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"mode": "of"}, "agent.mode: 'of' is not allowed; did you mean 'off'?"),
        ({"modle": "x"}, "agent: unknown key 'modle'; did you mean"),
        ({"base_url": "ftp://x/v1", "model": "m"}, "agent: base_url: 'ftp://x/v1' begins with neither http://"),
        ({"base_url": "localhost:9997", "model": "m"}, "agent: base_url: 'localhost:9997' begins with neither"),
        ({"seed": -1}, "agent: seed: -1 is not from 0 to 2**31 - 1"),
        ({"seed": 2**31}, "agent: seed: 2147483648 is not from 0"),
        ({"base_url": "http:///v1", "model": "m"}, "agent: base_url: 'http:///v1' names no host"),
        ({"base_url": "http://x/a b", "model": "m"}, "names no host, or holds what a URL cannot"),
        ({"base_url": "http://x:99999/v1", "model": "m"}, "agent: base_url: no URL"),
        ({"base_url": "http://x/v1"}, "agent: model: missing beside base_url"),
        ({"steps": 0}, "agent: steps: 0 is not above 0"),
        ({"calls": -1}, "agent: calls: -1 is not above 0"),
        ({"tokens": 0}, "agent: tokens: 0 is not above 0"),
        ({"seconds": 0}, "agent: seconds: 0 is not above 0"),
        ({"seconds": 1.5}, "agent.seconds: 1.5 is not a whole number"),
        ({"price_in": -1.0}, "agent: price_in: -1.0 is not a number from 0"),
        ({"temperature": float("nan")}, "agent: temperature: nan is not a number from 0"),
        ({"cost": 2.0}, "agent: cost: 2.0 bounds nothing without prices"),
        ({"model_sha256": "AB"}, "agent: model_sha256: 'AB' is not 64 hex digits"),
    ],
)
def test_what_does_not_fit_is_one_line_that_names_the_key(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_table(table, "matrix.toml")
    assert str(caught.value).startswith("matrix.toml: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        {"base_url": "https://me:sk-secret-1@example.org/v1", "model": "m"},
        {"base_url": "https://example.org/v1?key=sk-secret-1", "model": "m"},
        {"base_url": "https://example.org/v1#sk-secret-1", "model": "m"},
        {"key_variable": "sk-secret-1"},
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_shown(table: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="key_variable") as caught:
        from_table(table, "matrix.toml")
    assert "secret" not in str(caught.value)


def test_a_model_without_a_server_is_refused_when_it_is_wanted() -> None:
    with pytest.raises(UsageError, match=r"\[agent\] base_url: missing"):
        Upstream(Settings(mode=Mode.DRIVE), Key())


def test_the_key_comes_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", " sk-1234567 \n")
    assert read_key("MY_KEY").header() == {"Authorization": "Bearer sk-1234567"}


def test_without_the_variable_there_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    assert not read_key("MY_KEY")
    assert read_key("MY_KEY").header() == {}
    assert read_key("MY_KEY").scrub("all of it") == "all of it"


@pytest.mark.parametrize("value", ["short", "sk-12345 678", "sk-1234\r\nHost: x", "sk-123456é", 'sk-"12345678'])
def test_what_is_no_key_is_refused_and_not_shown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(UsageError, match="MY_KEY: no key of 8 or more") as caught:
        read_key("MY_KEY")
    assert value not in str(caught.value)


def test_a_key_is_not_shown_by_printing_it() -> None:
    assert "sk-1234567" not in f"{Key('sk-1234567')} {Key('sk-1234567')!r}"


@given(
    key=st.text(KEY_LETTERS, min_size=8, max_size=40),
    before=st.text(KEY_LETTERS + "*", max_size=20),
    after=st.text(KEY_LETTERS + "*", max_size=20),
)
def test_no_text_holds_the_key_after_it_was_scrubbed(key: str, before: str, after: str) -> None:
    half = len(key) // 2
    for text in (before + key + after, key[:half] + key + key[half:], key * 3, before + key.replace("/", "\\/")):
        scrubbed = Key(key).scrub({text: [text, (1, text)]})
        ((name, (first, (_, second))),) = scrubbed.items()
        for left in (name, first, second):
            assert key not in left
            assert key.replace("/", "\\/") not in left
            assert STARS in left


def test_what_is_no_key_stays_as_it_is() -> None:
    value = {"a": [1, 2.5, None, True, "text"], "b": {"c": "sk-123456"}}
    assert Key("sk-1234567").scrub(value) == value
