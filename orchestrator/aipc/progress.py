"""The live screen of a deploy: a line a stage, the one that runs with a spinner and its own words."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aipc.deployment import STAGES
from aipc.reports import words
from runtimes.contract import Status, Step

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from aipc.jobs import StepRun

QUIET_SECONDS = 15.0
"""Where the output is no terminal, the words of a running step are shown this often at the most."""
WHAT: Mapping[Step, str] = {
    Step.PREPARE: "inputs, and PyTorch's own answers",
    Step.EXPORT: "ONNX, checked",
    Step.REWRITE: "the graph, rewritten",
    Step.PATCH: "the graph, patched",
    Step.CALIBRATE: "calibration data",
    Step.CONVERT: "the artefact",
    Step.QUANTIZE: "the quantised artefact",
    Step.RUN: "the artefact's answers",
    Step.JUDGE: "compared",
    Step.BISECT: "the first bad node",
    Step.INSPECT: "the file",
    Step.AGENT: "a candidate",
}
"""What each step gives, for people."""
FETCH = "fetch"
"""The word for what comes before the first step: weights, pictures, the base image."""
WIDEST_STAGE = max(len(stage) for stage in STAGES.values())


class Screen:
    """Tells a person what a deploy does: live on a terminal, a line for each ended step elsewhere."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._stage = FETCH
        self._text = ""
        self._since = self._said = time.monotonic()
        self._live = Live(
            get_renderable=self._render, console=console, refresh_per_second=8, transient=True, auto_refresh=True
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stage = ""
        if self._console.is_terminal:
            self._live.stop()

    def started(self, step: Step) -> None:
        """A step begins."""
        self._stage, self._text, self._since = STAGES[step], WHAT[step], time.monotonic()

    def progress(self, text: str, fraction: float | None) -> None:
        """The step that runs says how far it is."""
        text = words.plain(text).partition("\n")[0]
        now = time.monotonic()
        if not self._console.is_terminal and now - self._said > QUIET_SECONDS:
            self._line("…", text, f"{now - self._since:.0f} s")
            self._said = now
        self._text = text if fraction is None else f"{text} {fraction:.0%}"

    def ended(self, run: StepRun) -> None:
        """A step is over: its line stays."""
        mark = {Status.DONE: "[green]✓[/]"}.get(run.result.status, "[red]✗[/]")
        how = "in the store" if run.cached else f"{time.monotonic() - self._since:.1f} s"
        what = WHAT[run.step]
        if run and run.step is Step.REWRITE:
            changed = [name for name, nodes in run.result.facts["changed"].items() if nodes]
            tried = ", ".join(run.result.facts["changed"])
            what = f"{', '.join(changed)}: done" if changed else f"{tried}: no change" if tried else WHAT[Step.EXPORT]
        if not run:
            what = f"{run.step.value}: {run.result.status.value}"
        self._line(mark, what, how)

    def _line(self, mark: str, what: str, how: str) -> None:
        from rich.markup import escape

        self._console.print(f"{mark} {self._stage:{WIDEST_STAGE}}  {escape(what)}  [dim]{how}[/]", highlight=False)

    def _render(self) -> RenderableType:
        from rich.spinner import Spinner
        from rich.text import Text

        if not self._stage:
            return Text("")
        seconds = time.monotonic() - self._since
        line = Text(f"{self._stage:{WIDEST_STAGE}}  ", overflow="ellipsis", no_wrap=True)
        line.append(f"{self._text}  ", style="dim")
        line.append(f"{seconds:.0f} s", style="dim")
        return Spinner("dots", text=line)
