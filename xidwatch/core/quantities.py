"""Every quantity a probe may report: the one list of names, meanings and sources.

Law: a table and its lookups. The unit is in the name. A probe reports nothing that is not here (a test checks it);
CSV headers, metric help and the documentation are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xidwatch.core.model import Missing, Value


@dataclass(frozen=True, slots=True)
class Quantity:
    """One kind of fact. `hex_digits` > 0: printed as that many hexadecimal digits. `fact`: inventory, not a column."""

    name: str
    meaning: str
    source: str
    hex_digits: int = 0
    fact: bool = False


_NVML = "NVML through nvidia-ml-py: "
_SYSFS = "sysfs PCI device folder: "
_HWMON = "/sys/class/hwmon: "
_UNIT = "systemctl show: "
_METRICS = "the engine's own metrics: "

TABLE: tuple[Quantity, ...] = (
    # --- gpu, from the NVIDIA driver
    Quantity("nvml_status", "NVML's answer for this GPU: 0 answered, 15 lost, 16 reset required", _NVML + "error codes"),
    Quantity(
        "power_mean_watts",
        "mean draw since the last tick, from the energy counter",
        _NVML + "GetTotalEnergyConsumption; of a chip: energy*_input, or RAPL's energy_uj",
    ),
    Quantity("power_average_watts", "draw averaged by the driver over 1 s", _NVML + "GetPowerUsage"),
    Quantity("power_instant_watts", "latest sensor reading, renewed about every 100 ms", _NVML + "field 186"),
    Quantity("power_peak_watts", "highest entry of the driver's 20 ms sample buffer since the last tick", _NVML + "GetSamples TOTAL_POWER"),
    Quantity(
        "power_samples",
        "how many buffer entries the peak is taken from (50 a second when nothing is missed)",
        _NVML + "GetSamples TOTAL_POWER",
    ),
    Quantity(
        "power_trace_source",
        "what power over time is taken from: buffer (the driver's own samples), poll_instant or poll_average (the sensor when asked)",
        _NVML + "GetSamples TOTAL_POWER, field 186, GetPowerUsage",
        fact=True,
    ),
    Quantity("power_limit_watts", "enforced power limit: the lowest of all limiters", _NVML + "GetEnforcedPowerLimit"),
    Quantity("temperature_celsius", "GPU core", _NVML + "GetTemperature"),
    Quantity("temperature_memory_celsius", "memory, where the board reports it (HBM)", _NVML + "field 82"),
    Quantity("clock_sm_mhz", "streaming multiprocessor clock", _NVML + "GetClockInfo SM"),
    Quantity("clock_memory_mhz", "memory clock", _NVML + "GetClockInfo MEM"),
    Quantity("utilisation_ratio", "share of the sampling period with a kernel running, 0 to 1", _NVML + "GetUtilizationRates"),
    Quantity("memory_used_bytes", "device memory in use", _NVML + "GetMemoryInfo"),
    Quantity(
        "clock_event_reasons",
        "why clocks are held back, as NVML's bit mask at this instant",
        _NVML + "GetCurrentClocksEventReasons",
        hex_digits=4,
    ),
    Quantity("performance_state", "P-state, 0 (fastest) to 15", _NVML + "GetPerformanceState"),
    Quantity("nvml_link_generation", "PCIe generation now; idle GPUs drop to 1 and that is no fault", _NVML + "GetCurrPcieLinkGeneration"),
    Quantity("nvml_link_width", "PCIe lanes now, as the GPU sees them", _NVML + "GetCurrPcieLinkWidth"),
    Quantity("pcie_replays", "link-level replays since the driver loaded; only a rate says anything", _NVML + "GetPcieReplayCounter"),
    Quantity(
        "recovery_action",
        "what the driver asks for: 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset",
        _NVML + "field 230",
    ),
    # --- port, gpu, nvme: configuration space and link
    Quantity(
        "config_dword0",
        "vendor and device id as the hardware answers; ffffffff = nobody answered",
        _SYSFS + "config, first dword",
        hex_digits=8,
    ),
    Quantity(
        "command", "PCI command register; loses its enable bits when the device lost power", _SYSFS + "config, offset 04", hex_digits=4
    ),
    Quantity("primary_bus", "bridge: bus above", _SYSFS + "config, offset 18", hex_digits=2),
    Quantity("secondary_bus", "bridge: bus below; 0 after the bridge lost power", _SYSFS + "config, offset 19", hex_digits=2),
    Quantity("subordinate_bus", "bridge: highest bus below", _SYSFS + "config, offset 1a", hex_digits=2),
    Quantity("link_gts", "link speed now, GT/s per lane; idle GPUs drop to 2.5 and that is no fault", _SYSFS + "current_link_speed"),
    Quantity("link_width", "lanes now, 0 without a link", _SYSFS + "current_link_width, where 63 is a dead device and no width"),
    Quantity("aer_correctable", "correctable errors this device detected since it was enumerated", _SYSFS + "aer_dev_correctable, TOTAL"),
    Quantity("aer_nonfatal", "non-fatal errors this device detected", _SYSFS + "aer_dev_nonfatal, TOTAL"),
    Quantity("aer_fatal", "fatal errors this device detected", _SYSFS + "aer_dev_fatal, TOTAL"),
    Quantity("aer_root_correctable", "root port: correctable error messages received from below", _SYSFS + "aer_rootport_total_err_cor"),
    Quantity("aer_root_nonfatal", "root port: non-fatal error messages received from below", _SYSFS + "aer_rootport_total_err_nonfatal"),
    Quantity("aer_root_fatal", "root port: fatal error messages received from below", _SYSFS + "aer_rootport_total_err_fatal"),
    Quantity("driver", "kernel driver bound, empty when none", _SYSFS + "driver link", fact=True),
    Quantity("pci_functions", "PCI functions in the kernel's list, of every kind", "/sys/bus/pci/devices"),
    Quantity("board", "vendor:device and subsystem as the kernel cached them", _SYSFS + "vendor, device, subsystem_*", fact=True),
    Quantity(
        "aer_native",
        "1 this kernel handles AER messages of the root port above, 0 nobody or the firmware does",
        "/sys/bus/pci_express/drivers/aer",
        fact=True,
    ),
    # --- rail, as the operator has named it
    Quantity(
        "volts", "voltage of the rail itself; of a chip only where its driver is known to give that", _HWMON + "in*_input times the factor"
    ),
    Quantity(
        "present",
        "1 it is there (the input a rail is measured by; a function in the list of PCI devices), 0 it is not",
        _HWMON + "in*_input; /sys/bus/pci/devices",
    ),
    Quantity("nominal_volts", "what the rail should have", "configuration, [[rails]]", fact=True),
    Quantity("tolerance_ratio", "how far from nominal is still good, as a share of it", "configuration, [[rails]]", fact=True),
    # --- chip: sensor inputs nobody has named. Raw, and never judged
    Quantity("pin_volts", "voltage at the pin of the chip, behind whatever divider the board has: no rail", _HWMON + "in*_input"),
    Quantity("amperes", "current", _HWMON + "curr*_input"),
    Quantity("watts", "power", _HWMON + "power*_input, else power*_average"),
    Quantity("celsius", "temperature", _HWMON + "temp*_input"),
    Quantity("rpm", "revolutions a minute", _HWMON + "fan*_input"),
    Quantity("alarm", "an alarm bit of the chip, against limits the firmware left: evidence, no judgement", _HWMON + "*_alarm"),
    *(
        Quantity(f"{which}_alarm", f"the chip's alarm bit for its {meaning}", _HWMON + f"*_{which}_alarm")
        for which, meaning in (
            ("min", "minimum"),
            ("max", "maximum"),
            ("lcrit", "critical minimum"),
            ("crit", "critical maximum"),
            ("cap", "power cap"),
            ("emergency", "emergency maximum"),
        )
    ),
    # --- engine: its unit, its processes, and what it says of itself
    Quantity("active_state", "systemd's word for the unit: active, activating, deactivating, inactive, failed ...", _UNIT + "ActiveState"),
    Quantity("sub_state", "the same, finer: running, start-pre, stop-sigterm, auto-restart ...", _UNIT + "SubState"),
    Quantity(
        "invocation_id",
        "which run of the unit this is: another one has been started anew",
        "/run/systemd/units/invocation:*, else systemctl show: InvocationID",
    ),
    Quantity("main_pid", "main process; 0 there is none", _UNIT + "MainPID"),
    Quantity("restarts", "automatic restarts by systemd since the unit was started by somebody", _UNIT + "NRestarts"),
    Quantity("result", "how the unit ended last: success, exit-code, signal, timeout, oom-kill ...", _UNIT + "Result"),
    Quantity("exit_code", "how the main process ended: 0 not yet, 1 exited, 2 killed, 3 dumped core", _UNIT + "ExecMainCode"),
    Quantity("exit_status", "its exit status, or the signal that ended it", _UNIT + "ExecMainStatus"),
    Quantity("state_seconds", "time since the unit's state changed", _UNIT + "StateChangeTimestampMonotonic"),
    Quantity(
        "processes",
        "processes in its control group and in those of the containers it starts, whatever has become of its main one",
        "cgroup.procs below its groups",
    ),
    Quantity("resident_bytes", "sum of their resident memory; what they share counts for each", "/proc/PID/stat, field 24"),
    Quantity(
        "processes_uninterruptible",
        "those with a thread in uninterruptible sleep at this instant; normal for moments, a stuck driver when it lasts",
        "/proc/PID/task/*/stat, field 3",
    ),
    Quantity(
        "uninterruptible_seconds", "how long the longest of these threads has been found so at every tick, 0 when none", "/proc/PID/task"
    ),
    Quantity(
        "uninterruptible_thread", "its number, name and the kernel function it waits in; empty when none", "/proc/PID/task/*/{stat,wchan}"
    ),
    Quantity("metrics_status", "HTTP status of its metrics; 503 while a model is loaded", "loopback, [[engines]] metrics"),
    Quantity("requests_running", "requests being worked on", _METRICS + "running, processing"),
    Quantity("requests_waiting", "requests waiting for their turn", _METRICS + "waiting, queue, deferred"),
    Quantity("prompt_tokens", "prompt tokens since it was started", _METRICS + "prompt_tokens_total"),
    Quantity(
        "generated_tokens",
        "generated tokens since it was started; llama.cpp counts them when a request ends",
        _METRICS + "generation_tokens_total",
    ),
    Quantity("prompt_tokens_per_second", "mean rate since the last tick", _METRICS + "prompt_tokens_total"),
    Quantity("generated_tokens_per_second", "mean rate since the last tick", _METRICS + "generation_tokens_total"),
    Quantity("generation_throughput", "generated tokens per second as the engine itself puts it", _METRICS + "gen_throughput"),
    Quantity("kv_cache_usage_ratio", "share of the key-value cache in use, 0 to 1", _METRICS + "kv_cache_usage_perc, token_usage"),
    # --- host
    Quantity("load_1m", "load average over a minute", "/proc/loadavg"),
    Quantity("cpu_busy_ratio", "share of all CPUs busy since the last tick, 0 to 1", "psutil.cpu_times"),
    Quantity("memory_available_bytes", "memory a program could still get without swapping", "psutil.virtual_memory"),
    Quantity("swap_used_bytes", "swap in use", "psutil.swap_memory"),
    Quantity("pressure_cpu_ratio", "share of the last 10 s in which some task waited for a CPU", "/proc/pressure/cpu, some avg10"),
    Quantity("pressure_memory_ratio", "share of the last 10 s in which some task waited for memory", "/proc/pressure/memory, some avg10"),
    Quantity("pressure_io_ratio", "share of the last 10 s in which some task waited for storage", "/proc/pressure/io, some avg10"),
    Quantity("tasks_blocked", "tasks in uninterruptible sleep at this instant", "/proc/stat, procs_blocked"),
    Quantity("uptime_seconds", "time since boot", "/proc/uptime"),
    # --- kernel log, counted by the watch itself
    Quantity("xid_lines_45s", "Xid records of kernel origin in the last 45 s", "/dev/kmsg"),
    Quantity("xid_lines_since_last_tick", "Xid records of kernel origin since the last tick", "/dev/kmsg"),
    Quantity("last_seq", "sequence number of the last kernel record read", "/dev/kmsg"),
    Quantity("gap_records", "kernel records lost since the last tick because the ring overran", "/dev/kmsg, sequence numbers"),
    Quantity("driver_fatal_lines", "driver-fatal records naming this device in this boot, since it was last released", "/dev/kmsg"),
    Quantity("bus_lost_lines", "records saying this device left the bus in this boot, since it was last released", "/dev/kmsg"),
    # --- port, gpu, nvme: worked out by the watch itself
    Quantity("managed", "1 the nvidia driver was the last one seen bound to it, 0 another or none ever was", "driver link, remembered"),
    Quantity("gpus_below", "GPUs of the nvidia driver known to belong below this port", "chains, remembered"),
    Quantity("link_end", "lower or upper: which end of its link it is; the lower one speaks for both", "chain"),
    Quantity("capable_link_width", "lanes that both ends of the link can do", _SYSFS + "max_link_width of both"),
    Quantity(
        "in_baseline",
        "1 the operator has accepted it, 0 it has come since; UNSUPPORTED while nobody has accepted anything",
        "baseline.json",
    ),
    Quantity("identity", "who it is, by all that can be compared: ids, serial, UUID", "board, serial and uuid, remembered"),
    Quantity("aer_correctable_1h", "correctable errors counted in the last hour, as far as this run has watched", "aer_correctable"),
    Quantity("aer_nonfatal_new", "non-fatal errors counted since the tick before", "aer_nonfatal"),
    Quantity("aer_fatal_new", "fatal errors counted since the tick before", "aer_fatal"),
    Quantity("aer_root_fatal_new", "root port: fatal error messages from below since the tick before", "aer_root_fatal"),
    # --- probe: the watcher watched
    Quantity("success", "1 when the last request was answered in full, else 0", "worker protocol"),
    Quantity(
        "answering",
        "0 when the last request was late or broke off, and until one has been answered without doing so again; else 1",
        "worker protocol",
    ),
    Quantity("took_ms", "how long the last answer took", "worker protocol"),
    Quantity("age_seconds", "time since the last full answer", "worker protocol"),
    Quantity(
        "stuck_seconds", "how long the oldest unanswered request has been waiting past its deadline, 0 when none is", "worker protocol"
    ),
    Quantity("at", "what its worker was at when it got stuck, was late or broke off, empty when it was not", "worker protocol"),
    # --- inventory facts
    Quantity(
        "chain",
        "root bus, device.function of every bridge from the root port down, then its own: the same place after renumbering",
        _SYSFS + "real path",
        fact=True,
    ),
    Quantity("parent", "address of the bridge above, empty on a root bus", _SYSFS + "real path", fact=True),
    Quantity("vendor", "vendor id as the kernel cached it", _SYSFS + "vendor", hex_digits=4, fact=True),
    Quantity("device", "device id as the kernel cached it", _SYSFS + "device", hex_digits=4, fact=True),
    Quantity("subsystem", "subsystem vendor:device as the kernel cached it", _SYSFS + "subsystem_vendor, subsystem_device", fact=True),
    Quantity("class", "PCI class code", _SYSFS + "class", hex_digits=6, fact=True),
    Quantity(
        "port_type",
        "root, upstream, downstream or bridge, by position in the tree and config space",
        _SYSFS + "config, PCIe capability",
        fact=True,
    ),
    Quantity("max_link_gts", "fastest the link can go, read while healthy", _SYSFS + "max_link_speed", fact=True),
    Quantity("max_link_width", "widest the link can be, read while healthy", _SYSFS + "max_link_width", fact=True),
    Quantity("slot", "physical slot name, where the firmware names one", "/sys/bus/pci/slots/*/address", fact=True),
    Quantity("numa_node", "-1 when the firmware does not say", _SYSFS + "numa_node", fact=True),
    Quantity(
        "aer", "1 when the kernel keeps AER counters for it (says nothing about who owns AER)", _SYSFS + "aer_dev_correctable", fact=True
    ),
    Quantity("uuid", "GPU UUID", _NVML + "GetUUID", fact=True),
    Quantity("minor_number", "N of /dev/nvidiaN", _NVML + "GetMinorNumber", fact=True),
    Quantity("compute_pids", "processes with a compute context on it", _NVML + "GetComputeRunningProcesses", fact=True),
    Quantity("serial", "board serial, where the board has one", _NVML + "GetSerial", fact=True),
    Quantity("name", "product name", _NVML + "GetName", fact=True),
    Quantity("vbios", "VBIOS version", _NVML + "GetVbiosVersion", fact=True),
    Quantity("nvml_index", "NVML index now; moves when a GPU is missing", _NVML + "handle order", fact=True),
    Quantity("power_limit_default_watts", "factory power limit", _NVML + "GetPowerManagementDefaultLimit", fact=True),
    Quantity(
        "p2p_peers",
        "how many other GPUs of this host it may read peer to peer, as the driver allows it; no proof that traffic flows",
        _NVML + "GetP2PStatus READ",
        fact=True,
    ),
    Quantity("mig_mode", "1 the GPU is divided into instances (MIG), 0 it is whole", _NVML + "GetMigMode", fact=True),
    Quantity("version", "driver version", _NVML + "SystemGetDriverVersion", fact=True),
    Quantity("hwmon_chips", "sensor chips the kernel has registered", "/sys/class/hwmon", fact=True),
    Quantity("voltage_inputs", "voltage inputs of the chips that are read", _HWMON + "in*_input", fact=True),
    Quantity("rail_proposal", "an input that could be a +12 V rail, as it would be configured", _HWMON + "in*_input", fact=True),
    Quantity("rapl_zones", "energy counters of the processors", "/sys/class/powercap/intel-rapl:*", fact=True),
    Quantity("measured_by", "chip and input of a rail", "configuration, [[rails]]", fact=True),
    Quantity("left_out", "driver to be named in probes.hwmon.poll if the chip is to be read", _HWMON + "name", fact=True),
    Quantity("label", "what the driver calls an input", _HWMON + "*_label", fact=True),
    Quantity("load_state", "whether systemd knows the unit: loaded, masked, not-found, bad-setting ...", _UNIT + "LoadState", fact=True),
    Quantity(
        "unit_file_state", "whether it starts with the host: enabled, disabled, masked, static ...", _UNIT + "UnitFileState", fact=True
    ),
    Quantity("control_group", "its control group", _UNIT + "ControlGroup, else looked for", fact=True),
    Quantity("starts_container", "1 its command starts a container (docker, podman, nerdctl)", _UNIT + "ExecStart", fact=True),
    Quantity(
        "pids", "processes in its control group, and in those of the containers it starts", "cgroup.procs below its groups", fact=True
    ),
    Quantity("server", "what kind of engine it is, by the names of its metrics", _METRICS + "prefix", fact=True),
    Quantity("gpus", "GPUs an engine has been seen to use", "NVML's processes of each GPU, joined with those of the unit", fact=True),
    Quantity("functions_unread", "PCI ports, GPUs and drives left out, since there are too many of them", _SYSFS + "class", fact=True),
    Quantity("virtual_functions", "NVIDIA SR-IOV functions, made for virtual machines (vGPU); not read", _SYSFS + "physfn link", fact=True),
    Quantity("serving_port", "port of loopback an engine serves at, as far as that can be seen", "/proc/net/tcp, /proc/PID/fd", fact=True),
    Quantity("functions_elsewhere", "PCI functions of other kinds, not read", _SYSFS + "class", fact=True),
)

BY_NAME: dict[str, Quantity] = {quantity.name: quantity for quantity in TABLE}


def text(name: str, value: Value) -> str:
    """A value as records and messages print it; empty for a missing one."""
    if isinstance(value, Missing):
        return ""
    quantity = BY_NAME.get(name)
    if quantity and quantity.hex_digits and isinstance(value, int):
        return f"{value:0{quantity.hex_digits}x}"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    return str(value)
