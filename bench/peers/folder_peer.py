"""A model folder with random bf16 weights from a config.json, as transformers writes it, with a
tokenizer whose words are t0, t1 ...; for comparisons with programs that read whole models.
"""
import argparse
import json
import os

from model_peer import import_libraries, make_model


def write_tokenizer(folder, vocabulary):
    """One that cuts texts as GPT-2's does: programs that read GGUF files know that way by name."""
    words = {word: number for number, word in enumerate(
        ["t"] + [f"t{number}" for number in range(1, vocabulary)])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": level,
                 "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "merges": ["t 1"], "vocab": words}}
    # The merge wants its parts, the rarest words make room.
    words.pop(f"t{vocabulary - 1}")
    words["1"] = vocabulary - 1
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump(tokenizer, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    args.device, args.threads = "cpu", len(os.sched_getaffinity(0))
    torch, transformers = import_libraries(args)
    model = make_model(torch, transformers, args, torch.bfloat16)
    model.save_pretrained(args.out)
    write_tokenizer(args.out, model.config.vocab_size)
    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters())}), flush=True)


if __name__ == "__main__":
    main()
