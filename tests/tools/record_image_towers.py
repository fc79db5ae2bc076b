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

and of families whose processor puts text around images a tokenizer with a chat template, and
conversation.json: messages about pictures of tests/fixtures/images/files, the ids that the
processor makes of them, and the likeliest answer.

FOLDER/versions.json names the versions of everything used.
"""

import json
import os
import shutil
import string
import sys

import PIL
import safetensors
import safetensors.torch
import torch
import torchvision
import transformers
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3Processor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    PreTrainedTokenizerFast,
)
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

from record_models import randomise
from tiny_models.common import COMMON

IMAGE, BREAK, END = 92, 93, 94  # of Gemma 3 BREAK opens an image
# (width, height): as small as there is, a row, a column, more than the longest edge, and sizes that
# are no multiples of anything. Of Gemma 3 they become a square of a size for which Pillow 13, which
# may resize columns first, gives what Pillow 12 does.
SIZES = [(1, 1), (48, 8), (5, 30), (130, 61), (40, 24), (41, 47)]
PROMPT = [3, 0, 4]  # pictures in it

GEMMA_TEXT = dict(COMMON, bos_token_id=2, eos_token_id=1, pad_token_id=0)

MODELS = {
    "mistral3": dict(
        family="pixtral",
        seed=2001,
        text=dict(num_attention_heads=4, num_key_value_heads=2, head_dim=12, model_type="mistral"),
        vision=dict(hidden_size=24, num_attention_heads=2, patch_size=4, hidden_act="gelu",
                    intermediate_size=20, num_hidden_layers=2, image_size=64),
        rest=dict(spatial_merge_size=2),
        longest_edge=64,
        old_processor=True,
    ),
    "mistral3_silu": dict(
        family="pixtral",
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
        family="pixtral",
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
    # Rows of an image are more than the window.
    "gemma3": dict(
        family="gemma3",
        seed=2004,
        tied=True,
        text=dict(GEMMA_TEXT, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                  head_dim=12, sliding_window=9, query_pre_attn_scalar=20,
                  layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
        vision=dict(hidden_size=24, num_attention_heads=2, patch_size=4, image_size=32,
                    intermediate_size=20, num_hidden_layers=2, vision_use_head=False),
        rows=16,
        old_processor=True,
    ),
    # And fewer than it.
    "gemma3_wide": dict(
        family="gemma3",
        seed=2005,
        tied=False,
        text=dict(GEMMA_TEXT, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                  sliding_window=24, tie_word_embeddings=False, query_pre_attn_scalar=16,
                  layer_types=["full_attention", "sliding_attention"]),
        vision=dict(hidden_size=16, num_attention_heads=1, patch_size=2, image_size=30,
                    intermediate_size=24, num_hidden_layers=3, vision_use_head=False,
                    layer_norm_eps=1e-2, hidden_act="gelu"),
        rows=9,
        old_processor=False,
    ),
}


# Line feeds side by side are one token, as in the tokenizers of Gemma.
GEMMA_TEMPLATE = """{{ bos_token }}
{%- for message in messages -%}
    {{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
    {%- if message.content is string -%}
        {{ message.content | trim }}
    {%- else -%}
        {%- for item in message.content -%}
            {%- if item.type == 'image' -%}
                {{ '<start_of_image>' }}
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
CONVERSATION = [
    ("user", ["rgb8.png", "What is it?"]),
    ("assistant", ["A dog. "]),
    ("user", ["And these:", "grey8.png", "rgb8.png"]),
]


GEMMA3_TOKENS = {IMAGE: "<image_soft_token>", BREAK: "<start_of_image>", END: "<end_of_image>"}


def gemma_tokenizer(tokens, template, named):
    """With these tokens of images by their ids, which follow one another, and some by names."""
    controls = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    texts = controls + ["\n" * count for count in range(1, 5)] + ["\u2581"]
    texts += list(string.ascii_lowercase + "?.,!:ADTWISH0123456789<>_")
    merges = [("\n", "\n"), ("\n\n", "\n"), ("\n\n", "\n\n")]
    vocabulary = {text: id for id, text in enumerate(texts)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>",
                                     fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse()])
    unused = [f"<unused{id}>" for id in range(len(texts), IMAGE)]
    for text in controls + unused + list(tokens.values()):
        tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
        unk_token="<unk>", chat_template=template, extra_special_tokens=named,
    )


def parts_of(contents, image):
    """The parts of a message; `image` gives that of a picture."""
    return [
        image(one) if one.endswith(".png") else dict(type="text", text=one) for one in contents
    ]


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


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


class Pixtral:
    """Of Mistral 3 and Pixtral 12B."""

    def __init__(self, tiny):
        self.tiny = tiny
        self.patch = tiny["vision"]["patch_size"]
        self.merge = tiny["rest"].get("spatial_merge_size", 1)
        self.processor = PixtralImageProcessorPil(
            size={"longest_edge": tiny["longest_edge"]},
            patch_size={"height": self.patch, "width": self.patch},
        )

    def model(self):
        config_class, model_class = self.tiny.get(
            "kind", (Mistral3Config, Mistral3ForConditionalGeneration)
        )
        self.config = config_class(
            text_config=dict(COMMON, sliding_window=None, **self.tiny["text"]),
            vision_config=dict(self.tiny["vision"], model_type="pixtral"),
            image_token_index=IMAGE, tie_word_embeddings=False, **self.tiny["rest"],
        )
        return model_class(self.config)

    def write_processor(self, folder):
        own = dict(processor_class="PixtralProcessor", image_token="[IMG]",
                   image_break_token="[IMG_BREAK]", image_end_token="[IMG_END]",
                   patch_size=self.patch, spatial_merge_size=self.merge)
        fields = json.loads(self.processor.to_json_string())
        if self.tiny["old_processor"]:
            write_json(os.path.join(folder, "preprocessor_config.json"), fields)
        else:
            own["image_processor"] = fields
        write_json(os.path.join(folder, "processor_config.json"), own)

    def pixels(self, image):
        """What the processor makes of an image, [3, H, W]."""
        step = self.patch * self.merge
        made = self.processor(image, return_tensors="pt",
                              patch_size={"height": step, "width": step})
        return made["pixel_values"][0]

    def features(self, model, pixels):
        # Twice: of one picture of one row transformers drops a dimension.
        told = dict(vision_feature_layer=self.config.vision_feature_layer)
        if hasattr(self.config, "vision_feature_select_strategy"):
            told["vision_feature_select_strategy"] = self.config.vision_feature_select_strategy
        sizes = torch.tensor([pixels.shape[1:]])
        return model.model.get_image_features(
            pixel_values=pixels[None].repeat(2, 1, 1, 1), image_sizes=sizes.repeat(2, 1), **told
        ).pooler_output[0].clone()

    def tokens(self, pixels):
        step = self.patch * self.merge
        rows, columns = (side // step for side in pixels.shape[1:])
        ids = ([IMAGE] * columns + [BREAK]) * rows
        return ids[:-1] + [END]

    def logits(self, model, prompt, images):
        sizes = [tuple(pixels.shape[1:]) for pixels in images]
        padded = self.processor._pad_for_batching([p.numpy() for p in images], sizes)
        return model(
            input_ids=torch.tensor([prompt]),
            pixel_values=torch.stack([torch.as_tensor(p) for p in padded]),
            image_sizes=torch.tensor(sizes),
        ).logits[0]


class Gemma3:
    def __init__(self, tiny):
        self.tiny = tiny
        self.patch = tiny["vision"]["patch_size"]
        side = tiny["vision"]["image_size"]
        self.processor = Gemma3ImageProcessorPil(size={"height": side, "width": side})

    def model(self):
        self.config = Gemma3Config(
            text_config=self.tiny["text"], vision_config=self.tiny["vision"],
            mm_tokens_per_image=self.tiny["rows"], image_token_index=IMAGE,
            boi_token_index=BREAK, eoi_token_index=END, tie_word_embeddings=self.tiny["tied"],
        )
        return Gemma3ForConditionalGeneration(self.config)

    def write_processor(self, folder):
        own = dict(processor_class="Gemma3Processor", image_seq_length=self.tiny["rows"])
        fields = json.loads(self.processor.to_json_string())
        if self.tiny["old_processor"]:
            write_json(os.path.join(folder, "preprocessor_config.json"), fields)
        else:
            own["image_processor"] = fields
        write_json(os.path.join(folder, "processor_config.json"), own)

    def converse(self, model, folder, pictures):
        tokenizer = gemma_tokenizer(GEMMA3_TOKENS, GEMMA_TEMPLATE, dict(
            boi_token=GEMMA3_TOKENS[BREAK], eoi_token=GEMMA3_TOKENS[END],
            image_token=GEMMA3_TOKENS[IMAGE]))
        tokenizer.save_pretrained(folder)
        processor = Gemma3Processor(self.processor, tokenizer, chat_template=GEMMA_TEMPLATE,
                                    image_seq_length=self.tiny["rows"])
        records = []
        for count in (1, 3):  # of the messages
            told = CONVERSATION[:count]

            def messages(image):
                return [dict(role=role, content=parts_of(contents, image))
                        for role, contents in told]

            made = processor.apply_chat_template(
                messages(lambda name: dict(
                    type="image", image=Image.open(os.path.join(pictures, name)).convert("RGB"))),
                tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt",
            )
            answer = model.generate(**made, do_sample=False, max_new_tokens=8)[0]
            ids = made["input_ids"][0]
            records.append(dict(
                messages=messages(lambda name: dict(type="image", file=name)),
                ids=ids.tolist(), answer_ids=answer[len(ids):].tolist(),
                answer=tokenizer.decode(answer[len(ids):], skip_special_tokens=True),
            ))
        write_json(os.path.join(folder, "conversation.json"), records)

    def pixels(self, image):
        return torch.as_tensor(self.processor(image, return_tensors="pt")["pixel_values"][0])

    def features(self, model, pixels):
        return model.model.get_image_features(pixel_values=pixels[None]).pooler_output[0].clone()

    def tokens(self, _):
        return [BREAK] + [IMAGE] * self.tiny["rows"] + [END]

    def logits(self, model, prompt, images):
        ids = torch.tensor([prompt])
        return model(
            input_ids=ids, pixel_values=torch.stack(images),
            token_type_ids=(ids == IMAGE).long(),
        ).logits[0]


FAMILIES = {"pixtral": Pixtral, "gemma3": Gemma3}


def record(name, tiny, root):
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(tiny["seed"])
    family = FAMILIES[tiny["family"]](tiny)
    model = family.model()
    randomise(model, generator)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    model = type(model).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    family.write_processor(folder)
    expected, prompt, made = {}, [1, 5, 17], []
    with torch.no_grad():
        for i, (width, height) in enumerate(SIZES):
            rgb = picture(width, height)
            made.append(family.pixels(Image.fromarray(rgb.numpy())))
            expected[f"image.{i}"] = rgb
            expected[f"rows.{i}"] = patches(made[i], family.patch)
            expected[f"features.{i}"] = family.features(model, made[i])
        for i in PROMPT:
            prompt += family.tokens(made[i]) + [20 + i]
        logits = family.logits(model, prompt, [made[i] for i in PROMPT])
    expected["prompt"] = torch.tensor(prompt, dtype=torch.int32)
    expected["images"] = torch.tensor(PROMPT, dtype=torch.int32)
    expected["logits"] = logits.contiguous()
    if hasattr(family, "converse"):
        with torch.no_grad():
            family.converse(model, folder, os.path.join(root, "..", "images", "files"))
    safetensors.torch.save_file(expected, os.path.join(folder, "expected.safetensors"))
    largest = max(float(expected[f"features.{i}"].abs().max()) for i in range(len(SIZES)))
    print(f"{name}: {len(prompt)} tokens, |features| up to {largest:.2f}, "
          f"|logits| up to {float(logits.abs().max()):.2f}")


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
