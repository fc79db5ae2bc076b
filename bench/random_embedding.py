"""A random embedding model and texts for it, for the comparisons that make vectors."""
import json
import os
import random
import subprocess

import random_llama

MODULES = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]


def write_json(value, *path):
    os.makedirs(os.path.dirname(os.path.join(*path)), exist_ok=True)
    with open(os.path.join(*path), "w") as out:
        json.dump(value, out)


def write_model(folder, jige, size):
    """A model folder with the pooling of sentence-transformers and a tokenizer of its own."""
    random_llama.write_folder(folder, size)
    width = random_llama.SIZES[size]["width"]
    write_json([{"idx": i, "name": str(i), "path": path,
                 "type": "sentence_transformers.models." + kind}
                for i, (path, kind) in enumerate(MODULES)], folder, "modules.json")
    write_json({"word_embedding_dimension": width, "pooling_mode_mean_tokens": True},
               folder, "1_Pooling", "config.json")
    write_json({}, folder, "2_Normalize", "config.json")
    write_json({"max_seq_length": 1024}, folder, "sentence_bert_config.json")
    subprocess.run([jige, "corpus", "--out", os.path.join(folder, "corpus"), "--quiet"],
                   check=True)
    os.remove(os.path.join(folder, "tokenizer.json"))
    corpus = os.path.join(folder, "corpus", "train.jsonl")
    subprocess.run([jige, "tokenizer", "train", corpus, "--vocab-size", "4096", "--out",
                    os.path.join(folder, "tokenizer"), "--quiet"], check=True)
    for name in os.listdir(os.path.join(folder, "tokenizer")):
        os.rename(os.path.join(folder, "tokenizer", name), os.path.join(folder, name))
    return corpus


def write_texts(path, corpus, count):
    """Texts of 20 to 1500 letters, most of them short, from the corpus."""
    draw = random.Random(1)
    with open(corpus) as lines:
        words = " ".join(message["content"] for line in lines
                         for message in json.loads(line)["messages"])
    with open(path, "w") as out:
        for _ in range(count):
            length = int(20 * 75 ** (draw.random() ** 1.5))
            begin = draw.randrange(len(words) - length)
            out.write(json.dumps({"text": words[begin:begin + length].strip()}) + "\n")
