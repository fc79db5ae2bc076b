"""Records GGUF files that llama.cpp's own converter makes of the fixtures' models.

    python tests/tools/record_gguf_converted.py LLAMA_CPP [NAME ...]      default: all

LLAMA_CPP is a checkout of llama.cpp. Writes NAME.gguf for tests/fixtures/model/NAME to
tests/fixtures/gguf/converted, in the model's own type and with a vocabulary of single bytes, and the
config.json that it was made of beside it. Where the converter does not take a fixture as it is, or
what it writes has no room for all of it, the fixture is changed first: see EDITS.

Importing a file must give the fixture's tensors and that configuration.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
OUT = FIXTURES / "gguf" / "converted"

NORMAL, CONTROL = 1, 3


def no_biases(*parts):
    """Drops biases of modules whose names have one of the parts."""
    def change(tensors):
        return {k: v for k, v in tensors.items()
                if not (k.endswith(".bias") and any(part in k for part in parts))}
    return change


def no_head(tensors):
    return {k: v for k, v in tensors.items() if k != "lm_head.weight"}


def experts_everywhere(tensors):
    """The second layer gets the experts of the first."""
    made = {k: v for k, v in tensors.items() if ".layers.1.mlp." not in k}
    for key in list(made):
        if ".layers.0.mlp." in key:
            made[key.replace(".layers.0.", ".layers.1.")] = made[key]
    return made


def layer_beyond(tensors):
    """A third layer that predicts further tokens, which is converted and not imported."""
    made = dict(tensors)
    for key, value in tensors.items():
        if ".layers.1." in key:
            made[key.replace(".layers.1.", ".layers.2.")] = value
    width = tensors["model.norm.weight"].shape[0]
    norm = tensors["model.norm.weight"]
    made["model.layers.2.eh_proj.weight"] = tensors["lm_head.weight"][:width].repeat(1, 2)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        made[f"model.layers.2.{name}.weight"] = norm
    return made


def sets(**fields):
    return lambda config: config.update(fields)


def mamba_names(config):
    config["layer_types"] = ["attention" if kind in ("attention", "full_attention") else "mamba"
                             for kind in config["layer_types"]]


def no_positions(config):
    mamba_names(config)
    config["position_embedding_type"] = "nope"


def no_windows(config):
    config["sliding_window"] = None
    config["layer_types"] = ["full_attention"] * config["num_hidden_layers"]


def usual_llama3(config):
    config["rope_parameters"].update(low_freq_factor=1.0, high_freq_factor=4.0)


def one_scale(config):
    config["scoring_func"] = "sigmoid"
    rope = config["rope_parameters"]
    rope["mscale"] = rope["mscale_all_dim"]


def without_experts(config):
    config["d_head"] = config["mamba_head_dim"]
    config["mlp_bias"] = config["use_bias"] = False
    config["hybrid_override_pattern"] = "M-*M"
    for field in ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group",
                  "topk_group", "layers_block_type", "moe_shared_expert_intermediate_size",
                  "n_shared_experts", "norm_topk_prob", "routed_scaling_factor"):
        config.pop(field, None)


def with_experts(config):
    config["d_head"] = config["mamba_head_dim"]


def plain_positions(config):
    config["rope_parameters"] = {"rope_theta": 10000.0, "rope_type": "default"}


def usual_yarn(config):
    config["rope_parameters"]["full_attention"].update(beta_fast=32.0)
    config["rope_parameters"]["full_attention"].pop("truncate")


def as_chatglm(config):
    """What the converter looks for are names of the older remote code."""
    config.update(seq_length=config["max_position_embeddings"], rms_norm_eps=1e-5,
                  layernorm_epsilon=1e-5, attention_dim=config["head_dim"], num_key_value_heads=2)


def as_neox(config):
    config["rotary_pct"] = config["rope_parameters"]["partial_rotary_factor"]
    config["rope_parameters"]["rope_theta"] = 10000.0  # no key says another


def usual_minicpm3(config):
    """Numbers that readers take for granted."""
    config.update(scale_emb=12, scale_depth=1.4, dim_model_base=256)


def as_bamba(config):
    config.update(attn_rotary_emb=4)


def unmultiplied(config):
    """What files hold has been multiplied with them."""
    for field in ("embedding_multiplier", "lm_head_multiplier", "attention_in_multiplier",
                  "attention_out_multiplier", "key_multiplier", "ssm_in_multiplier",
                  "ssm_out_multiplier"):
        config[field] = 1.0
    config.update(mlp_multipliers=[1.0] * 2, ssm_multipliers=[1.0] * 5,
                  mamba_norm_before_gate=False, head_dim=8)


# What is changed of a configuration, and of tensors.
EDITS = {
    "gpt_oss": (sets(swiglu_limit=7.0), None),  # readers know no other
    "gpt_oss_mxfp4": (None, None),
    "qwen3_5": (sets(attention_bias=False), no_biases("self_attn")),
    "qwen3_5_moe": (None, None),
    "qwen3_next": (sets(mlp_only_layers=[]), experts_everywhere),
    "lfm2": (sets(conv_bias=False), no_biases("conv.")),
    "lfm2_moe": (sets(tie_word_embeddings=True, routed_scaling_factor=1.0), no_head),
    "granite_hybrid": (mamba_names, None),
    "granite_hybrid_dense": (no_positions, None),
    "granite_moe_shared": (None, None),
    "gemma": (None, None),
    "gemma4": (None, None),
    "gemma4_moe": (None, None),
    "gemma4_layer_inputs": (None, None),
    "glm4": (None, None),
    "glm4_moe": (None, layer_beyond),
    "cohere2": (sets(attention_bias=False, rotary_pct=1.0,
                     layer_types=["sliding_attention"] * 3), no_biases("self_attn")),
    "exaone4": (None, None),
    "apertus": (usual_llama3, None),
    "hunyuan_v1_dense": (plain_positions, None),
    "ernie4_5_moe": (None, None),
    "nemotron_h": (without_experts, no_biases("mixer.in_proj", "mixer.out_proj", "up_proj",
                                              "down_proj")),
    "nemotron_h_moe": (with_experts, None),
    "deepseek_v2": (None, None),
    "deepseek_v2_groups": (None, None),
    "deepseek_v3": (one_scale, None),
    "minimax_m2": (sets(scoring_func="sigmoid"), None),
    "dots1": (no_windows, None),
    "phi": (None, None),
    "phi3": (None, None),
    "phi4_mini": (None, None),
    "glm": (as_chatglm, None),
    "olmo3": (usual_yarn, None),
    "gpt_neox": (as_neox, None),
    "cohere": (None, None),
    "ernie4_5": (sets(use_bias=False), no_biases("")),
    "falcon_h1": (unmultiplied, None),
    "minicpm3": (usual_minicpm3, None),
    "bamba": (as_bamba, None),
    "jais2": (None, None),
    "qwen2_5_images": (None, None),
    "qwen3_images": (None, None),
    "youtu": (None, None),
    "glm4_moe_lite": (sets(first_k_dense_replace=1), None),
    "solar_open": (sets(n_group=1, first_k_dense_replace=0, intermediate_size=40,
                        partial_rotary_factor=1.0), None),
}


# Whose configuration the converter must see as it is written, and not as transformers reads it,
# which renames kinds of layers and fields.
AS_WRITTEN = {"granite_hybrid", "granite_hybrid_dense", "gpt_neox"}
# What the converter takes for granted of the published models, and a fixture has otherwise.
SAID_TOO = {
    "phi": lambda writer, config: (writer.add_feed_forward_length(config["intermediate_size"]),
                                   writer.add_head_count_kv(config["num_key_value_heads"])),
    "glm": lambda writer, config: (writer.add_key_length(config["head_dim"]),
                                   writer.add_value_length(config["head_dim"])),
}


def vocabulary(size):
    import tokenizers
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<|pad|>", "<|bos|>", "<|eos|>"] + alphabet[: size - 3]
    tokens[-1] = alphabet[30] + alphabet[31]
    return tokens, [f"{alphabet[30]} {alphabet[31]}"]


def set_placeholder_tokens(model):
    tokens, merges = vocabulary(model.hparams["vocab_size"])
    writer = model.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL] * 3 + [NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def prepare(name, folder):
    """The folder that is converted, and its configuration."""
    import safetensors.torch
    change_config, change_tensors = EDITS[name]
    with open(FIXTURES / "model" / name / "config.json") as file:
        config = json.load(file)
    tensors = safetensors.torch.load_file(FIXTURES / "model" / name / "model.safetensors")
    if change_config:
        change_config(config)
    if change_tensors:
        tensors = change_tensors(tensors)
    tokens, _ = vocabulary(config.get("text_config", config)["vocab_size"])
    with open(folder / "tokenizer.json", "w") as file:
        json.dump({"model": {"vocab": {token: i for i, token in enumerate(tokens)}},
                   "added_tokens": []}, file)
    with open(folder / "config.json", "w") as file:
        json.dump(config, file)
    tensors = {key: value.contiguous().clone() for key, value in tensors.items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    floats = [t for t in tensors.values() if t.is_floating_point()]
    return config, all(t.dtype.itemsize == 4 for t in floats)


def convert(name):
    import gguf
    from conversion import get_model_class
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        config, wide = prepare(name, folder)
        kind = get_model_class(config["architectures"][0])
        kind.set_vocab = set_placeholder_tokens
        if name in SAID_TOO:
            say_all = kind.set_gguf_parameters

            def say_more(model):
                say_all(model)
                SAID_TOO[name](model.gguf_writer, config)
            kind.set_gguf_parameters = say_more
        kind.no_mtp = EDITS[name][1] is not layer_beyond
        types = gguf.LlamaFileType
        path = OUT / (name + ".gguf")
        made = kind(folder, types.ALL_F32 if wide else types.MOSTLY_BF16, path, eager=True,
                    hparams=copy.deepcopy(config) if name in AS_WRITTEN else None)
        made.write()
    with open(OUT / (name + ".json"), "w") as file:
        json.dump(config, file, indent=1)
        file.write("\n")
    print(name)


def record_version(source):
    commit = subprocess.run(["git", "-C", source, "rev-parse", "HEAD"], check=True,
                            capture_output=True, text=True).stdout.strip()
    with open(OUT / "versions.json", "w") as file:
        json.dump({"llama.cpp": commit}, file, indent=2)
        file.write("\n")


def main():
    source = sys.argv[1]
    sys.path[:0] = [os.path.join(source, "gguf-py"), source]
    os.makedirs(OUT, exist_ok=True)
    for name in sys.argv[2:] or EDITS:
        convert(name)
    record_version(source)


if __name__ == "__main__":
    main()
