"""What the unit allows and forbids, tried out under systemd: on the daemon, and by a sibling that may do exactly what it may.

What is forbidden is done outside as well, where it works: so it is the unit that forbids it. That /sys and /proc/sys are
read-only cannot be seen here, because in a container they are so for everybody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import EAFNOSUPPORT, EPERM, EROFS
from pathlib import Path

import pytest

from tests.daemon.harness import LoopDisk
from tests.rig.container.host import STATE_DIR, UNIT, Host
from tests.rig.container.machine import KERNEL_LOG

EXPOSURE = 3.6  # of 10, less is better; as README has it
CAPABILITIES = {2: "DAC_READ_SEARCH", 19: "SYS_PTRACE", 21: "SYS_ADMIN", 34: "SYSLOG"}  # linux/capability.h
OWN_FOLDERS = (STATE_DIR, "/run/xidwatch")
FOLDERS = (
    *("/etc", "/etc/systemd/system", "/usr/local/bin", "/opt/xidwatch/bin", "/root", "/home", "/srv"),
    *("/var/lib", "/var/log", "/run", "/run/systemd/system", "/sys/fs/cgroup"),
)
FORBIDDEN = {
    "a namespace": EPERM,
    "a mount": EPERM,
    "a packet socket": EAFNOSUPPORT,
    "a device node": EPERM,
    "a set-user-id file": EPERM,
    "memory to write and to run": EPERM,
    "a host name": EPERM,
    "another user": EPERM,
}
# Prints the error number of each attempt, 0 for success. Nothing of it lasts.
ATTEMPTS = """
import ctypes, json, mmap, os, socket

libc = ctypes.CDLL(None, use_errno=True)

def call(name, *arguments):
    if getattr(libc, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)

def make_folder(folder):
    os.mkdir(folder + "/made-by-a-test")
    os.rmdir(folder + "/made-by-a-test")

def make_set_user_id():
    os.close(os.open("/var/lib/xidwatch/made-by-a-test", os.O_CREAT))
    try:
        os.chmod("/var/lib/xidwatch/made-by-a-test", 0o4755)
    finally:
        os.unlink("/var/lib/xidwatch/made-by-a-test")

def make_device():
    os.mknod("/dev/made-by-a-test", 0o20600, os.makedev(1, 3))
    os.unlink("/dev/made-by-a-test")

def mount():
    call("mount", b"tmpfs", b"/srv", b"tmpfs", 0, None)
    call("umount2", b"/srv", 0)

DEEDS = {
    "a set-user-id file": make_set_user_id,
    "a device node": make_device,
    "a mount": mount,
    "memory to write and to run": lambda: mmap.mmap(-1, 4096, prot=7),
    "a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
    "a host name": lambda: call("sethostname", b"rig", 3),
    "a namespace": lambda: call("unshare", 0x04000000),  # CLONE_NEWUTS
    "another user": lambda: os.setuid(65534),
}

def error_of(deed, *arguments):
    try:
        deed(*arguments)
    except OSError as error:
        return error.errno
    return 0

print(json.dumps([
    {folder: error_of(make_folder, folder) for folder in FOLDERS},
    {name: error_of(deed) for name, deed in DEEDS.items()},
]))
"""

pytestmark = [pytest.mark.rig, pytest.mark.root, pytest.mark.slow]


def test_the_exposure_is_what_the_readme_says(host: Host) -> None:
    """`systemd-analyze security` rates the unit as installed."""
    said = host.run("systemd-analyze", "security", UNIT)
    found = re.search(r"Overall exposure level for xidwatch.service: ([0-9.]+)", said)
    assert found
    print(found[0])
    assert float(found[1]) <= EXPOSURE


def test_all_processes_hold_the_four_capabilities_and_can_gain_none(new_host: Callable[..., Host]) -> None:
    """The daemon, its workers, and the sibling, which therefore can speak for them."""
    host = new_host(kernel_log=True)  # no container has CAP_SYSLOG otherwise
    host.start()
    four = f"{sum(1 << number for number in CAPABILITIES):016x}"
    wanted = {"CapEff": four, "CapBnd": four, "NoNewPrivs": "1", "Seccomp": "2"}
    group = host.container.show(UNIT, "ControlGroup")["ControlGroup"]
    pids = host.run("cat", f"/sys/fs/cgroup{group}/cgroup.procs").split()
    held = [{key: status[key] for key in wanted} for pid in pids if (status := host.process(int(pid)))]
    assert len(held) > 5
    assert held == [wanted] * len(held)
    said = dict(line.split(":", 1) for line in host.sibling("cat /proc/self/status").splitlines())
    assert {key: said[key].strip() for key in wanted} == wanted


def test_nothing_is_writable_but_its_two_folders_and_nothing_forbidden_succeeds(host: Host) -> None:
    """Root outside the unit can do all of it; inside a file system is read-only and a deed not permitted."""
    script = f"FOLDERS = {(*OWN_FOLDERS, *FOLDERS)!r}\n{ATTEMPTS}"
    inside = host.sibling_json(script)
    outside = json.loads(host.run("/usr/bin/python3", "-c", script))
    assert outside == [dict.fromkeys((*OWN_FOLDERS, *FOLDERS), 0), dict.fromkeys(FORBIDDEN, 0)]
    assert inside == [dict.fromkeys(OWN_FOLDERS, 0) | dict.fromkeys(FOLDERS, EROFS), FORBIDDEN]


def test_homes_and_other_services_temporary_files_are_not_to_be_seen(host: Host) -> None:
    """/root, /home and /tmp are empty inside, whatever is in them."""
    for folder in ("home", "root", "tmp"):
        host.container.path(f"/{folder}/secret").write_text("x")
    host.run("cat", "/home/secret", "/root/secret", "/tmp/secret")
    assert host.sibling("ls -A /home /root /tmp").split() == ["/home:", "/root:", "/tmp:"]


def test_what_only_a_privileged_reader_is_shown_can_be_read(host: Host) -> None:
    """All of a real device's configuration space, not just the first 64 bytes, and where in the kernel somebody else's process is."""
    configs = [path / "config" for path in Path("/sys/bus/pci/devices").iterdir()]
    sizes = {str(config): config.stat().st_size for config in configs}
    if not any(size > 64 for size in sizes.values()):
        pytest.skip("needs a PCI device")
    read = f"import json; print(json.dumps({{path: len(open(path, 'rb').read()) for path in {list(sizes)}}}))"
    assert host.sibling_json(read) == sizes
    if Path("/proc/self/stack").exists():
        assert host.sibling("cat /proc/1/stack").startswith("[<")


def test_a_device_that_comes_later_can_be_opened(host: Host) -> None:
    """There is no allow-list and no private /dev: the driver's nodes appear when the driver is loaded."""
    host.run("mknod", "/dev/nvidia0", "c", "1", "3")  # /dev/null by another name
    host.sibling("exec 3<>/dev/nvidia0")


def test_the_machines_kernel_log_can_be_read(new_host: Callable[..., Host]) -> None:
    """The real device, whatever kernel.dmesg_restrict says here: by the sibling, and by the daemon, which has no complaint."""
    host = new_host(kernel_log=True)
    read = f"import json, os; print(json.dumps(os.read(os.open({KERNEL_LOG!r}, os.O_RDONLY | os.O_NONBLOCK), 8192).decode()))"
    assert re.match(r"\d+,\d+,\d+,", host.sibling_json(read))
    host.start()
    assert not [line for line in host.lines() if "kmsg" in line]


def test_announcements_of_the_kernel_are_heard(host: Host, tmp_path: Path) -> None:
    """A loop device that is set up on the machine is announced to a netlink socket of the sibling."""
    listen = """
import json, select, socket
heard = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)  # NETLINK_KOBJECT_UEVENT
heard.bind((0, 1))
open("/var/lib/xidwatch/listens", "w").close()
print(json.dumps(heard.recv(8192).split(b"\\0")[0].decode() if select.select([heard], [], [], 20)[0] else ""))
"""
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(host.sibling_json, listen)
        host.until("somebody listens", (host.state_dir / "listens").exists)
        LoopDisk(tmp_path / "announced").unmount()
        assert re.match(r"[a-z]+@/devices/", answer.result())


def test_an_engine_is_started_and_stopped_by_name(host: Host) -> None:
    """What the supervisor will need: `systemctl start`, `stop` and `show` reach systemd from within the limits."""
    host.add_unit("engine.service", "[Service]\nExecStart=/bin/sleep infinity\n")
    host.sibling("systemctl start --no-block engine.service")
    host.until_unit("engine.service", ActiveState="active", SubState="running")
    run = host.container.show("engine.service", "InvocationID", "MainPID")
    said = host.sibling("systemctl show engine.service --property=InvocationID,MainPID")
    assert dict(line.split("=", 1) for line in said.splitlines()) == run
    host.sibling("systemctl stop --no-block engine.service")
    host.until_unit("engine.service", ActiveState="inactive", SubState="dead")
