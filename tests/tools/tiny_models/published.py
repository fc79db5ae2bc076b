"""Models that transformers has no class for, made of ones that compute the same: how their folders
are named and filled, as published."""

import math

import torch

# Of modules, as Llama has them and as InternLM2 does.
INTERNLM2_NAMES = (
    ("embed_tokens.", "tok_embeddings."), ("lm_head.", "output."), (".self_attn.o_proj.", ".attention.wo."),
    (".input_layernorm.", ".attention_norm."), (".post_attention_layernorm.", ".ffn_norm."),
    (".mlp.gate_proj.", ".feed_forward.w1."), (".mlp.up_proj.", ".feed_forward.w3."),
    (".mlp.down_proj.", ".feed_forward.w2."),
)


def internlm2_tensors(tensors, config):
    """Queries, keys and values of a head of keys stand together in one matrix."""
    groups = config["num_key_value_heads"]
    stored = {}
    for name, tensor in tensors.items():
        if ".q_proj." in name:
            parts = [tensors[name.replace(".q_proj.", f".{p}_proj.")] for p in "qkv"]
            rows = [part.reshape(groups, -1, tensor.shape[1]) for part in parts]
            fused = torch.cat(rows, dim=1).reshape(-1, tensor.shape[1])
            stored[name.replace(".self_attn.q_proj.", ".attention.wqkv.")] = fused.contiguous()
        elif ".k_proj." not in name and ".v_proj." not in name:
            for usual, own in INTERNLM2_NAMES:
                name = name.replace(usual, own)
            stored[name] = tensor
    return stored


def internlm2_config(config):
    for field in ("attention_bias", "mlp_bias", "head_dim", "pretraining_tp"):
        config.pop(field, None)
    return config | dict(
        architectures=["InternLM2ForCausalLM"], model_type="internlm2", bias=False,
        rope_theta=config.pop("rope_parameters")["rope_theta"],
        rope_scaling=dict(type="dynamic", factor=2.0),
    )


def minicpm_config(config):
    """Of a Granite, whose scales are the same by other names."""
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    scales = dict(
        scale_emb=config.pop("embedding_multiplier"),
        scale_depth=config.pop("residual_multiplier") * math.sqrt(layers),
        dim_model_base=round(width / config.pop("logits_scaling")),
    )
    for field in ("attention_multiplier", "attention_bias", "mlp_bias"):
        config.pop(field)
    return config | scales | dict(architectures=["MiniCPMForCausalLM"], model_type="minicpm")


# Model: what makes its configuration, and its tensors.
PUBLISHED = {
    "internlm2": (internlm2_config, internlm2_tensors),
    "minicpm": (minicpm_config, lambda tensors, _: tensors),
}
