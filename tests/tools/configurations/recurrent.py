"""Models with recurrent states, beside attention or alone."""

from configurations.common import SIZES

# Some layers with delta nets; a quarter of a head turns.
DELTA = dict(
    SIZES,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=10,
    linear_value_head_dim=12,
    eos_token_id=5,
)

CASES = {
    "lfm3": (
        "Lfm3Config",
        dict(SIZES, num_hidden_layers=6, head_dim=16, pad_token_id=None, eos_token_id=5),
    ),
    "lfm3_bare": (
        "Lfm3Config",
        dict(
            SIZES, head_dim=16, pad_token_id=None, eos_token_id=5, use_sandwich_norm=False,
            use_attention_gate=False, attention_bias=True, conv_bias=True,
            layer_types=["sliding_attention"] * 3 + ["full_attention"], sliding_window=16,
        ),
    ),
    "lfm2": ("Lfm2Config", dict(SIZES, full_attn_idxs=[2], block_multiple_of=12)),
    "lfm2_biases": (
        "Lfm2Config",
        dict(SIZES, layer_types=["full_attention", "conv", "conv", "full_attention"],
             conv_bias=True, conv_L_cache=4, block_auto_adjust_ff_dim=False, tie_embedding=False,
             norm_eps=1e-6, eos_token_id=7, rope_theta=10000.0),
    ),
    "lfm2_moe": (
        "Lfm2MoeConfig",
        dict(SIZES, layer_types=["conv", "full_attention", "conv", "full_attention"],
             num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20),
    ),
    "lfm2_moe_plain": (
        "Lfm2MoeConfig",
        dict(SIZES, layer_types=["conv"] * 4, num_dense_layers=0, num_experts=6,
             num_experts_per_tok=2, moe_intermediate_size=20, use_expert_bias=False,
             norm_topk_prob=False, routed_scaling_factor=2.5, tie_word_embeddings=False),
    ),
    "granite_hybrid": (
        "GraniteMoeHybridConfig",
        dict(SIZES, mamba_n_heads=8, layer_types=["mamba", "attention", "mamba", "mamba"]),
    ),
    "granite_hybrid_dense": (
        "GraniteMoeHybridConfig",
        dict(SIZES, num_local_experts=0, shared_intermediate_size=40, attention_bias=True,
             layer_types=["attention"] * 4, position_embedding_type="rope", mamba_n_heads=8,
             embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
             attention_multiplier=0.015625, tie_word_embeddings=True),
    ),
    "bamba": (
        "BambaConfig",
        dict(SIZES, attn_layer_indices=[2], mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=2,
             mamba_d_state=24, mamba_d_conv=3, mamba_expand=2, mamba_conv_bias=False,
             mamba_proj_bias=True, mlp_bias=True),
    ),
    "nemotron_h": (
        "NemotronHConfig",
        dict({name: size for name, size in SIZES.items() if name != "num_hidden_layers"},
             hybrid_override_pattern="M-*-MM", mamba_num_heads=4, mamba_head_dim=12, n_groups=2,
             ssm_state_size=16, head_dim=12, mlp_bias=True),
    ),
    "nemotron_h_moe": (
        "NemotronHConfig",
        dict({name: size for name, size in SIZES.items() if name != "num_hidden_layers"},
             hybrid_override_pattern="ME*E-", mamba_num_heads=4, mamba_head_dim=12, n_groups=2,
             ssm_state_size=16, head_dim=12, n_routed_experts=6, num_experts_per_tok=3,
             moe_intermediate_size=20, moe_shared_expert_intermediate_size=28, n_group=2,
             routed_scaling_factor=2.5),
    ),
    "kimi_linear": (
        "KimiLinearConfig",
        dict(SIZES, num_key_value_heads=4, kv_lora_rank=9, qk_nope_head_dim=6, qk_rope_head_dim=4,
             v_head_dim=5, num_local_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             linear_head_dim=7, linear_num_heads=3, n_group=2, topk_group=1, bos_token_id=3,
             eos_token_id=4, pad_token_id=None),
    ),
    "jamba": (
        "JambaConfig",
        dict(SIZES, attn_layer_period=3, attn_layer_offset=2, mamba_d_state=8, num_experts=6),
    ),
    "jamba_dense": (
        "JambaConfig",
        dict(SIZES, num_experts=1, mamba_expand=3, mamba_d_conv=3, mamba_dt_rank=5,
             mamba_conv_bias=False, mamba_proj_bias=True, tie_word_embeddings=True),
    ),
    "mamba": (
        "MambaConfig",
        dict(vocab_size=96, hidden_size=32, num_hidden_layers=4, state_size=8, expand=3,
             conv_kernel=3, use_bias=True, use_conv_bias=False, layer_norm_epsilon=1e-4),
    ),
    "falcon_mamba": (
        "FalconMambaConfig",
        dict(vocab_size=96, hidden_size=32, num_hidden_layers=4, time_step_rank=5,
             mixer_rms_eps=1e-4, tie_word_embeddings=False, eos_token_id=[3, 4]),
    ),
    "mamba2": (
        "Mamba2Config",
        dict(vocab_size=96, hidden_size=32, num_hidden_layers=4, num_heads=8, head_dim=12,
             expand=3, n_groups=2, state_size=24, use_bias=True, tie_word_embeddings=True),
    ),
    "falcon_h1": (
        "FalconH1Config",
        dict(SIZES, mamba_d_ssm=40, mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=16,
             embedding_multiplier=5.5, lm_head_multiplier=0.25, key_multiplier=0.5,
             attention_in_multiplier=1.5, attention_out_multiplier=0.9, ssm_in_multiplier=1.25,
             ssm_out_multiplier=0.25, mlp_multipliers=[0.75, 0.5],
             ssm_multipliers=[0.5, 0.25, 0.75, 1.5, 0.3], rope_theta=1e11, head_dim=12),
    ),
    "falcon_h1_norm": (
        "FalconH1Config",
        dict(SIZES, mamba_d_ssm=None, mamba_n_heads=4, mamba_d_head=16, mamba_rms_norm=True,
             mamba_norm_before_gate=False, mamba_proj_bias=True, projectors_bias=True,
             attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    ),
    "olmo_hybrid": (
        "OlmoHybridConfig",
        dict(SIZES, rope_parameters=dict(rope_type="default", rope_theta=None), eos_token_id=5,
             pad_token_id=None),
    ),
    "olmo_hybrid_turned": (
        "OlmoHybridConfig",
        dict({name: size for name, size in DELTA.items() if name != "head_dim"}, rope_theta=500.0,
             linear_allow_neg_eigval=False, linear_conv_kernel_dim=3, attention_bias=True,
             layer_types=["full_attention", "linear_attention"] * 2, pad_token_id=None),
    ),
    "qwen3_5": ("Qwen3_5TextConfig", dict(DELTA)),
    "qwen3_5_listed": (
        "Qwen3_5TextConfig",
        dict(DELTA, linear_conv_kernel_dim=3, attention_bias=True, tie_word_embeddings=True,
             layer_types=["full_attention", "linear_attention"] * 2,
             rope_parameters=dict(rope_type="default", rope_theta=500000.0,
                                  partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
                                  mrope_interleaved=True)),
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeTextConfig",
        dict(DELTA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40),
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        dict(DELTA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40),
    ),
    "qwen3_next_sparse": (
        "Qwen3NextConfig",
        dict(DELTA, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40, decoder_sparse_step=2, mlp_only_layers=[3],
             norm_topk_prob=False, attention_bias=True,
             layer_types=["linear_attention", "full_attention"] * 2),
    ),
}
