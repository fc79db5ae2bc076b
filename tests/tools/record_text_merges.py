"""Records tests/fixtures/text/merge_lists from transformers: folders whose tokenizer is a vocab.json
with a merges.txt.

Run it only to renew or extend the fixtures; the tests themselves need no Python:

    python tests/tools/record_text_merges.py [NAME]

A small byte-level BPE is trained for each folder on the text of record_text_inputs.py. Beside the two files and
the small JSON files of the folder stands cases.jsonl: text (or hex bytes), ids, decoded text, by transformers' class of
the folder. versions.json notes the libraries that made the recording.
"""

import importlib.metadata
import json
import os
import sys

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import record_text  # noqa: E402
import record_text_inputs as inputs  # noqa: E402

ROOT = os.path.join(record_text.ROOT, "merge_lists")
CONFIG = "tokenizer_config.json"
MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
MODEL = "config.json"

TEXTS = [
    "a<mask> b  <mask>c <mask>",
    "<s>a</s>b<pad> <unk></s></s>",
    "<|im_start|>user\nHi<|im_end|>\n<think>a</think>b",
    "e\u0301<|im_end|>\u0301a <|endoftext|>\u212b",
    "def f():\n    x  y       z\t\treturn\t\t\t",
    "x  <|im_end|>  y <|im_start|> z </s>  <unk>",
    " <user> a <user>b<users> <|endoftext",
]
TEXT_SIZE_MAX = 400  # longer ones are among the other tokenizers' fixtures


def token(content, **flags):
    plain = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    return {**plain, **flags}


def of_config(content, **flags):
    return {**token(content, **flags), "__type": "AddedToken"}


def stated(size):
    """Runs of spaces and tabs behind the vocabulary, as Phi has them."""
    runs = [" " * n for n in range(7, 1, -1)] + ["\t\t\t", "\t\t"]
    return {"0": token("<|endoftext|>", special=True),
            **{str(size + i): token(run, special=False) for i, run in enumerate(runs)}}


ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"]

# name: special tokens that the vocabulary begins with, whether every byte is a token, what
# transformers calls it, and the small files by the size of the vocabulary
FOLDERS = {
    # No file says anything.
    "gpt2": (["<|endoftext|>"], True, "GPT2Tokenizer", lambda size: {}),
    # As OPT's are: objects in both files, a text in front, characters without a token.
    "opt": (ROBERTA, False, "GPT2Tokenizer", lambda size: {
        CONFIG: {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": False, "errors": "replace",
                 "unk_token": of_config("</s>"), "bos_token": of_config("</s>"), "eos_token": of_config("</s>"),
                 "pad_token": of_config("<pad>")},
        MAP: {role + "_token": token("</s>") for role in ("bos", "eos", "unk")} | {"pad_token": "<pad>"},
    }),
    # A token of each kind of file; special_tokens_map.json wins over tokenizer_config.json.
    "prefix": (["<s>"], True, "GPT2Tokenizer", lambda size: {
        CONFIG: {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True, "add_eos_token": True,
                 "eos_token": "<s>", "bos_token": "</s>", "image_token": "<image>",
                 "extra_special_tokens": ["<x>", of_config("<user>", rstrip=True)]},
        MAP: {"eos_token": "<|im_end|>", "unk_token": token("<unk>", lstrip=True), "mask_token": "<mask>"},
        ADDED: {"<user>": size, "<|im_end|>": size + 1, "<think>": size + 2},
    }),
    # The mask takes spaces along where a file says so; the largest ids are behind a hole.
    "roberta": (ROBERTA, True, "RobertaTokenizer", lambda size: {
        CONFIG: {"tokenizer_class": "RobertaTokenizer", "add_bos_token": False, "add_prefix_space": True},
        MAP: {"mask_token": token("<mask>", lstrip=True, normalized=False)},
    }),
    # The class follows from the model's type.
    "bart": (ROBERTA + ["<mask>"], True, "AutoTokenizer", lambda size: {
        MODEL: {"model_type": "bart"}, CONFIG: {"sep_token": "<pad>"},
    }),
    "codegen": (["<|endoftext|>"], True, "CodeGenTokenizer", lambda size: {
        CONFIG: {"tokenizer_class": "CodeGenTokenizer", "added_tokens_decoder": stated(size)},
        MAP: {"bos_token": "</s>", "eos_token": "</s>"},  # not read beside added_tokens_decoder
    }),
    "qwen2": ([], True, "Qwen2Tokenizer", lambda size: {
        CONFIG: {"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, "bos_token": None,
                 "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
                 "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
                 "added_tokens_decoder": {
                     str(size): token("<|endoftext|>", normalized=False, special=True),
                     str(size + 2): token("<|im_end|>", lstrip=True, normalized=False, special=True),
                     str(size + 1): token("<|im_start|>", normalized=False, special=True),
                     str(size + 3): token("<think>", normalized=False, special=False),
                     str(size + 4): token("A\u030a", special=False)}},
    }),
}


def trained(special, every_byte):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet() if every_byte else []
    trainer = trainers.BpeTrainer(
        vocab_size=480 if every_byte else 320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(inputs.corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def write_lists(folder, name, vocabulary, merges):
    if name == "roberta":
        last = max(vocabulary.values())
        vocabulary = {text: i + 3 * (i == last) for text, i in vocabulary.items()}
        vocabulary["<mask>"] = last + 4
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump(vocabulary, file, ensure_ascii=name != "gpt2")
    lines = ["#version: 0.2"] * (name != "prefix") + [" ".join(merge) for merge in merges]
    end = "\r\n" if name == "codegen" else "\n"
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8", newline="") as file:
        file.write(end.join(lines) + end * (name != "bart"))


def record(name):
    special, every_byte, kind, files = FOLDERS[name]
    folder = os.path.join(ROOT, name)
    os.makedirs(folder, exist_ok=True)
    vocabulary, merges = trained(special, every_byte)
    write_lists(folder, name, vocabulary, merges)
    for file_name, content in files(len(vocabulary)).items():
        with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
            json.dump(content, file)
            file.write("\n")
    tokenizer = getattr(transformers, kind).from_pretrained(folder)._tokenizer
    rows = record_text.tokenizer_rows(tokenizer, TEXTS)
    short = [row for row in rows if len(row.get("text", "")) <= TEXT_SIZE_MAX]
    record_text.write_jsonl(os.path.join(folder, "cases.jsonl"), short)


def main():
    for name in sys.argv[1:] or FOLDERS:
        record(name)
    versions = {name: importlib.metadata.version(name) for name in ("tokenizers", "transformers")}
    with open(os.path.join(ROOT, "versions.json"), "w", encoding="utf-8") as file:
        json.dump(versions, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
