"""Granite's, and HyperCLOVA X, which is one of them."""

import torch
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    GraniteMoeConfig,
    GraniteMoeForCausalLM,
    GraniteMoeSWAConfig,
    GraniteMoeSWAForCausalLM,
    GraniteMoeSharedConfig,
    GraniteMoeSharedForCausalLM,
    GraniteSWAConfig,
    GraniteSWAForCausalLM,
    HyperCLOVAXConfig,
    HyperCLOVAXForCausalLM,
)

from tiny_models.common import COMMON, TinyModel

GRANITE_MOE = COMMON | dict(
    num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, num_local_experts=6,
    num_experts_per_tok=3, embedding_multiplier=3.0, residual_multiplier=0.6,
    attention_multiplier=0.25, logits_scaling=1.5,
)
# Granite with norms behind its layers' parts, too, and logits that are multiplied.
HYPERCLOVAX = dict(
    **COMMON, num_attention_heads=4, num_key_value_heads=2, embedding_multiplier=3.0,
    residual_multiplier=0.6, logits_scaling=0.7,
)
# Sinks; layers without the window do not turn.
GRANITE_SWA = dict(
    **COMMON | dict(num_hidden_layers=3), num_attention_heads=4, num_key_value_heads=2,
    sliding_window=9, embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.25,
    logits_scaling=1.5,
)

MODELS = {
    "minicpm": TinyModel(
        GraniteForCausalLM,
        GraniteConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            embedding_multiplier=6,
            attention_multiplier=8**-0.5,
            residual_multiplier=0.9 / 2**0.5,
            logits_scaling=2.0,
            tie_word_embeddings=True,
        ),
        torch.float32,
        seed=1214,
    ),
    "granite": TinyModel(
        GraniteForCausalLM,
        GraniteConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            embedding_multiplier=6.0,
            attention_multiplier=0.3,
            residual_multiplier=0.4,
            logits_scaling=1.7,
            tie_word_embeddings=True,
        ),
        torch.bfloat16,
        seed=1014,
    ),
    "granite_moe": TinyModel(
        GraniteMoeForCausalLM,
        GraniteMoeConfig(**GRANITE_MOE, tie_word_embeddings=True),
        torch.float32,
        seed=1068,
    ),
    "granite_moe_shared": TinyModel(
        GraniteMoeSharedForCausalLM,
        GraniteMoeSharedConfig(**GRANITE_MOE, shared_intermediate_size=24, attention_bias=True),
        torch.float32,
        seed=1069,
    ),
    "granite_swa": TinyModel(
        GraniteSWAForCausalLM,
        GraniteSWAConfig(**GRANITE_SWA, layer_rope_theta=[0, 1e4, 1e4]),
        torch.float32,
        seed=1106,
    ),
    # Or turn by a theta of their own, but for one.
    "granite_swa_turned": TinyModel(
        GraniteSWAForCausalLM,
        GraniteSWAConfig(
            **GRANITE_SWA | dict(num_hidden_layers=4), layer_rope_theta=[1e4, 1e2, 0, 1e2],
            layer_types=["full_attention", "sliding_attention"] * 2, attention_bias=True,
            mlp_bias=True, tie_word_embeddings=False,
            rope_parameters=dict(
                rope_type="yarn", rope_theta=1e3, factor=4.0, original_max_position_embeddings=16,
            ),
        ),
        torch.float32,
        seed=1107,
    ),
    "granitemoe_swa": TinyModel(
        GraniteMoeSWAForCausalLM,
        GraniteMoeSWAConfig(
            **GRANITE_SWA, num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=24,
            layer_rope_theta=[1e4, 0, 1e2],
        ),
        torch.float32,
        seed=1108,
    ),
    "hyperclovax": TinyModel(
        HyperCLOVAXForCausalLM,
        HyperCLOVAXConfig(**HYPERCLOVAX, head_dim=12, attention_multiplier=0.25),
        torch.float32,
        seed=1104,
    ),
    # Without them, and scores by the root of a head.
    "hyperclovax_bare": TinyModel(
        HyperCLOVAXForCausalLM,
        HyperCLOVAXConfig(
            **HYPERCLOVAX, use_post_norm=False, attention_bias=True, mlp_bias=True,
            tie_word_embeddings=True,
        ),
        torch.float32,
        seed=1105,
    ),
}
