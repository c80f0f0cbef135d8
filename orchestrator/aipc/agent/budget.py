"""The bounds of a session: calls, tokens, seconds, cost. What is counted is counted here, on the host."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aipc.agent.exchange import OVER_BUDGET, ErrorAnswer, text_of
from aipc.agent.settings import Settings
from runtimes.contract import Json, dumps

CHARACTERS_PER_TOKEN = 4
"""Where the server does not say how many tokens it was."""

_MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The tokens of one call.

    Attributes:
        prompt_tokens: of the request.
        completion_tokens: of the answer.
        estimated: the server did not say, so characters were counted.
    """

    prompt_tokens: int
    completion_tokens: int
    estimated: bool


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a session has used.

    Attributes:
        calls: of the model.
        prompt_tokens: of all requests.
        completion_tokens: of all answers.
        estimated: some of the tokens are estimates.
        seconds: since it began.
        cost: in the currency of the prices; 0 without prices.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    estimated: bool
    seconds: float
    cost: float


class Budget:
    """Counts what a session uses, and says when a bound is reached."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin now.

        Args:
            settings: the bounds, and the prices.
            clock: returns the time, in seconds.
        """
        self._settings, self._clock, self._started = settings, clock, clock()
        self._calls = self._prompt = self._completion = 0
        self._estimated = False

    @property
    def spent(self) -> Spent:
        """What is used by now."""
        return Spent(
            calls=self._calls,
            prompt_tokens=self._prompt,
            completion_tokens=self._completion,
            estimated=self._estimated,
            seconds=self._clock() - self._started,
            cost=self._price(self._prompt, self._completion),
        )

    def left(self) -> float:
        """Return how many seconds are left.

        Raises:
            ErrorAnswer: none are.
        """
        seconds = self._settings.seconds - (self._clock() - self._started)
        if seconds <= 0:
            raise _over("seconds", self._settings.seconds)
        return seconds

    def begin_call(self, request: Mapping[str, Json]) -> None:
        """Count a call of the model, before it is made.

        Raises:
            ErrorAnswer: a bound is reached, or the prompt alone would go past it.
        """
        bounds, prompt = self._settings, estimate_prompt(request)
        self.left()
        if self._calls >= bounds.calls:
            raise _over("calls", bounds.calls)
        if self._prompt + self._completion + prompt > bounds.tokens:
            raise _over("tokens", bounds.tokens)
        cost = self._price(self._prompt, self._completion)
        if bounds.cost and (cost >= bounds.cost or cost + self._price(prompt, 0) > bounds.cost):
            raise _over("cost", bounds.cost)
        self._calls += 1

    def end_call(self, usage: Usage) -> None:
        """Count the tokens of a call that was answered."""
        self._prompt += usage.prompt_tokens
        self._completion += usage.completion_tokens
        self._estimated = self._estimated or usage.estimated

    def _price(self, prompt: int, completion: int) -> float:
        return (prompt * self._settings.price_in + completion * self._settings.price_out) / _MILLION


def usage_of(request: Mapping[str, Json], answer: Mapping[str, Json]) -> Usage:
    """Return the tokens of a call: as the server says, else estimated.

    Args:
        request: with its messages.
        answer: one that `exchange.check_answer` finds nothing wrong with.
    """
    said = answer.get("usage")
    names = ("prompt_tokens", "completion_tokens")
    counts = [said.get(name) for name in names] if isinstance(said, Mapping) else []
    numbers = [count for count in counts if type(count) is int and count >= 0]
    if len(numbers) == len(names) and sum(numbers) > 0:
        return Usage(prompt_tokens=numbers[0], completion_tokens=numbers[1], estimated=False)
    message = answer["choices"][0]["message"]
    characters = len(text_of(message)) + (len(dumps(message["tool_calls"])) if message.get("tool_calls") else 0)
    return Usage(
        prompt_tokens=estimate_prompt(request),
        completion_tokens=math.ceil(characters / CHARACTERS_PER_TOKEN),
        estimated=True,
    )


def estimate_prompt(request: Mapping[str, Json]) -> int:
    """Return about how many tokens the messages of `request` are."""
    characters = sum(len(text_of(message)) for message in request["messages"])
    return math.ceil(characters / CHARACTERS_PER_TOKEN)


def _over(bound: str, number: float) -> ErrorAnswer:
    return ErrorAnswer(
        OVER_BUDGET, "budget", f"{bound}: all {number:g} of this session are used; [agent] {bound} bounds it"
    )
