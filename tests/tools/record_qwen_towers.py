"""Records tiny random models of Qwen that read images, as record_image_towers.py does others.

    python tests/tools/record_qwen_towers.py [FOLDER [NAME...]]

The default is tests/fixtures/image_towers, all. Writes the files that record_image_towers.py names,
where features.I are those of all levels one behind the other, and beside these

    positions    I32 [3, T]               time, line and column of the prompt's tokens
"""

import json
import os
import shutil
import sys

import safetensors.torch
import torch
from PIL import Image
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from record_image_towers import PROMPT, SIZES, picture, write_json
from record_models import randomise
from tiny_models.common import COMMON, WIDTH
from tiny_models.recurrent import QWEN3_5, QWEN3_5_MOE

START, END, IMAGE, VIDEO = 90, 91, 92, 93

MODELS = {
    "qwen2_vl": dict(
        seed=2105,
        kind=(Qwen2VLConfig, Qwen2VLForConditionalGeneration),
        text=dict(num_attention_heads=4, num_key_value_heads=2,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                       mrope_section=[1, 1, 2])),
        vision=dict(depth=3, embed_dim=24, hidden_size=WIDTH, num_heads=2, patch_size=4,
                    mlp_ratio=2),
        areas=(300, 3000),
        old=True,
    ),
    # As folders were first: all in one object, areas beside their names.
    "qwen2_5_vl": dict(
        seed=2101,
        kind=(Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration),
        text=dict(num_attention_heads=4, num_key_value_heads=2,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                       mrope_section=[1, 1, 2])),
        vision=dict(depth=3, hidden_size=24, out_hidden_size=WIDTH, num_heads=2, patch_size=4,
                    intermediate_size=20, fullatt_block_indexes=[1], window_size=16),
        areas=(300, 3000),
        old=True,
    ),
    "qwen2_5_vl_new": dict(
        seed=2102,
        kind=(Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration),
        text=dict(num_attention_heads=2, num_key_value_heads=1,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                       mrope_section=[1, 2, 1, 2, 1, 1])),
        vision=dict(depth=2, hidden_size=16, out_hidden_size=WIDTH, num_heads=1, patch_size=2,
                    intermediate_size=24, fullatt_block_indexes=[], window_size=18,
                    spatial_merge_size=3, temporal_patch_size=1,
                    rope_parameters=dict(rope_type="axial", rope_theta=100.0)),
        areas=(36, 1600),
        old=False,
    ),
    "qwen3_vl": dict(
        seed=2103,
        kind=(Qwen3VLConfig, Qwen3VLForConditionalGeneration),
        text=dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_hidden_layers=3,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                       mrope_section=[4, 2, 2], mrope_interleaved=True)),
        vision=dict(depth=4, hidden_size=24, out_hidden_size=WIDTH, num_heads=2, patch_size=4,
                    intermediate_size=20, deepstack_visual_indexes=[0, 2],
                    num_position_embeddings=25),
        areas=(300, 3000),
        old=False,
    ),
    # Layers with states in place of attention, and heads that turn in part.
    "qwen3_5": dict(
        seed=2104,
        kind=(Qwen3_5Config, Qwen3_5ForConditionalGeneration),
        text=dict(QWEN3_5, rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                                partial_rotary_factor=0.5,
                                                mrope_section=[2, 1, 1], mrope_interleaved=True)),
        vision=dict(depth=2, hidden_size=16, out_hidden_size=WIDTH, num_heads=2, patch_size=4,
                    intermediate_size=24, num_position_embeddings=16),
        areas=(300, 2000),
        old=False,
    ),
    # Experts of a layer in tensors of all of them, as [experts, inputs, outputs].
    "qwen3_vl_moe": dict(
        seed=2106,
        kind=(Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration),
        text=dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_hidden_layers=3,
                  num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
                  mlp_only_layers=[1],
                  rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                       mrope_section=[4, 2, 2], mrope_interleaved=True)),
        vision=dict(depth=2, hidden_size=16, out_hidden_size=WIDTH, num_heads=1, patch_size=4,
                    intermediate_size=20, deepstack_visual_indexes=[0],
                    num_position_embeddings=16),
        areas=(300, 2000),
        old=False,
    ),
    "qwen3_5_moe": dict(
        seed=2107,
        kind=(Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration),
        text=dict(QWEN3_5_MOE,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                       partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
                                       mrope_interleaved=True)),
        vision=dict(depth=1, hidden_size=16, out_hidden_size=WIDTH, num_heads=2, patch_size=4,
                    intermediate_size=16, num_position_embeddings=16),
        areas=(300, 2000),
        old=False,
    ),
}


def rows_of(pixels, grid, vision):
    """Patches row by row with the pixels of one frame, of those in groups that become one row."""
    merge, patch = vision.get("spatial_merge_size", 2), vision["patch_size"]
    frames = vision.get("temporal_patch_size", 2)
    _, height, width = grid
    groups = pixels.reshape(height // merge, width // merge, merge, merge, 3, frames, patch * patch)
    rows = groups[..., 0, :].permute(0, 2, 1, 3, 4, 5)
    return rows.reshape(height * width, 3 * patch * patch).contiguous()


def flatten(folder):
    """config.json with the language model's fields at the top."""
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text.pop("model_type")
    text.update(rope_theta=rope["rope_theta"],
                rope_scaling=dict(type="mrope", mrope_section=rope["mrope_section"]))
    vision = config["vision_config"]
    vision.pop("rope_parameters", None)
    vision["in_chans"] = vision.pop("in_channels")
    write_json(path, dict(text, **config))


def write_processor(folder, tiny, processor):
    fields = json.loads(processor.to_json_string())
    if tiny["old"]:
        size = fields.pop("size")
        fields.update(min_pixels=size["shortest_edge"], max_pixels=size["longest_edge"])
        write_json(os.path.join(folder, "preprocessor_config.json"), fields)
    else:
        write_json(os.path.join(folder, "processor_config.json"), dict(image_processor=fields))


def rename_tensors(folder, turns):
    """Names as newer versions write them; experts that are turned, as published."""
    path = os.path.join(folder, "model.safetensors")
    tensors = safetensors.torch.load_file(path)
    renamed = {}
    for name, tensor in tensors.items():
        if name.startswith("visual."):
            name = "model." + name
        elif name.startswith("model.") and not name.startswith(("model.visual.", "model.language")):
            name = "model.language_model." + name[len("model."):]
        turned = turns and ".experts." in name
        renamed[name] = tensor.transpose(1, 2).contiguous() if turned else tensor
    safetensors.torch.save_file(renamed, path)


def features_of(model, pixels, grid):
    found = model.model.get_image_features(pixels, image_grid_thw=grid)
    deep = getattr(found, "deepstack_features", None) or []
    return torch.cat([found.pooler_output[0], *(level[0] for level in deep)])


def record(name, tiny, root):
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    config_class, model_class = tiny["kind"]
    config = config_class(
        text_config=dict(COMMON, **tiny["text"]), vision_config=tiny["vision"],
        image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START,
        vision_end_token_id=END, tie_word_embeddings=False,
    )
    model = model_class(config)
    randomise(model, torch.Generator().manual_seed(tiny["seed"]))
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    model = model_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    vision = tiny["vision"]
    processor = Qwen2VLImageProcessorPil(
        min_pixels=tiny["areas"][0], max_pixels=tiny["areas"][1], patch_size=vision["patch_size"],
        merge_size=vision.get("spatial_merge_size", 2),
        temporal_patch_size=vision.get("temporal_patch_size", 2))
    expected, made, counts = {}, [], []
    with torch.no_grad():
        for i, (width, height) in enumerate(SIZES):
            rgb = picture(width, height)
            one = processor(Image.fromarray(rgb.numpy()), return_tensors="pt")
            pixels, grid = one["pixel_values"], one["image_grid_thw"]
            made.append((pixels, grid))
            features = features_of(model, pixels, grid)
            counts.append(int(grid.prod()) // processor.merge_size ** 2)
            expected[f"image.{i}"] = rgb
            expected[f"rows.{i}"] = rows_of(pixels, grid[0].tolist(), vision)
            expected[f"features.{i}"] = features.clone()
        prompt, kinds = [1, 5, 17], [0, 0, 0]
        for i in PROMPT:
            prompt += [START] + [IMAGE] * counts[i] + [END, 20 + i]
            kinds += [0] + [1] * counts[i] + [0, 0]
        given = dict(image_grid_thw=torch.cat([made[i][1] for i in PROMPT]),
                     mm_token_type_ids=torch.tensor([kinds]))
        ids = torch.tensor([prompt])
        positions = model.model.get_rope_index(ids, **given)[0][:, 0]
        logits = model(input_ids=ids, pixel_values=torch.cat([made[i][0] for i in PROMPT]),
                       **given).logits[0]
    expected["prompt"] = torch.tensor(prompt, dtype=torch.int32)
    expected["images"] = torch.tensor(PROMPT, dtype=torch.int32)
    expected["positions"] = positions.to(torch.int32).contiguous()
    expected["logits"] = logits.contiguous()
    safetensors.torch.save_file(expected, os.path.join(folder, "expected.safetensors"))
    write_processor(folder, tiny, processor)
    flatten(folder) if tiny["old"] else rename_tensors(folder, name == "qwen3_vl_moe")
    largest = max(float(expected[f"features.{i}"].abs().max()) for i in range(len(SIZES)))
    print(f"{name}: {len(prompt)} tokens, |features| up to {largest:.2f}, "
          f"|logits| up to {float(logits.abs().max()):.2f}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.join(here, "..", "fixtures", "image_towers")
    root = sys.argv[1] if len(sys.argv) > 1 else root
    torch.set_num_threads(1)
    for name, tiny in MODELS.items():
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            record(name, tiny, root)


if __name__ == "__main__":
    main()
