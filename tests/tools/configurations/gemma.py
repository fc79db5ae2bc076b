"""Gemma in all its versions."""

from configurations.common import SIZES

CASES = {
    "gemma2": ("Gemma2Config", dict(SIZES, head_dim=16, sliding_window=16)),
    "gemma2_uncapped": (
        "Gemma2Config",
        dict(SIZES, head_dim=16, sliding_window=16, attn_logit_softcapping=None,
             final_logit_softcapping=12.5, query_pre_attn_scalar=144, attention_bias=True,
             rope_theta=500000.0, tie_word_embeddings=False),
    ),
    "gemma3": ("Gemma3TextConfig", dict(SIZES, head_dim=16, sliding_window=16)),
    "gemma4": (
        "Gemma4TextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, hidden_size_per_layer_input=0),
    ),
    "gemma4_keys": (
        "Gemma4TextConfig",
        dict(SIZES, head_dim=16, global_head_dim=24, num_global_key_value_heads=1,
             attention_k_eq_v=True, sliding_window=16, hidden_size_per_layer_input=0,
             attention_bias=True, final_logit_softcapping=30.0, tie_word_embeddings=False,
             use_bidirectional_attention="vision",
             rope_parameters={
                 "full_attention": {"rope_type": "proportional", "rope_theta": 500000.0,
                                    "partial_rotary_factor": 0.5, "factor": 2.0},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}),
    ),
    "gemma4_layer_inputs": (
        "Gemma4TextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, num_kv_shared_layers=2,
             layer_types=["sliding_attention", "full_attention"] * 2, use_double_wide_mlp=True,
             hidden_size_per_layer_input=12, vocab_size_per_layer_input=100),
    ),
    "gemma4_moe": (
        "Gemma4TextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, hidden_size_per_layer_input=0,
             enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=20),
    ),
    "vaultgemma": ("VaultGemmaConfig", dict(SIZES, head_dim=16, sliding_window=16)),
    "gemma3n": (
        "Gemma3nTextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, num_kv_shared_layers=2,
             layer_types=["sliding_attention", "full_attention"] * 2,
             hidden_size_per_layer_input=12, vocab_size_per_layer_input=90, laurel_rank=6),
    ),
    "gemma3n_unscaled": (
        "Gemma3nTextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, num_kv_shared_layers=0,
             layer_types=["sliding_attention"] + ["full_attention"] * 3, altup_num_inputs=2,
             altup_correct_scale=False,
             altup_coef_clip=60.0, activation_sparsity_pattern=[0.95, 0.0, 0.5, 0.0],
             hidden_size_per_layer_input=12, laurel_rank=6, attention_bias=True,
             final_logit_softcapping=20.0, tie_word_embeddings=False, rope_theta=500000.0,
             rope_local_base_freq=5000.0),
    ),
    "gemma3_pattern": (
        "Gemma3TextConfig",
        dict(SIZES, head_dim=16, sliding_window=16, sliding_window_pattern=2, rope_theta=500000.0,
             rope_local_base_freq=5000.0, rope_scaling={"rope_type": "linear", "factor": 8.0},
             query_pre_attn_scalar=168, attention_bias=True, tie_word_embeddings=False),
    ),
    "gemma": ("GemmaConfig", dict(SIZES, head_dim=16)),
}
