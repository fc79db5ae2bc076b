"""Records tiny random models of Gemma 4 that read images, as record_image_towers.py does others.

    python tests/tools/record_gemma4_towers.py [FOLDER [NAME...]]

The default is tests/fixtures/image_towers, all. Writes the files that record_image_towers.py names,
where rows.I are what the tower multiplies: as the weight of a convolution has the numbers of a
patch, around zero where there is a tower; and

    layouts_gemma4.json   what becomes of pictures of some sizes by image processors as published
"""

import json
import os
import shutil
import sys

import safetensors.torch
import torch
from PIL import Image
from transformers import (
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    Gemma4Processor,
    Gemma4UnifiedConfig,
    Gemma4UnifiedForConditionalGeneration,
    Gemma4UnifiedProcessor,
)
from transformers.models.gemma4 import image_processing_pil_gemma4 as pixels

import gemma4_unified
from record_cut_towers import converse
from record_image_towers import (
    IMAGE,
    PROMPT,
    SIZES,
    gemma_tokenizer,
    picture,
    write_json,
)
from record_models import randomise
from tiny_models.gemma import GEMMA4

AUDIO, OPEN, CLOSE, VIDEO = 91, 93, 94, 95
TOKENS = {IMAGE: "<|image|>", OPEN: "<|image>", CLOSE: "<image|>", VIDEO: "<|video|>"}
TEMPLATE = """{{ bos_token }}
{%- for message in messages -%}
    {{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
    {%- if message.content is string -%}
        {{ message.content | trim }}
    {%- else -%}
        {%- for item in message.content -%}
            {%- if item.type == 'image' -%}
                {{ '<|image|>' }}
            {%- elif item.type == 'text' -%}
                {{ item.text | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\n' }}
{%- endif -%}"""

MODELS = {
    # As the larger ones: rows of an image see one another where layers have a window, which is of
    # fewer tokens here.
    "gemma4": dict(
        seed=2450, rows=20, old=True,
        text=dict(layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                  use_bidirectional_attention="vision"),
        vision=dict(hidden_size=24, num_attention_heads=2, num_key_value_heads=2, head_dim=12,
                    patch_size=4, pooling_kernel_size=2, intermediate_size=20,
                    num_hidden_layers=2, position_embedding_size=48, standardize=True),
    ),
    # As the smaller ones: products within bounds, inputs of layers, layers that share keys.
    "gemma4_clipped": dict(
        seed=2431, rows=10, old=False,
        text=dict(num_hidden_layers=4, attention_k_eq_v=False, num_kv_shared_layers=2,
                  use_double_wide_mlp=True, hidden_size_per_layer_input=8,
                  layer_types=["sliding_attention", "full_attention"] * 2),
        vision=dict(hidden_size=16, num_attention_heads=1, num_key_value_heads=1, head_dim=16,
                    patch_size=2, pooling_kernel_size=3, intermediate_size=24,
                    num_hidden_layers=3, position_embedding_size=30, use_clipped_linears=True,
                    rms_norm_eps=1e-2,
                    rope_parameters=dict(rope_type="axial", rope_theta=30.0)),
    ),
    # Without a tower.
    "gemma4_unified": dict(
        seed=2475, rows=14, old=False, unified=True,
        text=dict(layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
        vision=dict(patch_size=2, pooling_kernel_size=3, mm_embed_dim=28, mm_posemb_size=17,
                    output_proj_dims=28, rms_norm_eps=1e-2),
    ),
}

# (soft tokens, patch, patches of a row's side)
LAYOUTS = [(280, 16, 3), (70, 16, 3), (1120, 16, 3), (6, 4, 2)]
LAYOUT_SIZES = [(1, 1), (3, 2), (640, 480), (480, 640), (1920, 1080), (37, 4000), (9000, 20),
                (768, 768), (815, 816), (48, 48), (5000, 4999), (20000, 30), (13, 7777)]


def without_sound(processor):
    """A processor that needs no processors of sounds and videos."""

    class WithoutSound(processor):
        def check_argument_for_proper_class(self, name, argument):
            return None

    return WithoutSound


def make_tokenizer():
    return gemma_tokenizer(TOKENS, TEMPLATE, dict(
        image_token=TOKENS[IMAGE], boi_token=TOKENS[OPEN], eoi_token=TOKENS[CLOSE],
        audio_token=f"<unused{AUDIO}>", boa_token="<unused90>", eoa_token="<unused89>"))


def rows_first():
    """Resizing rows before columns as Pillow 12 does; Pillow 13 may begin with columns, which
    rounds other bytes."""
    resize = pixels.resize

    def in_two(image, size, **options):
        image = resize(image, size=(image.shape[1], size[1]), **options)
        return resize(image, size=size, **options)

    pixels.resize = in_two


def settle(model, generator):
    """Scores that are not so sharp that rounding shows; and bounds that cut some of what passes
    them, alike for products that read the same."""
    inputs = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("q_norm.weight"):
                parameter.mul_(0.4)
        for name, buffer in model.named_buffers():
            at, kind = name.rsplit(".", 1)
            if kind in ("input_min", "input_max"):
                # q, k and v read the same, and so do gate and up.
                part = at.rsplit(".", 1)
                key = (part[0], part[1] in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"),
                       kind)
                if key not in inputs:
                    inputs[key] = 0.7 + 0.6 * torch.rand((), generator=generator)
                buffer.copy_(inputs[key] if kind == "input_max" else -inputs[key])
            elif kind in ("output_min", "output_max"):
                bound = 1.0 + torch.rand((), generator=generator)
                buffer.copy_(bound if kind == "output_max" else -bound)
            elif kind in ("std_bias", "std_scale"):
                buffer.copy_((kind == "std_scale") * 0.5
                             + 0.3 * torch.randn(buffer.shape, generator=generator))


class Recorder:
    def __init__(self, tiny):
        self.tiny = tiny
        self.unified = tiny.get("unified", False)
        vision = tiny["vision"]
        patch, merge = vision["patch_size"], vision["pooling_kernel_size"]
        self.patch = patch * merge if self.unified else patch
        self.tokenizer = make_tokenizer()
        kind = (gemma4_unified.pixels.Gemma4UnifiedImageProcessor if self.unified
                else pixels.Gemma4ImageProcessorPil)
        image = kind(patch_size=patch, pooling_kernel_size=merge, max_soft_tokens=tiny["rows"])
        self.fields = json.loads(image.to_json_string())
        processor = Gemma4UnifiedProcessor if self.unified else Gemma4Processor
        self.own = dict(processor_class=processor.__name__, image_seq_length=tiny["rows"])
        self.processor = without_sound(processor)(
            None, image, self.tokenizer, None, chat_template=TEMPLATE)

    def model(self):
        config, model, text = (
            (Gemma4UnifiedConfig, Gemma4UnifiedForConditionalGeneration, "gemma4_unified_text")
            if self.unified else (Gemma4Config, Gemma4ForConditionalGeneration, "gemma4_text"))
        layers = {name: value for name, value in GEMMA4.items()
                  if not (self.unified and "per_layer_input" in name)}
        return model(config(
            text_config=layers | dict(self.tiny["text"], model_type=text,
                                      max_position_embeddings=256, eos_token_id=1, bos_token_id=2,
                                      pad_token_id=0),
            vision_config=self.tiny["vision"], audio_config=None, image_token_id=IMAGE,
            boi_token_id=OPEN, eoi_token_id=CLOSE, video_token_id=VIDEO, audio_token_id=AUDIO,
        ))

    def read(self, text, images):
        return self.processor(text=text, images=images, add_special_tokens=False,
                              return_tensors="pt")

    def rows(self, made):
        """Of one picture, without what only fills."""
        there = (made["image_position_ids"][0] >= 0).all(-1)
        numbers = made["pixel_values"][0][there].reshape(-1, self.patch, self.patch, 3)
        numbers = numbers if self.unified else 2 * (numbers - 0.5)
        return numbers.permute(0, 3, 1, 2).flatten(1).contiguous()

    def features(self, model, made):
        return model.model.get_image_features(
            made["pixel_values"], made["image_position_ids"]).pooler_output[0]


def record(name, tiny, root):
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(tiny["seed"])
    recorder = Recorder(tiny)
    model = recorder.model()
    randomise(model, generator)
    settle(model, generator)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    model = type(model).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    recorder.tokenizer.save_pretrained(folder)
    own = recorder.own
    if tiny["old"]:
        write_json(os.path.join(folder, "preprocessor_config.json"), recorder.fields)
    else:
        own = dict(own, image_processor=recorder.fields)
    write_json(os.path.join(folder, "processor_config.json"), own)
    expected = {}
    with torch.no_grad():
        for i, (width, height) in enumerate(SIZES):
            rgb = picture(width, height)
            made = recorder.read(TOKENS[IMAGE], [Image.fromarray(rgb.numpy())])
            expected[f"image.{i}"] = rgb
            expected[f"rows.{i}"] = recorder.rows(made)
            expected[f"features.{i}"] = recorder.features(model, made).clone()
        images = [Image.fromarray(picture(*SIZES[i]).numpy()) for i in PROMPT]
        made = recorder.read("a b" + "".join(TOKENS[IMAGE] + letter for letter in "jkl"), images)
        prompt = made["input_ids"][0]
        logits = model(**made).logits[0]
        converse(recorder, model, folder, os.path.join(root, "..", "images", "files"))
    expected["prompt"] = prompt.to(torch.int32)
    expected["images"] = torch.tensor(PROMPT, dtype=torch.int32)
    expected["logits"] = logits.contiguous()
    safetensors.torch.save_file(expected, os.path.join(folder, "expected.safetensors"))
    largest = max(float(expected[f"features.{i}"].abs().max()) for i in range(len(SIZES)))
    print(f"{name}: {len(prompt)} tokens, |features| up to {largest:.2f}, "
          f"|logits| up to {float(logits.abs().max()):.2f}")


def layout(rows, patch, merge, size):
    high, wide = pixels.get_aspect_ratio_preserving_size(
        height=size[1], width=size[0], patch_size=patch, max_patches=rows * merge**2,
        pooling_kernel_size=merge)
    return dict(rows=rows, patch=patch, merge=merge, size=size, width=wide, height=high)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.join(here, "..", "fixtures", "image_towers")
    root = sys.argv[1] if len(sys.argv) > 1 else root
    torch.set_num_threads(1)
    rows_first()
    gemma4_unified.resize_by_pillow()
    gemma4_unified.see_as_generating()
    for processor in (pixels, gemma4_unified.pixels):
        processor._SUPPORTED_SOFT_TOKENS = tuple(tiny["rows"] for tiny in MODELS.values())
    for name, tiny in MODELS.items():
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            record(name, tiny, root)
    records = [layout(*options, size) for options in LAYOUTS for size in LAYOUT_SIZES]
    with open(os.path.join(root, "layouts_gemma4.json"), "w") as file:
        lines = ",\n ".join(json.dumps(record) for record in records)
        file.write(f"[{lines}]\n")


if __name__ == "__main__":
    main()
