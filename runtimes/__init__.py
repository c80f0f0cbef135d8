"""What runs inside a toolchain's environment; `contract` is the one module that the host imports too."""
