"""A real llama.cpp server on loopback, with a model of noise: no download, no GPU, half a second.

    python -m tests.fakes.llama FOLDER PORT        needs xllamacpp, gguf and numpy

The model is of the llama architecture with random weights. Its words are one letter long, and the weights of everything that is no
letter are zero, so that it goes on until it is told to stop.
"""

from __future__ import annotations

import importlib.util
import signal
import string
import sys
import threading
from pathlib import Path
from typing import Any

WIDTH, LAYERS, HEADS, INNER, CONTEXT = 256, 4, 4, 512, 8192
SPECIAL = ("<unk>", "<s>", "</s>")
TOKENS = (*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *string.ascii_lowercase)
NEEDED = ("xllamacpp", "gguf", "numpy")


def is_there() -> bool:
    """Everything that this needs is installed."""
    return all(importlib.util.find_spec(name) for name in NEEDED)


def write_model(path: Path) -> None:
    """The same bytes every time."""
    gguf: Any = importlib.import_module("gguf")
    numpy: Any = importlib.import_module("numpy")
    noise = numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    _write_words(writer, gguf.TokenType)

    def tensor(name: str, rows: int, columns: int) -> Any:
        values = (noise.standard_normal((rows, columns)) / columns**0.5).astype(numpy.float32)
        writer.add_tensor(f"{name}.weight", values)
        return values

    tensor("token_embd", len(TOKENS), WIDTH)
    tensor("output", len(TOKENS), WIDTH)[: -len(string.ascii_lowercase)] = 0
    writer.add_tensor("output_norm.weight", numpy.ones(WIDTH, numpy.float32))
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", numpy.ones(WIDTH, numpy.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"blk.{layer}.{name}", WIDTH, WIDTH)
        tensor(f"blk.{layer}.ffn_gate", INNER, WIDTH)
        tensor(f"blk.{layer}.ffn_up", INNER, WIDTH)
        tensor(f"blk.{layer}.ffn_down", WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_words(writer: Any, kind: Any) -> None:
    kinds = [kind.UNKNOWN, *[kind.CONTROL] * 2, *[kind.BYTE] * 256]
    kinds += [kind.NORMAL] * (len(TOKENS) - len(kinds))
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([-float(place) for place in range(len(TOKENS))])
    writer.add_token_types([int(each) for each in kinds])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def serve(folder: Path, port: int) -> None:
    """Until SIGTERM."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    write_model(folder / "noise.gguf")
    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(folder / "noise.gguf")
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = port
    wanted.n_ctx = CONTEXT
    wanted.n_parallel = 1
    wanted.n_gpu_layers = 0
    wanted.cpuparams.n_threads = 1
    wanted.endpoint_metrics = True
    wanted.sse_ping_interval = 1
    server = xllamacpp.Server(wanted)
    while not over.wait(0.1):
        pass
    del server


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
