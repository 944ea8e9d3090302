"""What happened, told from the records.

Law: it reads records and nothing else: no hardware, no daemon, no state of the running host. So it says the same while
the daemon runs, after the machine died, and on a copy of the state directory on another machine. It retells facts; it
names no cause.
"""
