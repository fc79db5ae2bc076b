"""Records the fixtures of tests/fixtures/text from Hugging Face tokenizers, SentencePiece and Jinja2.

Run it only to renew or extend the fixtures; the tests themselves need no Python:

    python tests/tools/record_text.py [tokenizers[:NAME]] [vocab_lists] [components] [sentencepiece[:NAME]]
                                      [ranks] [trainer] [templates]

Small tokenizers of each family's structure are trained here on the text below. What is recorded:

    tokenizers/NAME/   tokenizer.json and cases.jsonl: text (or hex bytes), options, ids, decoded text
    vocab_lists/NAME/  vocab.txt, perhaps tokenizer_config.json, and cases.jsonl of transformers' class
    components/*.jsonl one normalizer, pre-tokenizer or decoder per line with input and output
    sentencepiece/NAME tokenizer.model or spm.model, and cases.jsonl
    ranks/NAME/        tekken.json, or tiktoken.model and tokenizer_config.json, and cases.jsonl
    trainer/           a corpus and the merges learned from it
    templates/NAME/    cases.jsonl for the template.jinja there: conversation, options, text or error

versions.json notes the libraries that made the recording.
"""

import json
import os
import random
import sys
import tempfile

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import record_text_inputs as inputs  # noqa: E402
import record_text_unigram as unigram  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "text")

GPT4_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_SPLIT = GPT4_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_SPLIT = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)


def write_jsonl(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=True) + "\n")


def special(text, **flags):
    return AddedToken(text, special=True, normalized=flags.pop("normalized", False), **flags)


def train(tokenizer, vocab_size, alphabet=(), specials=()):
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(specials),
        initial_alphabet=list(alphabet),
        limit_alphabet=120 if not alphabet else 256,
        show_progress=False,
    )
    tokenizer.train_from_iterator(inputs.corpus(), trainer)
    return tokenizer


def byte_level(normalizer, pre_tokenizer, vocab_size=700):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, vocab_size, pre_tokenizers.ByteLevel.alphabet())


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def edited(tokenizer, change):
    """The tokenizer after a change to its JSON form."""
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def gpt2():
    tokenizer = byte_level(None, pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([special("<|endoftext|>", normalized=True)])
    return tokenizer


def gpt2_prefix():
    tokenizer = byte_level(None, pre_tokenizers.ByteLevel(add_prefix_space=True), 600)
    tokenizer.add_special_tokens([special("<s>"), special("</s>"), special("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>"))
    )
    return tokenizer


def llama3():
    def ignore_merges(data):
        data["model"]["ignore_merges"] = True
        # A word of the vocabulary that no merge reaches, as large vocabularies have them. It comes
        # before the added tokens, whose ids follow from the size of the vocabulary.
        data["model"]["vocab"]["\u0120unmergeable"] = 1000

    tokenizer = edited(byte_level(None, split_then_bytes(GPT4_SPLIT)), ignore_merges)
    tokenizer.add_special_tokens(
        [
            special(text)
            for text in ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                         "<|end_header_id|>", "<|eot_id|>", "<|reserved_special_token_0|>")
        ]
    )
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)]
            ),
        ]
    )
    return tokenizer


def qwen2():
    tokenizer = byte_level(normalizers.NFC(), split_then_bytes(QWEN_SPLIT))
    tokenizer.add_special_tokens([special(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens(
        [AddedToken(t, normalized=False, special=False) for t in ("<think>", "</think>", "<tool_call>")]
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def tekken():
    tokenizer = byte_level(None, split_then_bytes(TEKKEN_SPLIT))
    tokenizer.add_special_tokens([special(t) for t in ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )

    def merges_as_texts(data):
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]

    return edited(tokenizer, merges_as_texts)


def deepseek():
    tokenizer = byte_level(
        normalizers.Sequence([]),
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
                pre_tokenizers.Split(Regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), "isolated"),
                pre_tokenizers.Split(Regex(DEEPSEEK_SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
    )
    tokenizer.add_special_tokens(
        [special("<\uff5cbegin\u2581of\u2581sentence\uff5c>"), special("<\uff5cUser\uff5c>")]
    )
    tokenizer.add_tokens([AddedToken("\u00e9\u00e8 word", normalized=True, single_word=True)])
    return tokenizer


def gpt_neox():
    """Of Pythia: runs of spaces as added tokens, sought in the normalised text."""
    tokenizer = byte_level(normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.add_special_tokens([special(t) for t in ("<|endoftext|>", "<|padding|>")])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)])
    return tokenizer


def codegen():
    """Of Phi: GPT-2's words, and runs of spaces and tabs as added tokens."""
    tokenizer = byte_level(None, pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    runs = [" " * n for n in range(7, 1, -1)] + ["\t" * n for n in range(4, 1, -1)]
    tokenizer.add_tokens([AddedToken(run, normalized=True) for run in runs])
    return tokenizer


def cohere():
    """Digits apart, then GPT-2's words, behind a first token."""
    tokenizer = byte_level(
        normalizers.NFC(),
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        ),
    )
    names = ("<PAD>", "<UNK>", "<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>",
             "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>")
    tokenizer.add_special_tokens([special(name) for name in names])
    begin = tokenizer.token_to_id("<BOS_TOKEN>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<BOS_TOKEN> $A", pair="<BOS_TOKEN> $A:0 <BOS_TOKEN>:1 $B:1",
        special_tokens=[("<BOS_TOKEN>", begin)],
    )
    return tokenizer


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def sentencepiece_like(pre_tokenizer, normalizer, decoder_steps, extra_specials=()):
    """A BPE with byte fallback: pieces with the space mark, bytes as tokens, <unk> <s> </s> first."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    # Train on words cut at spaces, as SentencePiece does; the parts of the family come after.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    specials = ["<unk>", "<s>", "</s>"] + BYTES
    train(tokenizer, 900, specials=specials)

    def only_three_added(data):
        data["added_tokens"] = [t for t in data["added_tokens"] if t["id"] < 3]
        data["pre_tokenizer"] = None

    tokenizer = edited(tokenizer, only_three_added)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.Sequence(decoder_steps)
    tokenizer.add_special_tokens([special(t) for t in extra_specials])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def llama_decoder(strip=True):
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    return steps + [decoders.Strip(" ", 1, 0)] if strip else steps


def llama2_legacy():
    return sentencepiece_like(
        None,
        normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
        llama_decoder(),
    )


def llama2_metaspace():
    return sentencepiece_like(
        pre_tokenizers.Metaspace(prepend_scheme="first", split=False), None, llama_decoder()
    )


def mistral():
    return sentencepiece_like(
        pre_tokenizers.Metaspace(prepend_scheme="always", split=True),
        None,
        [decoders.Metaspace(prepend_scheme="always"), decoders.ByteFallback(), decoders.Fuse()],
        ("[INST]", "[/INST]", "[TOOL_CALLS]"),
    )


def gemma():
    """No space before the text, marks through a normalizer, white-space runs as added tokens."""
    tokenizer = sentencepiece_like(
        pre_tokenizers.Split(" ", "merged_with_previous"),
        normalizers.Replace(" ", "\u2581"),
        llama_decoder(strip=False),
        ("<start_of_turn>", "<end_of_turn>"),
    )
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("\n\n", "\u2581\u2581", "<h1>")])
    return tokenizer


def flags():
    """Added tokens with every flag, over a plain white-space tokenizer with a lower-casing normalizer."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    train(tokenizer, 300, specials=["[UNK]"])
    tokenizer.add_special_tokens(
        [
            special("<L>", lstrip=True),
            special("<R>", rstrip=True),
            special("<B>", lstrip=True, rstrip=True),
            special("<W>", single_word=True),
            special("<Norm>", normalized=True),
            special("<a>"),
            special("<a><b>"),
        ]
    )
    tokenizer.add_tokens(
        [AddedToken("Caf\u00e9", normalized=True), AddedToken("word", single_word=True),
         AddedToken("RAW", normalized=False)]
    )
    return tokenizer


def bert(cased=False):
    """WordPiece behind BERT's normalizer, between [CLS] and [SEP]."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=names, limit_alphabet=120, show_progress=False
    )
    tokenizer.train_from_iterator(inputs.corpus(), trainer)
    tokenizer.add_special_tokens([special(name) for name in names])
    around = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=around
    )
    return tokenizer


def bert_cased():
    return bert(cased=True)


FAMILIES = {
    f.__name__: f
    for f in (gpt2, gpt2_prefix, llama3, qwen2, tekken, deepseek, gpt_neox, codegen, cohere,
              llama2_legacy, llama2_metaspace, mistral, gemma, flags, bert, bert_cased, *unigram.FAMILIES)
}


def compact(tokenizer):
    """The tokenizer.json with the vocabulary on one line."""
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False)


def record_tokenizers(only=""):
    for name, build in FAMILIES.items():
        if only not in ("", name):
            continue
        tokenizer = build()
        folder = os.path.join(ROOT, "tokenizers", name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            file.write(compact(tokenizer))
        is_unigram = build in unigram.FAMILIES
        hidden = unigram.without_special_pieces(tokenizer) if is_unigram else None
        rows = tokenizer_rows(tokenizer, inputs.family_texts(name), hidden)
        write_jsonl(os.path.join(folder, "cases.jsonl"), rows)


def tokenizer_rows(tokenizer, texts, hidden=None):
    """The cases of a tokenizer; `hidden` is the same without special pieces, of Unigram models."""
    special_ids = {i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special}
    rows = []
    for row in inputs.hard_rows(texts):
        text = inputs.row_text(row)
        ids = tokenizer.encode(text).ids
        row["ids"] = ids
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        if plain != ids:
            row["ids_plain"] = plain
        if hidden:
            as_text = hidden.encode(text).ids
        else:
            tokenizer.encode_special_tokens = True
            as_text = tokenizer.encode(text, add_special_tokens=False).ids
            tokenizer.encode_special_tokens = False
        if as_text != plain:
            row["ids_as_text"] = as_text
        row["decoded"] = tokenizer.decode(ids, skip_special_tokens=False)
        # Not skip_special_tokens, which overlooks special tokens that the normalizer changes.
        kept = [i for i in ids if i not in special_ids]
        skipped = tokenizer.decode(kept, skip_special_tokens=False)
        if skipped != row["decoded"]:
            row["decoded_skip"] = skipped
        rows.append(row)
    # Any sequence of ids must decode, too; runs of byte tokens that are not characters are left to
    # the unit tests, since there Jige keeps the good characters.
    generator = random.Random(7)
    size = tokenizer.get_vocab_size()
    known = [i for i in range(size) if tokenizer.id_to_token(i) not in (None, *BYTES)]
    for _ in range(20):
        ids = [generator.choice(known) for _ in range(generator.randrange(1, 12))]
        rows.append({"decode": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    return rows


# name: whether the vocabulary tells capitals, tokens of other texts, how a line ends, what
# tokenizer_config.json says
VOCAB_LISTS = {
    "bert": (False, {}, "\n", None),
    "cased": (True, {"[SEP]": "[END]"}, "\r\n",
              {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "sep_token": "[END]"}),
    "accents": (True, {}, " \t\u3000\n",
                {"tokenizer_class": "DistilBertTokenizerFast", "do_lower_case": True,
                 "strip_accents": False, "tokenize_chinese_chars": False}),
    "mpnet": (False, {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[MASK]": "<mask>"}, "\n",
              {"tokenizer_class": "MPNetTokenizer", "strip_accents": True}),
}


def record_vocab_lists():
    import transformers

    for name, (cased, renamed, end, config) in VOCAB_LISTS.items():
        folder = os.path.join(ROOT, "vocab_lists", name)
        os.makedirs(folder, exist_ok=True)
        vocabulary = bert(cased).get_vocab()
        tokens = [renamed.get(token, token) for token in sorted(vocabulary, key=vocabulary.get)]
        tokens.append(tokens[40])  # once more: the last counts
        with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8", newline="") as file:
            file.write(end.join(tokens))
        kind = transformers.BertTokenizer
        if config:
            with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
                json.dump(config, file)
                file.write("\n")
            kind = getattr(transformers, config["tokenizer_class"])
        tokenizer = kind.from_pretrained(folder)._tokenizer
        texts = ["a [MASK] b<mask>c  <mask> d", "[CLS]x[SEP]y[END]z[UNK]", "<s> a</s>b<pad>[PAD]",
                 "\u732b\u72acwo \u00c9cole E\u0301a"]
        write_jsonl(os.path.join(folder, "cases.jsonl"), tokenizer_rows(tokenizer, texts))


def record_components():
    folder = os.path.join(ROOT, "components")
    os.makedirs(folder, exist_ok=True)
    rows = []
    for normalizer in inputs.normalizers():
        for text in inputs.component_texts():
            rows.append(
                {
                    "normalizer": json.loads(normalizer.__getstate__()),
                    "text": text,
                    "result": normalizer.normalize_str(text),
                }
            )
    write_jsonl(os.path.join(folder, "normalizers.jsonl"), rows)
    rows = []
    for pre_tokenizer in inputs.pre_tokenizers():
        for text in inputs.component_texts():
            pieces = [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]
            state = json.loads(pre_tokenizer.__getstate__())
            rows.append({"pre_tokenizer": state, "text": text, "pieces": pieces})
    write_jsonl(os.path.join(folder, "pre_tokenizers.jsonl"), rows)
    rows = []
    for decoder, token_lists in inputs.decoders():
        for tokens in token_lists:
            state = json.loads(decoder.__getstate__())
            rows.append({"decoder": state, "tokens": tokens, "text": decoder.decode(tokens)})
    write_jsonl(os.path.join(folder, "decoders.jsonl"), rows)
    with open(os.path.join(folder, "bert_characters.json"), "w", encoding="utf-8") as file:
        json.dump(bert_characters(), file)
        file.write("\n")


def bert_characters():
    """Ranges of characters, up to U+1FFFF, that BERT's normalizer leaves out, by what makes it so."""
    def ranges(**settings):
        off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
        normalizer = normalizers.BertNormalizer(**(off | settings))
        found = []
        for code in range(1, 0x20000):
            if 0xD800 <= code < 0xE000 or normalizer.normalize_str(f"a{chr(code)}b") != "ab":
                continue
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
        return found

    return {"clean_text": ranges(clean_text=True), "strip_accents": ranges(strip_accents=True)}


def record_sentencepiece(only=""):
    import sentencepiece

    settings = {
        "bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                    remove_extra_whitespaces=False, vocab_size=600, split_digits=True),
        "unigram": dict(model_type="unigram", vocab_size=300, normalization_rule_name="identity",
                        hard_vocab_limit=False),
        # As DeBERTa's: tokens around every text, in a file of another name.
        "deberta": dict(model_type="unigram", vocab_size=300, normalization_rule_name="identity",
                        hard_vocab_limit=False, pad_id=0,
                        bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]",
                        eos_piece="[SEP]", unk_piece="[UNK]"),
    }
    for name, options in settings.items():
        folder = os.path.join(ROOT, "sentencepiece", name)
        if only and name != only:
            continue
        os.makedirs(folder, exist_ok=True)
        stem = "spm" if name == "deberta" else "tokenizer"
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as corpus:
            corpus.write("\n".join(inputs.corpus()))
            corpus.flush()
            sentencepiece.SentencePieceTrainer.train(
                input=corpus.name, model_prefix=os.path.join(folder, stem),
                character_coverage=0.98, num_threads=1, minloglevel=2, **options)
        os.remove(os.path.join(folder, stem + ".vocab"))
        processor = sentencepiece.SentencePieceProcessor(
            model_file=os.path.join(folder, stem + ".model"))
        rows = []
        for row in inputs.hard_rows([]):
            row["ids"] = processor.encode(inputs.row_text(row))
            rows.append(row)
        write_jsonl(os.path.join(folder, "cases.jsonl"), rows)


def record_trainer():
    """What Hugging Face's trainer learns from the corpus; Jige's trainer must learn the same."""
    folder = os.path.join(ROOT, "trainer")
    os.makedirs(folder, exist_ok=True)
    lines = inputs.corpus()[::3]
    with open(os.path.join(folder, "corpus.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    for name, pattern in (("up_to_3", GPT4_SPLIT), ("single", QWEN_SPLIT)):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = split_then_bytes(pattern)
        trainer = trainers.BpeTrainer(
            vocab_size=800, min_frequency=2, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator(["\n".join(lines)], trainer)
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(json.loads(tokenizer.to_str())["model"]["merges"], file)


def record_templates():
    import record_text_templates

    record_text_templates.record(os.path.join(ROOT, "templates"))


def record_ranks():
    import record_text_ranks

    record_text_ranks.record(os.path.join(ROOT, "ranks"))


def record_versions():
    import importlib.metadata

    names = ("tokenizers", "sentencepiece", "jinja2", "transformers", "tiktoken", "mistral_common")
    versions = {name: importlib.metadata.version(name) for name in names}
    versions["python"] = sys.version.split()[0]
    with open(os.path.join(ROOT, "versions.json"), "w", encoding="utf-8") as file:
        json.dump(versions, file, indent=2)
        file.write("\n")


def main():
    parts = {
        "tokenizers": record_tokenizers,
        "vocab_lists": record_vocab_lists,
        "components": record_components,
        "sentencepiece": record_sentencepiece,
        "ranks": record_ranks,
        "trainer": record_trainer,
        "templates": record_templates,
    }
    for name in sys.argv[1:] or parts:
        part, *only = name.split(":")
        parts[part](*only)
    record_versions()


if __name__ == "__main__":
    main()
