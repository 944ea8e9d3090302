"""One kernel log in every wrapping: the same records, as each programme prints them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

Records = Sequence[tuple[int, str]]  # (microseconds since boot, text with its own line breaks)
BOOT = datetime(2026, 9, 17, 2, 0, 0, tzinfo=UTC)
BOOT_ID = "9f34d86891015b3ac0c862de0e6dd494"

LOSS = """NVRM: The NVIDIA GPU 0000:b3:00.0
NVRM: (PCI ID: 10de:26b5) installed in this system has
NVRM: fallen off the bus and is not responding to commands."""

RECORDS: Records = (
    (5_000_000, "Linux version 6.12.9-amd64 (builder@host1) (gcc 13.3.0, GNU ld 2.42) #1 SMP PREEMPT_DYNAMIC"),
    (6_000_100, "usb 1-1: new high-speed USB device number 2 using xhci_hcd"),
    (7_250_000, LOSS),
    (9_000_000, "r8169 0000:06:00.0 eth0: RTL8168h/8111h, 00:00:5e:00:53:01, XID 541, IRQ 158"),
    (12_345_678, "NVRM: Xid (PCI:0000:0f:00): 31, pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"),
    (12_345_679, "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none."),
    (20_000_001, "NVRM: Xid (PCI:0000:17:00 GPU-I:02 GPU-CI:00): 43, pid=31337, name=nvc:[driver], Ch 00000008"),
    (33_000_000, "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt"),
    (33_000_100, "systemd-journald[312]: Received client request to flush runtime journal."),
    (41_000_000, "NVRM: Xid (PCI:0000:af:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
)
# What is in them: kind, Xid, device, pid, process.
EVENTS = (
    ("xid", None, "0000:b3:00.0", None, None),
    ("xid", 31, "0000:0f:00.0", 4242, "python3"),
    ("xid", 43, "0000:17:00.0", 31337, "nvc:[driver]"),
    ("sxid", 22013, "0000:04:00.0", None, None),
    ("xid", 154, "0000:af:00.0", None, None),
)


def _uptime(usec: int) -> str:
    return f"{usec // 1_000_000:5d}.{usec % 1_000_000:06d}"


def _wall(usec: int) -> datetime:
    return BOOT + timedelta(microseconds=usec)


def _headed(head: Callable[[int], str]) -> Callable[[Records], bytes]:
    """Further lines of a record are indented by the width of its head, as dmesg and journalctl do."""

    def render(records: Records) -> bytes:
        lines = []
        for usec, text in records:
            first = head(usec)
            lines.append(first + text.replace("\n", "\n" + " " * len(first)))
        return ("\n".join(lines) + "\n").encode()

    return render


def _repeated(head: Callable[[int], str]) -> Callable[[Records], bytes]:
    """Further lines get the same head, as rsyslog and container runtimes do."""
    return lambda records: "".join(f"{head(usec)}{line}\n" for usec, text in records for line in text.split("\n")).encode()


def _kmsg(records: Records) -> bytes:
    def escaped(text: str) -> str:
        return "".join(sign if " " <= sign <= "~" and sign != "\\" else f"\\x{ord(sign):02x}" for sign in text)

    return "".join(
        f"4,{number},{usec},c,caller=T{number};{escaped(text)}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:0f:00.0\n"
        for number, (usec, text) in enumerate(records)
    ).encode()


def _fields(usec: int, text: str) -> dict[str, str]:
    return {
        "__CURSOR": f"s=1;i={usec}",
        "__REALTIME_TIMESTAMP": str(int(_wall(usec).timestamp() * 1_000_000)),
        "__MONOTONIC_TIMESTAMP": str(usec),
        "_BOOT_ID": BOOT_ID,
        "_TRANSPORT": "kernel",
        "PRIORITY": "4",
        "SYSLOG_FACILITY": "0",
        "SYSLOG_IDENTIFIER": "kernel",
        "_HOSTNAME": "host1",
        "MESSAGE": text,
        "_SOURCE_MONOTONIC_TIMESTAMP": str(usec),
    }


def _export(records: Records) -> bytes:
    def field(name: str, value: str) -> bytes:
        data = value.encode()
        return name.encode() + (b"\n" + len(data).to_bytes(8, "little") + data if "\n" in value else b"=" + data) + b"\n"

    return b"".join(b"".join(field(*each) for each in _fields(*record).items()) + b"\n" for record in records)


def _verbose(records: Records) -> bytes:
    blocks = []
    for usec, text in records:
        fields = "".join(f"    {name}={value}\n" for name, value in _fields(usec, text.replace("\n", " ")).items() if name[:2] != "__")
        blocks.append(f"{_wall(usec):%a %Y-%m-%d %H:%M:%S.%f UTC} [s=1;i=2;b={BOOT_ID};m=3;t=4;x=5]\n{fields}")
    return "".join(blocks).encode()


def _journal_json(records: Records, **layout: int) -> bytes:
    return "".join(json.dumps(_fields(usec, text), **layout) + "\n" for usec, text in records).encode()  # type: ignore[arg-type]


def _journal_bytes(records: Records) -> bytes:
    rows = [{**_fields(usec, text), "MESSAGE": list(text.encode())} for usec, text in records]
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def _dmesg_json(records: Records) -> bytes:
    rows = [{"pri": 4, "time": usec / 1_000_000, "msg": line} for usec, text in records for line in text.split("\n")]
    return json.dumps({"dmesg": rows}, indent=3).replace("},\n      {", "},{").encode()


def _docker(records: Records) -> bytes:
    lines = [f"[{_uptime(usec)}] {line}\n" for usec, text in records for line in text.split("\n")]
    return "".join(
        json.dumps({"log": line, "stream": "stdout", "time": "2026-09-17T06:01:02.123456789Z"}) + "\n" for line in lines
    ).encode()


def _coloured(records: Records) -> bytes:
    return "".join(
        f"\x1b[32m[{_uptime(usec)}] \x1b[0m\x1b[33m{line[:6]}\x1b[0m{line[6:]}\n" for usec, text in records for line in text.split("\n")
    ).encode()


def _wrapped(records: Records) -> bytes:
    """At 80 columns, in the middle of a word, as a terminal's contents are copied."""
    lines = []
    for line in _repeated(lambda usec: f"[{_uptime(usec)}] ")(records).decode().splitlines():
        lines += [line[at : at + 80] for at in range(0, len(line), 80)]
    return ("\n".join(lines) + "\n").encode()


def _numbered(records: Records) -> bytes:
    lines = _repeated(lambda usec: f"[{_uptime(usec)}] ")(records).splitlines()
    return b"".join(b"%d:%s\n" % (number, line) for number, line in enumerate(lines, 1))


def _latin1(records: Records) -> bytes:
    return _headed(lambda usec: f"M\xe4r {_wall(usec):%d %H:%M:%S} host1 kernel: ")(records).decode().encode("latin-1")


DMESG = _headed(lambda usec: f"[{_uptime(usec)}] ")

STYLES: dict[str, Callable[[Records], bytes]] = {
    "dmesg": DMESG,
    "dmesg -T": _headed(lambda usec: f"[{_wall(usec):%a %b %d %H:%M:%S %Y}] "),
    "dmesg -x": _headed(lambda usec: f"kern  :warn  : [{_uptime(usec)}] "),
    "dmesg -r": _repeated(lambda usec: f"<4>[{_uptime(usec)}] "),
    "dmesg -d": _repeated(lambda usec: f"[{_uptime(usec)} <    0.000023>] "),
    "dmesg --time-format=delta": _repeated(lambda _: "[<    0.000023>] "),
    "dmesg --time-format=reltime": _repeated(lambda usec: f"[{_wall(usec):%b%d %H:%M}] " if usec % 2 else "[  +0.000023] "),
    "dmesg --time-format=iso": _headed(lambda usec: f"{_wall(usec):%Y-%m-%dT%H:%M:%S,%f}+00:00 "),
    "dmesg -x --time-format=iso": _headed(lambda usec: f"kern  :warn  : {_wall(usec):%Y-%m-%dT%H:%M:%S,%f}+00:00 "),
    "dmesg with callers": _headed(lambda usec: f"[{_uptime(usec)}] [   T123] "),
    "dmesg with callers, close": _headed(lambda usec: f"[{_uptime(usec)}][    C3] "),
    "dmesg --json": _dmesg_json,
    "dmesg in colour": _coloured,
    "dmesg at 80 columns": _wrapped,
    "dmesg quoted": lambda records: b"".join(b"> " + line for line in DMESG(records).splitlines(keepends=True)),
    "dmesg with carriage returns": lambda records: DMESG(records).replace(b"\n", b"\r\n"),
    "grep -n": _numbered,
    "grep in files": _repeated(lambda usec: f"/var/log/kern.log.1:{_wall(usec):%b %d %H:%M:%S} host1 kernel: "),
    "journalctl short": _headed(lambda usec: f"{_wall(usec):%b %d %H:%M:%S} host1 kernel: "),
    "journalctl short, German": _headed(lambda usec: f"Okt {_wall(usec):%d %H:%M:%S} host1 kernel: "),
    "journalctl short, Chinese": _headed(lambda usec: f"9月 {_wall(usec):%d %H:%M:%S} host1 kernel: "),
    "journalctl short, French": _headed(lambda usec: f"févr. {_wall(usec):%d %H:%M:%S} host1 kernel: "),
    "journalctl short-precise": _headed(lambda usec: f"{_wall(usec):%b %d %H:%M:%S.%f} host1 kernel: "),
    "journalctl short-iso": _headed(lambda usec: f"{_wall(usec):%Y-%m-%dT%H:%M:%S}+0000 host1 kernel: "),
    "journalctl short-iso-precise": _headed(lambda usec: f"{_wall(usec):%Y-%m-%dT%H:%M:%S.%f}+00:00 host1 kernel: "),
    "journalctl short-full": _headed(lambda usec: f"{_wall(usec):%a %Y-%m-%d %H:%M:%S} UTC host1 kernel: "),
    "journalctl short-monotonic": _headed(lambda usec: f"[{_uptime(usec)}] host1 kernel: "),
    "journalctl short-delta": _headed(lambda usec: f"[{_uptime(usec)} <    0.000023 >] host1 kernel: "),
    "journalctl short-unix": _headed(lambda usec: f"{_wall(usec).timestamp():.6f} host1 kernel: "),
    "journalctl cat": _repeated(lambda _: ""),
    "journalctl export": _export,
    "journalctl verbose": _verbose,
    "journalctl json": _journal_json,
    "journalctl json of bytes": _journal_bytes,
    "journalctl json-pretty": lambda records: _journal_json(records, indent=8),
    "journalctl json, all on one line": lambda records: _journal_json(records).replace(b"\n", b" "),
    "syslog": _repeated(lambda usec: f"{_wall(usec):%b %d %H:%M:%S} host1 kernel: [{_uptime(usec)}] "),
    "syslog without a host": _repeated(lambda usec: f"{_wall(usec):%b %d %H:%M:%S} kernel: [{_uptime(usec)}] "),
    "RFC 3164": _repeated(lambda usec: f"<4>{_wall(usec):%b %d %H:%M:%S} host1 kernel: [{_uptime(usec)}] "),
    "RFC 5424": _repeated(lambda usec: f"<4>1 {_wall(usec):%Y-%m-%dT%H:%M:%S.%f}Z host1 kernel - - - [{_uptime(usec)}] "),
    "RFC 5424 with data": _repeated(lambda usec: f'<4>1 {_wall(usec):%Y-%m-%dT%H:%M:%S}Z host1 kernel 0 - [timeQuality tzKnown="1"] '),
    "rsyslog": _repeated(lambda usec: f"{_wall(usec):%Y-%m-%dT%H:%M:%S.%f}+02:00 host1 kernel: [{_uptime(usec)}] "),
    "/dev/kmsg": _kmsg,
    "docker": _docker,
    "CRI": _repeated(lambda usec: f"2026-09-17T06:01:02.123456789Z stdout F [{_uptime(usec)}] "),
    "klog": _repeated(lambda usec: f"I0917 {_wall(usec):%H:%M:%S.%f}       1 xid.go:42] [{_uptime(usec)}] "),
    "a minimal system": _repeated(lambda usec: f"192.0.2.10: kern: warning: [{_wall(usec):%Y-%m-%dT%H:%M:%S.%f}Z]: "),
    "UTF-16": lambda records: DMESG(records).decode().encode("utf-16"),
    "UTF-16 without a mark": lambda records: DMESG(records).decode().encode("utf-16-le"),
    "UTF-8 with a mark": lambda records: b"\xef\xbb\xbf" + DMESG(records),
    "holes of zeros": lambda records: DMESG(records).replace(b"\n", b"\n\0\0\0\0\0\0\0\0", 4),
    "bytes of Latin-1": _latin1,
}  # fmt: skip
