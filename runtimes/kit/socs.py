"""Qualcomm's SoCs: what the two Qualcomm runtimes build for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Soc:
    """A system on a chip with a Hexagon processor.

    Attributes:
        name: Qualcomm's, in small letters; the name of a target.
        number: `soc_model` of QNN.
        arch: the version of the Hexagon processor, like v75.
        vtcm_mb: its tightly coupled memory.
        stamp: its name in a context binary, the same in capitals unless it says otherwise.
        floats: whether QNN 2.51 builds a graph of floats for it; see docs/runtimes/ortqnn.md.
    """

    name: str
    number: int
    arch: str
    vtcm_mb: int
    stamp: str = ""
    floats: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "stamp", self.stamp or self.name.upper())


SOCS: Mapping[str, Soc] = {
    soc.name: soc
    for soc in (
        Soc(name="sm8650", number=57, arch="v75", vtcm_mb=8),
        Soc(name="sm8550", number=43, arch="v73", vtcm_mb=8),
        Soc(name="sm8750", number=69, arch="v79", vtcm_mb=8),
        Soc(name="sm8850", number=87, arch="v81", vtcm_mb=8),
        Soc(name="sm8450", number=36, arch="v69", vtcm_mb=8),
        Soc(name="sm8350", number=30, arch="v68", vtcm_mb=4),
        Soc(name="sc8380xp", number=60, arch="v73", vtcm_mb=8),
        Soc(name="qcs9100", number=77, arch="v73", vtcm_mb=8),
        Soc(name="qcm6490", number=93, arch="v68", vtcm_mb=2, stamp="QCS6490", floats=False),
    )
}
"""The SoCs that artefacts are built for, by name."""
