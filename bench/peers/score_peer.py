"""Log-probabilities and replies by transformers on the CPU; prints one JSON object with the seconds.

Every choice behind its question is a row, the longest first, so that a batch holds rows of nearly one
length; log-probabilities of a row are added up in a file, a line a record. Questions without choices are
answered, without sampling.
"""
import argparse
import json
import time

from model_peer import import_libraries


def row_sums(torch, model, rows, batch, pad):
    """The sum of the log-probabilities of ids[first:], of each (ids, first)."""
    sums = [0.0] * len(rows)
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i][0]))
    for begin in range(0, len(order), batch):
        part = order[begin:begin + batch]
        width = max(len(rows[i][0]) for i in part) - 1
        ids = torch.tensor([rows[i][0][:-1] + [pad] * (width + 1 - len(rows[i][0])) for i in part])
        logits = model(ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
        for k, i in enumerate(part):
            tokens, first = rows[i]
            wanted = torch.log_softmax(logits[k, first - 1:len(tokens) - 1].float(), dim=-1)
            sums[i] = wanted.gather(1, torch.tensor(tokens[first:])[:, None]).sum().item()
    return sums


def reply_to_all(torch, model, tokenizer, prompts, batch, length):
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    tokenizer.padding_side = "left"
    for begin in range(0, len(order), batch):
        part = tokenizer.pad({"input_ids": [prompts[i] for i in order[begin:begin + batch]]},
                             return_tensors="pt")
        model.generate(**part, max_new_tokens=length, do_sample=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("records")
    parser.add_argument("sums")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch", type=int, default=32, help="rows")
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.set_defaults(device="cpu")
    args = parser.parse_args()

    torch, transformers = import_libraries(args)
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=dtype).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder)
    pad = tokenizer.eos_token_id or 0
    tokenizer.pad_token_id = pad
    with open(args.records) as lines:
        records = [json.loads(line) for line in lines]
    rows, prompts = [], []
    for record in records:
        if "text" in record:
            rows.append((tokenizer(record["text"])["input_ids"], 1))
        elif "choices" in record:
            context = len(tokenizer(record["question"])["input_ids"])
            rows += [(tokenizer(record["question"] + " " + choice)["input_ids"], context)
                     for choice in record["choices"]]
        else:
            prompts.append(tokenizer(record["question"])["input_ids"])
    with torch.inference_mode():
        row_sums(torch, model, rows[:args.batch], args.batch, pad)  # warms up
        start = time.perf_counter()
        sums = row_sums(torch, model, rows, args.batch, pad)
        reply_to_all(torch, model, tokenizer, prompts, args.batch, args.max_new_tokens)
        seconds = time.perf_counter() - start
    with open(args.sums, "w") as out:
        json.dump(sums, out)
    print(json.dumps({"seconds": seconds, "peer": f"transformers {transformers.__version__}, "
                      f"torch {torch.__version__}"}))


if __name__ == "__main__":
    main()
