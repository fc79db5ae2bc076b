"""Records tokens with ranks for record_text.py: tekken.json as mistral_common reads it, and a list of
ranks as tiktoken does. The tokens are learned from the corpus of record_text_inputs.py.
"""

import base64
import json
import os
import random
import re

import tiktoken
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import record_text_inputs as inputs

TEKKEN_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NOT_HAN = r"&&[^\p{Han}]]"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + NOT_HAN, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}" + NOT_HAN
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
MOONSHOT_WORDS = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + SHORT,
        r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + SHORT,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def learned_tokens(count):
    """The bytes of `count` tokens: all single ones, then longer ones."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(TEKKEN_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=count, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(inputs.corpus(), trainer)
    data = json.loads(tokenizer.to_str())
    spelled = {}
    shifted = 0
    for byte in range(256):
        printable = 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte
        spelled[chr(byte if printable else 256 + shifted)] = byte
        shifted += not printable
    tokens = [bytes([byte]) for byte in range(256)]
    for left, right in data["model"]["merges"]:
        tokens.append(bytes(spelled[c] for c in left + right))
    # Tokens that two pairs make, so that the leftmost of equals is seen, and one that no pair makes.
    tokens[400:400] = [b"xx", b"xxx", b"xxxx", b"yzy", b"zy", b"yz", b"yzyz", b" unmergeable"]
    return list(dict.fromkeys(tokens))[:count]


def tekken(version, tokens, special, special_count, extra):
    vocab = []
    for rank, token in enumerate(tokens):
        try:
            shown = token.decode()
        except UnicodeDecodeError:
            shown = None
        vocab.append(
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": shown})
    data = {
        "config": {
            "pattern": TEKKEN_WORDS,
            "num_vocab_tokens": len(tokens),
            # The last ten of the list are no tokens.
            "default_vocab_size": special_count + len(tokens) - 10,
            "default_num_special_tokens": special_count,
            "version": version,
        },
        "vocab": vocab,
    }
    if special is not None:
        data["special_tokens"] = [
            {"rank": i, "token_str": text, "is_control": not text.startswith("[ARGS")}
            for i, text in enumerate(special)
        ]
    return data | extra


SPECIAL = [
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]", "<SPECIAL_20>", "[AUDIO]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]",
]
TEXTS = ["<s>[INST] Hi [/INST] Yo</s>", "[INST][INST] [/INST]x", "[TOOL_CALLS]f[ARGS]{}[THINK]a[/THINK]",
         "<SPECIAL_28> <SPECIAL_99>", "xxxxx xxxxxxxyzyzyzy zyzyz", "x" * 60 + "yz" * 40,
         " unmergeable unmergeables"]
MOONSHOT_TEXTS = [
    "<|im_user|>user<|im_middle|>Hi<|im_end|><|im_assistant|>[EOS]", "[BOS]\u4f60\u597dabc\u4e16\u754cDEF",
    "<|tool_call_begin|>x<|tool_call_begin|", "\u6f22\u5b57\u304b\u306a\ud55c\uae00don'T can'tX 1234567",
    "<|reserved_token_{}|> <|reserved_token_1|>", "A\u6f22\u3005b \u3007 \u6f22's", " unmergeable",
]


def write_rows(folder, rows):
    with open(os.path.join(folder, "cases.jsonl"), "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=True) + "\n")


def cut(text, special):
    """The text in parts: ids of special tokens, and what is between them."""
    pattern = "|".join(re.escape(s) for s in sorted(special, key=len, reverse=True))
    return [special.get(part, part) for part in re.split(f"({pattern})", text)]


def record_rows(folder, texts, encode, decode, special, plain, prefix, special_ids):
    """special: texts of all added tokens; plain: those that are not special; each with its id."""
    def ids_with(text, tokens):
        if not tokens:
            return encode(text)
        ids = []
        for part in cut(text, tokens):
            ids += encode(part) if isinstance(part, str) else [part]
        return ids

    rows = []
    for row in inputs.hard_rows(texts):
        text = inputs.row_text(row)
        inner = ids_with(text, special)
        row["ids"] = prefix + inner
        if prefix:
            row["ids_plain"] = inner
        as_text = ids_with(text, plain)
        if as_text != inner:
            row["ids_as_text"] = as_text
        row["decoded"] = decode(row["ids"])
        skipped = decode([i for i in row["ids"] if i not in special_ids])
        if skipped != row["decoded"]:
            row["decoded_skip"] = skipped
        rows.append(row)
    generator = random.Random(7)
    for _ in range(20):
        ids = [generator.randrange(600) for _ in range(generator.randrange(1, 12))]
        rows.append({"decode": ids, "decoded": decode(ids)})
    write_rows(folder, rows)


def record_tekken(root):
    image = {"image": {"image_patch_size": 14, "max_image_size": 1540, "spatial_merge_size": 2}}
    old_image = {"multimodal": {"image_patch_size": 16, "max_image_size": 1024}}
    for version, special, count, extra in (
        ("v3", None, 30, old_image), ("v11", SPECIAL, 40, {}),
        ("v13", SPECIAL, len(SPECIAL), image)):
        folder = os.path.join(root, "tekken_" + version)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "tekken.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(tekken(version, learned_tokens(640), special, count, extra), file,
                      ensure_ascii=False)
        reference = Tekkenizer.from_file(path)
        names = {reference.id_to_piece(i): i for i in range(count)}
        record_rows(
            folder, TEXTS, lambda text: reference.encode(text, bos=False, eos=False),
            lambda ids: reference.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP),
            names, {}, [reference.bos_id], set(names.values()))


def record_moonshot(root):
    folder = os.path.join(root, "moonshot")
    os.makedirs(folder, exist_ok=True)
    tokens = learned_tokens(640)
    with open(os.path.join(folder, "tiktoken.model"), "w", encoding="utf-8") as file:
        for rank, token in enumerate(tokens):
            file.write(f"{base64.b64encode(token).decode()} {rank}\n")
    first = len(tokens)
    names = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>",
             "<|tool_call_begin|>"]
    added = {first + i: name for i, name in enumerate(names)}
    plain = {"<|tool_call_begin|>": first + 6}
    special = {added.get(i, f"<|reserved_token_{i}|>"): i for i in range(first, first + 256)}
    config = {
        "added_tokens_decoder": {
            str(i): {"content": name, "lstrip": False, "normalized": False, "rstrip": False,
                     "single_word": False, "special": name not in plain}
            for i, name in added.items()
        },
        "auto_map": {"AutoTokenizer": ["tokenization_moonshot.TikTokenTokenizer", None]},
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "tokenizer_class": "TikTokenTokenizer",
    }
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    reference = tiktoken.Encoding(
        name="moonshot", pat_str=MOONSHOT_WORDS,
        mergeable_ranks={token: rank for rank, token in enumerate(tokens)}, special_tokens=special)
    texts = [text.replace("{}", str(first + 200)) for text in MOONSHOT_TEXTS]
    record_rows(
        folder, texts, lambda text: reference.encode(text, disallowed_special=()),
        reference.decode, special, plain, [], set(special.values()) - set(plain.values()))


def record(root):
    record_tekken(root)
    record_moonshot(root)
