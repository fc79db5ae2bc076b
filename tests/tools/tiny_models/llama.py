"""Dense decoders whose layers are those of Llama, but for norms, biases, angles and scales."""

import torch
from transformers import (
    ApertusConfig,
    ApertusForCausalLM,
    ArceeConfig,
    ArceeForCausalLM,
    CwmConfig,
    CwmForCausalLM,
    Ernie4_5Config,
    Ernie4_5ForCausalLM,
    Exaone4Config,
    Exaone4ForCausalLM,
    ExaoneConfig,
    HeliumConfig,
    HeliumForCausalLM,
    HunYuanDenseV1Config,
    HunYuanDenseV1ForCausalLM,
    IQuestCoderConfig,
    InternLM3Config,
    Jais2Config,
    Jais2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    MinistralConfig,
    MinistralForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    NanoChatConfig,
    NanoChatForCausalLM,
    NemotronConfig,
    NemotronForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SeedOssConfig,
    SeedOssForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from tiny_models.common import COMMON, LLAMA3_ROPE, TinyModel

MODELS = {
    "llama2": TinyModel(
        LlamaForCausalLM,
        LlamaConfig(**COMMON, num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-5),
        torch.float32,
        seed=1000,
        steps=True,
    ),
    "llama3": TinyModel(
        LlamaForCausalLM,
        LlamaConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            rope_parameters=LLAMA3_ROPE,
        ),
        torch.bfloat16,
        seed=1001,
        gradients=False,
        save_options={"max_shard_size": "20KB"},
    ),
    "internlm2": TinyModel(
        LlamaForCausalLM,
        LlamaConfig(
            **COMMON, num_attention_heads=8, num_key_value_heads=2,
            rope_parameters=dict(rope_type="default", rope_theta=50000.0),
        ),
        torch.bfloat16,
        seed=1211,
    ),
    "ministral": TinyModel(
        MinistralForCausalLM,
        MinistralConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=10, sliding_window=9,
            layer_types=["sliding_attention", "full_attention"],
        ),
        torch.float32,
        seed=1230,
    ),
    "llama_linear_biases": TinyModel(
        LlamaForCausalLM,
        LlamaConfig(
            **COMMON,
            num_attention_heads=2,
            num_key_value_heads=1,
            attention_bias=True,
            mlp_bias=True,
            rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=10000.0),
        ),
        torch.bfloat16,
        seed=1002,
        gradients=False,
    ),
    "mistral": TinyModel(
        MistralForCausalLM,
        MistralConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, sliding_window=9
        ),
        torch.float16,
        seed=1003,
        gradients=False,
    ),
    "ministral3": TinyModel(
        Ministral3ForCausalLM,
        Ministral3Config(
            **dict(COMMON, max_position_embeddings=64),
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            rope_parameters=dict(
                rope_type="yarn", rope_theta=10000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0,
                mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=8,
                llama_4_scaling_beta=0.5,
            ),
        ),
        torch.float32,
        seed=1046,
    ),
    "arcee": TinyModel(
        ArceeForCausalLM,
        ArceeConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            attention_bias=True, mlp_bias=True,
            rope_parameters=dict(
                rope_type="yarn", rope_theta=10000.0, factor=4.0,
                original_max_position_embeddings=32,
            ),
        ),
        torch.float32,
        seed=1045,
    ),
    "seed_oss": TinyModel(
        SeedOssForCausalLM,
        SeedOssConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            pad_token_id=None,
            mlp_bias=True,
            residual_dropout=0.0,
            attention_dropout=0.0,
        ),
        torch.bfloat16,
        seed=1024,
    ),
    "smollm3": TinyModel(
        SmolLM3ForCausalLM,
        SmolLM3Config(
            **dict(COMMON, num_hidden_layers=3),
            num_attention_heads=4,
            num_key_value_heads=2,
            no_rope_layers=[1, 0, 1],
            pad_token_id=0,
        ),
        torch.bfloat16,
        seed=1015,
        gradients=False,
    ),
    "cwm": TinyModel(
        CwmForCausalLM,
        CwmConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, sliding_window=6,
            rope_parameters=LLAMA3_ROPE,
        ),
        torch.float32,
        seed=1089,
    ),
    # Of Llama's class.
    "iquestcoder": TinyModel(
        LlamaForCausalLM,
        IQuestCoderConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12),
        torch.float32,
        seed=1093,
        gradients=False,
    ),
    "internlm3": TinyModel(
        LlamaForCausalLM,
        InternLM3Config(
            **COMMON | dict(pad_token_id=None), num_attention_heads=4, num_key_value_heads=2,
            head_dim=12, attention_bias=True, mlp_bias=True,
            rope_parameters=dict(rope_type="dynamic", rope_theta=1e5, factor=6.0),
        ),
        torch.float32,
        seed=1100,
    ),
    "helium": TinyModel(
        HeliumForCausalLM,
        HeliumConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=8, attention_bias=True,
        ),
        torch.float32,
        seed=1097,
    ),
    # No norm has weights, embeddings pass one, too, and heads turn by negative angles.
    "nanochat": TinyModel(
        NanoChatForCausalLM,
        NanoChatConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, final_logit_softcapping=4.0,
        ),
        torch.float32,
        seed=1102,
    ),
    "apertus": TinyModel(
        ApertusForCausalLM,
        ApertusConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, rope_parameters=LLAMA3_ROPE,
            dtype=torch.float32,
        ),
        torch.float32,
        seed=1073,
    ),
    "jais2": TinyModel(
        Jais2ForCausalLM,
        Jais2Config(**COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12),
        torch.float32,
        seed=1092,
    ),
    "nemotron": TinyModel(
        NemotronForCausalLM,
        NemotronConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2),
        torch.float32,
        seed=1046,
    ),
    "hunyuan_v1_dense": TinyModel(
        HunYuanDenseV1ForCausalLM,
        HunYuanDenseV1Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=None,
            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0),
            tie_word_embeddings=True,
        ),
        torch.float32,
        seed=1074,
    ),
    "ernie4_5": TinyModel(
        Ernie4_5ForCausalLM,
        Ernie4_5Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, use_bias=True
        ),
        torch.float32,
        seed=1079,
    ),
    # Of Llama's class.
    "exaone": TinyModel(
        LlamaForCausalLM,
        ExaoneConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12),
        torch.float32,
        seed=1099,
    ),
    "exaone4": TinyModel(
        Exaone4ForCausalLM,
        Exaone4Config(
            **dict(COMMON, num_hidden_layers=4),
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=9,
            rope_parameters=LLAMA3_ROPE,
        ),
        torch.float32,
        seed=1098,
    ),
    "qwen2": TinyModel(
        Qwen2ForCausalLM,
        Qwen2Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True
        ),
        torch.bfloat16,
        seed=1004,
        gradients=False,
    ),
    "qwen2_5": TinyModel(
        Qwen2ForCausalLM,
        Qwen2Config(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=1,
            use_sliding_window=True,
            sliding_window=7,
            max_window_layers=1,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
        ),
        torch.bfloat16,
        seed=1005,
        gradients=False,
    ),
    "qwen3": TinyModel(
        Qwen3ForCausalLM,
        Qwen3Config(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            tie_word_embeddings=True,
        ),
        torch.bfloat16,
        seed=1006,
        gradients=False,
    ),
}
