"""What artefacts are built for, and in which precision."""

from __future__ import annotations

import enum


class Precision(enum.StrEnum):
    """What the graph calculates in."""

    FP16 = "fp16"
    FP32 = "fp32"
    INT8 = "int8"
    A16W8 = "a16w8"

    @property
    def quantized(self) -> bool:
        """Whether it is made with calibration data."""
        return self in (Precision.INT8, Precision.A16W8)

    @property
    def activation_bits(self) -> int:
        """The width of what flows between operators; weights of a quantised graph have 8 bits."""
        return {Precision.INT8: 8, Precision.FP32: 32}.get(self, 16)


class Target(enum.StrEnum):
    """What the artefact is for: one of the chips of `runtimes.kit.qualcomm`, HTP as such, or the CPU."""

    SM8350 = "sm8350"
    SM8450 = "sm8450"
    SM8550 = "sm8550"
    SM8650 = "sm8650"
    SM8750 = "sm8750"
    SM8850 = "sm8850"
    SC8380XP = "sc8380xp"
    QCS9100 = "qcs9100"
    QCM6490 = "qcm6490"
    HTP = "htp"
    CPU = "cpu"

    @property
    def device(self) -> str:
        """The name of its processor in placement tables."""
        return "CPU" if self is Target.CPU else "HTP"

    @property
    def backend(self) -> str:
        """The library of the SDK that calculates on it."""
        return "libQnnCpu.so" if self is Target.CPU else "libQnnHtp.so"
