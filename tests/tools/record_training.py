"""Records what PyTorch's AdamW makes of the tiny models after ten steps.

    python tests/tools/record_training.py [FOLDER]        default: tests/fixtures/train

Takes model, batches and settings from tests/fixtures/model/NAME (record_models.py) and writes
FOLDER/NAME-RUN.safetensors for RUN in "plain", "clipped": every parameter after the last step under
its own name, float32, and

    losses   F32 [10]   before each step
    norms    F32 [10]   of each step's gradient, before clipping

and the same of adapters that PEFT trains, ADAPTERS below: from tests/fixtures/adapters/NAME on, under the
names that PEFT's files have.

FOLDER/versions.json names the versions of everything used.
"""

import json
import os
import sys

import numpy
import peft
import safetensors
import safetensors.torch
import torch
import transformers

from record_models import load, mean_loss

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "fixtures", "model")
RUNS = {"llama2": ("plain", "clipped"), "gpt2": ("clipped",)}
ADAPTER_RATE = 1e-3
# name: base, learning rate of B by that of A (LoRA+)
ADAPTERS = {"llama2_all": ("llama2", 4), "qwen2_dora": ("qwen2", 1)}


def train(folder, record, clip_norm):
    model = load(folder)
    options = dict(record["optimizer"])
    options["betas"] = tuple(options["betas"])
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **options)
    losses, norms = [], []
    for batch in record["tokens"]:
        optimizer.zero_grad()
        loss = mean_loss(model, torch.tensor(batch), record["lengths"])
        loss.backward()
        limit = clip_norm if clip_norm > 0 else float("inf")
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit)))
        losses.append(float(loss.detach()))
        optimizer.step()
    tensors = {name: p.detach().contiguous() for name, p in model.named_parameters()}
    tensors["losses"] = torch.tensor(losses)
    tensors["norms"] = torch.tensor(norms)
    return tensors


def train_adapter(name, base, ratio, record):
    model = load(os.path.join(MODELS, base))
    folder = os.path.join(HERE, "..", "fixtures", "adapters", name)
    model = peft.PeftModel.from_pretrained(model, folder, is_trainable=True)
    model.eval()  # nothing is dropped
    options = dict(record["optimizer"])
    options["betas"] = tuple(options["betas"])
    options["lr"] = ADAPTER_RATE
    trained = {key: p for key, p in model.named_parameters() if p.requires_grad}
    seconds = [p for key, p in trained.items() if "lora_B" in key]
    firsts = [p for key, p in trained.items() if "lora_A" in key]
    lengths = [p for key, p in trained.items() if "lora_magnitude" in key]
    groups = [{"params": firsts}, {"params": seconds, "lr": options["lr"] * ratio}]
    if lengths:
        groups.append({"params": lengths, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, **options)
    losses, norms = [], []
    for batch in record["tokens"]:
        optimizer.zero_grad()
        loss = mean_loss(model, torch.tensor(batch), record["lengths"])
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained.values(), float("inf"))))
        losses.append(float(loss.detach()))
        optimizer.step()
    tensors = {key: p.detach().contiguous() for key, p in peft.get_peft_model_state_dict(model).items()}
    tensors["losses"] = torch.tensor(losses)
    tensors["norms"] = torch.tensor(norms)
    return tensors


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "fixtures", "train")
    torch.set_num_threads(1)
    os.makedirs(root, exist_ok=True)
    for name, runs in RUNS.items():
        folder = os.path.join(MODELS, name)
        with open(os.path.join(folder, "training.json")) as file:
            record = json.load(file)
        for run in runs:
            clip_norm = record["runs"][0 if run == "plain" else 1]["clip_norm"]
            path = os.path.join(root, f"{name}-{run}.safetensors")
            safetensors.torch.save_file(train(folder, record, clip_norm), path)
            os.chmod(path, 0o644)
            print(path, os.path.getsize(path))
    for name, (base, ratio) in ADAPTERS.items():
        with open(os.path.join(MODELS, "llama2", "training.json")) as file:
            record = json.load(file)
        path = os.path.join(root, f"adapter-{name}.safetensors")
        safetensors.torch.save_file(train_adapter(name, base, ratio, record), path)
        os.chmod(path, 0o644)
        print(path, os.path.getsize(path))
    versions = {
        "peft": peft.__version__,
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
