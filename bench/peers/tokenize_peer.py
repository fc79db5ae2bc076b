"""Loading a tokenizer, tokenizing and, with --vocab-size, BPE training by Hugging Face tokenizers;
prints one JSON object with the seconds.

With --ids only the ids of the whole text, as one document.
"""
import argparse
import json
import os
import sys
import time

DOCUMENT = 16_000  # letters


def train(tokenizers, path, vocab_size):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    start = time.perf_counter()
    tokenizer.train([path], trainer)
    return time.perf_counter() - start


def tokenize(tokenizer, text, parallel):
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if parallel else "false"
    documents = [text[i:i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]
    tokenizer.encode_batch_fast(documents[:8], add_special_tokens=False)  # warms up
    start = time.perf_counter()
    tokenizer.encode_batch_fast(documents, add_special_tokens=False)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("text")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ids", action="store_true")
    args = parser.parse_args()

    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    try:
        import tokenizers
    except ImportError as error:
        print(f"peer not importable: {error}", file=sys.stderr)
        sys.exit(77)
    start = time.perf_counter()
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(args.folder, "tokenizer.json"))
    load = time.perf_counter() - start
    with open(args.text, encoding="utf-8", newline="") as file:
        text = file.read()
    result = {"peer": f"tokenizers {tokenizers.__version__}"}
    if args.ids:
        result["ids"] = tokenizer.encode(text, add_special_tokens=False).ids
    else:
        result["tokenize"] = min(tokenize(tokenizer, text, parallel)
                                 for parallel in (False, True))
        result["load"] = load
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        if args.vocab_size:
            result["train"] = train(tokenizers, args.text, args.vocab_size)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
