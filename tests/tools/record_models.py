"""Records tiny random models of every family (tiny_models/) with what transformers and PyTorch make
of them.

    python tests/tools/record_models.py [FOLDER [NAME...]]        default: tests/fixtures/model, all

Writes, for every family, FOLDER/NAME/ as transformers saves it (config.json, safetensors) and
FOLDER/NAME/expected.safetensors:

    tokens   I32 [T]     one sequence
    logits   F32 [T, V]  of the model run in float32 with eager attention

for most also FOLDER/NAME/gradients.safetensors, the gradient of the mean loss of a few sequences in
float32 under the names that parameters have in files (stored_names.py), with

    tokens   I32 [T]     the sequences one behind the other
    lengths  I32 [S]     their lengths; the last token of each is a target only
    loss     F32 [1]

and for some FOLDER/NAME/training.json: ten AdamW steps (weight decay on matrices only) with the
loss before each step and the norm of its gradient, without and with clipping. FOLDER/versions.json
names the versions of everything used.
"""

import json
import os
import shutil
import sys

import numpy
import safetensors
import safetensors.torch
import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from stored_names import as_stored
from tiny_models import MODELS
from tiny_models.common import VOCAB
from tiny_models.published import PUBLISHED

TOKENS = 44
# What is added to the scores of experts for their choice alone.
CHOICE_BIASES = ("e_score_correction_bias", "expert_bias")
LENGTHS = (18, 3, 27)
OPTIMIZER = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
STEPS = 10
CLIP_NORM = 0.5


def randomise(model, generator):
    """Values large enough that every part of the model shows in its logits."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = "norm" in name or ".ln_" in name
            if is_norm and name.endswith("weight"):
                kind = model.config.model_type
                adds_one = kind == "nemotron" or kind.startswith(
                    ("gemma", "vaultgemma", "qwen3_5", "qwen3_n")
                )
                adds_one = adds_one and not kind.startswith(("gemma4", "gemma3n"))
                adds_one = adds_one and "linear_attn" not in name
                parameter.copy_((0.0 if adds_one else 1.0) + 0.2 * noise)
            elif name.endswith("bias") or name.endswith("sinks"):
                parameter.copy_(0.2 * noise)
            elif model.config.model_type == "olmo_hybrid" and "linear_attn.v_proj" in name:
                parameter.copy_(0.05 * noise)  # whose norm has an epsilon of its own
            elif name.endswith("modality_router.weight"):
                parameter.copy_(3.0 * noise)  # of which it sees the width's part
            elif "router." in name and name.endswith("scale"):
                parameter.copy_(1.0 + 0.2 * noise)
            elif name.endswith("router.proj.weight"):
                parameter.copy_(2.0 * noise)  # of which it sees a root of the width
            elif parameter.shape[0] == VOCAB:
                parameter.copy_(0.5 * noise)
            else:
                parameter.copy_(0.25 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith(CHOICE_BIASES):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith("layer_scalar"):
                buffer.copy_(0.7 + 0.1 * torch.randn(buffer.shape, generator=generator))


def draw_tokens(count, generator):
    return torch.randint(0, VOCAB, (count,), generator=generator, dtype=torch.int64)


def load(folder):
    with_images = "_images" in os.path.basename(folder)
    kind = "AutoModelForImageTextToText" if with_images else "AutoModelForCausalLM"
    if os.path.basename(folder).startswith("mistral4"):
        kind = "Mistral4ForCausalLM"  # which the other does not know
    return getattr(transformers, kind).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )


def mean_loss(model, tokens, lengths):
    """The mean over all targets of sequences that do not see each other."""
    total, count, begin = 0.0, 0, 0
    for length in lengths:
        ids = tokens[begin : begin + length]
        logits = model(ids[None]).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="sum")
        count += length - 1
        begin += length
    return total / count


def quantise_experts(folder, generator):
    """Puts random MXFP4 blocks in the place of the experts; returns what they stand for."""
    path = os.path.join(folder, "model.safetensors")
    tensors = safetensors.torch.load_file(path)
    values = {}
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        blocks = torch.randint(
            0, 256, (experts, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8
        )
        scales = torch.randint(
            121, 125, (experts, outputs, inputs // 32), generator=generator, dtype=torch.uint8
        )
        tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
        values[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    config_path = os.path.join(folder, "config.json")
    with open(config_path) as file:
        config = json.load(file)
    config.pop("dtype", None)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    with open(config_path, "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    return values


def record_gradients(folder, generator):
    model = load(folder)
    tokens = draw_tokens(sum(LENGTHS), generator)
    loss = mean_loss(model, tokens, LENGTHS)
    loss.backward()
    trained = [one for one in model.named_parameters() if not one[0].endswith(CHOICE_BIASES)]
    # Of one that files have and nothing reads there is none.
    gradients = {name: p.grad for name, p in trained if p.grad is not None}
    tensors = as_stored(model, gradients)
    tensors["tokens"] = tokens.to(torch.int32)
    tensors["lengths"] = torch.tensor(LENGTHS, dtype=torch.int32)
    tensors["loss"] = loss.detach().reshape(1)
    safetensors.torch.save_file(tensors, os.path.join(folder, "gradients.safetensors"))


def train(folder, batches, clip_norm):
    model = load(folder)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **OPTIMIZER)
    losses, norms = [], []
    for tokens in batches:
        optimizer.zero_grad()
        loss = mean_loss(model, tokens, LENGTHS)
        loss.backward()
        limit = clip_norm if clip_norm > 0 else float("inf")
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit)))
        losses.append(float(loss))
        optimizer.step()
    return {"clip_norm": clip_norm, "losses": losses, "gradient_norms": norms}


def record_training(folder, generator):
    batches = [draw_tokens(sum(LENGTHS), generator) for _ in range(STEPS)]
    record = {
        "optimizer": dict(OPTIMIZER),
        "decay": "parameters of two dimensions",
        "lengths": LENGTHS,
        "tokens": [batch.tolist() for batch in batches],
        "runs": [train(folder, batches, 0.0), train(folder, batches, CLIP_NORM)],
    }
    with open(os.path.join(folder, "training.json"), "w") as file:
        json.dump(record, file)
        file.write("\n")


def publish(name, folder):
    """Gives the folder the names of the class that it stands for, where that is not transformers'."""
    if name not in PUBLISHED:
        return
    make_config, make_tensors = PUBLISHED[name]
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        old = json.load(file)
    with open(path, "w") as file:
        json.dump(make_config(dict(old)), file, indent=2)
        file.write("\n")
    for file in ("model.safetensors", "gradients.safetensors"):
        path = os.path.join(folder, file)
        tensors = make_tensors(safetensors.torch.load_file(path), old)
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def record_model(name, root):
    tiny = MODELS[name]
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(tiny.seed)
    model = tiny.model_class(tiny.config)
    randomise(model, generator)
    model.to(tiny.dtype)
    for key, buffer in model.named_buffers():
        if key.endswith(CHOICE_BIASES):
            buffer.data = buffer.data.float()  # as published files have it
    model.save_pretrained(folder, **tiny.save_options)
    for extra in ("generation_config.json",):
        if os.path.exists(os.path.join(folder, extra)):
            os.remove(os.path.join(folder, extra))
    tokens = draw_tokens(TOKENS, generator)
    with torch.no_grad():
        loaded = load(folder)
        if name == "gpt_oss_mxfp4":
            parameters = dict(loaded.named_parameters())
            for key, value in quantise_experts(folder, generator).items():
                parameters[key].copy_(value.float())
        logits = loaded(tokens[None]).logits[0]
    expected = {"tokens": tokens.to(torch.int32), "logits": logits.float().contiguous()}
    safetensors.torch.save_file(expected, os.path.join(folder, "expected.safetensors"))
    if tiny.gradients:
        record_gradients(folder, generator)
    if tiny.steps:
        record_training(folder, generator)
    publish(name, folder)
    print(f"{name}: |logits| up to {float(logits.abs().max()):.2f}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "fixtures", "model")
    torch.set_num_threads(1)
    os.makedirs(root, exist_ok=True)
    for name in MODELS:
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            record_model(name, root)
    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "safetensors": safetensors.__version__,
        "numpy": numpy.__version__,
    }
    with open(os.path.join(root, "versions.json"), "w") as file:
        json.dump(versions, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
