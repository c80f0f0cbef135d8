"""aipc for MCP clients: its commands as tools, its skills as resources, over stdin and stdout.

Every tool is a command of aipc in a process of its own, so that a client and a person get the same, nothing but the
protocol can reach stdout, and a call that is cancelled ends with all that it started.
"""
