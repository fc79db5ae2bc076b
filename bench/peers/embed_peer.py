"""Vectors of texts by sentence-transformers on the CPU, or with --query the logits of its
cross-encoder for that query and each text; prints one JSON object with the seconds.

The vectors or logits go to a file, f32, one behind the other.
"""
import argparse
import json
import time

from model_peer import import_libraries


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("texts")
    parser.add_argument("vectors")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--query")
    parser.set_defaults(device="cpu")
    args = parser.parse_args()

    torch, transformers, sentence_transformers = import_libraries(args, "sentence_transformers")
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    kind = "CrossEncoder" if args.query else "SentenceTransformer"
    model = getattr(sentence_transformers, kind)(args.folder, device="cpu",
                                                 model_kwargs={"dtype": dtype})
    model.tokenizer.pad_token = model.tokenizer.eos_token
    with open(args.texts) as lines:
        texts = [json.loads(line)["text"] for line in lines]
    if args.query:
        model.max_length = 1024
        texts = [(args.query, text) for text in texts]
    run = lambda items: (model.predict(items, batch_size=args.batch,
                                       activation_fn=torch.nn.Identity()) if args.query
                         else model.encode(items, batch_size=args.batch))
    run(texts[:args.batch])  # warms up
    start = time.perf_counter()
    vectors = run(texts)
    seconds = time.perf_counter() - start
    vectors.astype("float32").tofile(args.vectors)
    print(json.dumps({"seconds": seconds,
                      "peer": f"sentence-transformers {sentence_transformers.__version__}, "
                      f"torch {torch.__version__}, transformers {transformers.__version__}"}))


if __name__ == "__main__":
    main()
