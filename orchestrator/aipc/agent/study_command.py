"""The command `aipc study`."""

from __future__ import annotations

from pathlib import Path

import click

from aipc import home, options
from aipc.home import RUNS


@click.command(short_help="Measure how well language models repair what the rules do not.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--runs", type=click.Path(path_type=Path), help=f"For its trials.  [default: {RUNS}/studies/NAME, of the file]"
)
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the table to this file too.")
@options.matrix_option
@options.with_engine
def study(
    file: Path, runs: Path | None, markdown: Path | None, matrix_path: Path | None, engine: str, base_image: str
) -> None:
    """Make the trials of the study in FILE: models, failures, with skills and without, so and so often.

    A trial is a deploy whose rule was taken away, with an agent. What is done is kept: the same command goes on from
    there, and prints the table. Its exit code is 0 when all trials are made, however they ended.
    """
    from aipc.agent import study_plan
    from aipc.agent.study import Study
    from aipc.store import Store
    from aipc.sweep import Place

    plan = study_plan.load(file)
    matrix, console = options.matrix(matrix_path), options.console()
    folder = (runs or RUNS / "studies" / file.stem).absolute()
    store = Store(home.store_folder())
    with options.opened(engine, base_image) as opened, store.in_use():
        store.sweep()
        place = Place(matrix=matrix, engine=opened, store=store, console=console)
        found = Study(place=place, plan=plan, path=file, folder=folder, base_image=base_image, matrix_path=matrix_path)
        found.check()
        if markdown:  # now, so that no night is spent on what cannot be written
            markdown.write_text(found.table(found.trials), encoding="utf-8")
        table = found.table(found.run())
    console.print()
    console.print(table, soft_wrap=True, highlight=False, markup=False)
    if markdown:
        markdown.write_text(table, encoding="utf-8")
