"""Records configurations that transformers writes, one folder per version, and what it says of them.

    python tests/tools/record_configurations.py    # any transformers

The version is noted in each recording. Output: tests/fixtures/formats/configs/.
"""

import json
import pathlib
import shutil
import tempfile

import transformers

from configurations import CASES

ROOT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "formats"

# Of configurations whose classes of models are not named like them.
ARCHITECTURES = {
    "ExaoneConfig": "LlamaForCausalLM",
    "GPT2Config": "GPT2LMHeadModel",
    "InternLM3Config": "LlamaForCausalLM",
}


def save(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def architecture_of(kind):
    return ARCHITECTURES.get(kind, kind.removesuffix("Config").removesuffix("Text") + "ForCausalLM")


def rope_facts(config):
    rope = getattr(config, "rope_parameters", None) or {}
    rope = dict(rope or getattr(config, "rope_scaling", None) or {})
    sliding = dict(rope.get("sliding_attention", rope))
    rope = rope.get("full_attention", rope)
    # Thetas by layer go before the one of all; of a kind of layers they are the same here.
    thetas = getattr(config, "layer_rope_theta", None) or []
    by_kind = {kind: theta for kind, theta in zip(config.layer_types, thetas) if theta} if thetas else {}
    if by_kind:
        first = by_kind.get("full_attention", by_kind.get("sliding_attention"))
        rope["rope_theta"] = first
        sliding["rope_theta"] = by_kind.get("sliding_attention", first)
    return {
        "theta": rope.get("rope_theta", getattr(config, "rope_theta", None)),
        "sliding_theta": sliding.get("rope_theta", getattr(config, "rope_local_base_freq", None)),
        "type": rope.get("rope_type", rope.get("type", "default")),
        "factor": rope.get("factor", 1.0),
    }


def kv_head_count(config):
    """Heads of keys, as the modelling code of this transformers decides."""
    heads = config.num_attention_heads
    if config.model_type == "falcon" and not config.new_decoder_architecture:
        return 1 if config.multi_query else heads
    if config.model_type == "falcon":
        return config.num_kv_heads
    if config.model_type == "gpt_bigcode":
        return 1 if config.multi_query else heads
    return config.to_dict().get("num_key_value_heads", heads)


def sliding_layers(config):
    """Which layers use the window, as the modelling code of this transformers decides."""
    if config.model_type == "gpt_neo":
        return [i for i, kind in enumerate(config.attention_layers) if kind == "local"]
    window = getattr(config, "sliding_window", None)
    if window is None:
        return []
    types = getattr(config, "layer_types", None)
    count = config.num_hidden_layers
    if getattr(config, "use_sliding_window", True) is False:
        return []
    if types is not None:
        return [i for i in range(count) if types[i] == "sliding_attention"]
    if config.model_type.startswith("qwen"):
        return [i for i in range(count) if i >= config.max_window_layers]
    return list(range(count))


def head_dim(config):
    """Columns of a query and a key."""
    if hasattr(config, "qk_nope_head_dim"):
        return config.qk_nope_head_dim + config.qk_rope_head_dim
    stated = config.to_dict().get("head_dim")  # some layers may have others
    return stated or config.hidden_size // config.num_attention_heads


def facts(config):
    """What a reader must understand from the file, asked of transformers itself."""
    eos = config.eos_token_id
    eos = [] if eos is None else eos if isinstance(eos, list) else [eos]
    heads = {}
    if hasattr(config, "num_attention_heads"):  # else no layer has attention
        heads = {
            "head_count": config.num_attention_heads,
            "kv_head_count": kv_head_count(config),
            "head_dim": head_dim(config),
            "context_max": config.max_position_embeddings,
        }
    known = {
        "hidden_size": config.hidden_size,
        "layer_count": config.num_hidden_layers,
        **heads,
        "tied": config.tie_word_embeddings,
        "eos": [token for token in eos if token < config.vocab_size],
        "sliding_window": getattr(config, "sliding_window", None)
        or getattr(config, "window_size", 0),
        "sliding_layers": sliding_layers(config),
    }
    silent = ("gpt2", "gpt_bigcode", "opt", "gpt_neo", "gptj", "nemotron_h", "jamba", "kimi_linear")
    if heads and config.model_type not in silent:
        known["rope"] = rope_facts(config)
    try:
        import torch

        with torch.device("meta"):
            if config.model_type == "mistral4":  # which the other does not know
                model = transformers.Mistral4ForCausalLM(config)
            else:
                model = transformers.AutoModelForCausalLM.from_config(config)
        # Files have what is added to scores for the choice of experts alone, too, and numbers of
        # xIELU.
        ends = ("correction_bias", "expert_bias", "act_fn.beta", "act_fn.eps", "layer_scalar")
        biases = [b for name, b in model.named_buffers() if name.endswith(ends)]
        known["parameters"] = sum(p.numel() for p in [*model.parameters(), *biases])
    except ImportError:
        pass  # the other recording has the count
    return known


def record():
    major, minor = transformers.__version__.split(".")[:2]
    # Most families came after the first recording of version 4.
    label = major if int(major) > 4 or int(minor) < 47 else f"{major}.{minor}"
    folder = ROOT / "configs" / f"transformers-{label}"
    shutil.rmtree(folder, ignore_errors=True)
    expected = {"versions": {"transformers": transformers.__version__}, "cases": {}}
    for name, (kind, arguments) in CASES.items():
        if not hasattr(transformers, kind):
            continue
        config = getattr(transformers, kind)(architectures=[architecture_of(kind)], **arguments)
        with tempfile.TemporaryDirectory() as scratch:
            config.save_pretrained(scratch)
            text = (pathlib.Path(scratch) / "config.json").read_text()
        save(folder / f"{name}.json", text)
        expected["cases"][name] = facts(config)
    generation = transformers.GenerationConfig(
        do_sample=True, temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.05,
        max_new_tokens=64, eos_token_id=[5, 6], bos_token_id=4, pad_token_id=0)
    with tempfile.TemporaryDirectory() as scratch:
        generation.save_pretrained(scratch)
        text = (pathlib.Path(scratch) / "generation_config.json").read_text()
    save(folder / "generation_config.json", text)
    save(folder / "expected.json", json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    record()
