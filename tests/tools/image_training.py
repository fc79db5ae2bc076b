"""What transformers and PEFT make of chats with images that `jige train` has learned from.

    python tests/tools/image_training.py CHATS MODEL RUN LORA_RUN [MODEL RUN LORA_RUN...]

CHATS is JSONL of {"messages": …} whose images are files beside it. RUN has learned all weights of
the language model of MODEL in STEPS steps of all chats each, LORA_RUN an adapter in one. Tokens and
pixels are those of the folder's own processor. Prints a line of JSON for each model:

    tokens, learned   of all chats: inputs, and those of them that are learned
    losses            before each of STEPS steps of AdamW on the same, and behind the last
    weights           the largest distance of a weight in RUN/model from those behind the last step
    compared          of the weights that were learned, the part that was
    frozen            whether all that reads images is in RUN/model bit for bit
    lora_losses       before and behind a step on the adapter of LORA_RUN as it began, B being zero
    lora_weights      the largest distance of its B behind it

Distances count where rows or columns have no gradients, and where these are above CLEAR: AdamW
makes a whole step of the smallest, to the side that rounding chose. RATE, DECAY and the adapter's
step without decay are what the test asks of `jige train`
(tests/integration/image_training_test.cc).
"""

import json
import os
import sys

import peft
import torch
import transformers
from PIL import Image
from transformers import (
    AutoImageProcessor,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
)

import gemma4_unified

STEPS, RATE, DECAY, CLEAR = 2, 1e-3, 1.0, 1e-4
# Folders without a processor_config.json that names their class.
PROCESSORS = dict(qwen2_vl="Qwen2VLProcessor", qwen2_5_vl="Qwen2_5_VLProcessor",
                  qwen3_vl="Qwen3VLProcessor", qwen3_vl_moe="Qwen3VLProcessor",
                  qwen3_5="Qwen3VLProcessor", qwen3_5_moe="Qwen3VLProcessor")


def rows_first(resize):
    """Pillow 12's order; Pillow 13 may begin with columns, which rounds other bytes."""
    def in_two(self, size, resample=None, box=None, reducing_gap=None):
        assert box is None and reducing_gap is None
        return resize(resize(self, (size[0], self.height), resample), size, resample)
    return in_two


def read_json(path):
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return json.load(file)


def load_processor(folder):
    own = read_json(os.path.join(folder, "processor_config.json"))
    kind = read_json(os.path.join(folder, "config.json"))["model_type"]
    name = PROCESSORS.get(kind) or own["processor_class"]
    # Without its check it needs no processor of videos.
    made = type(name, (getattr(transformers, name),),
                dict(check_argument_for_proper_class=lambda *_: None))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    told = {k: v for k, v in own.items() if k not in ("processor_class", "image_processor")}
    if name in ("Gemma4Processor", "Gemma4UnifiedProcessor"):
        told.update(feature_extractor=None, video_processor=None)  # of sounds and videos
        models = transformers.models
        pixels = (gemma4_unified.pixels if "Unified" in name
                  else models.gemma4.image_processing_pil_gemma4)
        pixels._SUPPORTED_SOFT_TOKENS = (own["image_seq_length"],)  # others than published
    backend = "torchvision" if "Unified" in name else "pil"
    return made(image_processor=AutoImageProcessor.from_pretrained(folder, backend=backend),
                tokenizer=tokenizer, chat_template=tokenizer.chat_template, **told)


class Encoder:
    def __init__(self, folder, pictures):
        self.processor = load_processor(folder)
        self.pictures = pictures
        # Templates that know no content but lists of parts.
        self.lists = "is string" not in self.processor.chat_template
        self.nested = "Idefics3" in type(self.processor).__name__

    def parts(self, content):
        if isinstance(content, str):
            return [dict(type="text", text=content)] if self.lists else content
        return content

    def encode(self, messages, prompt=False):
        told = [dict(m, content=self.parts(m["content"])) for m in messages]
        text = self.processor.apply_chat_template(told, tokenize=False,
                                                  add_generation_prompt=prompt)
        files = [part["image"] for m in messages if isinstance(m["content"], list)
                 for part in m["content"] if part["type"] == "image"]
        images = [transformers.image_utils.load_image(os.path.join(self.pictures, file))
                  for file in files]
        given = dict(images=[images] if self.nested else images) if images else {}
        return self.processor(text=[text], add_special_tokens=False, return_tensors="pt", **given)

    def document(self, messages):
        """What the model takes, and which ids are learned: answers with what ends them, but for
        white space at the very end."""
        whole = self.encode(messages)
        ids = whole["input_ids"][0]
        learned = torch.zeros(len(ids), dtype=torch.bool)
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            begin = self.encode(messages[:i], prompt=True)["input_ids"][0]
            end = self.encode(messages[:i + 1])["input_ids"][0]
            for part in (begin, end):
                assert torch.equal(ids[:len(part)], part), "a part of the chat has other tokens"
            last = len(end)
            while not self.processor.tokenizer.decode([int(ids[last - 1])]).strip():
                last -= 1
            learned[len(begin):last] = True
        return whole, learned


def mean_loss(model, documents):
    total, count = 0, 0
    for given, learned in documents:
        ids = given["input_ids"][0]
        logits = model(**given).logits[0, :-1]
        losses = torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")
        total = total + (losses * learned[1:]).sum()
        count += int(learned[1:].sum())
    return total / count


def nothing_of(grad):
    """Where a whole row or column has no gradient. Single zeros may be what rounding left: of
    GELU's tanh PyTorch has none where it is below 6e-8, and AdamW makes a step of less."""
    none = grad == 0
    return none if grad.dim() < 2 else none.all(-1, keepdim=True) | none.all(0, keepdim=True)


def learn(model, documents, params, steps, decay):
    """Losses before and behind the steps, and where all gradients were none, or were clear."""
    groups = [dict(params=[p for p in params.values() if p.dim() >= 2], weight_decay=decay),
              dict(params=[p for p in params.values() if p.dim() < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=RATE, betas=(0.9, 0.95),
                                  eps=1e-8)
    losses = []
    clear = {name: torch.ones_like(p, dtype=torch.bool) for name, p in params.items()}
    for _ in range(steps):
        optimizer.zero_grad()
        loss = mean_loss(model, documents)
        loss.backward()
        losses.append(float(loss.detach()))
        for name, p in params.items():
            clear[name] &= (p.grad.abs() > CLEAR) | nothing_of(p.grad)
        optimizer.step()
    with torch.no_grad():
        losses.append(float(mean_loss(model, documents)))
    return losses, clear


def load(folder):
    kind = read_json(os.path.join(folder, "config.json"))["architectures"][0]
    loader = AutoModelForCausalLM if kind.endswith("CausalLM") else AutoModelForImageTextToText
    model = loader.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval().requires_grad_(False)


def is_language(name):
    return "language_model" in name or "text_model" in name or name.startswith("lm_head")


def learn_all(folder, run, documents):
    model = load(folder)
    params = dict(model.named_parameters())
    trained = {n: p.requires_grad_(True) for n, p in params.items() if is_language(n)}
    losses, clear = learn(model, documents, trained, STEPS, DECAY)
    exported = dict(load(os.path.join(run, "model")).named_parameters())
    alone = not any("language_model" in n or "text_model" in n for n in exported)
    distance, compared = {}, 0
    for name, p in trained.items():
        other = exported[name.replace("language_model.", "") if alone else name]
        distance[name] = float(((p.detach() - other).abs() * clear[name]).max())
        compared += int(clear[name].sum())
    worst = max(distance, key=distance.get)
    frozen = [n for n in params if n not in trained]
    return dict(losses=losses, weights=distance[worst], worst=worst,
                compared=compared / sum(p.numel() for p in trained.values()),
                frozen=bool(frozen) and all(n in exported and torch.equal(params[n], exported[n])
                                            for n in frozen),
                language_alone=alone)


def learn_adapter(folder, run, documents):
    model = peft.PeftModel.from_pretrained(load(folder), os.path.join(run, "adapter"),
                                           is_trainable=True).eval()
    adapters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    expected = {n: p.detach().clone() for n, p in adapters.items()}
    for name, p in adapters.items():
        if "lora_B" in name:
            p.data.zero_()
    losses, clear = learn(model, documents, adapters, 1, 0.0)
    distance = max(float(((p.detach() - expected[n]).abs() * clear[n]).max())
                   for n, p in adapters.items())
    return dict(lora_losses=losses, lora_weights=distance)


def main():
    torch.set_num_threads(1)
    Image.Image.resize = rows_first(Image.Image.resize)
    gemma4_unified.resize_by_pillow()
    gemma4_unified.see_as_generating()
    chats, *folders = sys.argv[1:]
    with open(chats) as file:
        messages = [json.loads(line)["messages"] for line in file]
    for model, run, lora in zip(*[iter(folders)] * 3):
        encoder = Encoder(model, os.path.dirname(chats))
        documents = [encoder.document(m) for m in messages]
        made = dict(tokens=sum(len(learned) - 1 for _, learned in documents),
                    learned=sum(int(learned[1:].sum()) for _, learned in documents))
        made.update(learn_all(model, run, documents))
        made.update(learn_adapter(model, lora, documents))
        print(json.dumps(made), flush=True)


if __name__ == "__main__":
    main()
