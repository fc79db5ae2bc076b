"""Records tiny random models of Idefics3 and SmolVLM, as record_image_towers.py does others.

    python tests/tools/record_idefics3_towers.py [FOLDER [NAME...]]

The default is tests/fixtures/image_towers, all. Writes the files that record_image_towers.py names,
where rows.I and features.I are those of all tiles of a picture one behind the other, and with them

    whole.I      F32 [rows, width]        features of a picture that is not cut into tiles

    NAME/sizes.json       the ids that the processor makes of messages about pictures of some sizes
    layouts_idefics3.json what becomes of pictures of some sizes by image processors as published
"""

import json
import os
import shutil
import string
import sys

import numpy
import safetensors.torch
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
    PreTrainedTokenizerFast,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.idefics3 import image_processing_pil_idefics3 as idefics3
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

from record_image_towers import CONVERSATION, SIZES, parts_of, patches, picture, write_json
from record_models import randomise
from tiny_models.common import COMMON

FAKE, IMAGE, END = "<fake_token_around_image>", "<image>", "<end_of_utterance>"
GLOBAL = "<global-img>"
VOCAB = 128
# Of tiles of 16: smaller than one, wide, tall, exactly one and four, large.
PROMPT_SIZES = [(3, 5), (90, 11), (7, 60), (16, 16), (32, 32), (250, 170)]

MODELS = {
    # Places of tiles are text, pixels beside the last patch are left out, a tile is one row.
    "idefics3": dict(
        seed=2201,
        kind=(Idefics3Config, Idefics3ForConditionalGeneration),
        processor=idefics3.Idefics3ImageProcessorPil,
        text=dict(num_attention_heads=4, num_key_value_heads=2),
        vision=dict(hidden_size=24, num_attention_heads=2, patch_size=4, intermediate_size=20,
                    num_hidden_layers=2, image_size=18),
        scale=4, tile=18, longest=36, prompt=[3, 4], places=0, old=True,
    ),
    # They are tokens, and there are more learned positions than patches.
    "smolvlm": dict(
        seed=2202,
        kind=(SmolVLMConfig, SmolVLMForConditionalGeneration),
        processor=SmolVLMImageProcessorPil,
        text=dict(num_attention_heads=4, num_key_value_heads=2, head_dim=12),
        vision=dict(hidden_size=16, num_attention_heads=1, patch_size=4, intermediate_size=24,
                    num_hidden_layers=3, image_size=24, layer_norm_eps=1e-2, hidden_act="gelu"),
        scale=2, tile=16, longest=32, prompt=[3, 0, 4], places=2, old=False,
    ),
}
# As published: edges of images and of tiles; and edges that are odd or larger than there may be.
PROCESSORS = [
    dict(longest=2048, tile=512), dict(longest=1536, tile=384), dict(longest=1456, tile=364),
    dict(longest=512, tile=512), dict(longest=33, tile=11), dict(longest=5001, tile=700),
    dict(longest=2048, tile=512, split=False),
]
LAYOUT_SIZES = [
    (1, 1), (512, 512), (513, 512), (512, 513), (2048, 2048), (2049, 1000), (4000, 3000),
    (3000, 4000), (640, 480), (480, 640), (65000, 1), (1, 65000), (100, 7), (7, 100), (1920, 1080),
    (1023, 1024), (333, 1000), (997, 331),
]

# As published.
TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def make_tokenizer(places):
    """Of bytes, with tokens for the places of places x places tiles; 0: they are text."""
    controls = ["<|endoftext|>", "<|im_start|>"]
    texts = controls + ["\u010a", "\u010a\u010a", "\u0120"]
    texts += list(string.ascii_letters + "?.,!:0123456789<>_-")
    merges = [("\u010a", "\u010a")]
    for word in ["<row_", "_col_", "global"]:
        for end in range(2, len(word) + 1):
            merges.append((word[:end - 1], word[end - 1]))
            texts.append(word[:end])
    vocabulary = {text: id for id, text in enumerate(texts)}
    assert len(vocabulary) == len(texts)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tags = [FAKE, IMAGE, END]
    if places:
        tags += [GLOBAL]
        tags += [f"<row_{r + 1}_col_{c + 1}>" for r in range(places) for c in range(places)]
    for text in controls + tags:
        tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True)])
    assert tokenizer.get_vocab_size() <= VOCAB, tokenizer.get_vocab_size()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token=END,
        pad_token="<|endoftext|>", chat_template=TEMPLATE,
    )


def rows_first(processor):
    """The processor, resizing rows before columns as Pillow 12 does; Pillow 13 may begin with
    columns, which rounds other bytes."""
    resize = processor.resize

    def in_two(image, size, **options):
        if size.longest_edge:
            high, wide = idefics3.get_resize_output_image_size(image, size.longest_edge)
        else:
            high, wide = size.height, size.width
        between = idefics3.SizeDict(height=image.shape[1], width=wide)
        image = resize(image, between, **options)
        return resize(image, idefics3.SizeDict(height=high, width=wide), **options)

    processor.resize = in_two
    return processor


class Recorder:
    def __init__(self, tiny):
        self.tiny = tiny
        vision = tiny["vision"]
        self.patch = vision["patch_size"]
        self.side = tiny["tile"] // self.patch  # of a tile in patches
        self.rows = (self.side // tiny["scale"]) ** 2
        self.tokenizer = make_tokenizer(tiny["places"])
        self.image_id = self.tokenizer.convert_tokens_to_ids(IMAGE)
        processor = tiny["processor"](size={"longest_edge": tiny["longest"]},
                                      max_image_size={"longest_edge": tiny["tile"]})
        self.fields = json.loads(processor.to_json_string())
        self.processor = rows_first(processor)

    def model(self):
        config_class, model_class = self.tiny["kind"]
        config = config_class(
            text_config=dict(COMMON, **dict(self.tiny["text"], vocab_size=VOCAB, model_type="llama",
                                            max_position_embeddings=512)),
            vision_config=self.tiny["vision"], scale_factor=self.tiny["scale"],
            image_token_id=self.image_id, tie_word_embeddings=False,
        )
        return model_class(config)

    def made_of(self, images, **options):
        """Pixels of the tiles [N, 3, S, S] and the numbers of tiles down and across of images."""
        made = self.processor([images], return_tensors="pt", return_row_col_info=True, **options)
        return made["pixel_values"][0], list(zip(made["rows"][0], made["cols"][0]))

    def rows_of(self, tiles):
        kept = self.side * self.patch
        return torch.cat([patches(tile[:, :kept, :kept], self.patch) for tile in tiles])

    def features(self, model, tiles):
        return model.model.get_image_features(tiles[None]).pooler_output[0].clone()

    def text_of(self, down, across):
        return get_image_prompt_string(down, across, self.rows, FAKE, IMAGE, GLOBAL)

    def ids_of(self, messages, grids):
        """With the texts of images in place of their tokens, as the processors have them."""
        text = self.tokenizer.apply_chat_template(messages, tokenize=False,
                                                  add_generation_prompt=True)
        parts = text.split(IMAGE)
        assert len(parts) == len(grids) + 1
        whole = parts[0]
        for grid, part in zip(grids, parts[1:]):
            whole += self.text_of(*grid) + part
        return self.tokenizer(whole, add_special_tokens=False)["input_ids"]

    def check_ids(self, messages, images, ids):
        """That Idefics3's own processor, as it is, makes the same."""
        processor = Idefics3Processor(self.processor, self.tokenizer, image_seq_len=self.rows,
                                      chat_template=TEMPLATE)
        text = processor.apply_chat_template(messages, add_generation_prompt=True)
        made = processor(text=text, images=[images], add_special_tokens=False)
        assert made["input_ids"][0] == ids, (made["input_ids"][0], ids)

    def write_processor(self, folder):
        own = dict(processor_class="Idefics3Processor", image_seq_len=self.rows)
        if self.tiny["old"]:
            write_json(os.path.join(folder, "preprocessor_config.json"), self.fields)
        else:
            own["image_processor"] = self.fields
        write_json(os.path.join(folder, "processor_config.json"), own)

    def converse(self, model, folder, pictures):
        records = []
        for count in (1, 3):  # of the messages
            told = CONVERSATION[:count]
            files = [one for _, contents in told for one in contents if one.endswith(".png")]
            images = [Image.open(os.path.join(pictures, file)).convert("RGB") for file in files]

            def messages(image):
                return [dict(role=role, content=parts_of(contents, image))
                        for role, contents in told]

            tiles, grids = self.made_of(images)
            ids = self.ids_of(messages(lambda _: dict(type="image")), grids)
            self.check_ids(messages(lambda _: dict(type="image")), images, ids)
            answer = model.generate(input_ids=torch.tensor([ids]), pixel_values=tiles[None],
                                    attention_mask=torch.ones(1, len(ids)), do_sample=False,
                                    max_new_tokens=8, eos_token_id=-1, pad_token_id=0)[0]
            answer = answer[len(ids):].tolist()
            records.append(dict(
                messages=messages(lambda name: dict(type="image", file=name)), ids=ids,
                answer_ids=answer, answer=self.tokenizer.decode(answer, skip_special_tokens=True),
            ))
        write_json(os.path.join(folder, "conversation.json"), records)

    def write_sizes(self, folder):
        records = []
        for sizes in [[size] for size in PROMPT_SIZES] + [PROMPT_SIZES[:3]]:
            images = [Image.fromarray(picture(*size).numpy()) for size in sizes]
            content = [dict(type="text", text="See")] + [dict(type="image") for _ in sizes]
            messages = [dict(role="user", content=content + [dict(type="text", text=" this?")])]
            ids = self.ids_of(messages, self.made_of(images)[1])
            self.check_ids(messages, images, ids)
            records.append(dict(sizes=sizes, messages=messages, ids=ids))
        with open(os.path.join(folder, "sizes.json"), "w") as file:
            lines = ",\n ".join(json.dumps(record) for record in records)
            file.write(f"[{lines}]\n")


def record(name, tiny, root):
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    recorder = Recorder(tiny)
    model = recorder.model()
    randomise(model, torch.Generator().manual_seed(tiny["seed"]))
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    model = type(model).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    recorder.tokenizer.save_pretrained(folder)
    recorder.write_processor(folder)
    expected, prompt, made = {}, [1, 5, 17], []
    with torch.no_grad():
        for i, (width, height) in enumerate(SIZES):
            rgb = picture(width, height)
            image = Image.fromarray(rgb.numpy())
            tiles, grids = recorder.made_of([image])
            made.append((tiles, grids[0]))
            expected[f"image.{i}"] = rgb
            expected[f"rows.{i}"] = recorder.rows_of(tiles)
            expected[f"features.{i}"] = recorder.features(model, tiles)
            whole, _ = recorder.made_of([image], do_image_splitting=False)
            expected[f"whole.{i}"] = recorder.features(model, whole)
        for i in tiny["prompt"]:
            text = recorder.text_of(*made[i][1])
            prompt += recorder.tokenizer(text, add_special_tokens=False)["input_ids"] + [20 + i]
        logits = model(input_ids=torch.tensor([prompt]),
                       pixel_values=torch.cat([made[i][0] for i in tiny["prompt"]])[None]).logits[0]
        recorder.converse(model, folder, os.path.join(root, "..", "images", "files"))
    recorder.write_sizes(folder)
    expected["prompt"] = torch.tensor(prompt, dtype=torch.int32)
    expected["images"] = torch.tensor(tiny["prompt"], dtype=torch.int32)
    expected["logits"] = logits.contiguous()
    safetensors.torch.save_file(expected, os.path.join(folder, "expected.safetensors"))
    largest = max(float(expected[f"features.{i}"].abs().max()) for i in range(len(SIZES)))
    print(f"{name}: {len(prompt)} tokens, |features| up to {largest:.2f}, "
          f"|logits| up to {float(logits.abs().max()):.2f}")


def layout(options, width, height):
    """The sizes that an image has one after the other, and its tiles down and across."""
    sizes = [(width, height)]

    class Processor(idefics3.Idefics3ImageProcessorPil):
        def resize(self, image, size, **_):
            if size.longest_edge:
                high, wide = idefics3.get_resize_output_image_size(image, size.longest_edge)
            else:
                high, wide = size.height, size.width
            sizes.append((wide, high))
            return numpy.broadcast_to(numpy.uint8(0), (3, high, wide))

    processor = Processor()
    image = numpy.broadcast_to(numpy.uint8(0), (3, height, width))
    edges = dict(longest_edge=options["tile"])
    image = processor.resize(image, idefics3.SizeDict(longest_edge=options["longest"]))
    if not options.get("split", True):
        processor.resize(image, idefics3.SizeDict(height=options["tile"], width=options["tile"]))
        return dict(sizes=sizes, down=0, across=0)
    image = processor.resize_for_vision_encoder(image, options["tile"])
    _, down, across = processor.split_images(image, edges)
    return dict(sizes=sizes[:3], down=down, across=across)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.join(here, "..", "fixtures", "image_towers")
    root = sys.argv[1] if len(sys.argv) > 1 else root
    torch.set_num_threads(1)
    for name, tiny in MODELS.items():
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            record(name, tiny, root)
    records = [dict(options, **layout(options, *size))
               for options in PROCESSORS for size in LAYOUT_SIZES]
    with open(os.path.join(root, "layouts_idefics3.json"), "w") as file:
        lines = ",\n ".join(json.dumps(record) for record in records)
        file.write(f"[{lines}]\n")


if __name__ == "__main__":
    main()
