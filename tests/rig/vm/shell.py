"""`make rig-shell`: this terminal becomes one of the guest's. Without a terminal: a line in, its output out."""

from __future__ import annotations

import os
import select
import socket
import sys
import termios
import tty

from tests.rig.vm.guest import Guest

LEAVE = b"\x1d"  # Ctrl-]
COMMAND_SECONDS = 3600.0


def shell(guest: Guest) -> None:
    """Until the person leaves, or the input ends."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            print(guest.run(line, seconds=COMMAND_SECONDS, check=False), end="", flush=True)
        return
    print("root in the guest, xidwatch running; Ctrl-] leaves and throws the guest away\r")
    size = os.get_terminal_size()
    before = termios.tcgetattr(sys.stdin)
    with guest.machine.connect("shell") as line:
        line.sendall(f"stty rows {size.lines} cols {size.columns}; clear\n".encode())
        tty.setraw(sys.stdin)
        try:
            _relay(line)
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _relay(line: socket.socket) -> None:
    while True:
        ready, _, _ = select.select([sys.stdin, line], [], [])
        if line in ready:
            os.write(sys.stdout.fileno(), line.recv(1 << 16))
        if sys.stdin in ready:
            typed = os.read(sys.stdin.fileno(), 1 << 10)
            if not typed or LEAVE in typed:
                return
            line.sendall(typed)
