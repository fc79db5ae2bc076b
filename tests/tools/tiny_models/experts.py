"""Models with experts that have no file of their own kind."""

import torch
from transformers import (
    Dots1Config,
    Dots1ForCausalLM,
    Ernie4_5_MoeConfig,
    Ernie4_5_MoeForCausalLM,
    ExaoneMoeConfig,
    ExaoneMoeForCausalLM,
    FlexOlmoConfig,
    FlexOlmoForCausalLM,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    HYV3Config,
    HYV3ForCausalLM,
    HunYuanMoEV1Config,
    HunYuanMoEV1ForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    MellumConfig,
    MellumForCausalLM,
    MiniMaxM2Config,
    MiniMaxM2ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SolarOpenConfig,
    SolarOpenForCausalLM,
)

from tiny_models.common import COMMON, YARN, TinyModel

GPT_OSS = dict(
    COMMON,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_local_experts=5,
    num_experts_per_tok=2,
    sliding_window=9,
)

MODELS = {
    "mixtral": TinyModel(
        MixtralForCausalLM,
        MixtralConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=9,
        ),
        torch.float32,
        seed=1010,
        steps=True,
    ),
    "qwen3_moe": TinyModel(
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            num_experts=7,
            num_experts_per_tok=3,
            moe_intermediate_size=20,
            norm_topk_prob=True,
        ),
        torch.bfloat16,
        seed=1011,
        gradients=False,
    ),
    "qwen3_moe_unnormalised": TinyModel(
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            norm_topk_prob=False,
            tie_word_embeddings=True,
        ),
        torch.float32,
        seed=1012,
    ),
    "gpt_oss": TinyModel(
        GptOssForCausalLM,
        GptOssConfig(**GPT_OSS, swiglu_limit=0.75, rope_parameters=YARN),
        torch.float32,
        seed=1013,
    ),
    "gpt_oss_mxfp4": TinyModel(
        GptOssForCausalLM,
        GptOssConfig(**dict(GPT_OSS, intermediate_size=64), pad_token_id=0),
        torch.bfloat16,
        seed=1014,
        gradients=False,
    ),
    "olmoe": TinyModel(
        OlmoeForCausalLM,
        OlmoeConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            pad_token_id=None,
            num_experts=6,
            num_experts_per_tok=2,
        ),
        torch.bfloat16,
        seed=1023,
        gradients=False,
    ),
    "qwen2_moe": TinyModel(
        Qwen2MoeForCausalLM,
        Qwen2MoeConfig(
            **dict(COMMON, num_hidden_layers=3),
            num_attention_heads=4,
            num_key_value_heads=2,
            num_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=20,
            shared_expert_intermediate_size=28,
            mlp_only_layers=[1],
        ),
        torch.float32,
        seed=1032,
    ),
    # As GLM-4.5; GLM-4.5-Air has no norms of heads.
    "glm4_moe": TinyModel(
        Glm4MoeForCausalLM,
        Glm4MoeConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            partial_rotary_factor=0.5, use_qk_norm=True, attention_bias=True,
            first_k_dense_replace=1, num_experts_per_tok=3, n_routed_experts=8,
            n_shared_experts=1, moe_intermediate_size=16, routed_scaling_factor=1.5,
        ),
        torch.bfloat16,
        seed=1009,
    ),
    "ernie4_5_moe": TinyModel(
        Ernie4_5_MoeForCausalLM,
        Ernie4_5_MoeConfig(
            **dict(COMMON, num_hidden_layers=3), num_attention_heads=4, num_key_value_heads=2,
            moe_num_experts=6, moe_k=2, moe_intermediate_size=16, moe_num_shared_experts=2,
            moe_layer_interval=2, pad_token_id=None,
        ),
        torch.float32,
        seed=1070,
    ),
    "dots1": TinyModel(
        Dots1ForCausalLM,
        Dots1Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, first_k_dense_replace=1,
            n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=2, moe_intermediate_size=16,
            norm_topk_prob=True, routed_scaling_factor=1.5, n_group=2, topk_group=1,
            sliding_window=9, layer_types=["sliding_attention", "full_attention"],
        ),
        torch.float32,
        seed=1071,
    ),
    "minimax_m2": TinyModel(
        MiniMaxM2ForCausalLM,
        MiniMaxM2Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, rotary_dim=8,
            num_local_experts=6, num_experts_per_tok=2,
        ),
        torch.float32,
        seed=3000,
    ),
    # Chunks, a layer that does not turn and whose queries grow, and a layer without experts.
    "llama4": TinyModel(
        Llama4ForCausalLM,
        Llama4TextConfig(
            **COMMON | dict(
                num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                intermediate_size=16, intermediate_size_mlp=40, num_local_experts=5,
                num_experts_per_tok=1, moe_layers=[0, 1], no_rope_layers=[1, 0, 1],
                attention_chunk_size=16, floor_scale=8, attn_scale=0.5,
            )
        ),
        torch.float32,
        seed=2095,
    ),
    # Two experts of a token, no chunks, norms of heads and growth; every layer has experts.
    "llama4_whole": TinyModel(
        Llama4ForCausalLM,
        Llama4TextConfig(
            **COMMON | dict(
                num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=16,
                intermediate_size_mlp=40, num_local_experts=6, num_experts_per_tok=2,
                no_rope_layers=[0, 1], attention_chunk_size=None, use_qk_norm=False,
                attn_temperature_tuning=False, attention_bias=True, tie_word_embeddings=True,
                rope_parameters=dict(
                    rope_type="llama3", rope_theta=1e4, factor=4.0, low_freq_factor=1.0,
                    high_freq_factor=1.0, original_max_position_embeddings=32,
                ),
            )
        ),
        torch.float32,
        seed=2091,
    ),
    # Angles by kind of layer, and a layer without experts behind one with them.
    "mellum": TinyModel(
        MellumForCausalLM,
        MellumConfig(
            **COMMON | dict(num_hidden_layers=3), num_attention_heads=4, num_key_value_heads=2,
            head_dim=12, sliding_window=9,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            mlp_layer_types=["sparse", "dense", "sparse"], num_experts=6, num_experts_per_tok=2,
            moe_intermediate_size=16,
            rope_parameters={
                "full_attention": dict(
                    rope_type="yarn", rope_theta=1e4, factor=4.0,
                    original_max_position_embeddings=16,
                ),
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e2},
            },
        ),
        torch.float32,
        seed=3639,
    ),
    # As EXAONE 4, with norms before, and experts as DeepSeek V3 chooses them.
    "exaone_moe": TinyModel(
        ExaoneMoeForCausalLM,
        ExaoneMoeConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=None,
            sliding_window=9, layer_types=["full_attention", "sliding_attention"], num_experts=6,
            num_experts_per_tok=2, moe_intermediate_size=16, num_shared_experts=2,
        ),
        torch.float32,
        seed=2087,
    ),
    "hunyuan_v1_moe": TinyModel(
        HunYuanMoEV1ForCausalLM,
        HunYuanMoEV1Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=None,
            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0),
            num_experts=6, moe_topk=[3, 3], tie_word_embeddings=True,
        ),
        torch.float32,
        seed=1088,
    ),
    "flex_olmo": TinyModel(
        FlexOlmoForCausalLM,
        FlexOlmoConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, num_experts=6,
            num_experts_per_tok=3, pad_token_id=None,
        ),
        torch.float32,
        seed=2045,
    ),
    "solar_open": TinyModel(
        SolarOpenForCausalLM,
        SolarOpenConfig(
            **{name: size for name, size in COMMON.items() if name != "intermediate_size"},
            num_attention_heads=4, num_key_value_heads=2, head_dim=12, n_routed_experts=6,
            num_experts_per_tok=3, moe_intermediate_size=16, n_shared_experts=2, n_group=2,
            topk_group=1, routed_scaling_factor=1.5, attention_bias=True,
        ),
        torch.float32,
        seed=2029,
    ),
    "hy_v3": TinyModel(
        HYV3ForCausalLM,
        HYV3Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_experts=6,
            num_experts_per_tok=3, moe_intermediate_size=12, num_shared_experts=2,
            attention_bias=True,
        ),
        torch.float32,
        seed=3013,
    ),
}
