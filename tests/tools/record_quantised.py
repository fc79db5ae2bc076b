"""Records tiny folders whose weights are stored in few bits, and what they stand for.

    python tests/tools/record_quantised.py [FOLDER [NAME...]]     default: tests/fixtures/quantised

Writes FOLDER/NAME/ with config.json and model.safetensors in a published form, written here from
its description, and FOLDER/NAME/expected.safetensors:

    tokens     I32 [T]     one sequence
    logits     F32 [T, V]  of transformers' model in float32 with the decoded numbers
    X.weight   F32 [N, K]  decoded, of a few modules X

Decoding here is plain arithmetic on the stored tensors, read back from the file. Where packages can
read a form, they are asked as well: compressed-tensors unpacks and decodes its own forms, and
transformers loads the folders of fp8; a difference ends the script. FOLDER/versions.json names the
versions of everything used.
"""

import copy
import json
import os
import shutil
import sys

import compressed_tensors
import numpy
import safetensors.torch
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from record_models import draw_tokens, randomise
from transformers import Glm4Config, Glm4ForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

VOCAB = 96
TOKENS = 20
COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
LLAMA = (LlamaForCausalLM, LlamaConfig(**COMMON))
QWEN3 = (Qwen3ForCausalLM, Qwen3Config(**COMMON))
QWEN3_MOE = (
    Qwen3MoeForCausalLM,
    Qwen3MoeConfig(
        **dict(COMMON, moe_intermediate_size=16, num_experts=3, num_experts_per_tok=2)
    ),
)
# Files have rows in another order than Jige computes with.
GLM4 = (Glm4ForCausalLM, Glm4Config(**COMMON))
NEOX = (
    GPTNeoXForCausalLM,
    GPTNeoXConfig(**{name: COMMON[name] for name in COMMON if "key_value" not in name}),
)
SHOWN = (
    "model.layers.0.mlp.down_proj",
    "model.layers.0.self_attn.k_proj",
    "gpt_neox.layers.0.attention.query_key_value",
)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


# Scales of blocks, spread over the matrix they are for. 0 rows or columns: all.


def blocks(matrix, rows, columns):
    """[N, K] -> the largest and the smallest number of each block."""
    count, width = matrix.shape
    rows, columns = rows or count, columns or width
    tiles = [
        [matrix[n : n + rows, k : k + columns] for k in range(0, width, columns)]
        for n in range(0, count, rows)
    ]
    high = torch.tensor([[float(tile.max()) for tile in line] for line in tiles])
    low = torch.tensor([[float(tile.min()) for tile in line] for line in tiles])
    return high, low


def spread(table, shape, rows, columns, order=None):
    rows, columns = rows or shape[0], columns or shape[1]
    line = torch.arange(shape[0]) // rows
    group = torch.arange(shape[1]) // columns if order is None else order.long()
    return table.float()[line][:, group]


def scale_like(low, high, top, dtype):
    """Scales that bring [low, high] into [-top, top]."""
    return (torch.maximum(high.abs(), low.abs()) / top).to(dtype)


# Packing, bit by bit.


def pack(codes, bits, axis, order=None):
    """Codes from 0 -> I32 words along an axis; place i of a word holds code order[i]."""
    per_word = 32 // bits
    codes = codes.movedim(axis, -1).to(torch.int64)
    missing = -codes.shape[-1] % per_word
    codes = torch.nn.functional.pad(codes, (0, missing))
    codes = codes.reshape(*codes.shape[:-1], -1, per_word)
    words = torch.zeros(codes.shape[:-1], dtype=torch.int64)
    for place in range(per_word):
        words |= codes[..., order[place] if order else place] << (bits * place)
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return words.movedim(-1, axis).contiguous()


def unpack(words, bits, axis, size, order=None):
    per_word = 32 // bits
    words = words.movedim(axis, -1).to(torch.int64) & 0xFFFFFFFF
    codes = torch.zeros(*words.shape, per_word, dtype=torch.int64)
    for place in range(per_word):
        codes[..., order[place] if order else place] = words >> (bits * place) & (2**bits - 1)
    codes = codes.reshape(*words.shape[:-1], -1)[..., :size]
    return codes.movedim(-1, axis).contiguous()


# Each form: what is stored of a matrix, and what the stored tensors stand for.


def store_float8(matrix, rows, columns, dtype, name, one=False):
    high, low = blocks(matrix, rows, columns)
    scale = scale_like(low, high, 448.0, dtype)
    codes = (matrix / spread(scale, matrix.shape, rows, columns)).clamp(-448, 448)
    return {"weight": codes.to(torch.float8_e4m3fn), name: scale.reshape(1) if one else scale}


def read_float8(parts, rows, columns, name):
    scale = parts[name].reshape(1, 1) if parts[name].ndim < 2 else parts[name]
    codes = parts["weight"].float()
    return codes * spread(scale, codes.shape, rows, columns)


def store_int8(matrix, columns, symmetric, dtype):
    high, low = blocks(matrix, 1, columns)
    if symmetric:
        scale = scale_like(low, high, 127.5, dtype)
        zero = torch.zeros(scale.shape, dtype=torch.int8)
    else:
        scale = ((high.clamp(min=0) - low.clamp(max=0)) / 255).to(dtype)
        zero = (-128 - low.clamp(max=0) / scale.float()).round().clamp(-128, 127).to(torch.int8)
    wide = matrix.shape, 1, columns
    codes = (matrix / spread(scale, *wide)).round() + spread(zero, *wide)
    parts = {"weight": codes.clamp(-128, 127).to(torch.int8), "weight_scale": scale}
    return parts if symmetric else parts | {"weight_zero_point": zero}


def read_int8(parts, columns):
    codes = parts["weight"].float()
    wide = codes.shape, 1, columns
    zero = parts.get("weight_zero_point")
    if zero is not None:
        codes = codes - spread(zero, *wide)
    return codes * spread(parts["weight_scale"], *wide)


def coded(matrix, bits, columns, dtype, symmetric, order=None):
    """Codes from 0, zeros and scales of groups, [N, K] and [N, G] twice."""
    top = 2**bits - 1
    permuted = matrix if order is None else matrix[:, torch.argsort(order, stable=True)]
    high, low = blocks(permuted, 1, columns)
    if symmetric:
        scale = scale_like(low, high, top / 2, dtype)
        zero = torch.full(scale.shape, (top + 1) // 2)
    else:
        scale = ((high.clamp(min=0) - low.clamp(max=0)) / top).to(dtype)
        zero = (-low.clamp(max=0) / scale.float()).round().clamp(0, top).long()
    wide = matrix.shape, 1, columns, order
    codes = ((matrix / spread(scale, *wide)).round() + spread(zero, *wide)).clamp(0, top)
    return codes.long(), zero, scale


def shuffled_groups(width, columns, seed):
    order = torch.arange(width, dtype=torch.int32) // columns
    return order[torch.randperm(width, generator=torch.Generator().manual_seed(seed))]


def store_packed(matrix, bits, columns, symmetric, ordered):
    order = shuffled_groups(matrix.shape[1], columns, 5) if ordered else None
    codes, zero, scale = coded(matrix, bits, columns, torch.bfloat16, symmetric, order)
    parts = {
        "weight_packed": pack(codes, bits, 1),
        "weight_scale": scale,
        "weight_shape": torch.tensor(matrix.shape, dtype=torch.int64),
    }
    if not symmetric:
        parts["weight_zero_point"] = pack(zero, bits, 0)
    if ordered:
        parts["weight_g_idx"] = order
    return parts


def read_packed(parts, bits, columns):
    shape = tuple(int(size) for size in parts["weight_shape"])
    codes = unpack(parts["weight_packed"], bits, 1, shape[1])
    wide = shape, 1, columns, parts.get("weight_g_idx")
    if "weight_zero_point" in parts:
        zero = spread(unpack(parts["weight_zero_point"], bits, 0, shape[0]), *wide)
    else:
        zero = float(2 ** (bits - 1))
    return (codes - zero) * spread(parts["weight_scale"], *wide)


def store_gptq(matrix, bits, columns, ordered, first, symmetric=False):
    order = torch.arange(matrix.shape[1], dtype=torch.int32) // (columns or matrix.shape[1])
    if ordered:
        order = shuffled_groups(matrix.shape[1], columns, 6)
    codes, zero, scale = coded(matrix, bits, columns, torch.float16, symmetric, order)
    stored = (zero - 1) % 2**bits if first else zero
    return {
        "qweight": pack(codes.T, bits, 0),
        "qzeros": pack(stored.T, bits, 1),
        "scales": scale.T.contiguous(),
        "g_idx": order,
    }


def read_gptq(parts, bits, first):
    width, count = parts["g_idx"].shape[0], parts["scales"].shape[1]
    codes = unpack(parts["qweight"], bits, 0, width)
    zero = unpack(parts["qzeros"], bits, 1, count)
    zero = (zero + 1) % 2**bits if first else zero
    group = parts["g_idx"].long()
    return ((codes - zero[group]).float() * parts["scales"].float()[group]).T.contiguous()


def store_awq(matrix, columns):
    codes, zero, scale = coded(matrix, 4, columns, torch.float16, False)
    return {
        "qweight": pack(codes.T, 4, 1, AWQ_ORDER),
        "qzeros": pack(zero.T, 4, 1, AWQ_ORDER),
        "scales": scale.T.contiguous(),
    }


def read_awq(parts, columns):
    width, count = parts["qweight"].shape[0], parts["scales"].shape[1]
    codes = unpack(parts["qweight"], 4, 1, count, AWQ_ORDER)
    zero = unpack(parts["qzeros"], 4, 1, count, AWQ_ORDER)
    group = torch.arange(width) // (columns or width)
    return ((codes - zero[group]).float() * parts["scales"].float()[group]).T.contiguous()


def compressed(format, weights, ignore=("lm_head",), **rest):
    weights = {"dynamic": False, "observer": "minmax"} | weights
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group | rest},
        "ignore": list(ignore),
        "kv_cache_scheme": None,
    }


def int_args(bits, strategy, symmetric=True, **rest):
    return dict(num_bits=bits, type="int", strategy=strategy, symmetric=symmetric) | rest


FLOAT8 = dict(num_bits=8, type="float", symmetric=True)
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
GPTQ = {"quant_method": "gptq", "sym": False, "lm_head": False, "pack_dtype": "int32"}

# name: (model, quantization_config, modules left out, store, read)
FORMS = {
    "fp8_blocks": (
        QWEN3,
        FP8
        | {
            "weight_block_size": [16, 16],
            "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn.o_proj"],
        },
        ("lm_head", "o_proj"),
        lambda matrix: store_float8(matrix, 16, 16, torch.float32, "weight_scale_inv"),
        lambda parts: read_float8(parts, 16, 16, "weight_scale_inv"),
    ),
    "fp8_experts": (
        QWEN3_MOE,
        FP8
        | {
            "weight_block_size": [16, 16],
            "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"],
        },
        ("lm_head", "mlp.gate"),
        lambda matrix: store_float8(matrix, 16, 16, torch.bfloat16, "weight_scale_inv"),
        lambda parts: read_float8(parts, 16, 16, "weight_scale_inv"),
    ),
    "float8_tensor": (
        LLAMA,
        compressed("float-quantized", FLOAT8 | {"strategy": "tensor"}),
        ("lm_head",),
        lambda matrix: store_float8(matrix, 0, 0, torch.bfloat16, "weight_scale", one=True),
        lambda parts: read_float8(parts, 0, 0, "weight_scale"),
    ),
    "float8_channel": (
        LLAMA,
        compressed("float-quantized", FLOAT8 | {"strategy": "channel"}),
        ("lm_head",),
        lambda matrix: store_float8(matrix, 1, 0, torch.float32, "weight_scale"),
        lambda parts: read_float8(parts, 1, 0, "weight_scale"),
    ),
    "int8_channel": (
        LLAMA,
        compressed("int-quantized", int_args(8, "channel"), ("lm_head", "re:.*self_attn.q_p.*")),
        ("lm_head", "q_proj"),
        lambda matrix: store_int8(matrix, 0, True, torch.bfloat16),
        lambda parts: read_int8(parts, 0),
    ),
    "int8_zeros": (
        LLAMA,
        compressed("int-quantized", int_args(8, "channel", symmetric=False)),
        ("lm_head",),
        lambda matrix: store_int8(matrix, 0, False, torch.float32),
        lambda parts: read_int8(parts, 0),
    ),
    "packed4_group": (
        LLAMA,
        compressed("pack-quantized", int_args(4, "group", group_size=16)),
        ("lm_head",),
        lambda matrix: store_packed(matrix, 4, 16, True, False),
        lambda parts: read_packed(parts, 4, 16),
    ),
    "packed4_zeros": (
        LLAMA,
        compressed("pack-quantized", int_args(4, "group", symmetric=False, group_size=16)),
        ("lm_head",),
        lambda matrix: store_packed(matrix, 4, 16, False, False),
        lambda parts: read_packed(parts, 4, 16),
    ),
    "packed4_ordered": (
        LLAMA,
        compressed("pack-quantized", int_args(4, "group", group_size=16, actorder="group")),
        ("lm_head",),
        lambda matrix: store_packed(matrix, 4, 16, True, True),
        lambda parts: read_packed(parts, 4, 16),
    ),
    "packed8_channel": (
        LLAMA,
        compressed("pack-quantized", int_args(8, "channel")),
        ("lm_head",),
        lambda matrix: store_packed(matrix, 8, 0, True, False),
        lambda parts: read_packed(parts, 8, 0),
    ),
    "gptq4": (
        LLAMA,
        GPTQ | {"bits": 4, "group_size": 16, "desc_act": False, "checkpoint_format": "gptq"},
        ("lm_head",),
        lambda matrix: store_gptq(matrix, 4, 16, False, True),
        lambda parts: read_gptq(parts, 4, True),
    ),
    "gptq4_ordered": (
        LLAMA,
        GPTQ | {"bits": 4, "group_size": 16, "desc_act": True},
        ("lm_head",),
        lambda matrix: store_gptq(matrix, 4, 16, True, True),
        lambda parts: read_gptq(parts, 4, True),
    ),
    "gptq8_v2": (
        LLAMA,
        GPTQ | {"bits": 8, "group_size": -1, "desc_act": False, "checkpoint_format": "gptq_v2"},
        ("lm_head",),
        lambda matrix: store_gptq(matrix, 8, 0, False, False),
        lambda parts: read_gptq(parts, 8, False),
    ),
    "awq4": (
        LLAMA,
        {
            "quant_method": "awq",
            "bits": 4,
            "group_size": 16,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": None,
        },
        ("lm_head",),
        lambda matrix: store_awq(matrix, 16),
        lambda parts: read_awq(parts, 16),
    ),
    "gptq4_glm4": (
        GLM4,
        GPTQ | {"bits": 4, "group_size": 16, "desc_act": False, "checkpoint_format": "gptq"},
        ("lm_head",),
        lambda matrix: store_gptq(matrix, 4, 16, False, True),
        lambda parts: read_gptq(parts, 4, True),
    ),
    "int8_neox": (
        NEOX,
        compressed("int-quantized", int_args(8, "channel"), ("embed_out",)),
        ("embed_out",),
        lambda matrix: store_int8(matrix, 0, True, torch.bfloat16),
        lambda parts: read_int8(parts, 0),
    ),
    "packed4_channel": (
        LLAMA,
        compressed("pack-quantized", int_args(4, "channel")),
        ("lm_head",),
        lambda matrix: store_packed(matrix, 4, 0, True, False),
        lambda parts: read_packed(parts, 4, 0),
    ),
    "gptq4_symmetric": (
        GLM4,
        GPTQ | {"bits": 4, "group_size": 32, "desc_act": False, "sym": True},
        ("lm_head",),
        lambda matrix: store_gptq(matrix, 4, 32, False, True, symmetric=True),
        lambda parts: read_gptq(parts, 4, True),
    ),
}


def check_compressed(quantisation, parts, decoded):
    """What the package compressed-tensors makes of the stored parts."""
    groups = QuantizationConfig.model_validate(copy.deepcopy(quantisation)).config_groups
    scheme = groups["group_0"]
    compressor = BaseCompressor.get_value_from_registry(quantisation["format"])
    theirs = compressor.decompress(dict(parts), scheme)["weight"]
    scale_type = parts["weight_scale"].dtype
    assert torch.equal(theirs.to(scale_type), decoded.to(scale_type)), "decoded otherwise"


def check_loaded(folder, tokens, logits):
    """Transformers decodes fp8 into bfloat16 where there is no GPU."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with torch.no_grad():
        theirs = model(tokens[None]).logits[0].float()
    distance = float((theirs - logits).abs().max() / logits.abs().max())
    assert distance < 0.03, f"{folder}: {distance} from transformers"
    return distance


def record(name, root, seed):
    (kind, config), quantisation, left_out, store, read = FORMS[name]
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    generator = torch.Generator().manual_seed(seed)
    config = copy.deepcopy(config)
    config._attn_implementation = "eager"
    model = kind(config).eval()
    randomise(model, generator)
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    plain = safetensors.torch.load_file(path)
    stored = {}
    for tensor, value in plain.items():
        module = tensor.removesuffix(".weight")
        if module == tensor:  # a bias
            stored[tensor] = value
            continue
        out = value.ndim != 2 or "embed" in tensor or module.endswith(left_out)
        for part, number in ({"weight": value} if out else store(value.float())).items():
            stored[f"{module}.{part}"] = number.contiguous()
    safetensors.torch.save_file(stored, path, metadata={"format": "pt"})
    stored = safetensors.torch.load_file(path)
    decoded = {}
    for tensor, value in plain.items():
        module = tensor.removesuffix(".weight")
        if module == tensor:
            decoded[tensor] = stored[tensor].float()
            continue
        keys = [key for key in stored if key.rpartition(".")[0] == module]
        parts = {key.rpartition(".")[2]: stored[key] for key in keys}
        parts.pop("bias", None)
        plainly = set(parts) == {"weight"}
        decoded[tensor] = parts["weight"].float() if plainly else read(parts)
        ordered = "weight_g_idx" in parts  # which newer versions of the package do not read
        if not plainly and not ordered and quantisation["quant_method"] == "compressed-tensors":
            check_compressed(quantisation, parts, decoded[tensor])
        change = float((decoded[tensor] - value.float()).abs().max() / value.float().abs().max())
        assert change < 0.12, f"{name} {tensor}: {change}"
    safetensors.torch.save_file(decoded, path + ".plain", metadata={"format": "pt"})
    os.rename(path, path + ".stored")
    os.rename(path + ".plain", path)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    os.rename(path + ".stored", path)
    config_path = os.path.join(folder, "config.json")
    with open(config_path) as file:
        written = json.load(file)
    written["quantization_config"] = quantisation
    with open(config_path, "w") as file:
        json.dump(written, file, indent=2)
        file.write("\n")
    tokens = draw_tokens(TOKENS, generator)
    with torch.no_grad():
        logits = model(tokens[None]).logits[0].float()
    expected = {"tokens": tokens.to(torch.int32), "logits": logits.contiguous()}
    for module in SHOWN:
        if f"{module}.weight" in decoded:
            expected[f"{module}.weight"] = decoded[f"{module}.weight"].contiguous()
    safetensors.torch.save_file(expected, os.path.join(folder, "expected.safetensors"))
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)
    loaded = quantisation["quant_method"] == "fp8"
    distance = check_loaded(folder, tokens, logits) if loaded else None
    told = "" if distance is None else f", transformers {distance:.4f} away"
    print(f"{name}: {sum(entry.stat().st_size for entry in os.scandir(folder))} bytes{told}")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/quantised"
    names = sys.argv[2:] or list(FORMS)
    for name in names:
        record(name, root, 4000 + list(FORMS).index(name))
    with open(os.path.join(root, "versions.json"), "w") as file:
        json.dump(
            {
                "transformers": transformers.__version__,
                "torch": torch.__version__,
                "safetensors": safetensors.__version__,
                "compressed-tensors": compressed_tensors.__version__,
                "numpy": numpy.__version__,
            },
            file,
            indent=2,
        )
        file.write("\n")


if __name__ == "__main__":
    main()
