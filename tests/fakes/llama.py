"""A real llama.cpp server on loopback, with a model of noise: no download, no GPU, half a second.

    python -m tests.fakes.llama MODEL PORT [KEY]       needs xllamacpp; the file alone will do, anywhere

The model is of the llama architecture with random weights, and is written if it is not there. Its words are one letter long, and the
weights of everything that is no letter are zero, so that it goes on until it is told to stop.
Source of the format: ggml, docs/gguf.md (version 3).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import platform
import random
import signal
import string
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTH, LAYERS, HEADS, INNER, CONTEXT = 256, 4, 4, 512, 8192
SPECIAL = ("<unk>", "<s>", "</s>")
TOKENS = (*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *string.ascii_lowercase)
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # what a token is
KINDS = (UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(TOKENS) - 259))
INTEGER, FLAT, SIGNED, TEXT, LIST = 4, 6, 5, 8, 9  # types of values: u32, f32, i32, string, array
NAME = "noise"  # as the API calls it
ALIGNMENT, FLOAT_BYTES = 32, 4
DEVIATION = math.sqrt((256**2 - 1) / 12)  # of a random byte

MODULE = "xllamacpp"
FLAGS = frozenset({"avx2", "fma"})  # what its wheel for x86-64 is built for
LOADING_SECONDS = 60.0


# --- can it be had


@functools.cache
def why_not() -> str:
    """What is missing here, and how to get it; empty when it can serve."""
    if importlib.util.find_spec(MODULE) is None:
        return f"needs {MODULE}, which `make test` installs where there is a wheel of it for this machine"
    if lacking := _lacking_flags():
        return f"needs a processor with {', '.join(lacking)}"
    tried = subprocess.run([sys.executable, "-c", f"import {MODULE}"], capture_output=True, text=True, timeout=LOADING_SECONDS, check=False)
    why = (tried.stderr.splitlines() or [f"its process ended with {tried.returncode}"])[-1]
    return f"cannot load {MODULE}: {why}" if tried.returncode else ""


def _lacking_flags() -> list[str]:
    """Without them it dies of SIGILL."""
    if platform.machine() != "x86_64":
        return []
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    of_each = [set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")]
    return [flag for flag in sorted(FLAGS) if not of_each or any(flag not in flags for flags in of_each)]


# --- its model


def write_model(path: Path) -> None:
    """The same bytes every time."""
    noise = random.Random(7)
    head, body = bytearray(), bytearray()
    tensors = list(_tensors())
    values = list(_values())
    head += b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for name, kind, value in values:
        head += _text(name) + struct.pack("<I", kind) + value
    for name, shape, zero_rows in tensors:
        head += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", 0, len(body))
        body += _ones(shape[0]) if len(shape) == 1 else _weights(noise, shape[0], shape[1], zero_rows)
        body += bytes(-len(body) % ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + body)


def _values() -> Iterator[tuple[str, int, bytes]]:
    """What the file says of itself: name, type, value."""
    yield "general.architecture", TEXT, _text("llama")
    for name, number in {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": LAYERS,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": HEADS,
        "rope.dimension_count": WIDTH // HEADS,
        "vocab_size": len(TOKENS),
    }.items():
        yield f"llama.{name}", INTEGER, struct.pack("<I", number)
    yield "llama.attention.layer_norm_rms_epsilon", FLAT, struct.pack("<f", 1e-5)
    yield "tokenizer.ggml.model", TEXT, _text("llama")
    yield "tokenizer.ggml.tokens", LIST, _list(TEXT, map(_text, TOKENS))
    yield "tokenizer.ggml.scores", LIST, _list(FLAT, (struct.pack("<f", -float(place)) for place in range(len(TOKENS))))
    yield "tokenizer.ggml.token_type", LIST, _list(SIGNED, (struct.pack("<i", kind) for kind in KINDS))
    yield "tokenizer.ggml.bos_token_id", INTEGER, struct.pack("<I", 1)
    yield "tokenizer.ggml.eos_token_id", INTEGER, struct.pack("<I", 2)


def _tensors() -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Name, shape (columns, then rows), and how many of the rows are zero."""
    yield "token_embd.weight", (WIDTH, len(TOKENS)), 0
    yield "output.weight", (WIDTH, len(TOKENS)), len(TOKENS) - len(string.ascii_lowercase)
    yield "output_norm.weight", (WIDTH,), 0
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", (WIDTH,), 0
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}.weight", (WIDTH, WIDTH), 0
        for name, shape in {"ffn_gate": (WIDTH, INNER), "ffn_up": (WIDTH, INNER), "ffn_down": (INNER, WIDTH)}.items():
            yield f"blk.{layer}.{name}.weight", shape, 0


def _weights(noise: random.Random, columns: int, rows: int, zero_rows: int) -> bytes:
    """Of a variance that keeps what goes through it at its size."""
    scale = 1 / (DEVIATION * math.sqrt(columns))
    of_byte = [struct.pack("<f", (byte - 127.5) * scale) for byte in range(256)]
    return bytes(FLOAT_BYTES * columns * zero_rows) + b"".join(map(of_byte.__getitem__, noise.randbytes(columns * (rows - zero_rows))))


def _ones(count: int) -> bytes:
    return struct.pack("<f", 1.0) * count


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _list(kind: int, items: Iterator[bytes]) -> bytes:
    packed = list(items)
    return struct.pack("<IQ", kind, len(packed)) + b"".join(packed)


# --- the server


def serve(model: Path, port: int, key: str = "") -> None:
    """Until SIGTERM. With a key, to whoever has it."""
    xllamacpp: Any = importlib.import_module(MODULE)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    if not model.exists():
        write_model(model)
    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(model)
    wanted.model_alias = {NAME}
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = port
    wanted.n_ctx = CONTEXT
    wanted.n_parallel = 1
    wanted.n_gpu_layers = 0
    wanted.cpuparams.n_threads = 1
    wanted.endpoint_metrics = True
    wanted.sse_ping_interval = 1
    wanted.api_keys = [key] if key else []
    server = xllamacpp.Server(wanted)
    while not over.wait(0.1):
        pass
    del server


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
