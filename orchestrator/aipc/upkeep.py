"""The commands that look after what aipc keeps on the disk: `doctor`, `clean`, `images build` and `lock`."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

import aipc
from aipc import home
from aipc.errors import EngineError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from aipc.engines.docker import DockerEngine
    from aipc.environment import Environment

SHORT = 12
"""So many digits of a digest are shown."""


def environments(names: Iterable[str] = ()) -> tuple[Environment, ...]:
    """Return the environments called `names`, all of this checkout for none, each with the Python its runtime states.

    Raises:
        UsageError: there is no such environment.
    """
    from aipc import environment, runtime

    pythons = {found.environment: found.python for found in runtime.all_runtimes()}
    chosen = tuple(names) or environment.names()
    return tuple(
        environment.Environment.load(name, pythons[name]) if name in pythons else environment.Environment.load(name)
        for name in chosen
    )


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"


@click.command()
def doctor() -> None:
    """Show what this machine has: engines, interpreters, environments, disk."""
    console = _console()
    cache = home.cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    console.print(f"[bold]aipc {aipc.__version__}[/] in {home.HOME}", soft_wrap=True)
    console.print(f"cache    {cache}, {_size(shutil.disk_usage(cache).free)} free", soft_wrap=True)
    _show_store(console)
    _show_venv_engine(console, cache)
    _show_docker_engine(console, cache)


def _show_store(console: Console) -> None:
    from aipc.store import Store

    store = Store(home.store_folder())
    console.print(f"store    {len(store.list_keys())} results, {_size(store.size_bytes())}")


def _show_venv_engine(console: Console, cache: Path) -> None:
    from aipc.engines import cage, interpreter, inventory

    current = environments()
    problem = cage.why_not()
    state = f"[yellow]not caged[/]: {problem}" if problem else "caged by bubblewrap"
    console.print(f"\n[bold]venv engine[/]  {state}", soft_wrap=True)
    for version in sorted({environment.python for environment in current}):
        try:
            found = str(interpreter.find(version, lambda _: None, download=False).executable)
        except EngineError as error:
            found = f"[yellow]{error}[/]"
        console.print(f"  Python {version}  {found}", soft_wrap=True)
    built = inventory.built(cache, current)
    for environment in current:
        mine = next((one for one in built if one.name == environment.name and one.current), None)
        state = "not built yet" if mine is None else "ready" if mine.whole else "half-made; it is made again when used"
        size = f"  {_size(mine.size_bytes)}" if mine else ""
        console.print(f"  {environment.name:<12} {environment.digest[:SHORT]}  {state}{size}")
    for old in built:
        if not old.current:
            console.print(
                f"  {old.name:<12} {old.digest}  [yellow]old[/]  {_size(old.size_bytes)}; aipc clean removes it"
            )


def _show_docker_engine(console: Console, cache: Path) -> None:
    from aipc.engines import image

    try:
        engine = _docker(cache)
    except EngineError as error:
        console.print(f"\n[bold]docker engine[/]  {error}", soft_wrap=True)
        return
    try:
        console.print(f"\n[bold]docker engine[/]  {engine.reason}", soft_wrap=True)
        keep = engine.known_tags(environments())
        images = image.list_images(engine.daemon)
        for found in images:
            name = found.environment or found.kind
            state = (
                "ready" if keep & set(found.names) else found.kind if found.kind != "environment" else "[yellow]old[/]"
            )
            console.print(
                f"  {name:<12} {found.image.removeprefix('sha256:')[:SHORT]}  {state}  {_size(found.size_bytes)}"
            )
        if not images:
            console.print("  no image is built yet")
    finally:
        engine.close()


def _docker(cache: Path) -> DockerEngine:
    from aipc.engines.docker import DockerEngine

    return DockerEngine(cache)


@click.command()
@click.option("--results", is_flag=True, help="Also forget every result: the next deploy does all steps again.")
def clean(*, results: bool) -> None:
    """Remove what is old: environments, images and builder stages of other locks, and what killed runs left."""
    from aipc.engines import image, inventory
    from aipc.store import Store

    console = _console()
    cache = home.cache_folder()
    freed = inventory.clean(cache, environments(), lambda line: console.print(line, soft_wrap=True))
    store = Store(home.store_folder())
    freed += store.sweep()
    if results:
        freed += store.forget()
    try:
        engine = _docker(cache)
    except EngineError as error:
        console.print(f"images are not looked at: {error}", soft_wrap=True)
    else:
        try:
            for removed in image.clean_images(engine.daemon, engine.known_tags(environments())):
                console.print(f"{(*removed.names, removed.image)[0]}: removed, {_size(removed.size_bytes)}")
                freed += removed.size_bytes
        finally:
            engine.close()
    console.print(f"freed {_size(freed)}" if freed else "nothing old is there")


@click.group()
def images() -> None:
    """Look after the container images."""


@images.command()
@click.argument("names", nargs=-1)
@click.option("--base-image", default="", envvar="AIPC_BASE_IMAGE", metavar="IMAGE", help="What to build on.")
def build(names: tuple[str, ...], base_image: str) -> None:
    """Build the images of the environments NAMES, or of all."""
    from aipc.engines.docker import DockerEngine

    console = _console()
    engine = DockerEngine(home.cache_folder(), base_image)
    try:
        engine.report = lambda line: console.print(line, soft_wrap=True)
        for environment in environments(names):
            engine.ensure(environment, engine.report)
            console.print(f"{environment.name}: {engine.tag(environment)}")
    finally:
        engine.close()


@click.command()
@click.argument("names", nargs=-1)
@click.option("--upgrade", is_flag=True, envvar="UPGRADE", help="Take the newest versions that fit.")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; say what is wrong with the locks.")
def lock(names: tuple[str, ...], *, upgrade: bool, only_check: bool) -> None:
    """Make the locks of the environments NAMES, or of all, out of their requirements.in."""
    from aipc import locks

    console = _console()
    for environment in environments(names):
        if only_check:
            if problems := locks.check(environment):
                raise UsageError(f"{environment.lock}: {'; '.join(problems)}")
            console.print(f"{environment.name}: the lock is right")
        else:
            changed = locks.lock(environment, lambda line: console.print(line, soft_wrap=True), upgrade=upgrade)
            console.print(f"{environment.name}: {'the lock has changed' if changed else 'the lock is as it was'}")
