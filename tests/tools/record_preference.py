"""Records what PyTorch makes of preference steps on the tiny models.

    python tests/tools/record_preference.py [FOLDER]        default: tests/fixtures/train

Takes the models of tests/fixtures/model (record_models.py) and writes FOLDER/preference.json, the
pairs of token ids, the settings of AdamW and, by name, the runs; and for each run
FOLDER/preference-RUN.safetensors: of the last step every parameter's gradient under its own name,
float32, and

    losses, margins, chosen, rejected, norms    F32 [steps]    before each step

The loss of a pair of a chosen answer c and a rejected one r, with log-probabilities summed over the
answer's tokens and the first weights as the reference, s the label smoothing and w the weight of
the chosen answer's own loss:

    m = beta ((log p(c) - log p_ref(c)) - (log p(r) - log p_ref(r)))
    -(1 - s) log sigmoid(m) - s log sigmoid(-m) - w log p(c) / |c|

A step learns the mean over all pairs.
"""

import json
import os
import sys

import safetensors.torch
import torch

from record_models import load

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "fixtures", "model")
STEPS = 4
OPTIMIZER = {"lr": 0.003, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
RUNS = {
    "llama2": {"model": "llama2", "beta": 0.1, "label_smoothing": 0.0, "sft_weight": 0.0},
    "llama2-smoothed": {"model": "llama2", "beta": 0.5, "label_smoothing": 0.2, "sft_weight": 0.0},
    "gpt2-sft": {"model": "gpt2", "beta": 0.3, "label_smoothing": 0.1, "sft_weight": 0.7},
}
# Tokens of the prompt, the chosen and the rejected answer.
LENGTHS = [(5, 4, 7), (1, 9, 1), (12, 3, 3), (3, 1, 11), (8, 6, 2)]


def draw_pairs():
    generator = torch.Generator().manual_seed(20240701)

    def draw(count):
        return torch.randint(0, 96, (count,), generator=generator).tolist()

    return [dict(prompt=draw(p), chosen=draw(c), rejected=draw(r)) for p, c, r in LENGTHS]


def answer_logprob(model, prompt, answer):
    ids = torch.tensor(prompt + answer)
    logprobs = torch.log_softmax(model(ids[None]).logits[0, :-1], dim=-1)
    return logprobs.gather(1, ids[1:, None])[len(prompt) - 1 :].sum()


def both(model, pair):
    return [answer_logprob(model, pair["prompt"], pair[name]) for name in ("chosen", "rejected")]


def record(run, pairs):
    model = load(os.path.join(MODELS, run["model"]))
    with torch.no_grad():
        reference = [both(model, pair) for pair in pairs]
    options = dict(OPTIMIZER, betas=tuple(OPTIMIZER["betas"]))
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **options)
    values = {name: [] for name in ("losses", "margins", "chosen", "rejected", "norms")}
    for _ in range(STEPS):
        optimizer.zero_grad()
        terms = []
        for pair, (ref_chosen, ref_rejected) in zip(pairs, reference):
            chosen, rejected = both(model, pair)
            margin = run["beta"] * ((chosen - ref_chosen) - (rejected - ref_rejected))
            s = run["label_smoothing"]
            log_sigmoid = torch.nn.functional.logsigmoid
            loss = -(1 - s) * log_sigmoid(margin) - s * log_sigmoid(-margin)
            loss = loss - run["sft_weight"] * chosen / len(pair["chosen"])
            terms.append(torch.stack([loss, margin, chosen, rejected]))
        means = torch.stack(terms).mean(0)
        means[0].backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        names = ("losses", "margins", "chosen", "rejected")
        for name, value in zip(names, means.detach().tolist()):
            values[name].append(value)
        values["norms"].append(float(norm))
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
    return gradients | {name: torch.tensor(column) for name, column in values.items()}


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "fixtures", "train")
    torch.set_num_threads(1)
    os.makedirs(root, exist_ok=True)
    pairs = draw_pairs()
    with open(os.path.join(root, "preference.json"), "w") as file:
        json.dump({"pairs": pairs, "optimizer": OPTIMIZER, "runs": RUNS}, file)
        file.write("\n")
    for name, run in RUNS.items():
        path = os.path.join(root, f"preference-{name}.safetensors")
        safetensors.torch.save_file(record(run, pairs), path)
        os.chmod(path, 0o644)
        print(path, os.path.getsize(path))


if __name__ == "__main__":
    main()
