"""Models with experts."""

from configurations.common import LLAMA3_ROPE, SIZES

CASES = {
    "mellum": (
        "MellumConfig",
        dict(
            SIZES, head_dim=8, sliding_window=16, num_experts=6, num_experts_per_tok=3,
            moe_intermediate_size=20,
            layer_types=["sliding_attention", "full_attention"] * 2, attention_bias=True,
            mlp_layer_types=["dense", "sparse", "sparse", "dense"], num_mtp_layers=1,
        ),
    ),
    "exaone_moe": (
        "ExaoneMoeConfig",
        dict(SIZES, sliding_window=16, num_experts=8, moe_intermediate_size=24,
             num_experts_per_tok=2, first_k_dense_replace=2, n_group=2, topk_group=1),
    ),
    "llama4": (
        "Llama4TextConfig",
        dict(SIZES, head_dim=16, intermediate_size_mlp=64, num_local_experts=4,
             interleave_moe_layer_step=2, attention_chunk_size=32,
             rope_parameters={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                              "high_freq_factor": 1.0, "original_max_position_embeddings": 64,
                              "rope_theta": 500000.0}),
    ),
    "llama4_whole": (
        "Llama4TextConfig",
        dict(SIZES, head_dim=16, intermediate_size_mlp=64, num_local_experts=4,
             num_experts_per_tok=2, moe_layers=[0, 3], no_rope_layers=[1, 1, 0, 1],
             attention_chunk_size=None, use_qk_norm=False, attn_temperature_tuning=False,
             attention_bias=True),
    ),
    "olmoe": ("OlmoeConfig", dict(SIZES, num_experts=6, num_experts_per_tok=3, eos_token_id=5)),
    "glm4_moe": (
        "Glm4MoeConfig",
        dict(SIZES, first_k_dense_replace=1, num_experts_per_tok=3, n_routed_experts=12,
             moe_intermediate_size=20, use_qk_norm=True, attention_bias=True,
             partial_rotary_factor=0.5, eos_token_id=[5, 6]),
    ),
    "glm4_moe_plain": (
        "Glm4MoeConfig",
        dict(SIZES, first_k_dense_replace=0, num_experts_per_tok=2, n_routed_experts=6,
             moe_intermediate_size=20, head_dim=12, n_group=3, topk_group=2),
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        dict(SIZES, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40, eos_token_id=5),
    ),
    "qwen2_moe_sparse": (
        "Qwen2MoeConfig",
        dict(SIZES, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             shared_expert_intermediate_size=40, decoder_sparse_step=2, mlp_only_layers=[3],
             norm_topk_prob=True, qkv_bias=False, tie_word_embeddings=True, eos_token_id=5),
    ),
    "hy_v3": (
        "HYV3Config",
        dict(SIZES, head_dim=12, num_experts=6, num_experts_per_tok=3, num_shared_experts=2,
             moe_intermediate_size=20, router_scaling_factor=1.5, rope_parameters=LLAMA3_ROPE
             | {"rope_theta": 5000.0}, mlp_layer_types=["dense", "dense", "sparse", "sparse"]),
    ),
    "ernie4_5_moe": (
        "Ernie4_5_MoeConfig",
        dict(SIZES, moe_num_experts=6, moe_k=3, moe_intermediate_size=20,
             moe_num_shared_experts=1, moe_layer_start_index=2, eos_token_id=[2, 5]),
    ),
    "ernie4_5_moe_interval": (
        "Ernie4_5_MoeConfig",
        dict(SIZES, moe_num_experts=6, moe_k=3, moe_intermediate_size=20,
             moe_num_shared_experts=0, moe_layer_interval=2, moe_layer_end_index=2,
             moe_norm_min=1e-9, tie_word_embeddings=False),
    ),
    "dots1": (
        "Dots1Config",
        dict(SIZES, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=3,
             moe_intermediate_size=20, first_k_dense_replace=1, norm_topk_prob=True,
             routed_scaling_factor=2.5, max_window_layers=3, sliding_window=16),
    ),
    "dots1_plain": (
        "Dots1Config",
        dict(SIZES, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=3, n_group=3,
             topk_group=2, moe_intermediate_size=20, attention_bias=True, sliding_window=None,
             bos_token_id=4, eos_token_id=5),
    ),
    "minimax_m2": (
        "MiniMaxM2Config",
        dict(SIZES, num_local_experts=6, num_experts_per_tok=3, head_dim=16, rotary_dim=8,
             bos_token_id=4, eos_token_id=5),
    ),
    "hunyuan_v1_moe": (
        "HunYuanMoEV1Config",
        dict(SIZES, head_dim=16, num_experts=6, moe_topk=[3] * 4, tie_word_embeddings=True),
    ),
    "hunyuan_v1_moe_number": (
        "HunYuanMoEV1Config",
        dict(SIZES, head_dim=8, num_experts=5, moe_topk=2, attention_bias=True,
             rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    ),
    "flex_olmo": (
        "FlexOlmoConfig",
        dict(SIZES, num_experts=6, num_experts_per_tok=3, eos_token_id=5, pad_token_id=None),
    ),
    "solar_open": (
        "SolarOpenConfig",
        dict({name: size for name, size in SIZES.items() if name != "intermediate_size"},
             head_dim=16, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=20,
             routed_scaling_factor=2.5, eos_token_id=5),
    ),
}
