"""Models with layers that carry a state: Mamba, delta nets, short convolutions."""

import torch
from transformers import (
    BambaConfig,
    BambaForCausalLM,
    FalconH1Config,
    FalconH1ForCausalLM,
    FalconMambaConfig,
    FalconMambaForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    JambaConfig,
    JambaForCausalLM,
    KimiLinearConfig,
    KimiLinearForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    Lfm2MoeConfig,
    Lfm2MoeForCausalLM,
    Lfm3Config,
    Lfm3ForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    NemotronHConfig,
    NemotronHForCausalLM,
    OlmoHybridConfig,
    OlmoHybridForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
)

from tiny_models.common import COMMON, VOCAB, WIDTH, TinyModel

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
QWEN3_5_MOE = {name: size for name, size in QWEN3_5.items() if name != "intermediate_size"} | dict(
    num_experts=8, num_experts_per_tok=3, moe_intermediate_size=12,
    shared_expert_intermediate_size=20,
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
# Layers of one part each. transformers holds steps above time_step_min, which no publisher does.
NEMOTRON_H = {name: value for name, value in COMMON.items() if name != "num_hidden_layers"} | dict(
    num_attention_heads=4, num_key_value_heads=2, head_dim=6, mamba_num_heads=6, mamba_head_dim=10,
    n_groups=3, ssm_state_size=7, conv_kernel=3, chunk_size=8, pad_token_id=None,
    time_step_min=1e-30,
)
# Layers of Mamba and nothing else.
SCANNED = dict(
    vocab_size=VOCAB, hidden_size=20, num_hidden_layers=3, state_size=5, conv_kernel=3,
    time_step_rank=3, pad_token_id=None, bos_token_id=1, eos_token_id=2,
)
JAMBA = COMMON | dict(
    num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None,
    rms_norm_eps=0.1, attn_layer_period=3, attn_layer_offset=1, mamba_d_state=5, mamba_d_conv=3,
    mamba_dt_rank=3,
)
# Gates of heads, norms on both sides, windows, and angles by kind of layer.
LFM3 = dict(
    **COMMON | dict(num_hidden_layers=4), num_attention_heads=4, num_key_value_heads=2, head_dim=12,
    pad_token_id=None, sliding_window=9,
)
# Attention beside a layer of Mamba 2, and every multiplier.
FALCON_H1 = COMMON | MAMBA | dict(
    embedding_multiplier=3.0, lm_head_multiplier=0.4, key_multiplier=0.7,
    attention_in_multiplier=1.3, attention_out_multiplier=0.8, ssm_in_multiplier=1.25,
    ssm_out_multiplier=0.6, mlp_multipliers=[0.9, 0.7], ssm_multipliers=[0.7, 1.2, 0.8, 1.5, 0.9],
)
# Delta nets with norms before their parts, of values wider than keys, as transformers writes their
# convolutions: in three equal parts; and attention without positions and norms behind it.
OLMO_HYBRID = COMMON | dict(
    num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, pad_token_id=None,
    rms_norm_eps=1e-4, layer_types=["linear_attention", "full_attention", "linear_attention"],
)

MODELS = {
    "qwen3_5": TinyModel(
        Qwen3_5ForCausalLM,
        Qwen3_5TextConfig(**QWEN3_5, attention_bias=True),
        torch.float32,
        seed=2270,
    ),
    "qwen3_5_images": TinyModel(
        Qwen3_5ForConditionalGeneration,
        Qwen3_5Config(
            text_config=QWEN3_5,
            vision_config=dict(depth=1, hidden_size=16, out_hidden_size=WIDTH, num_heads=2,
                               intermediate_size=16, patch_size=4, num_position_embeddings=16),
            image_token_id=92, video_token_id=93, vision_start_token_id=90, vision_end_token_id=91,
            tie_word_embeddings=True,
        ),
        torch.bfloat16,
        seed=2226,
        gradients=False,
    ),
    "qwen3_5_moe": TinyModel(
        Qwen3_5MoeForCausalLM,
        Qwen3_5MoeTextConfig(**QWEN3_5_MOE),
        torch.float32,
        seed=3301,
    ),
    "qwen3_5_moe_images": TinyModel(
        Qwen3_5MoeForConditionalGeneration,
        Qwen3_5MoeConfig(
            text_config=QWEN3_5_MOE,
            vision_config=dict(depth=1, hidden_size=16, out_hidden_size=WIDTH, num_heads=2,
                               intermediate_size=16, patch_size=4, num_position_embeddings=16),
            image_token_id=92, video_token_id=93, vision_start_token_id=90, vision_end_token_id=91,
            tie_word_embeddings=True,
        ),
        torch.bfloat16,
        seed=6967,
        gradients=False,
    ),
    "qwen3_next": TinyModel(
        Qwen3NextForCausalLM,
        Qwen3NextConfig(**QWEN3_5_MOE, intermediate_size=40, mlp_only_layers=[1]),
        torch.float32,
        seed=5872,
    ),
    # A short convolution above a layer with attention.
    "lfm2": TinyModel(
        Lfm2ForCausalLM,
        Lfm2Config(
            **COMMON, layer_types=["full_attention", "conv"], num_attention_heads=4,
            num_key_value_heads=2, conv_bias=True, block_multiple_of=8, pad_token_id=None,
        ),
        torch.float32,
        seed=1303,
    ),
    # Experts behind a short convolution, above a layer with attention that has none.
    "lfm2_moe": TinyModel(
        Lfm2MoeForCausalLM,
        Lfm2MoeConfig(
            **COMMON, layer_types=["full_attention", "conv"], num_attention_heads=4,
            num_key_value_heads=2, num_dense_layers=1, num_experts=6, num_experts_per_tok=2,
            moe_intermediate_size=16, routed_scaling_factor=1.5, tie_word_embeddings=False,
            pad_token_id=None,
        ),
        torch.float32,
        seed=1567,
    ),
    "lfm3": TinyModel(
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
        seed=2401,
    ),
    # Without either, with biases and other angles.
    "lfm3_bare": TinyModel(
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
        seed=1113,
    ),
    # Experts beside what all tokens use, and no positions.
    "granite_hybrid": TinyModel(
        GraniteMoeHybridForCausalLM,
        GraniteMoeHybridConfig(**GRANITE_HYBRID),
        torch.float32,
        seed=1063,
    ),
    "granite_hybrid_dense": TinyModel(
        GraniteMoeHybridForCausalLM,
        GraniteMoeHybridConfig(
            **GRANITE_HYBRID | dict(
                num_local_experts=0, layer_types=["attention", "mamba"], mamba_proj_bias=True,
                position_embedding_type="rope", tie_word_embeddings=True, mamba_n_groups=1,
            )
        ),
        torch.float32,
        seed=1064,
    ),
    "bamba": TinyModel(
        BambaForCausalLM,
        BambaConfig(**COMMON, **MAMBA, attn_layer_indices=[1], mamba_conv_bias=False),
        torch.float32,
        seed=1065,
    ),
    "nemotron_h": TinyModel(
        NemotronHForCausalLM,
        NemotronHConfig(**NEMOTRON_H, hybrid_override_pattern="M-*M", mlp_bias=True, use_bias=True),
        torch.float32,
        seed=1066,
    ),
    "nemotron_h_moe": TinyModel(
        NemotronHForCausalLM,
        NemotronHConfig(
            **NEMOTRON_H, hybrid_override_pattern="ME*-E", n_routed_experts=8,
            num_experts_per_tok=3, moe_intermediate_size=16,
            moe_shared_expert_intermediate_size=20, n_group=2, topk_group=1,
            routed_scaling_factor=1.5,
        ),
        torch.float32,
        seed=1067,
    ),
    "mamba": TinyModel(
        MambaForCausalLM,
        MambaConfig(
            **SCANNED, expand=3, use_bias=True, use_conv_bias=False, layer_norm_epsilon=1e-4
        ),
        torch.float32,
        seed=1110,
    ),
    "falcon_mamba": TinyModel(
        FalconMambaForCausalLM,
        FalconMambaConfig(
            **SCANNED | dict(num_hidden_layers=4), tie_word_embeddings=False, mixer_rms_eps=1e-3
        ),
        torch.float32,
        seed=1111,
    ),
    "mamba2": TinyModel(
        Mamba2ForCausalLM,
        Mamba2Config(
            **SCANNED, num_heads=6, head_dim=10, n_groups=3, expand=3, use_bias=True, chunk_size=8,
        ),
        torch.float32,
        seed=1112,
    ),
    "jamba": TinyModel(
        JambaForCausalLM,
        JambaConfig(**JAMBA, num_experts=6, num_experts_per_tok=3),
        torch.float32,
        seed=2121,
    ),
    "jamba_dense": TinyModel(
        JambaForCausalLM,
        JambaConfig(
            **JAMBA | dict(num_hidden_layers=2, tie_word_embeddings=True), num_experts=1,
            mamba_expand=3, mamba_proj_bias=True, mamba_conv_bias=False,
        ),
        torch.float32,
        seed=1114,
    ),
    "kimi_linear": TinyModel(
        KimiLinearForCausalLM,
        KimiLinearConfig(
            **COMMON | dict(num_hidden_layers=4, rms_norm_eps=1e-2), num_attention_heads=4,
            num_key_value_heads=4, kv_lora_rank=9, qk_nope_head_dim=6, qk_rope_head_dim=4,
            v_head_dim=5, num_local_experts=6, num_experts_per_tok=3, moe_intermediate_size=12,
            n_group=2, linear_head_dim=7, linear_num_heads=3, linear_conv_kernel_dim=3,
            pad_token_id=None,
            layer_types=["linear_attention", "full_attention"] + ["linear_attention"] * 2,
        ),
        torch.float32,
        seed=3002,
    ),
    "falcon_h1": TinyModel(
        FalconH1ForCausalLM,
        FalconH1Config(**FALCON_H1 | dict(mamba_d_ssm=48, mamba_d_head=6)),
        torch.float32,
        seed=1081,
    ),
    # With a norm behind the gate, and every bias.
    "falcon_h1_norm": TinyModel(
        FalconH1ForCausalLM,
        FalconH1Config(
            **FALCON_H1 | dict(
                mamba_d_ssm=40, mamba_d_head=5, mamba_rms_norm=True, mamba_norm_before_gate=False,
                attention_bias=True, mlp_bias=True, mamba_proj_bias=True, projectors_bias=True,
                tie_word_embeddings=True, head_dim=12,
            )
        ),
        torch.float32,
        seed=1082,
    ),
    # With a norm before it.
    "falcon_h1_norm_first": TinyModel(
        FalconH1ForCausalLM,
        FalconH1Config(
            **FALCON_H1 | dict(
                mamba_d_ssm=None, mamba_n_groups=4, mamba_rms_norm=True,
                mamba_norm_before_gate=True, mamba_conv_bias=False,
            )
        ),
        torch.float32,
        seed=1085,
    ),
    "olmo_hybrid": TinyModel(
        OlmoHybridForCausalLM,
        OlmoHybridConfig(
            **OLMO_HYBRID | dict(
                num_hidden_layers=2, layer_types=["linear_attention", "full_attention"]
            ),
            linear_key_head_dim=10,
            rope_parameters=dict(rope_type="default", rope_theta=None),
        ),
        torch.float32,
        seed=2019,
    ),
    # With positions, rates up to one, and the convolutions in one tensor.
    "olmo_hybrid_turned": TinyModel(
        OlmoHybridForCausalLM,
        OlmoHybridConfig(
            **OLMO_HYBRID | dict(
                linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=9,
                linear_value_head_dim=7, linear_conv_kernel_dim=3, linear_allow_neg_eigval=False,
                attention_bias=True, tie_word_embeddings=True, rope_theta=500.0,
            )
        ),
        torch.float32,
        seed=2004,
        save_options={"save_original_format": False},
    ),
}
