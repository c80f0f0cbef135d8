"""The GPUs of a machine: when there are some, what a job needs of them, and which jobs get them."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from aipc import gpu, jobs, runtime, sdk
from aipc.engines.venv import VenvEngine
from aipc.gpu import Gpu
from aipc.jobs import Session
from aipc.progress import Screen
from aipc.sdk import Sdk
from aipc.store import Store
from runtimes.contract import Step

LISTING = """
2 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => {folder}/lib64/libcuda.so.1
\tlibcuda.so.1 (libc6) => {folder}/lib32/libcuda.so.1
\tlibcudart.so.1 (libc6,x86-64) => {folder}/toolkit/libcudart.so.1
"""


def make_machine(folder: Path, *nodes: str, version: str = "580.95", model: str = "L4") -> tuple[Path, Path]:
    """Make a folder of device files and one in which a driver tells of itself, and return them."""
    devices, driver = folder / "dev", folder / "driver"
    (driver / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (driver / "version").write_text(f"NVRM version: {version}\n")
    (driver / "gpus" / "0000:01:00.0" / "information").write_text(f"Model: {model}\n")
    devices.mkdir()
    for node in ("null", *nodes):
        (devices / node).touch()
    return devices, driver


@pytest.mark.parametrize("nodes", [(), ("nvidiactl", "nvidia-uvm"), ("nvidia-modeset", "nvidiafb")])
def test_a_driver_without_a_card_is_no_gpu(tmp_path: Path, nodes: tuple[str, ...]) -> None:
    assert gpu.find(*make_machine(tmp_path, *nodes)) is None


def test_all_device_files_of_the_driver_belong_to_the_gpus(tmp_path: Path) -> None:
    found = gpu.find(*make_machine(tmp_path, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps"))
    assert found is not None
    assert [node.name for node in found.nodes] == ["nvidia-caps", "nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"]
    assert found.words == ("NVRM version: 580.95\n", "Model: L4\n")


def test_another_driver_or_another_card_is_another_gpu(tmp_path: Path) -> None:
    digests = set()
    for number, (version, model) in enumerate([("580.95", "L4"), ("580.96", "L4"), ("580.95", "L40")]):
        found = gpu.find(*make_machine(tmp_path / str(number), "nvidia0", version=version, model=model))
        assert found is not None
        digests.add(found.digest)
    assert len(digests) == 3


def test_the_drivers_libraries_are_where_the_loader_finds_them_and_where_a_link_leads(tmp_path: Path) -> None:
    for name in ("lib64", "real"):
        (tmp_path / name).mkdir()
    (tmp_path / "real" / "libcuda.so.580").touch()
    (tmp_path / "lib64" / "libcuda.so.1").symlink_to(tmp_path / "real" / "libcuda.so.580")
    found = gpu.folders_in(LISTING.format(folder=tmp_path))
    assert found == (tmp_path / "lib64", tmp_path / "real")


def test_libraries_below_usr_are_in_every_cage() -> None:
    assert gpu.folders_in(LISTING.format(folder="/usr")) == ()
    assert gpu.folders_in("") == ()


CARD = Gpu(nodes=(Path("/dev/null"),), folders=(), words=("a card",))


def order(folder: Path, step: Step, name: str = "tensorrt") -> jobs._Order:
    listener = Screen(Console(quiet=True))
    engine = VenvEngine(folder / "cache", "test")
    session = Session(engine=engine, store=Store(folder / "store"), cache=folder, listener=listener)
    return session._order(step, runtime.find(name), {}, {})


@pytest.mark.parametrize(
    ("step", "has_sdk", "given"),
    [
        (Step.RUN, False, True),
        (Step.RUN, True, True),
        (Step.CONVERT, False, False),
        (Step.CONVERT, True, True),
        (Step.QUANTIZE, True, True),
    ],
)
def test_a_job_of_tensorrt_gets_the_gpu_and_the_environment_for_it_only_where_it_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Step, has_sdk: bool, given: bool
) -> None:
    monkeypatch.setattr(gpu, "find", lambda: CARD)
    monkeypatch.setattr(sdk, "find", lambda _: Sdk(variable="TENSORRT_ROOT", folder=tmp_path) if has_sdk else None)
    found = order(tmp_path, step)
    assert found.given.gpu is (CARD if given else None)
    assert found.identity.environment == ("tensorrtgpu" if given else "tensorrt")
    assert found.parts.get("gpu") == (CARD.digest if given else None)


@pytest.mark.parametrize("step", [Step.CONVERT, Step.RUN])
def test_without_a_gpu_nothing_of_it_is_in_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    monkeypatch.setattr(gpu, "find", lambda: None)
    found = order(tmp_path, step)
    assert (found.given.gpu, found.identity.environment) == (None, "tensorrt")
    assert "gpu" not in found.parts


def test_a_runtime_that_asks_for_no_gpu_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "find", lambda: CARD)
    assert order(tmp_path, Step.RUN, "openvino").given.gpu is None
