"""Records tiny random models that read images with what transformers makes of some pictures.

    python tests/tools/record_image_towers.py [FOLDER [NAME...]]

The default is tests/fixtures/image_towers, all.

Writes, for every model, FOLDER/NAME/ as transformers saves it (config.json, safetensors), the
files of its processor, and FOLDER/NAME/expected.safetensors, all in float32 with eager attention:

    image.I      U8  [height, width, 3]   a picture
    rows.I       F32 [patches, 3 p p]     what the processor makes of it, patch by patch as the
                                          weight of the convolution has the numbers of one
    features.I   F32 [rows, width]        of the picture, as they stand in a prompt
    prompt       I32 [T]                  a text with some of the pictures, each with all its tokens
    images       I32 [N]                  which ones
    logits       F32 [T, V]               of the prompt

FOLDER/versions.json names the versions of everything used.
"""

import json
import os
import shutil
import sys

import PIL
import safetensors
import safetensors.torch
import torch
import torchvision
import transformers
from PIL import Image
from transformers import (
    LlavaConfig,
    LlavaForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
)
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

from record_models import randomise
from tiny_models.common import COMMON

IMAGE, BREAK, END = 92, 93, 94
# (width, height): as small as there is, a row, a column, more than the longest edge, and sizes that
# are no multiples of anything.
SIZES = [(1, 1), (48, 8), (5, 30), (130, 61), (40, 24), (41, 47)]
PROMPT = [3, 0, 4]  # pictures in it

MODELS = {
    "mistral3": dict(
        seed=2001,
        text=dict(num_attention_heads=4, num_key_value_heads=2, head_dim=12, model_type="mistral"),
        vision=dict(hidden_size=24, num_attention_heads=2, patch_size=4, hidden_act="gelu",
                    intermediate_size=20, num_hidden_layers=2, image_size=64),
        rest=dict(spatial_merge_size=2),
        longest_edge=64,
        old_processor=True,
    ),
    "mistral3_silu": dict(
        seed=2002,
        text=dict(num_attention_heads=4, num_key_value_heads=2, head_dim=12, model_type="ministral3",
                  rms_norm_eps=1e-2,
                  rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=4.0,
                                       beta_fast=8.0, beta_slow=1.0, mscale=1.0,
                                       mscale_all_dim=1.0, llama_4_scaling_beta=0.1,
                                       original_max_position_embeddings=32)),
        vision=dict(hidden_size=16, num_attention_heads=1, patch_size=2, hidden_act="silu",
                    intermediate_size=24, num_hidden_layers=3, image_size=32,
                    rope_parameters=dict(rope_type="axial", rope_theta=100.0)),
        rest=dict(spatial_merge_size=3, multimodal_projector_bias=True, vision_feature_layer=-2,
                  projector_hidden_act="relu"),
        longest_edge=33,
        old_processor=False,
    ),
    # Pixtral 12B.
    "pixtral": dict(
        seed=2003,
        kind=(LlavaConfig, LlavaForConditionalGeneration),
        text=dict(num_attention_heads=4, num_key_value_heads=2, head_dim=12, model_type="mistral"),
        vision=dict(hidden_size=16, num_attention_heads=2, patch_size=4, hidden_act="silu",
                    intermediate_size=20, num_hidden_layers=2, image_size=64),
        rest=dict(vision_feature_layer=-1, vision_feature_select_strategy="full",
                  image_seq_length=1),
        longest_edge=32,
        old_processor=True,
    ),
}


def picture(width, height):
    """Smooth and rough parts, in whole numbers."""
    y = torch.arange(height)[:, None, None]
    x = torch.arange(width)[None, :, None]
    c = torch.arange(3)[None, None, :]
    rough = (x * 37 + y * 91 + c * 53 + (x * y * 7) % 31 * 5) % 256
    smooth = (x * 3 + y * 2 * (c + 1)) % 256
    return torch.where((x // 8 + y // 8) % 2 == 0, rough, smooth).to(torch.uint8)


def patches(pixels, size):
    """[3, H, W] as rows."""
    rows = pixels.unfold(1, size, size).unfold(2, size, size)  # [3, R, C, p, p]
    return rows.permute(1, 2, 0, 3, 4).reshape(-1, 3 * size * size).contiguous()


def tokens_of(rows, columns):
    ids = ([IMAGE] * columns + [BREAK]) * rows
    return ids[:-1] + [END]


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def write_processor(folder, tiny, processor):
    patch = tiny["vision"]["patch_size"]
    merge = tiny["rest"].get("spatial_merge_size", 1)
    own = dict(processor_class="PixtralProcessor", image_token="[IMG]",
               image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]", patch_size=patch,
               spatial_merge_size=merge)
    fields = json.loads(processor.to_json_string())
    if tiny["old_processor"]:
        write_json(os.path.join(folder, "preprocessor_config.json"), fields)
    else:
        own["image_processor"] = fields
    write_json(os.path.join(folder, "processor_config.json"), own)


def record(name, tiny, root):
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(tiny["seed"])
    config_class, model_class = tiny.get("kind", (Mistral3Config, Mistral3ForConditionalGeneration))
    config = config_class(
        text_config=dict(COMMON, sliding_window=None, **tiny["text"]),
        vision_config=dict(tiny["vision"], model_type="pixtral"),
        image_token_index=IMAGE, tie_word_embeddings=False, **tiny["rest"],
    )
    model = model_class(config)
    randomise(model, generator)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    model = model_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    patch = tiny["vision"]["patch_size"]
    step = patch * tiny["rest"].get("spatial_merge_size", 1)
    processor = PixtralImageProcessorPil(
        size={"longest_edge": tiny["longest_edge"]}, patch_size={"height": patch, "width": patch}
    )
    write_processor(folder, tiny, processor)
    expected, prompt, chosen = {}, [1, 5, 17], []
    with torch.no_grad():
        for i, (width, height) in enumerate(SIZES):
            rgb = picture(width, height)
            made = processor(Image.fromarray(rgb.numpy()), return_tensors="pt",
                             patch_size={"height": step, "width": step})
            pixels, sizes = made["pixel_values"], torch.as_tensor(made["image_sizes"])
            # Twice: of one picture of one row transformers drops a dimension.
            features = model.model.get_image_features(
                pixel_values=pixels.repeat(2, 1, 1, 1), image_sizes=sizes.repeat(2, 1),
                **select(config),
            ).pooler_output
            expected[f"image.{i}"] = rgb
            expected[f"rows.{i}"] = patches(pixels[0], patch)
            expected[f"features.{i}"] = features[0].clone()
            if i in PROMPT:
                chosen.append((i, pixels, sizes))
        for i in PROMPT:
            sizes = next(s for k, _, s in chosen if k == i)[0]
            prompt += tokens_of(int(sizes[0]) // step, int(sizes[1]) // step) + [20 + i]
        pixel_values, image_sizes = [], []
        for i in PROMPT:
            _, pixels, sizes = next(one for one in chosen if one[0] == i)
            pixel_values.append(pixels[0])
            image_sizes.append(sizes[0])
        padded = processor._pad_for_batching([p.numpy() for p in pixel_values],
                                             [tuple(map(int, s)) for s in image_sizes])
        padded = torch.stack([torch.as_tensor(p) for p in padded])
        ids = torch.tensor([prompt])
        logits = model(input_ids=ids, pixel_values=padded,
                       image_sizes=torch.stack(image_sizes)).logits[0]
    expected["prompt"] = torch.tensor(prompt, dtype=torch.int32)
    expected["images"] = torch.tensor(PROMPT, dtype=torch.int32)
    expected["logits"] = logits.contiguous()
    safetensors.torch.save_file(expected, os.path.join(folder, "expected.safetensors"))
    largest = max(float(expected[f"features.{i}"].abs().max()) for i in range(len(SIZES)))
    print(f"{name}: {len(prompt)} tokens, |features| up to {largest:.2f}, "
          f"|logits| up to {float(logits.abs().max()):.2f}")


def select(config):
    """What get_image_features has to be told."""
    told = dict(vision_feature_layer=config.vision_feature_layer)
    if hasattr(config, "vision_feature_select_strategy"):
        told["vision_feature_select_strategy"] = config.vision_feature_select_strategy
    return told


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.join(here, "..", "fixtures", "image_towers")
    root = sys.argv[1] if len(sys.argv) > 1 else root
    torch.set_num_threads(1)
    os.makedirs(root, exist_ok=True)
    for name, tiny in MODELS.items():
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            record(name, tiny, root)
    modules = (PIL, safetensors, torch, torchvision, transformers)
    write_json(os.path.join(root, "versions.json"),
               {module.__name__: module.__version__ for module in modules})


if __name__ == "__main__":
    main()
