"""Do one job inside a toolchain's environment: read it, hand it to the adapter, write down what came of it."""
