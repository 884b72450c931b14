"""MCP: tools that other programs offer over the Model Context Protocol.

The law of the file: whatever a server does, a call of one of its tools ends in time with a result or a StepFailed, and
no process of a server outlives the engine that started it.
"""
