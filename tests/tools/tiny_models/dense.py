"""Dense decoders whose layers are put together in other ways: GPT-2, GPT-NeoX, Phi, StableLM,
Cohere, GLM, OLMo."""

import torch
from transformers import (
    Cohere2Config,
    Cohere2ForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    Glm4Config,
    Glm4ForCausalLM,
    GlmConfig,
    GlmForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

from tiny_models.common import COMMON, VOCAB, YARN, TinyModel

GPT2 = dict(
    vocab_size=VOCAB,
    n_embd=24,
    n_head=3,
    n_layer=2,
    n_positions=64,
    bos_token_id=1,
    eos_token_id=2,
)
LONGROPE = dict(
    rope_type="longrope",
    rope_theta=10000.0,
    partial_rotary_factor=0.75,
    short_factor=[1.0, 1.02, 1.1, 1.2, 1.25, 1.3],
    long_factor=[1.0, 1.3, 2.0, 3.1, 4.0, 6.5],
    original_max_position_embeddings=32,
)

MODELS = {
    "gpt2": TinyModel(
        GPT2LMHeadModel,
        GPT2Config(**GPT2),
        torch.float32,
        seed=1007,
        steps=True,
    ),
    "gpt2_relu_unscaled": TinyModel(
        GPT2LMHeadModel,
        GPT2Config(**GPT2, activation_function="relu", scale_attn_weights=False),
        torch.float32,
        seed=1008,
        steps=True,
    ),
    "gpt2_silu_by_layer": TinyModel(
        GPT2LMHeadModel,
        GPT2Config(**GPT2, activation_function="silu", scale_attn_by_inverse_layer_idx=True),
        torch.float32,
        seed=1009,
        steps=True,
    ),
    "gpt_neox": TinyModel(
        GPTNeoXForCausalLM,
        GPTNeoXConfig(
            **dict(COMMON, hidden_size=40),
            num_attention_heads=4,
            rope_parameters=dict(
                rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.4
            ),
        ),
        torch.float32,
        seed=1026,
    ),
    "gpt_neox_sequential": TinyModel(
        GPTNeoXForCausalLM,
        GPTNeoXConfig(
            **dict(COMMON, hidden_size=40),
            num_attention_heads=2,
            use_parallel_residual=False,
            attention_bias=False,
            hidden_act="gelu_new",
            tie_word_embeddings=True,
            rope_parameters=dict(
                rope_type="linear", factor=2.0, rope_theta=10000.0, partial_rotary_factor=0.3
            ),
        ),
        torch.bfloat16,
        seed=1028,
    ),
    "phi": TinyModel(
        PhiForCausalLM,
        PhiConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2),
        torch.bfloat16,
        seed=1029,
    ),
    "phi3": TinyModel(
        Phi3ForCausalLM,
        Phi3Config(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=9,
            pad_token_id=0,
        ),
        torch.float32,
        seed=1010,
    ),
    "phi4_mini": TinyModel(
        Phi3ForCausalLM,
        Phi3Config(
            **COMMON,
            num_attention_heads=2,
            num_key_value_heads=1,
            rope_parameters=LONGROPE,
            original_max_position_embeddings=32,
            tie_word_embeddings=True,
            pad_token_id=0,
        ),
        torch.bfloat16,
        seed=1011,
        gradients=False,
    ),
    "stablelm": TinyModel(
        StableLmForCausalLM,
        StableLmConfig(**COMMON, num_attention_heads=2, num_key_value_heads=1, use_qkv_bias=True),
        torch.bfloat16,
        seed=1023,
    ),
    "stablelm_parallel": TinyModel(
        StableLmForCausalLM,
        StableLmConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            use_parallel_residual=True,
            qk_layernorm=True,
        ),
        torch.bfloat16,
        seed=1033,
    ),
    "starcoder2": TinyModel(
        Starcoder2ForCausalLM,
        Starcoder2Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, sliding_window=9
        ),
        torch.float32,
        seed=1022,
    ),
    "cohere": TinyModel(
        CohereForCausalLM,
        CohereConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, logit_scale=0.3, pad_token_id=0
        ),
        torch.bfloat16,
        seed=1030,
    ),
    "cohere_qk_norm": TinyModel(
        CohereForCausalLM,
        CohereConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            use_qk_norm=True,
            attention_bias=True,
            tie_word_embeddings=False,
            logit_scale=0.8,
            pad_token_id=0,
        ),
        torch.float32,
        seed=1031,
    ),
    "cohere2": TinyModel(
        Cohere2ForCausalLM,
        Cohere2Config(
            **dict(COMMON, num_hidden_layers=3),
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=9,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            attention_bias=True,
            logit_scale=0.3,
            pad_token_id=0,
        ),
        torch.float32,
        seed=1087,
    ),
    "glm": TinyModel(
        GlmForCausalLM,
        GlmConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=0
        ),
        torch.bfloat16,
        seed=1130,
    ),
    "glm4": TinyModel(
        Glm4ForCausalLM,
        Glm4Config(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            rms_norm_eps=1e-5,
            pad_token_id=0,
        ),
        torch.float32,
        seed=1037,
    ),
    # Norms without weights.
    "olmo": TinyModel(
        OlmoForCausalLM,
        OlmoConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2),
        torch.float32,
        seed=1098,
    ),
    "olmo2": TinyModel(
        Olmo2ForCausalLM,
        Olmo2Config(**COMMON, num_attention_heads=4, num_key_value_heads=2),
        torch.bfloat16,
        seed=1013,
    ),
    "olmo3": TinyModel(
        Olmo3ForCausalLM,
        Olmo3Config(
            **dict(COMMON, num_hidden_layers=3),
            num_attention_heads=4,
            num_key_value_heads=2,
            pad_token_id=None,
            sliding_window=9,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters={
                "full_attention": YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 150000.0},
            },
        ),
        torch.bfloat16,
        seed=1021,
    ),
}
