"""The commands that look after what aipc keeps on the disk: `doctor`, `clean`, `images build` and `lock`."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

import aipc
from aipc import home
from aipc.errors import EngineError, UsageError
from runtimes.contract import Step

if TYPE_CHECKING:
    from rich.console import Console

    from aipc.engines.docker import DockerEngine
    from aipc.engines.image import Image
    from aipc.engines.inventory import Built
    from aipc.environment import Environment

SHORT = 12
"""So many digits of a digest are shown."""
REMOVABLE = "aipc clean removes it"


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A line of what is on the disk; `good` is for what is ready to be used."""

    name: str
    digest: str
    size_bytes: int | None
    state: str
    good: bool = False


def environments(names: Iterable[str] = ()) -> tuple[Environment, ...]:
    """Return the environments called `names`, all of this checkout for none, each with the Python its runtime states.

    Raises:
        UsageError: there is no such environment.
    """
    from aipc import environment, runtime

    pythons = {
        found.environment_with(gpu=has_gpu): found.python
        for found in runtime.all_runtimes()
        for has_gpu in (False, True)
    }
    chosen = tuple(names) or environment.names()
    return tuple(
        environment.Environment.load(name, pythons[name]) if name in pythons else environment.Environment.load(name)
        for name in chosen
    )


def used_environments() -> tuple[str, ...]:
    """Return the names of the environments that cells use: those of all runtimes, and of the matrix's models.

    A toolchain that only rewrites is used where a person asks for it, by no cell of itself.

    Raises:
        UsageError: matrix.toml or a runtime.toml does not fit.
    """
    from aipc import config, gpu, runtime

    of_runtimes = {
        each.environment_with(gpu=has_gpu)
        for each in runtime.all_runtimes()
        if each.builds or Step.JUDGE in each.steps
        for has_gpu in {False, gpu.find() is not None}
    }
    of_models = {each.environment for each in config.load(home.matrix_file()).models.values()} - {""}
    return tuple(sorted(of_models | of_runtimes))


def _console() -> Console:
    from rich.console import Console

    # A path may hold what rich takes for its markup, so markup is only on where a line has some.
    return Console(highlight=False, soft_wrap=True, markup=False)


def _size(size_bytes: int) -> str:
    from aipc.reports import words

    return words.size(size_bytes)


@click.command(short_help="Show what this machine has, and what is built.")
def doctor() -> None:
    """Show what this machine has, and what is built: engines, interpreters, environments, images, disk."""
    from aipc.engines import ask_daemon

    console = _console()
    cache, store = home.cache_folder(), home.store_folder()
    address, why = ask_daemon()
    console.print(f"aipc {aipc.__version__} in {home.HOME}", style="bold")
    console.print(f"engine   {'docker' if address else 'venv'} is taken where none is named: {why}")
    console.print(f"cache    {cache}, {_free(cache)}")
    console.print(f"store    {store}, {_describe_store(store)}, {_free(store)}")
    _show_sdks(console)
    current = environments()
    _show_venv_engine(console, cache, current)
    _show_docker_engine(console, cache, current)


def _show_sdks(console: Console) -> None:
    from aipc import runtime, sdk

    for each in runtime.all_runtimes():
        if not each.sdk:
            continue
        try:
            found = sdk.find(each.sdk)
        except UsageError as error:
            console.print(f"SDK      {each.name}: {error}", style="yellow")
        else:
            words = f"{found.folder}, by {each.sdk}" if found else f"none; {each.sdk} names the folder of one"
            console.print(f"SDK      {each.name}: {words}")


def _free(folder: Path) -> str:
    """Return how much room is on the disk of `folder`, which may not exist yet."""
    there = next(place for place in (folder, *folder.parents) if place.is_dir())
    return f"{_size(shutil.disk_usage(there).free)} free"


def _describe_store(folder: Path) -> str:
    from aipc.store import Store

    if not folder.is_dir():
        return "nothing yet"
    store = Store(folder)
    return f"results: {len(store.list_keys())} ({_size(store.size_bytes())})"


def _show_venv_engine(console: Console, cache: Path, current: Sequence[Environment]) -> None:
    from aipc.engines import cage, interpreter, inventory

    console.print("\nvenv engine", style="bold")
    problem = cage.why_not()
    _show_fact(console, "cage", problem or "bubblewrap", good=not problem)
    for version in sorted({environment.python for environment in current}):
        try:
            found = str(interpreter.find(version, lambda _: None, download=False).executable)
        except EngineError as error:
            _show_fact(console, "Python", str(error), good=False)
        else:
            _show_fact(console, "Python", f"{version}, {found}", good=True)
    built = inventory.built(cache, current)
    rows = [_describe_current(environment, built) for environment in current]
    rows += [_describe_other(one) for one in built if not one.current]
    _show_rows(console, rows)


def _describe_current(environment: Environment, built: Iterable[Built]) -> _Row:
    mine = next((one for one in built if one.name == environment.name and one.current), None)
    if mine is None:
        state = "not built yet"
    elif mine.whole:
        state = "ready"
    else:
        state = "it is being built" if mine.busy else "half-made; it is made again when it is needed"
    return _Row(
        name=environment.name,
        digest=environment.digest,
        size_bytes=mine.size_bytes if mine else None,
        state=state,
        good=state == "ready",
    )


def _describe_other(one: Built) -> _Row:
    if one.old:
        state = "in use" if one.busy else f"{'old' if one.whole else 'half-made'}; {REMOVABLE}"
    else:
        state = f"of another checkout: {one.checkout}"
    return _Row(name=one.name, digest=one.digest, size_bytes=one.size_bytes, state=state)


def _show_docker_engine(console: Console, cache: Path, current: Sequence[Environment]) -> None:
    from aipc.engines import image

    console.print("\ndocker engine", style="bold")
    try:
        engine = _docker(cache)
    except EngineError as error:
        _show_fact(console, "daemon", str(error), good=False)
        return
    try:
        _show_fact(console, "daemon", engine.daemon.address, good=True)
        keep = _needed_names(engine, current)
        images = image.list_images(engine.daemon)
        ready = {found.environment for found in images if keep & set(found.names)}
        rows = [_describe_image(found, keep) for found in images]
        rows += [
            _Row(name=environment.name, digest=environment.digest, size_bytes=None, state="not built yet")
            for environment in current
            if environment.name not in ready
        ]
        _show_rows(console, sorted(rows, key=lambda row: not row.good))
    finally:
        engine.close()


def _describe_image(found: Image, keep: frozenset[str]) -> _Row:
    from aipc.engines import image

    names = ", ".join(found.names)
    ready = bool(keep & set(found.names))
    if ready:
        state = f"ready: {names}"
    elif not image.is_needed(found, keep):
        state = f"old; {REMOVABLE}"
    elif found.kind == "base":
        state = f"what the others are built on: {names}"
    else:
        state = "it is being built" if found.kind == "builder" else f"of another checkout: {found.checkout}"
    return _Row(
        name=found.environment or found.kind,
        digest=found.digest or found.image.removeprefix("sha256:"),
        size_bytes=found.size_bytes,
        state=state,
        good=ready,
    )


def _show_fact(console: Console, name: str, fact: str, *, good: bool) -> None:
    console.print(f"  {name:<12} {fact}", style="" if good else "yellow")


def _show_rows(console: Console, rows: Sequence[_Row]) -> None:
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        size = "" if row.size_bytes is None else _size(row.size_bytes)
        console.print(
            f"  {row.name:<{max(width, SHORT)}} {row.digest[:SHORT]}  {size:>8}  {row.state}",
            style="" if row.good else "yellow" if REMOVABLE in row.state else "dim",
        )


def _docker(cache: Path) -> DockerEngine:
    from aipc.engines.docker import DockerEngine

    return DockerEngine(cache)


def _needed_names(engine: DockerEngine, current: Sequence[Environment]) -> frozenset[str]:
    """Return the names of the images that the environments `current` have or would get."""
    from aipc.engines import image

    # A cache that has seen no base image yet cannot tell which one is the right one: then all of today's locks are.
    digests = {environment.digest for environment in current}
    return engine.known_tags(current) or frozenset(
        name for found in image.list_images(engine.daemon) if found.digest in digests for name in found.names
    )


@click.command(short_help="Remove what nobody needs any more.")
@click.option("--results", is_flag=True, help="Also forget every result: the next deploy does all steps again.")
def clean(*, results: bool) -> None:
    """Remove what nobody needs any more.

    That is: environments and images of locks that this checkout no longer has, those of checkouts that are gone, and
    what killed runs and builds left. What is in use stays, and so do the newest environments and all results.
    """
    from aipc.engines import inventory
    from aipc.store import Store

    console = _console()
    current = environments()
    freed = inventory.clean(home.cache_folder(), current, console.print)
    store = Store(home.store_folder())
    freed += store.sweep()
    if results:
        count = len(store.list_keys())
        forgotten = store.forget()
        console.print(f"results: {count} removed, {_size(forgotten)}")
        freed += forgotten
    freed += _clean_images(console, home.cache_folder(), current)
    console.print(f"freed about {_size(freed)}" if freed else "there was nothing to remove")


def _clean_images(console: Console, cache: Path, current: Sequence[Environment]) -> int:
    from aipc.engines import image

    try:
        engine = _docker(cache)
    except EngineError as error:
        console.print(f"images are not looked at: {error}")
        return 0
    try:
        removed = image.clean_images(engine.daemon, _needed_names(engine, current))
    finally:
        engine.close()
    for each in removed:
        name = each.names[0] if each.names else f"{each.kind} {each.image.removeprefix('sha256:')[:SHORT]}"
        console.print(f"image {name}: removed, {_size(each.size_bytes)}")
    return sum(each.size_bytes for each in removed)


@click.group(short_help="Build the container images.")
def images() -> None:
    """Look after the container images."""


@images.command()
@click.argument("names", nargs=-1)
@click.option(
    "--base-image",
    default="",
    envvar="AIPC_BASE_IMAGE",
    metavar="IMAGE",
    help="What they are built on; by default a registry's python:3.11-slim-bookworm, else our own.",
)
def build(names: tuple[str, ...], base_image: str) -> None:
    """Build the images of the environments NAMES, or of those that cells of matrix.toml use, where they are missing."""
    from aipc.engines.docker import DockerEngine

    console = _console()
    wanted = environments(names or used_environments())
    engine = DockerEngine(home.cache_folder(), base_image)
    try:
        engine.report = console.print
        for environment in wanted:
            tag = engine.tag(environment)
            if engine.daemon.find_image(tag):
                console.print(f"{environment.name}: the image {tag} is there already")
            else:
                engine.ensure(environment, console.print)
    finally:
        engine.close()


@click.command(short_help="Make the locks of environments, or check them.")
@click.argument("names", nargs=-1)
@click.option("--upgrade", is_flag=True, envvar="UPGRADE", help="Take the newest versions that fit.")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; say what is wrong with the locks.")
def lock(names: tuple[str, ...], *, upgrade: bool, only_check: bool) -> None:
    """Make the locks of the environments NAMES, or of all, out of their requirements.in."""
    from aipc import locks

    console = _console()
    if only_check:
        _check_locks(console, environments(names))
        return
    for environment in environments(names):
        changed = locks.lock(environment, console.print, upgrade=upgrade)
        console.print(f"{environment.name}: {'the lock has changed' if changed else 'the lock is as it was'}")


def _check_locks(console: Console, chosen: Iterable[Environment]) -> None:
    """Say of every lock whether it is right.

    Raises:
        UsageError: one is not.
    """
    from aipc import locks

    wrong = []
    for environment in chosen:
        problems = locks.check(environment)
        for problem in problems or ("the lock is right",):
            console.print(f"{environment.name}: {problem}")
        wrong += [environment.name] if problems else []
    if wrong:
        names = " ".join(wrong)
        raise UsageError(f"{names}: the lock is not right, as said above; make it again: aipc lock {names}")
