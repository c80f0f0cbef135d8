"""Olive's passes, as rewrites that a person asks for by name."""
