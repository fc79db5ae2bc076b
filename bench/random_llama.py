"""A Llama with random weights as a Hugging Face folder and as a GGUF file: the same bits in both.

Needs nothing but Python. Weights are bf16 with random sign and mantissa and one exponent, which
is close enough to trained ones for speed. The files hold the same model: GGUF wants the rows of the
query and key matrices in another order, the one its rotary positions are computed in.
"""
import json
import os
import struct

import random_forms

VOCABULARY = 32000
# Those of src/cli/model_sizes.cc, and one whose weights take 1.6 GB.
SIZES = {
    "15m": dict(width=288, layers=6, heads=6, kv_heads=6, ffn=768),
    "42m": dict(width=512, layers=8, heads=8, kv_heads=8, ffn=1376),
    "110m": dict(width=768, layers=12, heads=12, kv_heads=12, ffn=2048),
    "800m": dict(width=2048, layers=12, heads=32, kv_heads=8, ffn=8192),
}
TOKENS = ["t"] + [f"t{i}" for i in range(1, VOCABULARY)]  # of text, the first alone
CONTEXT = 2048
EPSILON = 1e-5
THETA = 10000.0

GGUF_F32, GGUF_BF16 = 0, 30                               # types of tensors
U32, I32, F32, STRING, ARRAY, U64 = 4, 5, 6, 8, 9, 10     # types of values
ALIGNMENT = 32


def matrices(size):
    """Name in the folder, name in the GGUF, rows, columns, heads whose rows GGUF orders anew."""
    s = SIZES[size]
    width, ffn = s["width"], s["ffn"]
    kv_width = width // s["heads"] * s["kv_heads"]
    yield "model.embed_tokens", "token_embd", VOCABULARY, width, 0
    for i in range(s["layers"]):
        layer, block = f"model.layers.{i}.", f"blk.{i}."
        yield layer + "self_attn.q_proj", block + "attn_q", width, width, s["heads"]
        yield layer + "self_attn.k_proj", block + "attn_k", kv_width, width, s["kv_heads"]
        yield layer + "self_attn.v_proj", block + "attn_v", kv_width, width, 0
        yield layer + "self_attn.o_proj", block + "attn_output", width, width, 0
        yield layer + "mlp.gate_proj", block + "ffn_gate", ffn, width, 0
        yield layer + "mlp.up_proj", block + "ffn_up", ffn, width, 0
        yield layer + "mlp.down_proj", block + "ffn_down", width, ffn, 0


def norms(size):
    """Names in the folder and in the GGUF."""
    for i in range(SIZES[size]["layers"]):
        yield f"model.layers.{i}.input_layernorm", f"blk.{i}.attn_norm"
        yield f"model.layers.{i}.post_attention_layernorm", f"blk.{i}.ffn_norm"
    yield "model.norm", "output_norm"


def rows_in_pairs(data, rows, columns, heads):
    """Row r + half of a head comes behind row r."""
    if heads == 0:
        return data
    step, depth = 2 * columns, rows // heads
    order = [head * depth + half * (depth // 2) + r
             for head in range(heads) for r in range(depth // 2) for half in range(2)]
    return b"".join(data[row * step:(row + 1) * step] for row in order)


def stored_tensors(size, form):
    """Of a folder; the table stays in floating point."""
    for name, _, rows, columns, _ in matrices(size):
        table = name == "model.embed_tokens"
        whole = "bf16" if table and form != "f16" else form
        yield from random_forms.tensors(whole, name, rows, columns)
    kind, one = ("F16", b"\x00\x3c") if form == "f16" else ("BF16", b"\x80\x3f")
    for name, _ in norms(size):
        width = SIZES[size]["width"]
        yield name + ".weight", kind, [width], one * width


def write_safetensors(path, tensors):
    """Of what tensors() gives, twice: name, type, shape and bytes of each."""
    header, begin = {}, 0
    for name, dtype, shape, data in tensors():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, data in tensors():
            out.write(data)


def write_folder(folder, size, form="bf16"):
    """With matrices in one of random_forms.FORMS."""
    s = SIZES[size]
    os.makedirs(folder, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY, "hidden_size": s["width"], "num_hidden_layers": s["layers"],
        "num_attention_heads": s["heads"], "num_key_value_heads": s["kv_heads"],
        "head_dim": s["width"] // s["heads"], "intermediate_size": s["ffn"],
        "max_position_embeddings": CONTEXT, "rms_norm_eps": EPSILON, "rope_theta": THETA,
        "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False,
        "mlp_bias": False,
    }
    quantised = random_forms.config_of(form)
    if quantised:
        config["quantization_config"] = quantised
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config, out, indent=2)
    tokenizer = {
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "merges": [], "vocab": {t: i for i, t in enumerate(TOKENS)}},
    }
    with open(os.path.join(folder, "tokenizer.json"), "w") as out:
        json.dump(tokenizer, out)
    write_safetensors(os.path.join(folder, "model.safetensors"), lambda: stored_tensors(size, form))


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == STRING:
        return gguf_string(value)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", U64: "<Q"}[kind], value)


def gguf_pair(key, kind, value, item=None):
    head = gguf_string(key) + struct.pack("<I", kind)
    if kind != ARRAY:
        return head + gguf_value(kind, value)
    return head + struct.pack("<IQ", item, len(value)) + b"".join(gguf_value(item, v)
                                                                  for v in value)


def gguf_pairs(size):
    s = SIZES[size]
    return [
        gguf_pair("general.architecture", STRING, "llama"),
        gguf_pair("general.name", STRING, f"random-{size}"),
        gguf_pair("llama.context_length", U32, CONTEXT),
        gguf_pair("llama.embedding_length", U32, s["width"]),
        gguf_pair("llama.block_count", U32, s["layers"]),
        gguf_pair("llama.feed_forward_length", U32, s["ffn"]),
        gguf_pair("llama.attention.head_count", U32, s["heads"]),
        gguf_pair("llama.attention.head_count_kv", U32, s["kv_heads"]),
        gguf_pair("llama.attention.layer_norm_rms_epsilon", F32, EPSILON),
        gguf_pair("llama.rope.dimension_count", U32, s["width"] // s["heads"]),
        gguf_pair("llama.rope.freq_base", F32, THETA),
        gguf_pair("llama.vocab_size", U32, VOCABULARY),
        gguf_pair("tokenizer.ggml.model", STRING, "gpt2"),
        gguf_pair("tokenizer.ggml.pre", STRING, "gpt-2"),
        gguf_pair("tokenizer.ggml.tokens", ARRAY, TOKENS, STRING),
        gguf_pair("tokenizer.ggml.token_type", ARRAY, [1] * VOCABULARY, I32),
        gguf_pair("tokenizer.ggml.merges", ARRAY, ["t 1"], STRING),
        gguf_pair("tokenizer.ggml.bos_token_id", U32, 0),
        gguf_pair("tokenizer.ggml.eos_token_id", U32, 0),
    ]


def write_gguf(path, size):
    width = SIZES[size]["width"]
    infos, offset = [], 0
    tensors = [(name, [columns, rows], GGUF_BF16, 2)
               for _, name, rows, columns, _ in matrices(size)]
    tensors += [(name, [width], GGUF_F32, 4) for _, name in norms(size)]
    for name, shape, kind, value_bytes in tensors:
        infos.append(gguf_string(name + ".weight") +
                     struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        offset += count * value_bytes + -(count * value_bytes) % ALIGNMENT
    pairs = gguf_pairs(size)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs)) + b"".join(pairs + infos)
    with open(path, "wb") as out:
        out.write(head + b"\0" * (-len(head) % ALIGNMENT))
        for name, _, rows, columns, heads in matrices(size):
            values = random_forms.floats("bf16", name, rows * columns)
            data = rows_in_pairs(values, rows, columns, heads)
            out.write(data + b"\0" * (-len(data) % ALIGNMENT))
        for _ in norms(size):
            data = struct.pack("<f", 1.0) * width
            out.write(data + b"\0" * (-len(data) % ALIGNMENT))
