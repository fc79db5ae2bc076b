"""Models whose keys and values are made of latents."""

from configurations.common import SIZES

LATENT = dict(
    SIZES,
    num_key_value_heads=4,
    kv_lora_rank=24,
    q_lora_rank=16,
    qk_nope_head_dim=12,
    qk_rope_head_dim=8,
    v_head_dim=10,
    bos_token_id=4,
    eos_token_id=5,
)

CASES = {
    "mistral4": (
        "Mistral4Config",
        dict(LATENT, n_routed_experts=8, moe_intermediate_size=20, n_group=2, topk_group=1),
    ),
    "youtu": ("YoutuConfig", dict(LATENT)),
    "youtu_halves": (
        "YoutuConfig",
        dict(LATENT, q_lora_rank=None, rope_interleave=False, attention_bias=False,
             tie_word_embeddings=False, rope_theta=500000.0),
    ),
    "minicpm3": ("MiniCPM3Config", dict(LATENT)),
    "minicpm3_longrope": (
        "MiniCPM3Config",
        dict(LATENT, v_head_dim=8, scale_emb=3, scale_depth=None, dim_model_base=None,
             rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.3, 1.5],
                               long_factor=[1.0, 1.5, 3.0, 4.0],
                               original_max_position_embeddings=256)),
    ),
    "deepseek_v2_dense": (
        "DeepseekV2Config",
        dict(LATENT, first_k_dense_replace=4, num_experts_per_tok=2, q_lora_rank=None,
             rope_scaling=dict(type="yarn", factor=4.0, beta_fast=32, beta_slow=1, mscale=0.707,
                               mscale_all_dim=0.707, original_max_position_embeddings=64)),
    ),
    "deepseek_v3_dense": (
        "DeepseekV3Config",
        dict(LATENT, first_k_dense_replace=4, attention_bias=True, rms_norm_eps=1e-5),
    ),
    "deepseek_v2": (
        "DeepseekV2Config",
        dict(LATENT, first_k_dense_replace=1, num_experts_per_tok=3, n_routed_experts=12,
             n_shared_experts=2, moe_intermediate_size=20, q_lora_rank=None),
    ),
    "deepseek_v2_groups": (
        "DeepseekV2Config",
        dict(LATENT, first_k_dense_replace=0, num_experts_per_tok=3, n_routed_experts=12,
             moe_intermediate_size=20, topk_method="group_limited_greedy", n_group=4,
             topk_group=2, routed_scaling_factor=16.0),
    ),
    "deepseek_v3": (
        "DeepseekV3Config",
        dict(LATENT, first_k_dense_replace=2, num_experts_per_tok=3, n_routed_experts=12,
             moe_intermediate_size=20, n_group=3, topk_group=2, norm_topk_prob=False),
    ),
    "glm4_moe_lite": (
        "Glm4MoeLiteConfig",
        dict(LATENT, num_experts_per_tok=3, n_routed_experts=12, moe_intermediate_size=20,
             mlp_layer_types=["dense", "dense", "sparse", "sparse"]),
    ),
}
