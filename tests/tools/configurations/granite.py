"""Granite without recurrent states."""

from configurations.common import SIZES

CASES = {
    "granite_swa": (
        "GraniteSWAConfig", dict(SIZES, layer_rope_theta=[0, 1e4, 1e4, 1e4], sliding_window=16),
    ),
    "granitemoe_swa": (
        "GraniteMoeSWAConfig",
        dict(SIZES, layer_rope_theta=[1e6, 1e4, 0, 1e4], shared_intermediate_size=24),
    ),
    "granite": (
        "GraniteConfig",
        dict(SIZES, embedding_multiplier=12.0, attention_multiplier=0.015625,
             residual_multiplier=0.22, logits_scaling=8.0, tie_word_embeddings=True,
             rope_theta=10000000.0),
    ),
    "granite_bias": ("GraniteConfig", dict(SIZES, attention_bias=True, mlp_bias=True)),
    "granite_moe": (
        "GraniteMoeConfig",
        dict(SIZES, num_local_experts=6, num_experts_per_tok=3, embedding_multiplier=12.0,
             logits_scaling=6.0, residual_multiplier=0.22, attention_multiplier=0.015625,
             tie_word_embeddings=True, rope_theta=10000.0),
    ),
    "granite_moe_shared": (
        "GraniteMoeSharedConfig",
        dict(SIZES, shared_intermediate_size=40, attention_bias=True,
             rope_scaling={"rope_type": "linear", "factor": 2.0}),
    ),
}
