"""Gemma's."""

import torch
from transformers import (
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
    VaultGemmaConfig,
    VaultGemmaForCausalLM,
)

from tiny_models.common import COMMON, SEES, VOCAB, TinyModel

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

MODELS = {
    "gemma": TinyModel(
        GemmaForCausalLM,
        GemmaConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=1, head_dim=12, pad_token_id=0
        ),
        torch.bfloat16,
        seed=1035,
    ),
    "gemma2": TinyModel(
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
        seed=1027,
    ),
    "gemma3": TinyModel(
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
        seed=1012,
    ),
    "gemma3_images": TinyModel(
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
        seed=1040,
        gradients=False,
    ),
    # Streams, what stands beside attention, sparse gates in some layers, and tokens that the table
    # of layers' inputs does not have.
    "gemma3n": TinyModel(
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
        seed=1094,
    ),
    # Two streams that no vector scales, layers of keys of their own, and a head of its own.
    "gemma3n_unscaled": TinyModel(
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
        seed=1101,
    ),
    "gemma4": TinyModel(
        Gemma4ForCausalLM,
        Gemma4TextConfig(**GEMMA4),
        torch.float32,
        seed=1068,
    ),
    # Without keys that are values; with images.
    "gemma4_images": TinyModel(
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
        seed=1069,
        gradients=False,
    ),
    # Experts beside the MLP.
    "gemma4_moe": TinyModel(
        Gemma4ForCausalLM,
        Gemma4TextConfig(
            **GEMMA4 | dict(
                num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"],
                enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=12,
            )
        ),
        torch.float32,
        seed=3078,
    ),
    # Embeddings for every layer, and layers that share keys and values.
    "gemma4_layer_inputs": TinyModel(
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
        seed=1052,
    ),
    "vaultgemma": TinyModel(
        VaultGemmaForCausalLM,
        VaultGemmaConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, head_dim=12, sliding_window=9,
            query_pre_attn_scalar=20, attn_logit_softcapping=3.0, final_logit_softcapping=4.0,
        ),
        torch.float32,
        seed=1096,
    ),
}
