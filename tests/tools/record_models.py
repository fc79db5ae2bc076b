"""Records tiny random models of every family with what transformers and PyTorch make of them.

    python tests/tools/record_models.py [FOLDER [NAME...]]        default: tests/fixtures/model, all

Writes, for every family, FOLDER/NAME/ as transformers saves it (config.json, safetensors) and
FOLDER/NAME/expected.safetensors:

    tokens   I32 [T]     one sequence
    logits   F32 [T, V]  of the model run in float32 with eager attention

for the models in GRADIENTS also FOLDER/NAME/gradients.safetensors, the gradient of the mean loss
of a few sequences in float32 under the names that parameters have in files, with

    tokens   I32 [T]     the sequences one behind the other
    lengths  I32 [S]     their lengths; the last token of each is a target only
    loss     F32 [1]

and for those in STEPPED FOLDER/NAME/training.json: ten AdamW steps (weight decay on matrices only) with the loss before
each step and the norm of its gradient, without and with clipping. FOLDER/versions.json names the
versions of everything used.
"""

import json
import os
import shutil
import sys

import numpy
import safetensors
import safetensors.torch
import torch
import transformers
from transformers import (
    ApertusConfig,
    ApertusForCausalLM,
    ArceeConfig,
    ArceeForCausalLM,
    BambaConfig,
    BambaForCausalLM,
    Cohere2Config,
    Cohere2ForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    CwmConfig,
    CwmForCausalLM,
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Dots1Config,
    Dots1ForCausalLM,
    Ernie4_5Config,
    Ernie4_5ForCausalLM,
    Ernie4_5_MoeConfig,
    Ernie4_5_MoeForCausalLM,
    Exaone4_5_Config,
    Exaone4_5_ForConditionalGeneration,
    ExaoneConfig,
    ExaoneMoeConfig,
    ExaoneMoeForCausalLM,
    Exaone4Config,
    Exaone4ForCausalLM,
    FalconH1Config,
    FalconH1ForCausalLM,
    FalconMambaConfig,
    FalconMambaForCausalLM,
    FlexOlmoConfig,
    FlexOlmoForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    Gemma3nForCausalLM,
    Gemma3nTextConfig,
    Gemma4Config,
    Gemma4ForCausalLM,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    Glm4Config,
    Glm4ForCausalLM,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    Glm4MoeLiteConfig,
    Glm4MoeLiteForCausalLM,
    GlmConfig,
    GlmForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    GraniteMoeConfig,
    GraniteMoeForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    GraniteMoeSWAConfig,
    GraniteMoeSWAForCausalLM,
    GraniteMoeSharedConfig,
    GraniteMoeSharedForCausalLM,
    GraniteSWAConfig,
    GraniteSWAForCausalLM,
    HYV3Config,
    HYV3ForCausalLM,
    HeliumConfig,
    HeliumForCausalLM,
    HunYuanDenseV1Config,
    HunYuanDenseV1ForCausalLM,
    HunYuanMoEV1Config,
    HunYuanMoEV1ForCausalLM,
    HyperCLOVAXConfig,
    HyperCLOVAXForCausalLM,
    IQuestCoderConfig,
    InternLM3Config,
    JambaConfig,
    JambaForCausalLM,
    Jais2Config,
    Jais2ForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    Lfm2MoeConfig,
    Lfm3Config,
    Lfm3ForCausalLM,
    Lfm2MoeForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    KimiLinearConfig,
    KimiLinearForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MiniCPM3Config,
    MiniCPM3ForCausalLM,
    MellumConfig,
    MellumForCausalLM,
    MiniMaxM2Config,
    MiniMaxM2ForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    MistralForCausalLM,
    Mistral4Config,
    Mistral4ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    NanoChatConfig,
    NanoChatForCausalLM,
    NemotronConfig,
    NemotronForCausalLM,
    NemotronHConfig,
    NemotronHForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    OlmoHybridConfig,
    OlmoHybridForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SeedOssConfig,
    SeedOssForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    SolarOpenConfig,
    SolarOpenForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
    VaultGemmaConfig,
    VaultGemmaForCausalLM,
    YoutuConfig,
    YoutuForCausalLM,
)
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

VOCAB = 96
WIDTH = 32
TOKENS = 44

COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=WIDTH,
    intermediate_size=40,
    num_hidden_layers=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
)
GPT2 = dict(
    vocab_size=VOCAB,
    n_embd=24,
    n_head=3,
    n_layer=2,
    n_positions=64,
    bos_token_id=1,
    eos_token_id=2,
)
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
LONGROPE = dict(
    rope_type="longrope",
    rope_theta=10000.0,
    partial_rotary_factor=0.75,
    short_factor=[1.0, 1.02, 1.1, 1.2, 1.25, 1.3],
    long_factor=[1.0, 1.3, 2.0, 3.1, 4.0, 6.5],
    original_max_position_embeddings=32,
)

GPT_OSS = dict(
    COMMON,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_local_experts=5,
    num_experts_per_tok=2,
    sliding_window=9,
)
YARN = dict(
    rope_type="yarn",
    rope_theta=150000.0,
    factor=4.0,
    beta_fast=8.0,
    beta_slow=1.0,
    truncate=False,
    original_max_position_embeddings=32,
)

# What reads images.
SEES = dict(
    hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, head_dim=8
)

# name: (class, configuration, stored type, options of save_pretrained)
MODELS = {
    "llama2": (
        LlamaForCausalLM,
        LlamaConfig(**COMMON, num_attention_heads=4, num_key_value_heads=4, rms_norm_eps=1e-5),
        torch.float32,
        {},
    ),
    "llama3": (
        LlamaForCausalLM,
        LlamaConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            rope_parameters=LLAMA3_ROPE,
        ),
        torch.bfloat16,
        {"max_shard_size": "20KB"},
    ),
    "llama_linear_biases": (
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
        {},
    ),
    "mistral": (
        MistralForCausalLM,
        MistralConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, sliding_window=9
        ),
        torch.float16,
        {},
    ),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True
        ),
        torch.bfloat16,
        {},
    ),
    "qwen2_5": (
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
        {},
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        Qwen3Config(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            tie_word_embeddings=True,
        ),
        torch.bfloat16,
        {},
    ),
    "gpt2": (
        GPT2LMHeadModel,
        GPT2Config(**GPT2),
        torch.float32,
        {},
    ),
    "gpt2_relu_unscaled": (
        GPT2LMHeadModel,
        GPT2Config(**GPT2, activation_function="relu", scale_attn_weights=False),
        torch.float32,
        {},
    ),
    "gpt2_silu_by_layer": (
        GPT2LMHeadModel,
        GPT2Config(**GPT2, activation_function="silu", scale_attn_by_inverse_layer_idx=True),
        torch.float32,
        {},
    ),
    "phi3": (
        Phi3ForCausalLM,
        Phi3Config(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=9,
            pad_token_id=0,
        ),
        torch.float32,
        {},
    ),
    "phi4_mini": (
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
        {},
    ),
    "gemma3": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(
            **dict(COMMON, num_hidden_layers=3),
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            sliding_window=9,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            query_pre_attn_scalar=20,
        ),
        torch.float32,
        {},
    ),
    "olmo2": (
        Olmo2ForCausalLM,
        Olmo2Config(**COMMON, num_attention_heads=4, num_key_value_heads=2),
        torch.bfloat16,
        {},
    ),
    "granite": (
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
        {},
    ),
    "smollm3": (
        SmolLM3ForCausalLM,
        SmolLM3Config(
            **dict(COMMON, num_hidden_layers=3),
            num_attention_heads=4,
            num_key_value_heads=2,
            no_rope_layers=[1, 0, 1],
            pad_token_id=0,
        ),
        torch.bfloat16,
        {},
    ),
    "mixtral": (
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
        {},
    ),
    "qwen3_moe": (
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
        {},
    ),
    "qwen3_moe_unnormalised": (
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
        {},
    ),
    "gpt_oss": (
        GptOssForCausalLM,
        GptOssConfig(**GPT_OSS, swiglu_limit=0.75, rope_parameters=YARN),
        torch.float32,
        {},
    ),
    "gpt_oss_mxfp4": (
        GptOssForCausalLM,
        GptOssConfig(**dict(GPT_OSS, intermediate_size=64), pad_token_id=0),
        torch.bfloat16,
        {},
    ),
    "olmo3": (
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
        {},
    ),
    "starcoder2": (
        Starcoder2ForCausalLM,
        Starcoder2Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, sliding_window=9
        ),
        torch.float32,
        {},
    ),
    "stablelm": (
        StableLmForCausalLM,
        StableLmConfig(**COMMON, num_attention_heads=2, num_key_value_heads=1, use_qkv_bias=True),
        torch.bfloat16,
        {},
    ),
    "seed_oss": (
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
        {},
    ),
    "olmoe": (
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
        {},
    ),
    "gpt_neox": (
        GPTNeoXForCausalLM,
        GPTNeoXConfig(
            **dict(COMMON, hidden_size=40),
            num_attention_heads=4,
            rope_parameters=dict(
                rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.4
            ),
        ),
        torch.float32,
        {},
    ),
    "gemma2": (
        Gemma2ForCausalLM,
        Gemma2Config(
            **dict(COMMON, num_hidden_layers=3),
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            sliding_window=9,
            query_pre_attn_scalar=20,
            attn_logit_softcapping=2.5,
            final_logit_softcapping=6.0,
            pad_token_id=None,
        ),
        torch.float32,
        {},
    ),
    "gpt_neox_sequential": (
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
        {},
    ),
    "phi": (
        PhiForCausalLM,
        PhiConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2),
        torch.bfloat16,
        {},
    ),
    "cohere": (
        CohereForCausalLM,
        CohereConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, logit_scale=0.3, pad_token_id=0
        ),
        torch.bfloat16,
        {},
    ),
    "cohere_qk_norm": (
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
        {},
    ),
    "qwen2_moe": (
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
        {},
    ),
    "stablelm_parallel": (
        StableLmForCausalLM,
        StableLmConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            use_parallel_residual=True,
            qk_layernorm=True,
        ),
        torch.bfloat16,
        {},
    ),
    "cohere2": (
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
        {},
    ),
    "gemma": (
        GemmaForCausalLM,
        GemmaConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=1, head_dim=12, pad_token_id=0
        ),
        torch.bfloat16,
        {},
    ),
    "glm": (
        GlmForCausalLM,
        GlmConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=0
        ),
        torch.bfloat16,
        {},
    ),
    "glm4": (
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
        {},
    ),
    "exaone4": (
        Exaone4ForCausalLM,
        Exaone4Config(
            **dict(COMMON, num_hidden_layers=4),
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=9,
            rope_parameters=LLAMA3_ROPE,
        ),
        torch.float32,
        {},
    ),
    "ernie4_5": (
        Ernie4_5ForCausalLM,
        Ernie4_5Config(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, use_bias=True
        ),
        torch.float32,
        {},
    ),
    # Models with images, of which texts alone are recorded.
    "gemma3_images": (
        Gemma3ForConditionalGeneration,
        Gemma3Config(
            text_config=dict(
                COMMON,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=12,
                sliding_window=9,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                query_pre_attn_scalar=20,
            ),
            vision_config=dict(SEES, image_size=8, patch_size=4),
            mm_tokens_per_image=4,
            boi_token_index=90,
            eoi_token_index=91,
            image_token_index=92,
        ),
        torch.bfloat16,
        {},
    ),
    "mistral3_images": (
        Mistral3ForConditionalGeneration,
        Mistral3Config(
            text_config=dict(
                COMMON,
                model_type="mistral",
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=12,
                sliding_window=None,
            ),
            vision_config=dict(SEES, model_type="pixtral", image_size=8, patch_size=4),
            image_token_index=92,
        ),
        torch.bfloat16,
        {},
    ),
    "qwen2_5_images": (
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLConfig(
            text_config=dict(
                COMMON,
                num_attention_heads=4,
                num_key_value_heads=2,
                rope_parameters=dict(
                    rope_type="default", rope_theta=1000000.0, mrope_section=[1, 1, 2]
                ),
            ),
            vision_config=dict(depth=1, hidden_size=16, out_hidden_size=WIDTH, num_heads=2,
                               intermediate_size=16, fullatt_block_indexes=[0], patch_size=4),
            image_token_id=92, video_token_id=93, vision_start_token_id=90, vision_end_token_id=91,
        ),
        torch.bfloat16,
        {},
    ),
    "qwen3_images": (
        Qwen3VLForConditionalGeneration,
        Qwen3VLConfig(
            text_config=dict(
                COMMON,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=12,
                rope_parameters=dict(
                    rope_type="default", rope_theta=5000000.0, mrope_section=[2, 2, 2],
                    mrope_interleaved=True,
                ),
            ),
            vision_config=dict(depth=1, hidden_size=16, out_hidden_size=WIDTH, num_heads=2,
                               intermediate_size=16, deepstack_visual_indexes=[0], patch_size=4,
                               num_position_embeddings=16),
            image_token_id=92, video_token_id=93, vision_start_token_id=90, vision_end_token_id=91,
            tie_word_embeddings=True,
        ),
        torch.bfloat16,
        {},
    ),
    "ministral3": (
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
        {},
    ),
    "arcee": (
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
        {},
    ),
    "nemotron": (
        NemotronForCausalLM,
        NemotronConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2),
        torch.float32,
        {},
    ),
}
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
MODELS |= {
    "youtu": (
        YoutuForCausalLM,
        YoutuConfig(**dict(LATENT, v_head_dim=14)),
        torch.bfloat16,
        {},
    ),
    "deepseek_v2_dense": (
        DeepseekV2ForCausalLM,
        DeepseekV2Config(
            **dict(LATENT, q_lora_rank=None), first_k_dense_replace=2, num_experts_per_tok=2,
            n_routed_experts=4, moe_intermediate_size=8,
            rope_parameters=dict(LATENT_YARN, mscale=0.707, mscale_all_dim=0.707),
        ),
        torch.float32,
        {},
    ),
    "deepseek_v3_dense": (
        DeepseekV3ForCausalLM,
        DeepseekV3Config(
            **LATENT, first_k_dense_replace=2, num_experts_per_tok=2, n_routed_experts=4,
            n_group=1, topk_group=1, moe_intermediate_size=8, attention_bias=True,
            rms_norm_eps=1e-5,
            rope_parameters=dict(LATENT_YARN, mscale=1.0, mscale_all_dim=0.8),
        ),
        torch.float32,
        {},
    ),
    # As DeepSeek-V2-Lite, and as DeepSeek-V2.
    "deepseek_v2": (
        DeepseekV2ForCausalLM,
        DeepseekV2Config(
            **dict(LATENT, q_lora_rank=None), first_k_dense_replace=1, num_experts_per_tok=3,
            n_routed_experts=8, n_shared_experts=2, moe_intermediate_size=16, topk_method="greedy",
            norm_topk_prob=False,
            rope_parameters=dict(LATENT_YARN, mscale=0.707, mscale_all_dim=0.707),
        ),
        torch.float32,
        {},
    ),
    "deepseek_v2_groups": (
        DeepseekV2ForCausalLM,
        DeepseekV2Config(
            **LATENT, first_k_dense_replace=1, num_experts_per_tok=3, n_routed_experts=8,
            n_shared_experts=1, moe_intermediate_size=16, topk_method="group_limited_greedy",
            n_group=4, topk_group=2, routed_scaling_factor=4.0,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
        ),
        torch.float32,
        {},
    ),
    "deepseek_v3": (
        DeepseekV3ForCausalLM,
        DeepseekV3Config(
            **LATENT, first_k_dense_replace=1, num_experts_per_tok=2, n_routed_experts=8,
            n_shared_experts=1, moe_intermediate_size=16, n_group=2, topk_group=1,
            norm_topk_prob=True, routed_scaling_factor=2.5, rms_norm_eps=1e-5,
            rope_parameters=dict(LATENT_YARN, mscale=1.0, mscale_all_dim=0.8),
        ),
        torch.float32,
        {},
    ),
    # As GLM-4.5; GLM-4.5-Air has no norms of heads.
    "glm4_moe": (
        Glm4MoeForCausalLM,
        Glm4MoeConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            partial_rotary_factor=0.5, use_qk_norm=True, attention_bias=True,
            first_k_dense_replace=1, num_experts_per_tok=3, n_routed_experts=8,
            n_shared_experts=1, moe_intermediate_size=16, routed_scaling_factor=1.5,
        ),
        torch.bfloat16,
        {},
    ),
    "glm4_moe_lite": (
        Glm4MoeLiteForCausalLM,
        Glm4MoeLiteConfig(
            **dict(LATENT, v_head_dim=14), num_experts_per_tok=3, n_routed_experts=8,
            n_shared_experts=1, moe_intermediate_size=16,
        ),
        torch.float32,
        {},
    ),
}
MODELS["minicpm3"] = (
    MiniCPM3ForCausalLM,
    MiniCPM3Config(
        **dict(LATENT, v_head_dim=8), scale_emb=3, scale_depth=0.9, dim_model_base=24,
        rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.3],
            long_factor=[1.0, 1.5, 3.0], original_max_position_embeddings=128,
        ),
    ),
    torch.bfloat16,
    {},
)
# A delta net below a layer with attention; heads of it that share keys.
QWEN3_5 = dict(
    COMMON, layer_types=["linear_attention", "full_attention"], num_attention_heads=4,
    num_key_value_heads=2, head_dim=16,
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=10,
    linear_value_head_dim=11, rms_norm_eps=1e-4,
    rope_parameters=dict(
        rope_type="default", rope_theta=100000.0, partial_rotary_factor=0.25,
        mrope_section=[1, 1, 0], mrope_interleaved=True,
    ),
)
MODELS["qwen3_5"] = (
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig(**QWEN3_5, attention_bias=True),
    torch.float32,
    {},
)
MODELS["qwen3_5_images"] = (
    Qwen3_5ForConditionalGeneration,
    Qwen3_5Config(
        text_config=QWEN3_5,
        vision_config=dict(depth=1, hidden_size=16, out_hidden_size=WIDTH, num_heads=2,
                           intermediate_size=16, patch_size=4, num_position_embeddings=16),
        image_token_id=92, video_token_id=93, vision_start_token_id=90, vision_end_token_id=91,
        tie_word_embeddings=True,
    ),
    torch.bfloat16,
    {},
)
# A short convolution above a layer with attention.
MODELS["lfm2"] = (
    Lfm2ForCausalLM,
    Lfm2Config(
        **COMMON, layer_types=["full_attention", "conv"], num_attention_heads=4,
        num_key_value_heads=2, conv_bias=True, block_multiple_of=8, pad_token_id=None,
    ),
    torch.float32,
    {},
)
# Experts behind a short convolution, above a layer with attention that has none.
MODELS["lfm2_moe"] = (
    Lfm2MoeForCausalLM,
    Lfm2MoeConfig(
        **COMMON, layer_types=["full_attention", "conv"], num_attention_heads=4,
        num_key_value_heads=2, num_dense_layers=1, num_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=16, routed_scaling_factor=1.5, tie_word_embeddings=False,
        pad_token_id=None,
    ),
    torch.float32,
    {},
)
QWEN3_5_MOE = {name: value for name, value in QWEN3_5.items() if name != "intermediate_size"} | dict(
    num_experts=8, num_experts_per_tok=3, moe_intermediate_size=12,
    shared_expert_intermediate_size=20,
)
MODELS["qwen3_5_moe"] = (
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig(**QWEN3_5_MOE),
    torch.float32,
    {},
)
MODELS["qwen3_5_moe_images"] = (
    Qwen3_5MoeForConditionalGeneration,
    Qwen3_5MoeConfig(
        text_config=QWEN3_5_MOE,
        vision_config=dict(depth=1, hidden_size=16, out_hidden_size=WIDTH, num_heads=2,
                           intermediate_size=16, patch_size=4, num_position_embeddings=16),
        image_token_id=92, video_token_id=93, vision_start_token_id=90, vision_end_token_id=91,
        tie_word_embeddings=True,
    ),
    torch.bfloat16,
    {},
)
MODELS["qwen3_next"] = (
    Qwen3NextForCausalLM,
    Qwen3NextConfig(**QWEN3_5_MOE, intermediate_size=40, mlp_only_layers=[1]),
    torch.float32,
    {},
)
MAMBA = dict(
    mamba_n_heads=8, mamba_d_head=2 * WIDTH // 8, mamba_n_groups=2, mamba_d_state=6,
    mamba_chunk_size=8, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None,
)
GRANITE_HYBRID = COMMON | MAMBA | dict(
    shared_intermediate_size=24, num_local_experts=6, num_experts_per_tok=3,
    layer_types=["mamba", "attention"], embedding_multiplier=3.0, residual_multiplier=0.6,
    attention_multiplier=0.25, logits_scaling=1.5,
)
# Experts beside what all tokens use, and no positions.
MODELS["granite_hybrid"] = (
    GraniteMoeHybridForCausalLM,
    GraniteMoeHybridConfig(**GRANITE_HYBRID),
    torch.float32,
    {},
)
MODELS["granite_hybrid_dense"] = (
    GraniteMoeHybridForCausalLM,
    GraniteMoeHybridConfig(
        **GRANITE_HYBRID | dict(
            num_local_experts=0, layer_types=["attention", "mamba"], mamba_proj_bias=True,
            position_embedding_type="rope", tie_word_embeddings=True, mamba_n_groups=1,
        )
    ),
    torch.float32,
    {},
)
MODELS["bamba"] = (
    BambaForCausalLM,
    BambaConfig(**COMMON, **MAMBA, attn_layer_indices=[1], mamba_conv_bias=False),
    torch.float32,
    {},
)
# Layers of one part each. transformers holds steps above time_step_min, which no publisher does.
NEMOTRON_H = {name: value for name, value in COMMON.items() if name != "num_hidden_layers"} | dict(
    num_attention_heads=4, num_key_value_heads=2, head_dim=6, mamba_num_heads=6, mamba_head_dim=10,
    n_groups=3, ssm_state_size=7, conv_kernel=3, chunk_size=8, pad_token_id=None,
    time_step_min=1e-30,
)
MODELS["nemotron_h"] = (
    NemotronHForCausalLM,
    NemotronHConfig(**NEMOTRON_H, hybrid_override_pattern="M-*M", mlp_bias=True, use_bias=True),
    torch.float32,
    {},
)
MODELS["nemotron_h_moe"] = (
    NemotronHForCausalLM,
    NemotronHConfig(
        **NEMOTRON_H, hybrid_override_pattern="ME*-E", n_routed_experts=8, num_experts_per_tok=3,
        moe_intermediate_size=16, moe_shared_expert_intermediate_size=20, n_group=2, topk_group=1,
        routed_scaling_factor=1.5,
    ),
    torch.float32,
    {},
)
# Layers of Mamba and nothing else.
SCANNED = dict(
    vocab_size=VOCAB, hidden_size=20, num_hidden_layers=3, state_size=5, conv_kernel=3,
    time_step_rank=3, pad_token_id=None, bos_token_id=1, eos_token_id=2,
)
MODELS["mamba"] = (
    MambaForCausalLM,
    MambaConfig(**SCANNED, expand=3, use_bias=True, use_conv_bias=False, layer_norm_epsilon=1e-4),
    torch.float32,
    {},
)
MODELS["falcon_mamba"] = (
    FalconMambaForCausalLM,
    FalconMambaConfig(**SCANNED | dict(num_hidden_layers=4), tie_word_embeddings=False, mixer_rms_eps=1e-3),
    torch.float32,
    {},
)
MODELS["mamba2"] = (
    Mamba2ForCausalLM,
    Mamba2Config(
        **SCANNED, num_heads=6, head_dim=10, n_groups=3, expand=3, use_bias=True, chunk_size=8,
    ),
    torch.float32,
    {},
)
MODELS["hy_v3"] = (
    HYV3ForCausalLM,
    HYV3Config(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=6, num_experts=6,
        num_experts_per_tok=3, moe_intermediate_size=12, num_shared_experts=2,
        attention_bias=True,
    ),
    torch.float32,
    {},
)
MODELS["kimi_linear"] = (
    KimiLinearForCausalLM,
    KimiLinearConfig(
        **COMMON | dict(num_hidden_layers=4, rms_norm_eps=1e-2), num_attention_heads=4,
        num_key_value_heads=4, kv_lora_rank=9, qk_nope_head_dim=6, qk_rope_head_dim=4,
        v_head_dim=5, num_local_experts=6, num_experts_per_tok=3, moe_intermediate_size=12,
        n_group=2, linear_head_dim=7, linear_num_heads=3, linear_conv_kernel_dim=3,
        pad_token_id=None,
        layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    ),
    torch.float32,
    {},
)
JAMBA = COMMON | dict(
    num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None,
    rms_norm_eps=0.1, attn_layer_period=3, attn_layer_offset=1, mamba_d_state=5, mamba_d_conv=3, mamba_dt_rank=3,
)
MODELS["jamba"] = (
    JambaForCausalLM,
    JambaConfig(**JAMBA, num_experts=6, num_experts_per_tok=3),
    torch.float32,
    {},
)
MODELS["jamba_dense"] = (
    JambaForCausalLM,
    JambaConfig(
        **JAMBA | dict(num_hidden_layers=2, tie_word_embeddings=True), num_experts=1,
        mamba_expand=3, mamba_proj_bias=True, mamba_conv_bias=False,
    ),
    torch.float32,
    {},
)
GRANITE_MOE = COMMON | dict(
    num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, num_local_experts=6,
    num_experts_per_tok=3, embedding_multiplier=3.0, residual_multiplier=0.6,
    attention_multiplier=0.25, logits_scaling=1.5,
)
MODELS["granite_moe"] = (
    GraniteMoeForCausalLM,
    GraniteMoeConfig(**GRANITE_MOE, tie_word_embeddings=True),
    torch.float32,
    {},
)
MODELS["granite_moe_shared"] = (
    GraniteMoeSharedForCausalLM,
    GraniteMoeSharedConfig(**GRANITE_MOE, shared_intermediate_size=24, attention_bias=True),
    torch.float32,
    {},
)
MODELS["ernie4_5_moe"] = (
    Ernie4_5_MoeForCausalLM,
    Ernie4_5_MoeConfig(
        **dict(COMMON, num_hidden_layers=3), num_attention_heads=4, num_key_value_heads=2,
        moe_num_experts=6, moe_k=2, moe_intermediate_size=16, moe_num_shared_experts=2,
        moe_layer_interval=2, pad_token_id=None,
    ),
    torch.float32,
    {},
)
MODELS["dots1"] = (
    Dots1ForCausalLM,
    Dots1Config(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, first_k_dense_replace=1,
        n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=2, moe_intermediate_size=16,
        norm_topk_prob=True, routed_scaling_factor=1.5, n_group=2, topk_group=1,
        sliding_window=9, layer_types=["sliding_attention", "full_attention"],
    ),
    torch.float32,
    {},
)
MODELS["minimax_m2"] = (
    MiniMaxM2ForCausalLM,
    MiniMaxM2Config(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, rotary_dim=8,
        num_local_experts=6, num_experts_per_tok=2,
    ),
    torch.float32,
    {},
)
MODELS["apertus"] = (
    ApertusForCausalLM,
    ApertusConfig(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, rope_parameters=LLAMA3_ROPE,
        dtype=torch.float32,
    ),
    torch.float32,
    {},
)
# Layers without the window have heads of another width, and keys that are values.
GEMMA4 = dict(COMMON, num_hidden_layers=3) | dict(
    num_attention_heads=4, num_key_value_heads=2, head_dim=12, global_head_dim=20,
    num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=9,
    layer_types=["sliding_attention", "full_attention", "full_attention"],
    hidden_size_per_layer_input=0, vocab_size_per_layer_input=VOCAB, final_logit_softcapping=5.0,
    rope_parameters={
        "full_attention": {
            "rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e4,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
    },
)
MODELS["gemma4"] = (Gemma4ForCausalLM, Gemma4TextConfig(**GEMMA4), torch.float32, {})
# Without keys that are values; with images.
MODELS["gemma4_images"] = (
    Gemma4ForConditionalGeneration,
    Gemma4Config(
        text_config=GEMMA4 | dict(
            attention_k_eq_v=False, attention_bias=True, final_logit_softcapping=None,
            model_type="gemma4_text",
        ),
        vision_config=dict(
            hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=1,
            num_key_value_heads=1, head_dim=8, patch_size=4, pooling_kernel_size=2,
            position_embedding_size=16,
        ),
        audio_config=None,
        # Beyond the vocabulary: transformers would take other embeddings for them.
        image_token_id=96,
        video_token_id=97,
        audio_token_id=98,
    ),
    torch.bfloat16,
    {},
)
# Experts beside the MLP.
MODELS["gemma4_moe"] = (
    Gemma4ForCausalLM,
    Gemma4TextConfig(
        **GEMMA4 | dict(
            num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"],
            enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=12,
        )
    ),
    torch.float32,
    {},
)
# Embeddings for every layer, and layers that share keys and values.
MODELS["gemma4_layer_inputs"] = (
    Gemma4ForCausalLM,
    Gemma4TextConfig(
        **GEMMA4 | dict(
            num_hidden_layers=4, attention_k_eq_v=False, num_kv_shared_layers=2,
            final_logit_softcapping=2.0,
            use_double_wide_mlp=True, hidden_size_per_layer_input=8,
            layer_types=["sliding_attention", "full_attention"] * 2,
        )
    ),
    torch.float32,
    {},
)
# Streams, what stands beside attention, sparse gates in some layers, and tokens that the table of
# layers' inputs does not have.
MODELS["gemma3n"] = (
    Gemma3nForCausalLM,
    Gemma3nTextConfig(
        **COMMON | dict(
            num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
            sliding_window=9, layer_types=["sliding_attention", "full_attention"] * 2,
            num_kv_shared_layers=2, hidden_size_per_layer_input=8,
            vocab_size_per_layer_input=VOCAB - 20, laurel_rank=5, altup_num_inputs=3,
            activation_sparsity_pattern=[0.6, 0.0, 0.0, 0.3], final_logit_softcapping=5.0,
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 1e4},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
            },
        )
    ),
    torch.float32,
    {},
)
# Two streams that no vector scales, layers of keys of their own, and a head of its own.
MODELS["gemma3n_unscaled"] = (
    Gemma3nForCausalLM,
    Gemma3nTextConfig(
        **COMMON | dict(
            num_attention_heads=4, num_key_value_heads=1, head_dim=8, sliding_window=9,
            layer_types=["sliding_attention", "full_attention"], num_kv_shared_layers=0,
            hidden_size_per_layer_input=4, vocab_size_per_layer_input=VOCAB + 8, laurel_rank=3,
            altup_num_inputs=2, altup_correct_scale=False,
            activation_sparsity_pattern=[0.0, 0.0], final_logit_softcapping=8.0,
            attention_bias=True, tie_word_embeddings=False,
        )
    ),
    torch.float32,
    {},
)
# Chunks, a layer that does not turn and whose queries grow, and a layer without experts.
MODELS["llama4"] = (
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
    {},
)
# Two experts of a token, no chunks, norms of heads and growth; every layer has experts.
MODELS["llama4_whole"] = (
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
    {},
)
MODELS["vaultgemma"] = (
    VaultGemmaForCausalLM,
    VaultGemmaConfig(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, sliding_window=9,
        query_pre_attn_scalar=20, attn_logit_softcapping=3.0, final_logit_softcapping=4.0,
    ),
    torch.float32,
    {},
)
MODELS["helium"] = (
    HeliumForCausalLM,
    HeliumConfig(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=8, attention_bias=True,
    ),
    torch.float32,
    {},
)
# Norms without weights.
MODELS["olmo"] = (
    OlmoForCausalLM,
    OlmoConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2),
    torch.float32,
    {},
)
# No norm has weights, embeddings pass one, too, and heads turn by negative angles.
MODELS["nanochat"] = (
    NanoChatForCausalLM,
    NanoChatConfig(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, final_logit_softcapping=4.0,
    ),
    torch.float32,
    {},
)
# Angles by kind of layer, and a layer without experts behind one with them.
MODELS["mellum"] = (
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
    {},
)
# Granite with norms behind its layers' parts, too, and logits that are multiplied.
HYPERCLOVAX = dict(
    **COMMON, num_attention_heads=4, num_key_value_heads=2, embedding_multiplier=3.0,
    residual_multiplier=0.6, logits_scaling=0.7,
)
MODELS["hyperclovax"] = (
    HyperCLOVAXForCausalLM,
    HyperCLOVAXConfig(**HYPERCLOVAX, head_dim=12, attention_multiplier=0.25),
    torch.float32,
    {},
)
# Without them, and scores by the root of a head.
MODELS["hyperclovax_bare"] = (
    HyperCLOVAXForCausalLM,
    HyperCLOVAXConfig(
        **HYPERCLOVAX, use_post_norm=False, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True,
    ),
    torch.float32,
    {},
)
# Sinks; layers without the window do not turn.
GRANITE_SWA = dict(
    **COMMON | dict(num_hidden_layers=3), num_attention_heads=4, num_key_value_heads=2,
    sliding_window=9, embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.25,
    logits_scaling=1.5,
)
MODELS["granite_swa"] = (
    GraniteSWAForCausalLM,
    GraniteSWAConfig(**GRANITE_SWA, layer_rope_theta=[0, 1e4, 1e4]),
    torch.float32,
    {},
)
# Or turn by a theta of their own, but for one.
MODELS["granite_swa_turned"] = (
    GraniteSWAForCausalLM,
    GraniteSWAConfig(
        **GRANITE_SWA | dict(num_hidden_layers=4), layer_rope_theta=[1e4, 1e2, 0, 1e2],
        layer_types=["full_attention", "sliding_attention"] * 2, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=False,
        rope_parameters=dict(
            rope_type="yarn", rope_theta=1e3, factor=4.0, original_max_position_embeddings=16,
        ),
    ),
    torch.float32,
    {},
)
MODELS["granitemoe_swa"] = (
    GraniteMoeSWAForCausalLM,
    GraniteMoeSWAConfig(
        **GRANITE_SWA, num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=24,
        layer_rope_theta=[1e4, 0, 1e2],
    ),
    torch.float32,
    {},
)
# EXAONE 4 in a folder with images.
MODELS["exaone4_5_images"] = (
    Exaone4_5_ForConditionalGeneration,
    Exaone4_5_Config(
        text_config=dict(
            COMMON | dict(num_hidden_layers=3), model_type="exaone4", num_attention_heads=4,
            num_key_value_heads=2, head_dim=12, sliding_window=9, rope_parameters=LLAMA3_ROPE,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        vision_config=dict(
            depth=1, hidden_size=16, out_hidden_size=WIDTH, num_heads=2, num_key_value_heads=1,
            intermediate_size=16, patch_size=4, window_size=8, fullatt_block_indexes=[0],
        ),
        image_token_id=92, video_token_id=93,
    ),
    torch.bfloat16,
    {},
)
# Latents, queries that grow as a whole, and experts by a softmax.
MISTRAL4 = dict(
    **COMMON, num_attention_heads=4, num_key_value_heads=4,
    kv_lora_rank=20, q_lora_rank=14, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=9,
    n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16,
)
MODELS["mistral4"] = (
    Mistral4ForCausalLM,
    Mistral4Config(
        **MISTRAL4,
        rope_parameters=dict(
            rope_type="yarn", rope_theta=1e4, factor=8.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
            mscale_all_dim=1.0, original_max_position_embeddings=8, llama_4_scaling_beta=0.2,
        ),
    ),
    torch.float32,
    {},
)
# In groups, with a leading layer without experts, and queries without a latent.
MODELS["mistral4_groups"] = (
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
    {},
)
# Gates of heads, norms on both sides, windows, and angles by kind of layer.
LFM3 = dict(
    **COMMON | dict(num_hidden_layers=4), num_attention_heads=4, num_key_value_heads=2, head_dim=12,
    pad_token_id=None, sliding_window=9,
)
MODELS["lfm3"] = (
    Lfm3ForCausalLM,
    Lfm3Config(
        **LFM3, layer_types=["sliding_attention", "conv", "full_attention", "conv"],
        rope_parameters={
            "full_attention": {
                "rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1e4,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e2},
        },
    ),
    torch.float32,
    {},
)
# Without either, with biases and other angles.
MODELS["lfm3_bare"] = (
    Lfm3ForCausalLM,
    Lfm3Config(
        **LFM3, layer_types=["conv", "full_attention", "sliding_attention", "full_attention"],
        use_sandwich_norm=False, use_attention_gate=False, attention_bias=True, conv_bias=True,
        conv_L_cache=4, tie_word_embeddings=False,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
            "sliding_attention": {
                "rope_type": "proportional", "partial_rotary_factor": 0.4, "rope_theta": 1e3,
            },
        },
    ),
    torch.float32,
    {},
)
# Both of Llama's class.
MODELS["exaone"] = (
    LlamaForCausalLM,
    ExaoneConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12),
    torch.float32,
    {},
)
# As EXAONE 4, with norms before, and experts as DeepSeek V3 chooses them.
MODELS["exaone_moe"] = (
    ExaoneMoeForCausalLM,
    ExaoneMoeConfig(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=None,
        sliding_window=9, layer_types=["full_attention", "sliding_attention"], num_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=16, num_shared_experts=2,
    ),
    torch.float32,
    {},
)
MODELS["internlm3"] = (
    LlamaForCausalLM,
    InternLM3Config(
        **COMMON | dict(pad_token_id=None), num_attention_heads=4, num_key_value_heads=2,
        head_dim=12, attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="dynamic", rope_theta=1e5, factor=6.0),
    ),
    torch.float32,
    {},
)
MODELS["hunyuan_v1_dense"] = (
    HunYuanDenseV1ForCausalLM,
    HunYuanDenseV1Config(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=None,
        rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0),
        tie_word_embeddings=True,
    ),
    torch.float32,
    {},
)
# Attention beside a layer of Mamba 2, and every multiplier.
FALCON_H1 = COMMON | MAMBA | dict(
    embedding_multiplier=3.0, lm_head_multiplier=0.4, key_multiplier=0.7,
    attention_in_multiplier=1.3, attention_out_multiplier=0.8, ssm_in_multiplier=1.25,
    ssm_out_multiplier=0.6, mlp_multipliers=[0.9, 0.7], ssm_multipliers=[0.7, 1.2, 0.8, 1.5, 0.9],
)
MODELS["falcon_h1"] = (
    FalconH1ForCausalLM,
    FalconH1Config(**FALCON_H1 | dict(mamba_d_ssm=48, mamba_d_head=6)),
    torch.float32,
    {},
)
# With a norm behind the gate, and every bias.
MODELS["falcon_h1_norm"] = (
    FalconH1ForCausalLM,
    FalconH1Config(
        **FALCON_H1 | dict(
            mamba_d_ssm=40, mamba_d_head=5, mamba_rms_norm=True, mamba_norm_before_gate=False,
            attention_bias=True, mlp_bias=True, mamba_proj_bias=True, projectors_bias=True,
            tie_word_embeddings=True, head_dim=12,
        )
    ),
    torch.float32,
    {},
)
# With a norm before it.
MODELS["falcon_h1_norm_first"] = (
    FalconH1ForCausalLM,
    FalconH1Config(
        **FALCON_H1 | dict(
            mamba_d_ssm=None, mamba_n_groups=4, mamba_rms_norm=True, mamba_norm_before_gate=True,
            mamba_conv_bias=False,
        )
    ),
    torch.float32,
    {},
)
# Delta nets with norms before their parts, of values wider than keys, as transformers writes their
# convolutions: in three equal parts; and attention without positions and norms behind it.
OLMO_HYBRID = COMMON | dict(
    num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None,
    rms_norm_eps=1e-4, layer_types=["linear_attention", "full_attention", "linear_attention"],
)
MODELS["olmo_hybrid"] = (
    OlmoHybridForCausalLM,
    OlmoHybridConfig(
        **OLMO_HYBRID | dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"]),
        linear_key_head_dim=10,
        rope_parameters=dict(rope_type="default", rope_theta=None),
    ),
    torch.float32,
    {},
)
# With positions, rates up to one, and the convolutions in one tensor.
MODELS["olmo_hybrid_turned"] = (
    OlmoHybridForCausalLM,
    OlmoHybridConfig(
        **OLMO_HYBRID | dict(
            linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=9,
            linear_value_head_dim=7, linear_conv_kernel_dim=3, linear_allow_neg_eigval=False,
            attention_bias=True, tie_word_embeddings=True, rope_theta=500.0,
        )
    ),
    torch.float32,
    {"save_original_format": False},
)
MODELS["hunyuan_v1_moe"] = (
    HunYuanMoEV1ForCausalLM,
    HunYuanMoEV1Config(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=None,
        rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0),
        num_experts=6, moe_topk=[3, 3], tie_word_embeddings=True,
    ),
    torch.float32,
    {},
)
MODELS["flex_olmo"] = (
    FlexOlmoForCausalLM,
    FlexOlmoConfig(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, num_experts=6,
        num_experts_per_tok=3, pad_token_id=None,
    ),
    torch.float32,
    {},
)
MODELS["solar_open"] = (
    SolarOpenForCausalLM,
    SolarOpenConfig(
        **{name: size for name, size in COMMON.items() if name != "intermediate_size"},
        num_attention_heads=4, num_key_value_heads=2, head_dim=12, n_routed_experts=6,
        num_experts_per_tok=3, moe_intermediate_size=16, n_shared_experts=2, n_group=2,
        topk_group=1, routed_scaling_factor=1.5, attention_bias=True,
    ),
    torch.float32,
    {},
)
MODELS["jais2"] = (
    Jais2ForCausalLM,
    Jais2Config(**COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12),
    torch.float32,
    {},
)
# Of Llama's class.
MODELS["iquestcoder"] = (
    LlamaForCausalLM,
    IQuestCoderConfig(**COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12),
    torch.float32,
    {},
)
MODELS["cwm"] = (
    CwmForCausalLM,
    CwmConfig(
        **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, sliding_window=6,
        rope_parameters=LLAMA3_ROPE,
    ),
    torch.float32,
    {},
)
# As transformers keeps experts in memory, and writes them where it is told to; so are
# published folders of Qwen 3.5.
STACKED = {
    "mixtral_stacked": "mixtral",
    "qwen3_moe_stacked": "qwen3_moe",
    "qwen3_5_moe_images_stacked": "qwen3_5_moe_images",
}
for name, origin in STACKED.items():
    MODELS[name] = MODELS[origin][:3] + ({"save_original_format": False},)
# Models with experts keep the seeds that they were recorded with.
SEEDS = {name: 1000 + index for index, name in enumerate(MODELS)} | {
    "mixtral": 1010,
    "qwen3_moe": 1011,
    "qwen3_moe_unnormalised": 1012,
    "mixtral_stacked": 1010,
    "qwen3_moe_stacked": 1011,
    "gpt_oss": 1013,
    "gpt_oss_mxfp4": 1014,
    # No token chooses other experts because of the errors of 8 bits.
    "olmoe": 1023,
    "qwen2_moe": 1032,
    # No token's two best answers are as close as the errors of bf16.
    "cohere2": 1087,
    "exaone4": 1098,
    "ernie4_5": 1079,
    "glm": 1130,
    "mistral3_images": 1064,
    "qwen2_5_images": 1109,
    "qwen3_images": 1089,
    "ministral3": 1046,
    "minicpm3": 1050,
    # And no token is close to another choice of experts.
    "deepseek_v2": 1479,
    "deepseek_v2_groups": 1206,
    "deepseek_v3": 1371,
    "glm4_moe": 1009,
    "glm4_moe_lite": 1291,
    "qwen3_5": 2270,
    "qwen3_5_images": 2226,
    "lfm2": 1303,
    "lfm2_moe": 1567,
    "qwen3_5_moe": 3301,
    "qwen3_5_moe_images": 6967,
    "qwen3_5_moe_images_stacked": 6967,
    "qwen3_next": 5872,
    "granite_moe": 1068,
    "granite_moe_shared": 1069,
    "ernie4_5_moe": 1070,
    "dots1": 1071,
    "minimax_m2": 3000,
    "apertus": 1073,
    "gemma4": 1068,
    "gemma4_images": 1069,
    "gemma4_moe": 3078,
    "gemma4_layer_inputs": 1052,
    "gemma3n": 1094,
    "llama4": 2095,
    "gemma3n_unscaled": 1101,
    "llama4_whole": 2091,
    "vaultgemma": 1096,
    "helium": 1097,
    "olmo": 1098,
    "nanochat": 1102,
    "mellum": 3639,
    "hyperclovax": 1104,
    "hyperclovax_bare": 1105,
    "granite_swa": 1106,
    "granite_swa_turned": 1107,
    "granitemoe_swa": 1108,
    "exaone4_5_images": 1109,
    "mistral4": 3167,
    "mistral4_groups": 3223,
    "lfm3": 2401,
    "lfm3_bare": 1113,
    "exaone": 1099,
    "internlm3": 1100,
    "exaone_moe": 2087,
    "hunyuan_v1_dense": 1074,
    "falcon_h1": 1081,
    "falcon_h1_norm": 1082,
    "falcon_h1_norm_first": 1085,
    "olmo_hybrid": 2019,
    "olmo_hybrid_turned": 2004,
    "hunyuan_v1_moe": 1088,
    "cwm": 1089,
    "flex_olmo": 2045,
    "solar_open": 2029,
    "jais2": 1092,
    "mamba": 1110,
    "falcon_mamba": 1111,
    "mamba2": 1112,
    "jamba": 2121,
    "jamba_dense": 1114,
    "hy_v3": 3013,
    "kimi_linear": 3002,
    "iquestcoder": 1093,
}
STEPPED = ("llama2", "gpt2", "gpt2_relu_unscaled", "gpt2_silu_by_layer", "mixtral")
GRADIENTS = STEPPED + (
    "qwen3_moe_unnormalised",
    "qwen2_moe",
    "phi3",
    "gemma3",
    "gemma2",
    "olmo2",
    "granite",
    "gpt_oss",
    "olmo3",
    "starcoder2",
    "stablelm",
    "seed_oss",
    "gpt_neox",
    "gpt_neox_sequential",
    "phi",
    "cohere",
    "cohere_qk_norm",
    "stablelm_parallel",
    "cohere2",
    "gemma",
    "glm",
    "glm4",
    "exaone4",
    "ernie4_5",
    "ministral3",
    "arcee",
    "nemotron",
    "youtu",
    "deepseek_v2_dense",
    "deepseek_v3_dense",
    "deepseek_v2",
    "deepseek_v2_groups",
    "deepseek_v3",
    "minicpm3",
    "glm4_moe",
    "glm4_moe_lite",
    "qwen3_5",
    "lfm2",
    "lfm2_moe",
    "qwen3_5_moe",
    "qwen3_next",
    "granite_hybrid",
    "granite_hybrid_dense",
    "bamba",
    "nemotron_h",
    "nemotron_h_moe",
    "mamba",
    "falcon_mamba",
    "mamba2",
    "jamba",
    "jamba_dense",
    "hy_v3",
    "kimi_linear",
    "granite_moe",
    "granite_moe_shared",
    "ernie4_5_moe",
    "dots1",
    "minimax_m2",
    "apertus",
    "gemma4",
    "gemma4_moe",
    "gemma4_layer_inputs",
    "gemma3n",
    "llama4",
    "gemma3n_unscaled",
    "llama4_whole",
    "vaultgemma",
    "helium",
    "olmo",
    "nanochat",
    "mellum",
    "hyperclovax",
    "hyperclovax_bare",
    "granite_swa",
    "granite_swa_turned",
    "granitemoe_swa",
    "mistral4",
    "mistral4_groups",
    "lfm3",
    "lfm3_bare",
    "exaone",
    "internlm3",
    "exaone_moe",
    "hunyuan_v1_dense",
    "falcon_h1",
    "falcon_h1_norm",
    "falcon_h1_norm_first",
    "olmo_hybrid",
    "olmo_hybrid_turned",
    "hunyuan_v1_moe",
    "cwm",
    "flex_olmo",
    "solar_open",
    "jais2",
)
# What is added to the scores of experts for their choice alone.
CHOICE_BIASES = ("e_score_correction_bias", "expert_bias")
LENGTHS = (18, 3, 27)
OPTIMIZER = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
STEPS = 10
CLIP_NORM = 0.5


def randomise(model, generator):
    """Values large enough that every part of the model shows in its logits."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = "norm" in name or ".ln_" in name
            if is_norm and name.endswith("weight"):
                kind = model.config.model_type
                adds_one = kind.startswith(("gemma", "vaultgemma", "qwen3_5", "qwen3_n")) or kind == "nemotron"
                adds_one = adds_one and not kind.startswith(("gemma4", "gemma3n"))
                adds_one = adds_one and "linear_attn" not in name
                parameter.copy_((0.0 if adds_one else 1.0) + 0.2 * noise)
            elif name.endswith("bias") or name.endswith("sinks"):
                parameter.copy_(0.2 * noise)
            elif model.config.model_type == "olmo_hybrid" and "linear_attn.v_proj" in name:
                parameter.copy_(0.05 * noise)  # whose norm has an epsilon of its own
            elif name.endswith("modality_router.weight"):
                parameter.copy_(3.0 * noise)  # of which it sees the width's part
            elif "router." in name and name.endswith("scale"):
                parameter.copy_(1.0 + 0.2 * noise)
            elif name.endswith("router.proj.weight"):
                parameter.copy_(2.0 * noise)  # of which it sees a root of the width
            elif parameter.shape[0] == VOCAB:
                parameter.copy_(0.5 * noise)
            else:
                parameter.copy_(0.25 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith(CHOICE_BIASES):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith("layer_scalar"):
                buffer.copy_(0.7 + 0.1 * torch.randn(buffer.shape, generator=generator))


def draw_tokens(count, generator):
    return torch.randint(0, VOCAB, (count,), generator=generator, dtype=torch.int64)


def load(folder):
    with_images = "_images" in os.path.basename(folder)
    kind = "AutoModelForImageTextToText" if with_images else "AutoModelForCausalLM"
    if os.path.basename(folder).startswith("mistral4"):
        kind = "Mistral4ForCausalLM"  # which the other does not know
    return getattr(transformers, kind).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )


def mean_loss(model, tokens, lengths):
    """The mean over all targets of sequences that do not see each other."""
    total, count, begin = 0.0, 0, 0
    for length in lengths:
        ids = tokens[begin : begin + length]
        logits = model(ids[None]).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="sum")
        count += length - 1
        begin += length
    return total / count


def as_experts_of_gpt_oss(tensors):
    """Every expert by itself, [out, in], under the names that Jige gives them."""
    stored = {}
    for name, tensor in tensors.items():
        prefix, found, part = name.partition(".experts.")
        if not found:
            stored[name] = tensor.contiguous()
            continue
        kind = "bias" if part.endswith("_bias") else "weight"
        for index in range(tensor.shape[0]):
            at = f"{prefix}.experts.{index}."
            one = tensor[index] if kind == "bias" else tensor[index].T
            if part.startswith("down_proj"):
                stored[f"{at}down_proj.{kind}"] = one.clone().contiguous()
            else:
                stored[f"{at}gate_proj.{kind}"] = one[0::2].clone().contiguous()
                stored[f"{at}up_proj.{kind}"] = one[1::2].clone().contiguous()
    return stored


def quantise_experts(folder, generator):
    """Puts random MXFP4 blocks in the place of the experts; returns what they stand for."""
    path = os.path.join(folder, "model.safetensors")
    tensors = safetensors.torch.load_file(path)
    values = {}
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        blocks = torch.randint(
            0, 256, (experts, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8
        )
        scales = torch.randint(
            121, 125, (experts, outputs, inputs // 32), generator=generator, dtype=torch.uint8
        )
        tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
        values[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    config_path = os.path.join(folder, "config.json")
    with open(config_path) as file:
        config = json.load(file)
    config.pop("dtype", None)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    with open(config_path, "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    return values


# Of modules, as transformers has them in memory and as files of EXAONE 3 do.
EXAONE_NAMES = (
    ("model.embed_tokens.", "transformer.wte."), ("model.layers.", "transformer.h."),
    ("model.norm.", "transformer.ln_f."), (".self_attn.o_proj.", ".self_attn.out_proj."),
    (".self_attn.", ".attn.attention."), (".input_layernorm.", ".ln_1."),
    (".post_attention_layernorm.", ".ln_2."), (".gate_proj.", ".c_fc_0."),
    (".up_proj.", ".c_fc_1."), (".down_proj.", ".c_proj."),
)


def as_stored(model, tensors):
    """Tensors of parameters under the names of Jige: every expert and every head's norm by itself."""
    if model.config.model_type == "gpt_oss":
        return as_experts_of_gpt_oss(tensors)
    mixtral = model.config.model_type in ("mixtral", "minimax_m2")
    kimi = model.config.model_type == "kimi_linear"
    short = mixtral or kimi or model.config.model_type == "lfm2_moe"
    gate, up, down = ("w1", "w3", "w2") if short else ("gate_proj", "up_proj", "down_proj")
    stored = {}
    for name, tensor in tensors.items():
        if model.config.model_type == "gpt_neox":
            name = name.replace("lm_head.", "embed_out.")
        if mixtral:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if model.config.model_type == "exaone":
            for usual, own in EXAONE_NAMES:
                name = name.replace(usual, own)
        if model.config.model_type == "nemotron_h" and name.startswith("model."):
            name = name.replace("model.", "backbone.", 1)
        if kimi:
            name = name.replace(".forget_gate.", ".")
            if any(part in name for part in (".experts.", ".shared_experts.", ".mlp.gate.")):
                name = name.replace(".mlp.", ".block_sparse_moe.")
            if ".conv1d." in name:
                for part, rows in zip("qkv", tensor.chunk(3)):
                    stored[name.replace("conv1d", f"{part}_conv1d")] = rows.clone()
                continue
        if model.config.model_type == "hy_v3":
            name = name.replace(".mlp.gate.", ".mlp.router.gate.")
            name = name.replace(".mlp.shared_experts.", ".mlp.shared_mlp.")
        if model.config.model_type == "lfm3":
            name = name.replace(".self_attn.g_proj.", ".self_attn.gate_proj.")
        if model.config.model_type != "granitemoe_swa":
            name = name.replace(".block_sparse_moe.router.", ".block_sparse_moe.router.layer.")
        if model.config.model_type == "olmo_hybrid" and name.startswith("model.layers."):
            if model.config.layer_types[int(name.split(".")[2])] == "linear_attention":
                name = name.replace("input_layernorm", "attention_layer_norm")
                name = name.replace("post_attention_layernorm", "feedforward_layer_norm")
            if ".conv1d." in name:
                keys = model.config.linear_num_key_heads * model.config.linear_key_head_dim
                values = tensor.shape[0] - 2 * keys
                for part, rows in zip("qkv", tensor.split((keys, keys, values))):
                    stored[name.replace("conv1d", f"{part}_conv1d")] = rows.clone()
                continue
        if name.endswith("_norm.weight") and tensor.dim() == 2:
            for index, row in enumerate(tensor):
                stored[name.replace(".weight", f".{index}.weight")] = row.clone()
            continue
        prefix, found, part = name.partition(".experts.")
        if found and model.config.model_type == "llama4_text":
            tensor = tensor.transpose(1, 2)
        for index in range(tensor.shape[0] if found else 0):
            at = f"{prefix}.experts.{index}."
            if part == "down_proj":
                stored[f"{at}{down}.weight"] = tensor[index].clone().contiguous()
            elif part == "up_proj":
                stored[f"{at}{up}.weight"] = tensor[index].clone()
            else:
                halves = tensor[index].chunk(2)
                stored[f"{at}{gate}.weight"] = halves[0].clone().contiguous()
                stored[f"{at}{up}.weight"] = halves[1].clone().contiguous()
        if not found:
            stored[name] = tensor.contiguous()
    return stored


def record_gradients(folder, generator):
    model = load(folder)
    tokens = draw_tokens(sum(LENGTHS), generator)
    loss = mean_loss(model, tokens, LENGTHS)
    loss.backward()
    trained = [one for one in model.named_parameters() if not one[0].endswith(CHOICE_BIASES)]
    # Of one that files have and nothing reads there is none.
    gradients = {name: p.grad for name, p in trained if p.grad is not None}
    tensors = as_stored(model, gradients)
    tensors["tokens"] = tokens.to(torch.int32)
    tensors["lengths"] = torch.tensor(LENGTHS, dtype=torch.int32)
    tensors["loss"] = loss.detach().reshape(1)
    safetensors.torch.save_file(tensors, os.path.join(folder, "gradients.safetensors"))


def train(folder, batches, clip_norm):
    model = load(folder)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **OPTIMIZER)
    losses, norms = [], []
    for tokens in batches:
        optimizer.zero_grad()
        loss = mean_loss(model, tokens, LENGTHS)
        loss.backward()
        limit = clip_norm if clip_norm > 0 else float("inf")
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit)))
        losses.append(float(loss))
        optimizer.step()
    return {"clip_norm": clip_norm, "losses": losses, "gradient_norms": norms}


def record_training(folder, generator):
    batches = [draw_tokens(sum(LENGTHS), generator) for _ in range(STEPS)]
    record = {
        "optimizer": dict(OPTIMIZER),
        "decay": "parameters of two dimensions",
        "lengths": LENGTHS,
        "tokens": [batch.tolist() for batch in batches],
        "runs": [train(folder, batches, 0.0), train(folder, batches, CLIP_NORM)],
    }
    with open(os.path.join(folder, "training.json"), "w") as file:
        json.dump(record, file)
        file.write("\n")


def record_model(name, root, seed):
    model_class, config, dtype, save_options = MODELS[name]
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(seed)
    model = model_class(config)
    randomise(model, generator)
    model.to(dtype)
    for key, buffer in model.named_buffers():
        if key.endswith(CHOICE_BIASES):
            buffer.data = buffer.data.float()  # as published files have it
    model.save_pretrained(folder, **save_options)
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(folder, extra)):
            os.remove(os.path.join(folder, extra))
    tokens = draw_tokens(TOKENS, generator)
    with torch.no_grad():
        loaded = load(folder)
        if name == "gpt_oss_mxfp4":
            parameters = dict(loaded.named_parameters())
            for key, value in quantise_experts(folder, generator).items():
                parameters[key].copy_(value.float())
        logits = loaded(tokens[None]).logits[0]
    expected = {"tokens": tokens.to(torch.int32), "logits": logits.float().contiguous()}
    safetensors.torch.save_file(expected, os.path.join(folder, "expected.safetensors"))
    if name in GRADIENTS:
        record_gradients(folder, generator)
    if name in STEPPED:
        record_training(folder, generator)
    print(f"{name}: |logits| up to {float(logits.abs().max()):.2f}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "fixtures", "model")
    torch.set_num_threads(1)
    os.makedirs(root, exist_ok=True)
    for name, seed in SEEDS.items():
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            record_model(name, root, seed)
    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "safetensors": safetensors.__version__,
        "numpy": numpy.__version__,
    }
    with open(os.path.join(root, "versions.json"), "w") as file:
        json.dump(versions, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
