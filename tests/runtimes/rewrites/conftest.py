"""Hypothesis here: each example runs ONNX Runtime twice, and on a busy machine that takes as long as it takes."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("rewrites", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rewrites")
