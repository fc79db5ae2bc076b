"""Records GGUF files, written by the package `gguf`, with what other libraries make of them.

    python tests/tools/record_gguf.py [types] [models] [tokenizers]      default: all

Writes to tests/fixtures/gguf:

    types.gguf           a tensor of random blocks for every type, types.safetensors their values
                         as gguf.quants decodes them
    NAME.gguf            the model of tests/fixtures/model/NAME in its own type, with the order of
                         rows that llama.cpp stores; importing it must give the folder's tensors
    tokenizer-NAME.gguf  the tokenizer of tests/fixtures/text/tokenizers/NAME without a model; the
                         ids are in the cases.jsonl there
    tokenizer-NAME.jsonl the cases of those that have no folder there: text or hex, ids

versions.json names the versions of everything used.
"""

import importlib.metadata
import json
import os
import re
import sys

import gguf
import numpy
import safetensors.numpy
import sentencepiece.sentencepiece_model_pb2 as sentencepiece_model
import tokenizers
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.tokenization_utils_base import generate_merges

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import record_text  # noqa: E402
import record_text_inputs as inputs  # noqa: E402

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
ROOT = os.path.join(FIXTURES, "gguf")

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5

# Where the halves stand in a block that scale it; everything else may be any bits.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [],
}


def writer(name, architecture):
    return gguf.GGUFWriter(os.path.join(ROOT, name + ".gguf"), architecture)


def finish(made):
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def record_types():
    random = numpy.random.default_rng(17)
    made = writer("types", "llama")
    values = {}
    for kind in [Type.F32, Type.F16, Type.BF16, *HALVES]:
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        shape = (2, 256)
        count = shape[0] * shape[1] // elements
        if kind == Type.F32:
            blocks = random.standard_normal(shape, dtype=numpy.float32)
        elif kind in (Type.F16, Type.BF16):
            blocks = gguf.quants.quantize(random.standard_normal(shape, dtype=numpy.float32), kind)
        else:
            blocks = random.integers(0, 256, (count, size), dtype=numpy.uint8)
            for at in HALVES[kind]:
                half = random.standard_normal((count, 1)).astype(numpy.float16)
                blocks[:, at : at + 2] = half.view(numpy.uint8)
            blocks = blocks.reshape(shape[0], -1)
        raw = numpy.ascontiguousarray(blocks)
        values[kind.name] = gguf.quants.dequantize(raw, kind).reshape(shape)
        made.add_tensor(kind.name, raw, raw_dtype=kind)
    finish(made)
    safetensors.numpy.save_file(values, os.path.join(ROOT, "types.safetensors"))


# What a layer's tensors are called, in the folder and in the file.
GATED = [
    ("input_layernorm", "attn_norm"), ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"), ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"), ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"),
]
GPT2 = [
    ("ln_1", "attn_norm"), ("attn.c_attn", "attn_qkv"), ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"), ("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down"),
]
# Families whose names the package gguf is asked for.
MAPPED = {"olmo2": gguf.MODEL_ARCH.OLMO2, "granite": gguf.MODEL_ARCH.GRANITE}
OUTER = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "transformer.wte": "token_embd", "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}


def stored_name(name, config):
    if config.model_type in MAPPED:
        names = gguf.get_tensor_name_map(MAPPED[config.model_type], config.num_hidden_layers)
        return names.get_name(name, try_suffixes=(".weight", ".bias"))
    stem, kind = name.rsplit(".", 1)
    if stem in OUTER:
        return f"{OUTER[stem]}.{kind}"
    layer, part = re.fullmatch(r"(?:model\.layers|transformer\.h)\.(\d+)\.(.+)", stem).groups()
    return f"blk.{layer}.{dict(GATED + GPT2)[part]}.{kind}"


def paired(tensor, heads):
    """Rows j and j + d/2 of a head, which rotary embedding turns together, side by side."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def add_sizes(made, config):
    made.add_block_count(config.num_hidden_layers)
    made.add_context_length(config.max_position_embeddings)
    made.add_embedding_length(config.hidden_size)
    made.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        made.add_feed_forward_length(4 * config.hidden_size)
        made.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    made.add_feed_forward_length(config.intermediate_size)
    made.add_head_count_kv(config.num_key_value_heads)
    made.add_layer_norm_rms_eps(config.rms_norm_eps)
    made.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        made.add_key_length(config.head_dim)
        made.add_value_length(config.head_dim)
    if config.model_type == "granite":
        made.add_attention_scale(config.attention_multiplier)
        made.add_embedding_scale(config.embedding_multiplier)
        made.add_residual_scale(config.residual_multiplier)
        made.add_logit_scale(config.logits_scaling)


def rope_factors(config):
    """By what llama3 scaling divides each frequency."""
    rope = config.rope_parameters
    plain = 1.0 / rope["rope_theta"] ** (numpy.arange(0, config.head_dim, 2) / config.head_dim)
    scaled, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    return (plain / scaled.numpy()).astype(numpy.float32)


def add_placeholder_tokens(made, config):
    """A vocabulary of single bytes and a few control tokens; the models are not about text."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<|pad|>", "<|bos|>", "<|eos|>"]
    types = [CONTROL] * 3
    for character in alphabet[: config.vocab_size - 3]:
        tokens.append(character)
        types.append(NORMAL)
    made.add_tokenizer_model("gpt2")
    made.add_tokenizer_pre("gpt-2")
    tokens[-1] = alphabet[30] + alphabet[31]
    made.add_token_list(tokens)
    made.add_token_types(types)
    made.add_token_merges([f"{alphabet[30]} {alphabet[31]}"])
    made.add_bos_token_id(1)
    made.add_eos_token_id(2)
    if config.model_type in MAPPED and config.pad_token_id is not None:
        made.add_pad_token_id(config.pad_token_id)


def record_model(name):
    folder = os.path.join(FIXTURES, "model", name)
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    made = writer(name, config.model_type)
    add_sizes(made, config)
    add_placeholder_tokens(made, config)
    for key, tensor in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        kind = Type.BF16 if tensor.dtype == torch.bfloat16 else Type.F32
        value = (tensor.view(torch.int16) if kind == Type.BF16 else tensor).numpy()
        if config.model_type in ("llama", "granite") and re.search(r"\.[qk]_proj\.", key):
            heads = config.num_attention_heads if ".q_proj." in key else config.num_key_value_heads
            value = paired(value, heads)
        if config.model_type == "gpt2" and re.search(r"\.c_(attn|proj|fc)\.weight", key):
            value = value.T
        value = numpy.ascontiguousarray(value)
        made.add_tensor(stored_name(key, config), value.view(numpy.uint8) if kind == Type.BF16 else value,
                        raw_dtype=kind)
    if name == "llama3":
        made.add_tensor("rope_freqs.weight", rope_factors(config))
    finish(made)
    if config.model_type not in MAPPED:  # which transformers does not read
        check_model(name, model)


def check_model(name, model):
    """transformers' own reader must agree that these are the model's tensors."""
    read = load_gguf_checkpoint(
        os.path.join(ROOT, name + ".gguf"), return_tensors=True, model_to_load=model)["tensors"]
    tied = model.config.tie_word_embeddings
    for key, tensor in model.state_dict().items():
        if key == "lm_head.weight" and tied:
            continue
        assert read[key].to(tensor.dtype).equal(tensor), f"{name}: {key} is another one"
    print(f"{name}: transformers reads the same tensors")


def add_added_tokens(data, size):
    """Tokens and types of a tokenizer.json, holes filled as llama.cpp fills them."""
    tokens = [f"[PAD{i}]" for i in range(size)]
    types = [UNUSED] * size
    for token, i in data["model"]["vocab"].items():
        tokens[i], types[i] = token, NORMAL
    for token in data["added_tokens"]:
        tokens[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    return tokens, types


def record_byte_level(name, pre, architecture, data):
    size = 1 + max([*data["model"]["vocab"].values(), *(t["id"] for t in data["added_tokens"])])
    tokens, types = add_added_tokens(data, size)
    made = writer("tokenizer-" + name, architecture)
    made.add_tokenizer_model("gpt2")
    made.add_tokenizer_pre(pre)
    made.add_token_list(tokens)
    made.add_token_types(types)
    made.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]])
    begin = {"llama3": "<|begin_of_text|>", "tekken": "<s>"}.get(name)
    if begin:
        made.add_bos_token_id(tokens.index(begin))
    finish(made)


def write_cases(name, tokenizer):
    rows = []
    for row in inputs.hard_rows([]):
        row["ids"] = tokenizer.encode(inputs.row_text(row)).ids
        row["decoded"] = tokenizer.decode(row["ids"], skip_special_tokens=False)
        rows.append(row)
    record_text.write_jsonl(os.path.join(ROOT, f"tokenizer-{name}.jsonl"), rows)


def smollm():
    tokenizer = record_text.byte_level(
        None,
        tokenizers.pre_tokenizers.Sequence([
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]),
        500,
    )
    tokenizer.add_special_tokens([record_text.special("<|endoftext|>"),
                                  record_text.special("<|im_end|>")])
    return tokenizer


def record_sentencepiece():
    """The pieces of a tokenizer.model, and the ids of the tokenizer that transformers makes of it."""
    proto = sentencepiece_model.ModelProto()
    with open(os.path.join(FIXTURES, "text", "sentencepiece", "bpe", "tokenizer.model"), "rb") as file:
        proto.ParseFromString(file.read())
    tokens = [piece.piece for piece in proto.pieces] + ["<|im_end|>", "<think>"]
    scores = [piece.score for piece in proto.pieces] + [-1000.0, -1000.0]
    types = [int(piece.type) for piece in proto.pieces] + [CONTROL, USER_DEFINED]
    made = writer("tokenizer-spm", "llama")
    made.add_tokenizer_model("llama")
    made.add_tokenizer_pre("default")
    made.add_token_list(tokens)
    made.add_token_scores(scores)
    made.add_token_types(types)
    made.add_bos_token_id(1)
    made.add_eos_token_id(2)
    made.add_unk_token_id(0)
    made.add_add_bos_token(True)
    finish(made)

    vocab = {token: i for i, token in enumerate(tokens)}
    skipped = {token for token, kind in zip(tokens, types) if kind != NORMAL}
    merges = generate_merges(vocab, dict(zip(tokens, scores)), skip_tokens=skipped)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = tokenizers.normalizers.Sequence([
        tokenizers.normalizers.Prepend("\u2581"), tokenizers.normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = tokenizers.decoders.Sequence(record_text.llama_decoder())
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens(
        [record_text.special(token) for token in ("<unk>", "<s>", "</s>", "<|im_end|>")])
    tokenizer.add_tokens([tokenizers.AddedToken("<think>", normalized=False, special=False)])
    write_cases("spm", tokenizer)


def record_tokenizers():
    for name, pre, architecture in (("gpt2", "gpt-2", "gpt2"), ("llama3", "llama-bpe", "llama"),
                                    ("qwen2", "qwen2", "qwen2"), ("tekken", "tekken", "llama")):
        with open(os.path.join(FIXTURES, "text", "tokenizers", name, "tokenizer.json")) as file:
            record_byte_level(name, pre, architecture, json.load(file))
    tokenizer = smollm()
    record_byte_level("smollm", "smollm", "llama", json.loads(tokenizer.to_str()))
    write_cases("smollm", tokenizer)
    record_sentencepiece()


def record_versions():
    versions = {
        "gguf": importlib.metadata.version("gguf"),
        "numpy": numpy.__version__,
        "tokenizers": tokenizers.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    with open(os.path.join(ROOT, "versions.json"), "w") as file:
        json.dump(versions, file, indent=2)
        file.write("\n")


def main():
    os.makedirs(ROOT, exist_ok=True)
    chosen = sys.argv[1:] or ["types", "models", "tokenizers"]
    if "types" in chosen:
        record_types()
    if "models" in chosen:
        for name in ("llama3", "qwen2", "qwen3", "gpt2", "olmo2", "granite"):
            record_model(name)
    if "tokenizers" in chosen:
        record_tokenizers()
    record_versions()


if __name__ == "__main__":
    main()
