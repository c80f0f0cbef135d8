"""The docker engine: every job in a container of its own, by Docker, or by Podman through the same API.

This is the only module that imports the docker SDK, and only when the engine is used.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from aipc import home
from aipc.engines import NOTHING, Ended, Given, Identity, Limits, ask_daemon, cage, hardening, image
from aipc.engines.base_image import Base, chosen, resolve
from aipc.engines.cage import CODE, WORK
from aipc.engines.container import (
    AGENT,
    SHELL,
    UNPRIVILEGED,
    VENV,
    advise,
    has_option,
    run_container,
    uncaged,
)
from aipc.engines.owner import PREFIX, Owner, current
from aipc.engines.ping import ping
from aipc.environment import Environment
from aipc.errors import EngineError, EngineGone
from runtimes.contract import Json

if TYPE_CHECKING:
    import docker

ANSWER_SECONDS = 120
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TRIAL = Limits(seconds=120.0, memory_bytes=1 << 30, processes=256)


class DockerEngine:
    """Runs jobs in hardened containers. Containers of owners that are dead are removed when it is opened.

    Args:
        cache: the folder for what is built.
        base_image: the name or the id of the image to build on, "" for the default.
        reason: why this engine was taken.
        address: the daemon, as `ask_daemon` found it; "" to look for it now.

    Attributes:
        report: is told what takes long outside of `ensure`: getting the base image, once.

    Raises:
        EngineError: no daemon of this machine answers.
    """

    name = "docker"

    def __init__(self, cache: Path, base_image: str = "", reason: str = "", address: str = "") -> None:
        address, why = (address, reason) if address else _find_daemon()
        self.daemon = Daemon(address)
        self.reason = reason or why
        self.report: Callable[[str], None] = lambda _: None
        self._cache = cache / "docker"
        self._asked = base_image
        self._base: Base | None = None
        self.daemon.remove_orphans()

    def base(self) -> Base:
        """Return the base image. It is got when it is missing; after that this is fast.

        Raises:
            EngineError: it cannot be had.
        """
        if self._base is None:
            self._base = resolve(self.daemon, self._cache, self._asked, self._try_out, self.report)
        return self._base

    def tag(self, environment: Environment) -> str:
        """Return the name of the image of `environment`, built or not."""
        return image.tag(environment, self.base())

    def known_tags(self, environments: Iterable[Environment]) -> frozenset[str]:
        """Return the names of the images of `environments` on every base that was taken so far; nothing is got."""
        return frozenset(image.tag(each, base) for each in environments for base in chosen(self._cache).values())

    def identity(self, environment: Environment) -> Identity:
        """Return where a job of `environment` runs; see `Engine`."""
        base = self.base()
        return Identity(
            engine=self.name,
            environment=environment.name,
            digest=environment.digest,
            interpreter=f"cpython-{base.python}",
            base_image=base.image,
        )

    def ensure(self, environment: Environment, report: Callable[[str], None]) -> None:
        """Build the image of `environment` where it is missing; see `Engine`."""
        image.ensure(self.daemon, environment, self.base(), self._cache, report)

    def run(
        self,
        environment: Environment,
        workspace: Path,
        code: Path,
        limits: Limits,
        poll: Callable[[], None],
        given: Given = NOTHING,
    ) -> Ended:
        """Run the job of `workspace` in a container; see `Engine`."""
        name = self.tag(environment)
        built = self.daemon.find_image(name)
        if built is None:
            raise EngineError(f"{name}: the image is gone from the daemon; start again, it is built again")
        argv = cage.worker(AGENT if given.guest else VENV, WORK)
        return run_container(self.daemon, built["Id"], argv, workspace, code, limits, poll, given)

    def beside(self, environment: Environment, report: Callable[[str], None]) -> tuple[Path, tuple[Path, ...]]:
        """Return the environment of the image of `environment`, copied out of it once; see `Engine.beside`."""
        self.ensure(environment, report)
        return image.copied_out(self.daemon, self.tag(environment), VENV, self._cache), ()

    def close(self) -> None:
        """Let go of the daemon."""
        self.daemon.close()

    def _try_out(self, name: str, program: str) -> str:
        """Return what the Python `program` prints in a container of the image `name`."""
        with tempfile.TemporaryDirectory(prefix="try-", dir=self._cache) as folder:
            place = Path(folder)
            for part in ("in", "tmp", "code"):
                (place / part).mkdir()
            (place / "log.txt").touch()
            argv = ("env", "PATH=/usr/local/bin:/usr/bin:/bin", "python3", "-c", program)
            ended = run_container(self.daemon, name, argv, place, place / "code", _TRIAL, lambda: None)
            said = " ".join((place / "log.txt").read_text(encoding="utf-8", errors="replace").split())
        if ended.code != 0:
            raise EngineError(
                f"{name}: python3 does not work in this image ({said or f'exit code {ended.code}'}); "
                "name a base image that has Python with venv and ensurepip, and glibc"
            )
        return said


def _find_daemon() -> tuple[str, str]:
    """Return the address of a daemon of this machine, and why it is that one.

    Raises:
        EngineError: there is none.
    """
    address, why = ask_daemon()
    if not address:
        raise EngineError(f"docker: {why}; start Docker or Podman (DOCKER_HOST names its socket), or use --engine venv")
    return address, why


class Daemon:
    """An open line to a Docker or Podman daemon of this machine; every failure of it is an `EngineError`.

    Attributes:
        address: its socket, as unix://PATH.
        key: tells it apart from other daemons.
        data_folder: where it keeps its images.
        hands_over: whether a job needs its workspace handed over: aipc is root, and the job must not be.
        uncaged: what it cannot keep from a job.
    """

    def __init__(self, address: str) -> None:
        import docker
        import urllib3

        self.address = address
        self._failed = False
        self._errors = (
            docker.errors.DockerException,
            urllib3.exceptions.HTTPError,
            http.client.HTTPException,
            OSError,  # that of requests is one too
            json.JSONDecodeError,
        )
        with self._told("does not answer"):
            self._api = docker.APIClient(base_url=address, version="auto", timeout=ANSWER_SECONDS)
            info = self._api.info()
            parts = self._api.version().get("Components") or []
        self._podman = any("podman" in part.get("Name", "").lower() for part in parts)
        self._rootless = has_option(info, "rootless") or bool(info.get("Rootless"))
        self._labelled = has_option(info, "selinux")
        self.data_folder = Path(info.get("DockerRootDir", "/"))
        # Podman makes up a new id for every answer.
        self.key = f"podman:{info.get('Name')}:{self.data_folder}" if self._podman else str(info["ID"])
        self.hands_over = os.getuid() == 0 and not self._rootless
        self.uncaged = uncaged(info)

    def close(self) -> None:
        """Close the line."""
        self._api.close()

    def find_image(self, name: str) -> Mapping[str, Json] | None:
        """Return what the daemon knows of the image `name`, a name or an id; None when it has none."""
        import docker

        with self._told(f"looking for the image {name}"):
            try:
                return cast("Mapping[str, Json]", self._api.inspect_image(name))  # type: ignore[no-untyped-call]
            except docker.errors.ImageNotFound:
                return None

    def list_images(self, label: str) -> tuple[Mapping[str, Json], ...]:
        """Return the images with the label `label`; of those without a name only the last of each chain."""
        with self._told("listing images"):
            return tuple(self._api.images(filters={"label": label}))

    def remove_image(self, name: str) -> None:
        """Remove an image by its name, or by its id where it has none; one in use is an EngineError."""
        with self._told(f"removing the image {name}"):
            self._api.remove_image(name)

    def pull(self, name: str) -> None:
        """Get the image `name` from its registry; a daemon gives up by itself where no registry answers."""
        with self._told(f"pulling {name}"):
            for event in self._api.pull(name, stream=True, decode=True):
                if "error" in event:
                    raise EngineError(f"docker: {self.address}: pulling {name}: {event['error']}; see what it says")

    def tag_image(self, identifier: str, repository: str, tag: str) -> None:
        """Give an image one more name."""
        with self._told(f"naming the image {identifier}"):
            self._api.tag(identifier, repository, tag)

    def import_tar(self, tar: Path, repository: str, tag: str, labels: Mapping[str, str]) -> None:
        """Make an image out of the root file system in `tar`."""
        changes = [f"LABEL {key}={json.dumps(value)}" for key, value in labels.items()]
        with self._told(f"importing {tar.name}"):
            said = self._api.import_image_from_file(str(tar), repository=repository, tag=tag, changes=changes)
            identifier = json.loads(said.strip().splitlines()[0])["status"]
            self._api.tag(identifier, repository, tag)  # podman's import gives the tag "latest" whatever is asked

    def build(
        self, context: Iterable[bytes], tag: str, arguments: Mapping[str, str], labels: Mapping[str, str]
    ) -> Generator[str]:
        """Build an image out of `context`, a stream of a tar, without network; yield its log.

        The caller looks for the image itself: a daemon that dies in the middle may end the log without a word.
        """
        with self._told(f"building {tag}"):
            events = self._api.build(
                fileobj=cast("IO[bytes]", context),  # requests sends any iterable in pieces
                custom_context=True,
                tag=tag,
                buildargs=dict(arguments),
                labels=dict(labels),
                network_mode="none",
                rm=True,
                forcerm=True,
                nocache=True,
                decode=True,
                use_config_proxy=False,
            )
            for event in events:
                yield _COLOUR.sub("", event.get("stream") or event.get("error") or "")

    def create(self, name: str, argv: Sequence[str], workspace: Path, code: Path, limits: Limits, given: Given) -> str:
        """Make the container of a job, hardened, and return its id."""
        config = self._host_config(workspace, code, limits, given)
        with self._told(f"making a container of {name}"):
            made = self._api.create_container(
                name,
                entrypoint=list(SHELL[:1]),
                command=[*SHELL[1:], *argv],
                user=self._user(),
                environment={**cage.variables(VENV, WORK, CODE), **cage.mounted(given)},
                working_dir=str(WORK),
                hostname="aipc",
                labels={**current().labels(), f"{PREFIX}checkout": str(home.HOME)},
                host_config=config,
                use_config_proxy=False,
            )
        return str(made["Id"])

    def copy_out(self, image: str, path: Path) -> Iterator[bytes]:
        """Yield a folder of an image, as the bytes of a tar file."""
        with self._told(f"copying {path} out of {image}"):
            made = self._api.create_container(image, entrypoint=["true"], labels=current().labels())["Id"]
            try:
                chunks, _ = self._api.get_archive(made, str(path))
                yield from chunks
            finally:
                self.remove(made)

    def start(self, identifier: str) -> None:
        """Start a container."""
        with self._told("starting a container"):
            self._api.start(identifier)

    def wait(self, identifier: str, answer: Callable[[int | EngineError], None]) -> None:
        """Wait as long as it takes for a container's end; give `answer` its exit code, or what went wrong."""
        try:
            with self._told("the job was running"), contextlib.closing(self._connect(None)) as api:
                answer(int(api.wait(identifier)["StatusCode"]))
        except EngineError as error:
            answer(error)

    def was_out_of_memory(self, identifier: str) -> bool:
        """Return whether the kernel killed something of a container for memory."""
        with self._told("the job has ended"):
            return bool(self._api.inspect_container(identifier)["State"].get("OOMKilled"))

    def kill(self, identifier: str) -> None:
        """Kill a container with all that it started; one that has ended by itself is left."""
        import docker

        with self._told("killing a container"):
            try:
                self._api.kill(identifier)
            except docker.errors.APIError as error:
                if error.status_code not in {http.HTTPStatus.CONFLICT, http.HTTPStatus.NOT_FOUND}:
                    raise

    def remove(self, identifier: str) -> None:
        """Remove a container; one that runs is killed."""
        import docker

        with self._told("removing a container"), contextlib.suppress(docker.errors.NotFound):
            self._api.remove_container(identifier, force=True, v=True)

    def remove_orphans(self) -> int:
        """Remove the containers whose owner is known to be dead, and return how many there were."""
        with self._told("listing containers"):
            found = self._api.containers(all=True, filters={"label": f"{PREFIX}owner"})
        orphans = [
            container["Id"]
            for container in found
            if (owner := Owner.from_labels(container.get("Labels") or {})) and owner.is_dead()
        ]
        for identifier in orphans:
            # Another aipc that opens at the same time may be removing it already.
            with contextlib.suppress(EngineError):
                self.remove(identifier)
        return len(orphans)

    def _user(self) -> str:
        if self.hands_over:
            return f"{UNPRIVILEGED}:{UNPRIVILEGED}"
        # Without root, Docker's uid 0 is the host's own user; Podman keeps the number where it is told to.
        return "0:0" if self._rootless and not self._podman else f"{os.getuid()}:{os.getgid()}"

    def _host_config(self, workspace: Path, code: Path, limits: Limits, given: Given) -> Any:
        from docker.types import DeviceRequest, LogConfig

        config = self._api.create_host_config(
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges", *(["label=disable"] if self._labelled else [])],
            init=True,
            mem_limit=limits.memory_bytes,
            memswap_limit=limits.memory_bytes,
            pids_limit=limits.processes,
            ulimits=hardening.limits(),
            log_config=LogConfig(type=LogConfig.types.NONE),
            # All of them; an empty list is nothing at all.
            device_requests=[DeviceRequest(driver="nvidia", count=-1, capabilities=[["gpu"]])] if given.gpu else [],
            mounts=hardening.mounts(workspace.absolute(), code.absolute(), given),
        )
        if self._rootless and self._podman:
            config["UsernsMode"] = "keep-id"
        elif not self._rootless:
            config["UsernsMode"] = "host"  # where the daemon maps users, files would belong to nobody
        return config

    def _connect(self, timeout_seconds: int | None) -> docker.APIClient:
        import docker

        version = self._api.api_version
        return docker.APIClient(base_url=self.address, version=version, timeout=cast("int", timeout_seconds))

    @contextlib.contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        if self._failed and (problem := ping(self.address)):  # the SDK leaks a socket for each attempt
            raise EngineGone(f"docker: {self.address}: {problem}; see whether the daemon still runs, then start again")
        try:
            yield
        except self._errors as error:
            self._failed = True
            said = " ".join(str(getattr(error, "explanation", None) or str(error) or type(error).__name__).split())
            answered = getattr(error, "response", None) is not None
            advice = advise(said) if answered else "see whether the daemon still runs, then start again"
            kind = EngineError if answered or not ping(self.address) else EngineGone
            raise kind(f"docker: {self.address}: {doing}: {said}; {advice}") from error
