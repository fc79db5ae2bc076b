"""Records tiny random models of InternVL and LLaVA, as record_idefics3_towers.py does others.

    python tests/tools/record_cut_towers.py [FOLDER [NAME...]]

The default is tests/fixtures/image_towers, all. Writes the files that record_image_towers.py names,
where rows.I are those of all tiles of a picture one behind the other, in the processor's order; and

    layouts_cut.json   what becomes of pictures of some sizes by image processors as published
"""

import json
import os
import shutil
import string
import sys

import safetensors.torch
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionProcessor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from transformers.image_processing_utils import get_patch_output_size, select_best_resolution
from transformers.image_utils import ChannelDimension, SizeDict
from transformers.models.got_ocr2 import image_processing_pil_got_ocr2 as got_ocr2
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)

from record_image_towers import CONVERSATION, SIZES, parts_of, patches, picture, write_json
from record_models import randomise
from tiny_models.common import COMMON

VOCAB = 128
HEADS = dict(num_attention_heads=4, num_key_value_heads=2)
CLIP = dict(model_type="clip_vision_model", hidden_size=24, num_attention_heads=2, patch_size=4,
            intermediate_size=20, num_hidden_layers=3)
SIGLIP = dict(model_type="siglip_vision_model", hidden_size=16, num_attention_heads=1,
              patch_size=4, intermediate_size=24, num_hidden_layers=2, vision_use_head=False)

MODELS = {
    "internvl": dict(
        family="internvl", seed=2301, tied=True,
        text=dict(HEADS, model_type="qwen2"),
        vision=dict(hidden_size=24, num_attention_heads=2, patch_size=4, intermediate_size=20,
                    num_hidden_layers=2, image_size=16, attention_bias=True),
        pixels=dict(max_patches=6), ratio=0.5, prompt=[3, 0, 4], old=True,
    ),
    # As the largest one has them: norms of whole rows of queries and keys, and no biases of these.
    "internvl_rms": dict(
        family="internvl", seed=2302, tied=False,
        text=dict(HEADS, model_type="qwen3", head_dim=12),
        vision=dict(hidden_size=16, num_attention_heads=2, patch_size=3, intermediate_size=24,
                    num_hidden_layers=3, image_size=14, norm_type="rms_norm", use_qk_norm=True,
                    hidden_act="gelu_pytorch_tanh"),
        rest=dict(vision_feature_layer=-2, projector_hidden_act="relu"),
        pixels=dict(min_patches=2, max_patches=4), ratio=0.25, prompt=[3, 1, 4], old=False,
    ),
    "llava": dict(
        family="llava", seed=2303, kind=(LlavaConfig, LlavaForConditionalGeneration),
        classes=(LlavaImageProcessorPil, LlavaProcessor),
        text=dict(HEADS, model_type="llama"), vision=dict(CLIP, image_size=16),
        prompt=[3, 0, 2], old=True,
    ),
    "llava_next": dict(
        family="llava", seed=2304, kind=(LlavaNextConfig, LlavaNextForConditionalGeneration),
        classes=(LlavaNextImageProcessorPil, LlavaNextProcessor),
        text=dict(HEADS, model_type="mistral", sliding_window=None),
        vision=dict(CLIP, image_size=14, hidden_act="gelu"),
        grids=[[14, 28], [28, 14], [28, 28], [42, 14], [14, 42]],
        rest=dict(multimodal_projector_bias=False), prompt=[3, 1], old=True,
    ),
    # No class token, nothing cut.
    "llava_siglip": dict(
        family="llava", seed=2305, kind=(LlavaConfig, LlavaForConditionalGeneration),
        classes=(LlavaImageProcessorPil, LlavaProcessor),
        text=dict(HEADS, model_type="llama"), vision=dict(SIGLIP, image_size=16),
        rest=dict(vision_feature_layer=-1, vision_feature_select_strategy="full",
                  projector_hidden_act="relu"),
        prompt=[3, 0, 2], old=False,
    ),
    # Of large grids lines are fewer.
    "llava_onevision": dict(
        family="llava", seed=2306,
        kind=(LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration),
        classes=(LlavaOnevisionImageProcessorPil, LlavaOnevisionProcessor),
        text=dict(HEADS, model_type="qwen2"), vision=dict(SIGLIP, image_size=14),
        grids=[[14 * y, 14 * x] for y in range(1, 4) for x in range(1, 4)],
        rest=dict(vision_aspect_ratio="anyres_max_3"), prompt=[3, 0], old=False,
    ),
}

# As published, and some that are not.
NEXT = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
ONEVISION = LlavaOnevisionImageProcessorPil.image_grid_pinpoints
LAYOUTS = [
    dict(family="internvl", tile=448, low=1, high=12), dict(family="internvl", tile=448, low=3, high=6),
    dict(family="internvl", tile=30, low=1, high=7),
    dict(family="llava_next", tile=336, patch=14, grids=NEXT),
    dict(family="llava_onevision", tile=384, patch=14, grids=ONEVISION, most=9),
    dict(family="llava_onevision", tile=384, patch=14, grids=ONEVISION[:9], most=4),
]
LAYOUT_SIZES = [
    (1, 1), (448, 448), (449, 448), (336, 336), (384, 384), (513, 512), (2048, 2048), (2049, 1000),
    (4000, 3000), (3000, 4000), (640, 480), (480, 640), (1920, 1080), (1023, 1024), (333, 1000),
    (997, 331), (100, 7), (7, 100), (896, 448), (1344, 448), (61, 130),
]

# As published, but for the system's message of InternVL.
INTERNVL_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}"
    "{{ '<IMG_CONTEXT>\n' }}{% elif content['type'] == 'text' %}{{ content['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{'<|im_end|>\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\n' }}{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' ' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def make_tokenizer(template, tokens):
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    texts = controls + ["\u010a", "\u0120"] + list(string.ascii_letters + "?.,!:0123456789<>_-/|")
    vocabulary = {text: id for id, text in enumerate(texts)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    for text in controls + list(tokens.values()):
        tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True)])
    assert tokenizer.get_vocab_size() <= VOCAB, tokenizer.get_vocab_size()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        chat_template=template, extra_special_tokens=tokens,
    )


def rows_first(processor):
    """The processor, resizing rows before columns as Pillow 12 does; Pillow 13 may begin with
    columns, which rounds other bytes."""
    resize = processor.resize

    def in_two(image, size, **options):
        high, wide = size.height, size.width
        if size.shortest_edge:
            shorter, longer = sorted(image.shape[1:])
            other = int(size.shortest_edge * longer / shorter)
            high, wide = size.shortest_edge, other
            if image.shape[1] > image.shape[2]:
                high, wide = other, size.shortest_edge
        image = resize(image, SizeDict(height=image.shape[1], width=wide), **options)
        return resize(image, SizeDict(height=high, width=wide), **options)

    processor.resize = in_two
    return processor


# Processors that need no processor of videos.
class WithoutVideos(InternVLProcessor):
    def check_argument_for_proper_class(self, name, argument):
        return None


class OneVisionWithoutVideos(LlavaOnevisionProcessor):
    def check_argument_for_proper_class(self, name, argument):
        return None


class InternVl:
    def __init__(self, tiny):
        self.tiny = tiny
        vision = tiny["vision"]
        self.patch, side = vision["patch_size"], vision["image_size"]
        self.side = side
        self.rows = int((side // self.patch) * tiny["ratio"]) ** 2
        self.tokenizer = make_tokenizer(INTERNVL_TEMPLATE, dict(
            start_image_token="<img>", end_image_token="</img>",
            context_image_token="<IMG_CONTEXT>", video_token="<video>"))
        image = got_ocr2.GotOcr2ImageProcessorPil(size={"height": side, "width": side},
                                                  **tiny["pixels"])
        self.fields = json.loads(image.to_json_string())
        self.own = dict(processor_class="InternVLProcessor", image_seq_length=self.rows)
        self.processor = WithoutVideos(rows_first(image), self.tokenizer,
                                           image_seq_length=self.rows,
                                           chat_template=INTERNVL_TEMPLATE)
        self.image_id = self.tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>")

    def model(self):
        config = InternVLConfig(
            text_config=dict(COMMON, **self.tiny["text"], vocab_size=VOCAB,
                             max_position_embeddings=512,
                             tie_word_embeddings=self.tiny["tied"]),
            vision_config=self.tiny["vision"], image_token_id=self.image_id,
            image_seq_length=self.rows, downsample_ratio=self.tiny["ratio"],
            tie_word_embeddings=self.tiny["tied"], **self.tiny.get("rest", {}),
        )
        return InternVLForConditionalGeneration(config)

    text = "<IMG_CONTEXT>"

    def features(self, model, made):
        return model.model.get_image_features(made["pixel_values"]).pooler_output.flatten(0, 1)

    def tiles(self, made):
        return made["pixel_values"]


class Llava:
    text = "<image>"

    def __init__(self, tiny):
        self.tiny = tiny
        vision = tiny["vision"]
        self.patch, self.side = vision["patch_size"], vision["image_size"]
        clip = vision["model_type"] == "clip_vision_model"
        self.tokenizer = make_tokenizer(LLAVA_TEMPLATE, dict(image_token="<image>",
                                                             video_token="<video>"))
        image_class, processor_class = tiny["classes"]
        one_vision = image_class is LlavaOnevisionImageProcessorPil
        told = dict(size={"height": self.side, "width": self.side}) if one_vision else dict(
            size={"shortest_edge": self.side},
            crop_size={"height": self.side, "width": self.side})
        if "grids" in tiny:
            told["image_grid_pinpoints"] = tiny["grids"]
        image = image_class(**told)
        self.fields = json.loads(image.to_json_string())
        rows = (self.side // self.patch) ** 2
        strategy = "default" if clip else "full"
        own = dict(vision_feature_select_strategy=strategy)
        if one_vision:
            own.update(num_image_tokens=rows, **tiny["rest"])
        else:
            own.update(patch_size=self.patch, num_additional_image_tokens=int(clip))
        self.own = dict(own, processor_class=processor_class.__name__, image_token="<image>")
        made_class = OneVisionWithoutVideos if one_vision else processor_class
        self.processor = made_class(rows_first(image), self.tokenizer,
                                         chat_template=LLAVA_TEMPLATE, **own)
        self.image_id = self.tokenizer.convert_tokens_to_ids("<image>")

    def model(self):
        config_class, model_class = self.tiny["kind"]
        rest = dict(self.tiny.get("rest", {}))
        if "grids" in self.tiny:
            rest["image_grid_pinpoints"] = self.tiny["grids"]
        if config_class is LlavaOnevisionConfig:
            rest["video_token_index"] = self.image_id + 1
        config = config_class(
            text_config=dict(COMMON, **self.tiny["text"], vocab_size=VOCAB,
                             max_position_embeddings=512, tie_word_embeddings=False),
            vision_config=self.tiny["vision"], image_token_index=self.image_id,
            tie_word_embeddings=False, **rest,
        )
        return model_class(config)

    def features(self, model, made):
        told = {}
        if "image_sizes" in made:
            told["image_sizes"] = made["image_sizes"]
        made = model.model.get_image_features(made["pixel_values"], **told).pooler_output
        return made[0]

    def tiles(self, made):
        pixels = made["pixel_values"]
        return pixels[0] if pixels.dim() == 5 else pixels


FAMILIES = {"internvl": InternVl, "llava": Llava}


def converse(family, model, folder, pictures):
    records = []
    for count in (1, 3):  # of the messages
        told = CONVERSATION[:count]
        files = [one for _, contents in told for one in contents if one.endswith(".png")]
        images = [Image.open(os.path.join(pictures, file)).convert("RGB") for file in files]

        def messages(image):
            return [dict(role=role, content=parts_of(contents, image)) for role, contents in told]

        text = family.tokenizer.apply_chat_template(
            messages(lambda _: dict(type="image")), tokenize=False, add_generation_prompt=True)
        made = family.processor(text=text, images=images, add_special_tokens=False,
                                return_tensors="pt")
        answer = model.generate(**made, do_sample=False, max_new_tokens=8, eos_token_id=-1,
                                pad_token_id=0)[0]
        ids = made["input_ids"][0]
        answer = answer[len(ids):].tolist()
        records.append(dict(
            messages=messages(lambda name: dict(type="image", file=name)), ids=ids.tolist(),
            answer_ids=answer,
            answer=family.tokenizer.decode(answer, skip_special_tokens=True),
        ))
    write_json(os.path.join(folder, "conversation.json"), records)


def record(name, tiny, root):
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    family = FAMILIES[tiny["family"]](tiny)
    model = family.model()
    randomise(model, torch.Generator().manual_seed(tiny["seed"]))
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    model = type(model).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    family.tokenizer.save_pretrained(folder)
    own = family.own
    if tiny["old"]:
        write_json(os.path.join(folder, "preprocessor_config.json"), family.fields)
    else:
        own = dict(own, image_processor=family.fields)
    write_json(os.path.join(folder, "processor_config.json"), own)
    expected = {}
    with torch.no_grad():
        for i, (width, height) in enumerate(SIZES):
            rgb = picture(width, height)
            made = family.processor(text=family.text, images=[Image.fromarray(rgb.numpy())],
                                    add_special_tokens=False, return_tensors="pt")
            kept = family.side // family.patch * family.patch
            tiles = family.tiles(made)
            expected[f"image.{i}"] = rgb
            expected[f"rows.{i}"] = torch.cat(
                [patches(tile[:, :kept, :kept], family.patch) for tile in tiles])
            expected[f"features.{i}"] = family.features(model, made).clone()
        images = [Image.fromarray(picture(*SIZES[i]).numpy()) for i in tiny["prompt"]]
        text = "a b" + "".join(f"{family.text} {i}" for i in range(len(images)))
        made = family.processor(text=text, images=images, add_special_tokens=False,
                                return_tensors="pt")
        prompt = made["input_ids"][0]
        logits = model(**made).logits[0]
        converse(family, model, folder, os.path.join(root, "..", "images", "files"))
    expected["prompt"] = prompt.to(torch.int32)
    expected["images"] = torch.tensor(tiny["prompt"], dtype=torch.int32)
    expected["logits"] = logits.contiguous()
    safetensors.torch.save_file(expected, os.path.join(folder, "expected.safetensors"))
    largest = max(float(expected[f"features.{i}"].abs().max()) for i in range(len(SIZES)))
    print(f"{name}: {len(prompt)} tokens, |features| up to {largest:.2f}, "
          f"|logits| up to {float(logits.abs().max()):.2f}")


def layout(options, width, height):
    """The size that an image is resized to, its tiles down and across, and its rows."""
    tile = options["tile"]
    if options["family"] == "internvl":
        across, down = got_ocr2.get_optimal_tiled_canvas(
            (height, width), (tile, tile), options["low"], options["high"])
        return dict(width=across * tile, height=down * tile, down=down, across=across)
    high, wide = select_best_resolution((height, width), options["grids"])
    image = torch.empty(3, height, width, dtype=torch.uint8, device="meta")
    resized = get_patch_output_size(image, (high, wide), ChannelDimension.FIRST)
    side = tile // options["patch"]
    if options["family"] == "llava_next":
        unpadded = LlavaNextProcessor._get_unpadded_features(
            None, height, width, side, side, high // tile, wide // tile)
    else:
        class Processor:
            vision_aspect_ratio = f"anyres_max_{options['most']}"
        unpadded = LlavaOnevisionProcessor._get_unpadded_features(
            Processor, height, width, side, side, high // tile, wide // tile)
    return dict(width=resized[1], height=resized[0], down=high // tile, across=wide // tile,
                rows=sum(unpadded) + side * side)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.join(here, "..", "fixtures", "image_towers")
    root = sys.argv[1] if len(sys.argv) > 1 else root
    torch.set_num_threads(1)
    for name, tiny in MODELS.items():
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            record(name, tiny, root)
    records = [dict({k: v for k, v in options.items() if k != "grids"}, case=i,
                    size=size, **layout(options, *size))
               for i, options in enumerate(LAYOUTS) for size in LAYOUT_SIZES]
    with open(os.path.join(root, "layouts_cut.json"), "w") as file:
        lines = ",\n ".join(json.dumps(record) for record in records)
        file.write(f"[{lines}]\n")


if __name__ == "__main__":
    main()
