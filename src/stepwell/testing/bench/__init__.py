"""Workloads that say how fast this machine carries runs on: the whole engine, with every check and every event.

Shipped with the package, since a figure counts only for the machine and the disk that it was measured on.
"""
