"""Records what PyTorch makes of tiny models that read images when their language model is trained.

    python tests/tools/record_image_training.py [FOLDER [NAME...]]

The default is tests/fixtures/train, all.

Takes models and pictures from tests/fixtures/image_towers/NAME (record_image_towers.py,
record_qwen_towers.py and record_gemma4_towers.py) and writes FOLDER/NAME-images.safetensors, all in float32 with eager
attention, what reads images frozen:

    tokens.D     I32 [T]     of document D, a token of the vocabulary in place of each row
    learned.D    U8  [T]     which of them are learned
    images.D     I32 [N]     its pictures, by their numbers
    losses       F32 [10]    before each step of AdamW, the mean over what is learned of all documents
    norms        F32 [10]    of each step's gradient
    grad.PARAM   F32         of the first step, of some parameters

and the same of an adapter of rank 2 on all linear layers of the language model, which begins as
lora.PARAM says: lora_losses, lora_norms and lora_grad.PARAM, by names of PEFT.
"""

import json
import os
import sys

import peft
import safetensors.torch
import torch
from PIL import Image
from transformers import (
    AutoModelForImageTextToText,
)
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4 import image_processing_pil_gemma4 as gemma4
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from record_gemma4_towers import rows_first

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "fixtures", "image_towers")
NAMES = ("gemma3", "qwen2_5_vl_new", "qwen3_vl", "gemma4", "gemma4_clipped")
ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
STEPS = 10
IMAGE, START, END = 92, 93, 94
LINEAR = "q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj"
# Documents: pictures by their numbers between tokens; what stands behind "answer" is learned, up to
# the next picture.
DOCUMENTS = [
    [[1, 5, 17], 0, [20], 4, [24, 30], "answer", [31, 32, 7, 9]],
    [[1, 40], 2, [41], "answer", [42, 8, 43]],
    [[1, 6, 11, 12], "answer", [13, 14]],
]


class Gemma3:
    def __init__(self, folder):
        self.processor = Gemma3ImageProcessorPil.from_pretrained(folder)

    def read(self, image):
        return torch.as_tensor(self.processor(image, return_tensors="pt")["pixel_values"][0])

    def tokens(self, model, _):
        return [START] + [IMAGE] * model.config.mm_tokens_per_image + [END]

    def inputs(self, ids, read):
        told = dict(token_type_ids=(ids == IMAGE).long())
        if read:
            told["pixel_values"] = torch.stack(read)
        return told


class Gemma4:
    def __init__(self, folder):
        with open(os.path.join(folder, "processor_config.json")) as file:
            rows = json.load(file)["image_seq_length"]
        gemma4._SUPPORTED_SOFT_TOKENS = (rows,)
        self.processor = gemma4.Gemma4ImageProcessorPil.from_pretrained(folder)

    def read(self, image):
        made = self.processor(image, return_tensors="pt")
        return made["pixel_values"], made["image_position_ids"]

    def tokens(self, model, read):
        patches = int((read[1][0] >= 0).all(-1).sum())
        count = patches // model.config.vision_config.pooling_kernel_size ** 2
        return [START] + [IMAGE] * count + [END]

    def inputs(self, ids, read):
        told = dict(mm_token_type_ids=(ids == IMAGE).long())
        if read:
            told["pixel_values"] = torch.cat([pixels for pixels, _ in read])
            told["image_position_ids"] = torch.cat([places for _, places in read])
        return told


class Qwen:
    def __init__(self, folder):
        self.processor = Qwen2VLImageProcessorPil.from_pretrained(folder)

    def read(self, image):
        made = self.processor(image, return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"]

    def tokens(self, _, read):
        count = int(read[1].prod()) // self.processor.merge_size ** 2
        return [START] + [IMAGE] * count + [END]

    def inputs(self, ids, read):
        told = dict(mm_token_type_ids=(ids == IMAGE).long())
        if read:
            told["pixel_values"] = torch.cat([pixels for pixels, _ in read])
            told["image_grid_thw"] = torch.cat([grid for _, grid in read])
        return told


def documents(model, family, pictures):
    made = []
    for document in DOCUMENTS:
        ids, learned, images, read, learns = [], [], [], [], 0
        for part in document:
            if part == "answer":
                learns = 1
                continue
            if isinstance(part, int):
                images.append(part)
                read.append(family.read(pictures[part]))
                part, learns = family.tokens(model, read[-1]), 0
            ids += part
            learned += [learns] * len(part)
        made.append((torch.tensor([ids]), torch.tensor(learned), images, read))
    return made


def mean_loss(model, family, made):
    total, count = 0, 0
    for ids, learned, _, read in made:
        logits = model(input_ids=ids, **family.inputs(ids, read)).logits[0, :-1]
        losses = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
        total = total + (losses * learned[1:]).sum()
        count += int(learned[1:].sum())
    return total / count


def train(model, family, made, params):
    """Losses and norms of the steps, and the first gradients."""
    groups = [{"params": [p for p in params.values() if p.dim() >= 2]},
              {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **ADAMW)
    losses, norms, first = [], [], {}
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(model, family, made)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(params.values()), float("inf"))))
        losses.append(float(loss.detach()))
        first = first or {name: p.grad.clone() for name, p in params.items()}
        optimizer.step()
    return torch.tensor(losses), torch.tensor(norms), first


def load(folder):
    model = AutoModelForImageTextToText.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    return model.requires_grad_(False)


def record(name, root):
    folder = os.path.join(MODELS, name)
    family = {"gemma3": Gemma3, "gemma4": Gemma4}.get(name[:6], Qwen)(folder)
    stored = safetensors.torch.load_file(os.path.join(folder, "expected.safetensors"))
    pictures = [Image.fromarray(stored[f"image.{i}"].numpy()) for i in range(6)]
    model = load(folder)
    made = documents(model, family, pictures)
    tensors = {}
    for i, (ids, learned, images, _) in enumerate(made):
        tensors[f"tokens.{i}"] = ids[0].to(torch.int32)
        tensors[f"learned.{i}"] = learned.to(torch.uint8)
        tensors[f"images.{i}"] = torch.tensor(images, dtype=torch.int32)
    trained = {n: p.requires_grad_(True) for n, p in model.named_parameters()
               if "language_model" in n or n.startswith("lm_head")}
    tensors["losses"], tensors["norms"], grads = train(model, family, made, trained)
    shown = ("embed_tokens", "layers.0.self_attn", "layers.0.input_layernorm",
             "layers.1.mlp.down_proj", "layers.1.self_attn.k_proj")
    tensors.update({f"grad.{n}": g for n, g in grads.items() if any(s in n for s in shown)})

    config = peft.LoraConfig(r=2, lora_alpha=4,
                             target_modules=rf".*language_model.*\.({LINEAR})")
    adapted = peft.get_peft_model(load(folder), config)
    generator = torch.Generator().manual_seed(7)
    adapters = {n: p for n, p in adapted.named_parameters() if "lora_" in n}
    for n, p in adapters.items():
        p.data.copy_(0.1 * torch.randn(p.shape, generator=generator))
        tensors["lora." + n.replace(".default", "")] = p.detach().clone()
    tensors["lora_losses"], tensors["lora_norms"], grads = train(adapted, family, made, adapters)
    for n, g in grads.items():
        if "layers.0" in n:
            tensors["lora_grad." + n.replace(".default", "")] = g
    path = os.path.join(root, f"{name}-images.safetensors")
    safetensors.torch.save_file({n: t.contiguous() for n, t in tensors.items()}, path)
    os.chmod(path, 0o644)
    print(path, os.path.getsize(path), tensors["losses"].tolist()[::9],
          tensors["lora_losses"].tolist()[::9])


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "fixtures", "train")
    torch.set_num_threads(1)
    rows_first()
    for name in NAMES:
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            record(name, root)


if __name__ == "__main__":
    main()
