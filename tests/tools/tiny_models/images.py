"""Models with images, of which texts alone are recorded."""

import torch
from transformers import (
    Exaone4_5_Config,
    Exaone4_5_ForConditionalGeneration,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from tiny_models.common import COMMON, LLAMA3_ROPE, SEES, WIDTH, TinyModel

MODELS = {
    "mistral3_images": TinyModel(
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
        seed=1064,
        gradients=False,
    ),
    # Pixtral.
    "pixtral_images": TinyModel(
        LlavaForConditionalGeneration,
        LlavaConfig(
            text_config=dict(
                COMMON,
                model_type="mistral",
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=12,
                sliding_window=None,
            ),
            vision_config=dict(SEES, model_type="pixtral", image_size=8, patch_size=4),
            image_token_index=92, image_seq_length=1, vision_feature_layer=-1,
            vision_feature_select_strategy="full",
        ),
        torch.bfloat16,
        seed=1110,
        gradients=False,
    ),
    "qwen2_5_images": TinyModel(
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
        seed=1109,
        gradients=False,
    ),
    "qwen3_images": TinyModel(
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
        seed=1089,
        gradients=False,
    ),
    # EXAONE 4.
    "exaone4_5_images": TinyModel(
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
        seed=1109,
        gradients=False,
    ),
}
