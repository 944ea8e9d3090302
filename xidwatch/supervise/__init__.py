"""Stopping and starting engines: what is done to units, in a process that may be abandoned. Nothing here decides."""
