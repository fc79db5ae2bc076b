"""Records LoRA adapters of the tiny models as PEFT writes them, with PEFT's logits.

    python tests/tools/record_adapters.py [FOLDER]      default: tests/fixtures/adapters

Writes FOLDER/NAME/ as PEFT saves it (adapter_config.json, adapter_model.safetensors) for a base of
tests/fixtures/model, and FOLDER/NAME/expected.safetensors:

    tokens   I32 [T]     one sequence, that of the base
    logits   F32 [T, V]  of base and adapter run in float32 with eager attention, not merged

FOLDER/bases.json names the base of each, FOLDER/versions.json what was used. What a case trains besides
its matrices (magnitudes, biases, whole modules) is moved at random, too.
"""

import json
import os
import pathlib
import shutil
import sys

import numpy
import peft
import safetensors.numpy
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# name: (base, arguments of LoraConfig)
CASES = {
    "gpt2_conv": (
        "gpt2",
        dict(r=5, lora_alpha=10, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    ),
    "llama2_all": ("llama2", dict(r=3, lora_alpha=5, use_rslora=True, target_modules=ALL)),
    "llama2_down": (
        "llama2",
        dict(r=8, lora_alpha=2, target_modules=["down_proj"], layers_to_transform=[1]),
    ),
    "llama2_qv": ("llama2", dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"])),
    "qwen3_pattern": ("qwen3", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "gpt_neox_all": ("gpt_neox", dict(r=3, lora_alpha=6, target_modules="all-linear")),
    "phi_all": ("phi", dict(r=3, lora_alpha=6, target_modules="all-linear")),
    # Named as in memory, not as in the folder's files.
    "exaone_all": ("exaone", dict(r=3, lora_alpha=6, target_modules="all-linear")),
    # What reads images has modules of these names, too.
    "gemma3_images_qv": ("gemma3_images", dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"])),
    # The first expression that matches counts.
    "llama2_patterns": (
        "llama2",
        dict(
            r=4,
            lora_alpha=6,
            target_modules=r".*\.(self_attn\.[qv]_proj|mlp\.down_proj)",
            exclude_modules=["layers.0.mlp.down_proj"],
            rank_pattern={"q_proj": 2, r"layers\.1\..*v_proj": 3, "proj": 7, r"^model.*\.down_proj": 5},
            alpha_pattern={r"model\.layers\.0\.self_attn\.q_proj": 3, "[qd].*_proj": 9},
        ),
    ),
    "qwen2_dora": ("qwen2", dict(r=3, lora_alpha=5, use_dora=True, target_modules="all-linear")),
    "gpt2_dora": (
        "gpt2",
        dict(r=2, lora_alpha=4, use_dora=True, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True),
    ),
    "llama2_dora": (
        "llama2",
        dict(
            r=4,
            lora_alpha=3,
            use_dora=True,
            use_rslora=True,
            target_modules=["q_proj", "k_proj", "down_proj", "gate_proj"],
            rank_pattern={"k_proj": 2},
            alpha_pattern={"down_proj": 6},
        ),
    ),
    "qwen2_biases": (
        "qwen2",
        dict(r=3, lora_alpha=6, bias="lora_only", lora_bias=True, target_modules=["q_proj", "v_proj"]),
    ),
    # What only a merge takes.
    "gpt2_all_biases": (
        "gpt2",
        dict(r=2, lora_alpha=4, bias="all", target_modules=["c_proj"], fan_in_fan_out=True),
    ),
    "llama2_saved": (
        "llama2",
        dict(
            r=2,
            lora_alpha=4,
            target_modules=["v_proj"],
            modules_to_save=["lm_head", "embed_tokens", "input_layernorm"],
        ),
    ),
    "qwen2_saved_head": (
        "qwen2",
        dict(r=2, lora_alpha=4, use_dora=True, target_modules=["o_proj"], modules_to_save=["lm_head"]),
    ),
    "qwen2_saved_table": (
        "qwen2",
        dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"]),
    ),
    # Queries, keys and values by heads of keys in one matrix.
    "falcon_norms_all": ("falcon_norms", dict(r=3, lora_alpha=6, target_modules="all-linear")),
    "gptj_all": ("gptj", dict(r=3, lora_alpha=6, target_modules="all-linear")),
    "opt_all": ("opt", dict(r=3, lora_alpha=6, target_modules="all-linear")),
}


def load_base(base):
    return transformers.AutoModelForCausalLM.from_pretrained(
        ROOT / "model" / base, dtype=torch.float32, attn_implementation="eager"
    )


def record(name, folder):
    base, arguments = CASES[name]
    torch.manual_seed(list(CASES).index(name))
    model = load_base(base)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **arguments))
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "lora_magnitude_vector" in key:
                value.mul_(torch.empty_like(value).uniform_(0.6, 1.4))
            elif "lora_" in key:
                value.normal_(0, 0.2)
            elif value.requires_grad:  # biases and whole modules
                value.add_(torch.empty_like(value).normal_(0, 0.1))
    tokens = safetensors.numpy.load_file(ROOT / "model" / base / "expected.safetensors")["tokens"]
    shutil.rmtree(folder / name, ignore_errors=True)
    # The base's path is this machine's and says nothing.
    model.peft_config["default"].base_model_name_or_path = base
    model.save_pretrained(folder / name)
    for extra in ("README.md",):
        if os.path.exists(folder / name / extra):
            os.remove(folder / name / extra)
    # As the folder says it: PEFT writes patterns in another order than they were given in.
    model = peft.PeftModel.from_pretrained(load_base(base), folder / name).eval()
    with torch.no_grad():
        logits = model(torch.tensor(tokens[None], dtype=torch.long)).logits[0]
        without = load_base(base)(torch.tensor(tokens[None], dtype=torch.long)).logits[0]
    safetensors.torch.save_file(
        {"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits.contiguous().float()},
        folder / name / "expected.safetensors",
    )
    print(f"{name}: the adapter moves logits by up to {(logits - without).abs().max():.3f}")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "adapters"
    folder.mkdir(parents=True, exist_ok=True)
    for name in CASES:
        record(name, folder)
    bases = {name: base for name, (base, _) in CASES.items()}
    (folder / "bases.json").write_text(json.dumps(bases, indent=2) + "\n")
    versions = {module.__name__: module.__version__ for module in (peft, torch, transformers, numpy)}
    (folder / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")


if __name__ == "__main__":
    main()
