"""What a vendor need not know, in any text, each thing by the same mask wherever it stands, so that what belongs together still does.

    GPU-5f0c1a2b-...  ->  GPU-00000000-0000-0000-0000-000000000001      a boot id keeps its own form, ...-4000-8000-...
    10.20.0.7         ->  192.0.2.1                                     IPv6 2001:db8::1, MAC 02:00:00:00:00:01
    alice@gpu-box-3   ->  user1@host1                                   and wherever either name is said without the other
    /home/alice       ->  /home/user1
    serial 1322621004 ->  serial 0000000000001

Two passes: `learn` everything first, then `mask`: a name that is known from one place is found in all the others. PCI addresses, times
and versions are the evidence, and stay. Law: what is not sure to be harmless is masked; a false alarm costs a word, a miss cannot be
taken back. Masks are from the ranges kept for documentation (RFC 5737, RFC 3849; locally administered MAC).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from xidwatch.core.quantities import BY_NAME

HIDDEN = "[masked]"
UUID, BOOT, SERIAL, IPV4, IPV6, MAC, HOST, USER, WORD = "UUID", "boot id", "serial", "IPv4", "IPv6", "MAC", "host", "user", "word"
SHORTEST_ANYWHERE = 4  # characters of a name that is looked for within longer words too
NOBODY = frozenset({"root", "localhost", "none", "nobody", "shared", "lost+found"})
# Sensors are called CHIP@BUS/PLACE: no user at a host.
_BUSES = frozenset({"platform", "pci", "i2c", "isa", "acpi", "spi", "usb", "hid", "virtual", "mdio", "scsi", "nvme", "wmi", "soc"})
_TERMS = {
    "gpu", "port", "nvme", "chip", "rail", "host", "kernel", "probe", "driver", "nvidia", "pci", "pcie", "linux", "python", "xid", "sxid",
    "time", "tick", "boot", "boot_id", "journal", "samples", "incident", "transition", "action", "outcome", "opened", "closed", "started",
    "stopped", "missing", "inventory", "subject", "type", "before", "after", "reason", "severity", "version", "true", "false", "unknown",
    "serial", "uuid", "name", "class", "device", "vendor", "parent", "chain", "slot", "interval", "rails", "end", "start", "set", "lost",
    "found", "die", "revive", "text", "kind", "masked", "nvrm", "aer", "pcieport", "error", "bus", "cpu", "memory", "gsp", "uvm", "remark",
} | set(BY_NAME)  # fmt: skip
_VOCABULARY = " ".join(sorted(_TERMS))

_HEX = "[0-9A-Fa-f]"
_UUID = re.compile(rf"(?<!{_HEX}){_HEX}{{8}}-?(?:{_HEX}{{4}}-?){{3}}{_HEX}{{12}}(?!{_HEX})")
_MAC = re.compile(rf"(?<!{_HEX}){_HEX}{{2}}([:-])(?:{_HEX}{{2}}\1){{4,}}{_HEX}{{2}}(?!{_HEX})")
_COLONS = re.compile(rf"(?<![0-9A-Fa-f:]){_HEX}*(?::{_HEX}*){{2,}}(?:(?<={_HEX})(?:\.\d{{1,3}}){{3}})?(?![g-zG-Z_])")
# Five groups are the version of a board's firmware.
_IPV4 = re.compile(r"(?<!\d)(?<!\d\.)\d{1,3}(?:\.\d{1,3}){3}(?!\d)(?!\.[0-9A-Fa-f]{2}(?![\w.]))")
_HOME = re.compile(r"(?<=/home/|Users/)[^/\s\"'`:,;<>()\[\]]+")
_AT = re.compile(r"(?<![\w.+-])(?P<user>[\w.+-]+)@(?P<host>[^\W_][\w-]*(?:\.[\w-]+)*)")
_URL = re.compile(r"(?<=://)(?P<host>[A-Za-z][\w.-]*)")
_HOST = re.compile(r"(?:hostname(?: set to|\s*[:=])|\bnode ?name\s*[:=]|\bhost=)\s*[<\"']?(?P<host>[A-Za-z0-9][\w.-]*)", re.IGNORECASE)
_USER = re.compile(r"\b(?:user(?:name)?|login|acct)\s*[:=]\s*[<\"']?(?P<user>[A-Za-z_][\w.-]*)", re.IGNORECASE)
_SERIAL = re.compile(
    r"(?:\bserial|\bS/N)(?:[ _-]*(?:number|no\b\.?))?(?:\s+is\b)?(?:\s*[:=#]\s*|\s+|\"\s*:\s*)[\"']?"
    r"(?P<serial>(?=[\w-]*\d)[A-Za-z0-9][\w-]{4,})",
    re.IGNORECASE,
)
_SAID = re.compile(r"((?:command line|cmdline|argv|prompt)s?\s*[:=])[^\n]*", re.IGNORECASE)


class Masker:
    """All that was learnt, and its masks. `used`: how many different things of each kind."""

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = (), words: Iterable[str] = ()) -> None:
        self._masks: dict[tuple[str, str], str] = {}
        self._issued: set[str] = set()
        self._numbers: Counter[str] = Counter()
        self._literals: re.Pattern[str] | None = None
        self._named: dict[str, str] = {}
        for host in hosts:
            self.know(HOST, host)
        for user in users:
            self.know(USER, user)
        for word in words:
            self.know(WORD, word)

    @property
    def used(self) -> Counter[str]:
        """Different things of each kind."""
        return Counter(kind for kind, _ in self._masks)

    def know(self, kind: str, value: str) -> str:
        """The mask of one thing, which is known from here on."""
        plain = value.strip().rstrip(".-")
        if not plain or plain.lower() in NOBODY or plain in self._issued:
            return value
        if kind == UUID:
            return self._uuid(plain)
        key = self._key(kind, plain)
        if key not in self._masks:
            self._issue(key, _FORMS[kind])
            self._name(kind, plain, self._masks[key])
        return self._masks[key] + value[len(plain) :] if value.startswith(plain) else self._masks[key]

    def know_boot(self, boot_id: str) -> None:
        """A boot id is a UUID with a mask of its own form."""
        key = (UUID, boot_id.lower().replace("-", ""))
        if boot_id and boot_id not in self._issued and key not in self._masks:
            self._issue(key, _FORMS[BOOT], BOOT)

    def learn(self, text: str) -> None:
        """All that a text gives away."""
        self._by_pattern(text)

    def mask(self, text: str) -> str:
        """The same text without what is known or looks like it. What is masked stays as it is when it is masked again."""
        return self._by_pattern(self._by_name(text))

    # ---------------------------------------------------------------------------------------------------------- masks

    def _uuid(self, value: str) -> str:
        key = (UUID, value.lower().replace("-", ""))
        if key not in self._masks:
            self._issue(key, _FORMS[UUID])
        mask = self._masks[key]
        return mask if "-" in value else mask.replace("-", "")

    def _key(self, kind: str, value: str) -> tuple[str, str]:
        """A name is one thing, whatever it was first taken for: a machine may be called after its user."""
        lower = value.lower()
        return next(((other, lower) for other in (HOST, USER, SERIAL, WORD) if (other, lower) in self._masks), (kind, lower))

    def _issue(self, key: tuple[str, str], form: Callable[[int], str], counter: str = "") -> None:
        counter = counter or key[0]
        self._numbers[counter] += 1
        mask = form(self._numbers[counter])
        self._masks[key] = mask
        self._issued |= {mask, mask.replace("-", "")}

    def _name(self, kind: str, value: str, mask: str) -> None:
        """To be found wherever it stands; a technical term only where it is said to be a name."""
        lower = value.lower()
        if kind not in (HOST, USER, SERIAL, WORD) or len(value) < 2 or lower in _TERMS:
            return
        self._named[lower] = mask
        self._literals = None
        if kind == HOST and (short := lower.partition(".")[0]) not in {*_TERMS, *NOBODY, *self._named} and len(short) > 1:
            self._named[short] = mask

    # --------------------------------------------------------------------------------------------------------- finding

    def _by_name(self, text: str) -> str:
        if not self._named:
            return text
        if self._literals is None:
            longest_first = sorted(self._named, key=lambda word: (-len(word), word))
            self._literals = re.compile("|".join(map(_anywhere_or_alone, longest_first)), re.IGNORECASE)
        return self._literals.sub(self._replace_name, text)

    def _replace_name(self, found: re.Match[str]) -> str:
        """What is part of a mask stays."""
        return self._named.get(found[0].lower(), HIDDEN) if found[0] not in self._issued else found[0]

    def _by_pattern(self, text: str) -> str:
        text = _SAID.sub(rf"\1 {HIDDEN}", text)
        text = _UUID.sub(lambda found: self.know(UUID, found[0]), text)
        text = _MAC.sub(lambda found: self.know(MAC, found[0]), text)
        text = _COLONS.sub(self._six, text)
        text = _IPV4.sub(self._four, text)
        text = _HOME.sub(lambda found: self.know(USER, found[0]), text)
        text = _AT.sub(self._at, text)
        for pattern, kind in ((_URL, HOST), (_HOST, HOST), (_USER, USER), (_SERIAL, SERIAL)):
            text = pattern.sub(partial(self._part, kind), text)
        return text

    def _part(self, kind: str, found: re.Match[str]) -> str:
        value = found[kind]
        begin = found.start(kind) - found.start()
        return f"{found[0][:begin]}{self.know(kind, value)}{found[0][begin + len(value) :]}"

    def _at(self, found: re.Match[str]) -> str:
        if found["host"].lower() in _BUSES:
            return found[0]
        return f"{self.know(USER, found['user'])}@{self.know(HOST, found['host'])}"

    def _six(self, found: re.Match[str]) -> str:
        """An address has `::` or eight groups; `0000:45:00` and `13:41:07` have neither. A colon before it belongs to the sentence."""
        whole = found[0]
        before = ":" if whole.startswith(":") and not whole.startswith("::") else ""
        after = ":" if whole.endswith(":") and not whole.endswith("::") else ""
        inner = whole[len(before) : len(whole) - len(after)]
        groups = inner.split(":")
        if inner in self._issued or inner == "::1" or not any(groups) or ("::" not in inner and len(groups) < 8):
            return whole
        return f"{before}{self.know(IPV6, inner)}{after}"

    def _four(self, found: re.Match[str]) -> str:
        numbers = [int(part) for part in found[0].split(".")]
        is_address = max(numbers) < 256 and numbers[0] not in (0, 127)
        return self.know(IPV4, found[0]) if is_address else found[0]


def _anywhere_or_alone(word: str) -> str:
    """A short name, a number, or a part of a technical term stands alone; any other is found within longer words too."""
    sure = len(word) >= SHORTEST_ANYWHERE and word not in _VOCABULARY and not re.fullmatch(r"[0-9a-f]+", word)
    return re.escape(word) if sure else rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])"


def _four(number: int) -> str:
    nets = ("192.0.2", "198.51.100", "203.0.113")
    net, last = divmod(number - 1, 254)
    return f"{nets[net]}.{last + 1}" if net < len(nets) else f"198.18.{net % 256}.{last + 1}"


_FORMS: dict[str, Callable[[int], str]] = {
    UUID: lambda number: f"00000000-0000-0000-0000-{number:012d}",
    BOOT: lambda number: f"00000000-0000-4000-8000-{number:012d}",
    SERIAL: lambda number: f"{number:013d}",
    IPV4: _four,
    IPV6: lambda number: f"2001:db8::{number:x}",
    MAC: lambda number: f"02:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
    HOST: lambda number: f"host{number}",
    USER: lambda number: f"user{number}",
    WORD: lambda number: f"masked{number}",
}
