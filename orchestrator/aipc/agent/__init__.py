"""The agent's other half, on the host: one socket to a model and to jobs; key, bounds and transcript stay here.

The agent itself runs in a container without a network (runtimes/agent); nothing that it says is believed.
"""
