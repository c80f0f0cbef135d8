"""From a network to a serialised engine: for which GPUs, for which shapes, and with which arithmetic."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from runtimes.contract import Kind
from runtimes.kit.ports import Port
from runtimes.kit.work import fail, refuse
from runtimes.tensorrt import device, failures
from runtimes.tensorrt.network import Network
from runtimes.tensorrt.product import ERRORS, Product


class Target(enum.StrEnum):
    """What GPUs of which compute capability an engine is for."""

    SM75 = "sm75"
    SM80 = "sm80"
    SM86 = "sm86"
    SM89 = "sm89"
    SM120 = "sm120"
    SM121 = "sm121"
    ALL = "all"

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The compute capabilities, by the names of TensorRT for RTX."""
        single = tuple(each.name for each in Target if each is not Target.ALL)
        return single if self is Target.ALL else (self.name,)


def build(product: Product, network: Network, target: Target, asked: Sequence[Port]) -> memoryview:
    """Return the serialised engine.

    Args:
        product: what builds.
        network: what is built.
        target: for which GPUs.
        asked: the inputs; dynamic ones get the shapes that stand there, and no other.

    Raises:
        Failed: the builder gave up, or reported an error beside its engine.
        Refused: it cannot build for `target`, or for these inputs.
    """
    config = network.builder.create_builder_config()
    # On by default, and 13 bits shorter than the float32 that the judge compares with.
    config.clear_flag(product.module.BuilderFlag.TF32)
    _aim(product, config, target)
    _fix_shapes(network, config, {port.name: port for port in asked})
    plan = network.builder.build_serialized_network(network.network, config)
    words = product.words(*ERRORS)
    if plan is None:
        failures.end(failures.of_building(words, product.logger.nodes))
    if words:
        fail(Kind.TOOLCHAIN, "TensorRT built an engine, and reported errors:\n" + "\n".join(words))
    return memoryview(plan)


def _aim(product: Product, config: Any, target: Target) -> None:
    """Set the compute capabilities; a product that knows none builds for the GPU that is here, which must be one."""
    if not product.ahead_of_time:
        found = device.find()
        device.check_target(found, target, target.capabilities)
        if target is Target.ALL:
            refuse(
                Kind.OPTION,
                f"target {target}: {product.title} {product.version} builds for {found.capability}, the GPU here, only",
                hint=f"ask for the target {found.capability.lower()}",
            )
        return
    known = product.module.ComputeCapability.__members__
    config.num_compute_capabilities = len(target.capabilities)
    for index, name in enumerate(target.capabilities):
        if name not in known or not config.set_compute_capability(known[name], index):
            refuse(
                Kind.OPTION,
                f"target {target}: {product.title} {product.version} does not build for {name}; "
                f"it knows {', '.join(each for each in known if each.startswith('SM'))}",
            )


def _fix_shapes(network: Network, config: Any, asked: Mapping[str, Port]) -> None:
    """Add an optimisation profile of exactly the asked shapes, where an input is dynamic."""
    dynamic = [port for port in network.inputs if -1 in port.shape]
    if not dynamic:
        return
    profile = network.builder.create_optimization_profile()
    for port in dynamic:
        if port.name not in asked:
            fail(Kind.TOOLCHAIN, f"the network has a dynamic input {port.name!r} that nobody asked for")
        shape = asked[port.name].shape
        profile.set_shape(port.name, shape, shape, shape)
    if config.add_optimization_profile(profile) < 0:
        fail(Kind.DYNAMIC_SHAPE, "TensorRT does not take the profile of the dynamic inputs")
