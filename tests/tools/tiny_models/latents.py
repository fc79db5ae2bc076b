"""Models whose keys and values come from latents: DeepSeek's, and who follow them."""

import torch
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Glm4MoeLiteConfig,
    Glm4MoeLiteForCausalLM,
    MiniCPM3Config,
    MiniCPM3ForCausalLM,
    Mistral4Config,
    Mistral4ForCausalLM,
    YoutuConfig,
    YoutuForCausalLM,
)

from tiny_models.common import COMMON, TinyModel

LATENT = dict(
    COMMON,
    num_attention_heads=4,
    num_key_value_heads=4,
    kv_lora_rank=16,
    q_lora_rank=20,
    qk_nope_head_dim=8,
    qk_rope_head_dim=6,
    v_head_dim=10,
)
LATENT_YARN = dict(
    rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
    original_max_position_embeddings=32,
)
# Latents, queries that grow as a whole, and experts by a softmax.
MISTRAL4 = dict(
    **COMMON, num_attention_heads=4, num_key_value_heads=4,
    kv_lora_rank=20, q_lora_rank=14, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=9,
    n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
)

MODELS = {
    "youtu": TinyModel(
        YoutuForCausalLM,
        YoutuConfig(**dict(LATENT, v_head_dim=14)),
        torch.bfloat16,
        seed=1047,
    ),
    "deepseek_v2_dense": TinyModel(
        DeepseekV2ForCausalLM,
        DeepseekV2Config(
            **dict(LATENT, q_lora_rank=None), first_k_dense_replace=2, num_experts_per_tok=2,
            n_routed_experts=4, moe_intermediate_size=8,
            rope_parameters=dict(LATENT_YARN, mscale=0.707, mscale_all_dim=0.707),
        ),
        torch.float32,
        seed=1048,
    ),
    "deepseek_v3_dense": TinyModel(
        DeepseekV3ForCausalLM,
        DeepseekV3Config(
            **LATENT, first_k_dense_replace=2, num_experts_per_tok=2, n_routed_experts=4,
            n_group=1, topk_group=1, moe_intermediate_size=8, attention_bias=True,
            rms_norm_eps=1e-5,
            rope_parameters=dict(LATENT_YARN, mscale=1.0, mscale_all_dim=0.8),
        ),
        torch.float32,
        seed=1049,
    ),
    # As DeepSeek-V2-Lite, and as DeepSeek-V2.
    "deepseek_v2": TinyModel(
        DeepseekV2ForCausalLM,
        DeepseekV2Config(
            **dict(LATENT, q_lora_rank=None), first_k_dense_replace=1, num_experts_per_tok=3,
            n_routed_experts=8, n_shared_experts=2, moe_intermediate_size=16, topk_method="greedy",
            norm_topk_prob=False,
            rope_parameters=dict(LATENT_YARN, mscale=0.707, mscale_all_dim=0.707),
        ),
        torch.float32,
        seed=1479,
    ),
    "deepseek_v2_groups": TinyModel(
        DeepseekV2ForCausalLM,
        DeepseekV2Config(
            **LATENT, first_k_dense_replace=1, num_experts_per_tok=3, n_routed_experts=8,
            n_shared_experts=1, moe_intermediate_size=16, topk_method="group_limited_greedy",
            n_group=4, topk_group=2, routed_scaling_factor=4.0,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
        ),
        torch.float32,
        seed=1206,
    ),
    "deepseek_v3": TinyModel(
        DeepseekV3ForCausalLM,
        DeepseekV3Config(
            **LATENT, first_k_dense_replace=1, num_experts_per_tok=2, n_routed_experts=8,
            n_shared_experts=1, moe_intermediate_size=16, n_group=2, topk_group=1,
            norm_topk_prob=True, routed_scaling_factor=2.5, rms_norm_eps=1e-5,
            rope_parameters=dict(LATENT_YARN, mscale=1.0, mscale_all_dim=0.8),
        ),
        torch.float32,
        seed=1371,
    ),
    "glm4_moe_lite": TinyModel(
        Glm4MoeLiteForCausalLM,
        Glm4MoeLiteConfig(
            **dict(LATENT, v_head_dim=14), num_experts_per_tok=3, n_routed_experts=8,
            n_shared_experts=1, moe_intermediate_size=16,
        ),
        torch.float32,
        seed=1291,
    ),
    "minicpm3": TinyModel(
        MiniCPM3ForCausalLM,
        MiniCPM3Config(
            **dict(LATENT, v_head_dim=8), scale_emb=3, scale_depth=0.9, dim_model_base=24,
            rope_parameters=dict(
                rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.3],
                long_factor=[1.0, 1.5, 3.0], original_max_position_embeddings=128,
            ),
        ),
        torch.bfloat16,
        seed=1050,
    ),
    "mistral4": TinyModel(
        Mistral4ForCausalLM,
        Mistral4Config(
            **MISTRAL4,
            rope_parameters=dict(
                rope_type="yarn", rope_theta=1e4, factor=8.0, beta_fast=32.0, beta_slow=1.0,
                mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=8,
                llama_4_scaling_beta=0.2,
            ),
        ),
        torch.float32,
        seed=3167,
    ),
    # In groups, with a leading layer without experts, and queries without a latent.
    "mistral4_groups": TinyModel(
        Mistral4ForCausalLM,
        Mistral4Config(
            **MISTRAL4 | dict(q_lora_rank=None, n_shared_experts=2), n_group=3, topk_group=2,
            first_k_dense_replace=1, norm_topk_prob=False, routed_scaling_factor=1.5,
            rope_interleave=False,
            rope_parameters=dict(
                rope_type="yarn", rope_theta=1e4, factor=4.0, mscale=1.0, mscale_all_dim=0.5,
                original_max_position_embeddings=16, llama_4_scaling_beta=0.2,
            ),
        ),
        torch.float32,
        seed=3223,
    ),
}
