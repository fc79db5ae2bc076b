"""Small Unigram tokenizers for record_text.py, of the structures that published folders have.

The character maps of the Precompiled normalizers are compiled by SentencePiece from the rules below.
"""

import json
import os
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

import record_text_inputs as inputs

MARK = "\u2581"

# What stands for what: several characters for one, one for several, nothing, keys of a base
# character with its mark, and keys that are a part of a longer cluster.
RULES = [
    ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\r", " "), ("\u2028", " "),
    ("\u200b", " "), ("\ufeff", ""), ("\x01", ""), ("\x7f", ""),
    ("\ufb01", "fi"), ("\u2026", "..."), ("\u00bd", "1\u20442"), ("\u2167", "VIII"),
    ("e\u0301", "\u00e9"), ("A\u030a", "\u00c5"), ("o\u0302\u0323", "\u1ed9"), ("\u212b", "\u00c5"),
    ("\uff01", "!"), ("\uff11", "1"), ("\uff12", "2"), ("\uff13", "3"), ("\uff21", "A"),
    ("\u03c2", "\u03c3"), ("Z", "z"), ("q", "kw"), ("\u1112", "h"), ("\u0130", "i"),
    ("\U0001f600", ":)"), ("\u2764", "<3"), ("\u00df", "ss"),
]


def character_map():
    """In base64, as the state of a Precompiled has it."""
    import base64

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w", encoding="utf-8") as file:
            for key, text in sorted(RULES):
                codes = [" ".join(f"{ord(c):X}" for c in part) for part in (key, text)]
                file.write("\t".join(codes) + "\n")
        corpus = os.path.join(folder, "corpus.txt")
        with open(corpus, "w", encoding="utf-8") as file:
            file.write("\n".join(inputs.corpus()))
        sentencepiece.SentencePieceTrainer.train(
            input=corpus, model_prefix=os.path.join(folder, "m"), vocab_size=200,
            model_type="unigram", hard_vocab_limit=False, normalization_rule_tsv=rules,
            num_threads=1, minloglevel=2)
        proto = sentencepiece_model_pb2.ModelProto()
        with open(os.path.join(folder, "m.model"), "rb") as file:
            proto.ParseFromString(file.read())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def precompiled():
    import base64

    return normalizers.Precompiled(base64.b64decode(character_map()))


def train(normalizer, pre_tokenizer, decoder, specials, vocab_size=420):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=list(specials), unk_token="<unk>",
        show_progress=False, max_piece_length=12)
    tokenizer.train_from_iterator(inputs.corpus(), trainer)
    return tokenizer


def edited(tokenizer, change):
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def surrounded(tokenizer, before, behind):
    names = [name for name in (before, behind) if name]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(part for part in (before, "$A", behind) if part),
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in names],
    )
    return tokenizer


def t5():
    tokenizer = train(
        normalizers.Sequence([precompiled(), normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
        ),
        decoders.Metaspace(prepend_scheme="always"),
        ("<pad>", "</s>", "<unk>"),
    )
    tokenizer.add_special_tokens(
        [AddedToken(f"<extra_id_{i}>", lstrip=True, rstrip=True, special=True) for i in range(3)]
    )
    return surrounded(tokenizer, None, "</s>")


def xlm_roberta():
    tokenizer = train(
        normalizers.Sequence(
            [
                precompiled(),
                normalizers.Strip(left=False, right=True),
                normalizers.Replace(Regex(" {2,}"), MARK),
            ]
        ),
        pre_tokenizers.Metaspace(prepend_scheme="always"),
        decoders.Metaspace(prepend_scheme="always"),
        ("<s>", "<pad>", "</s>", "<unk>"),
    )
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return surrounded(tokenizer, "<s>", "</s>")


def albert():
    tokenizer = train(
        normalizers.Sequence(
            [
                normalizers.Replace("``", '"'),
                normalizers.Replace("''", '"'),
                normalizers.NFKD(),
                normalizers.StripAccents(),
                normalizers.Lowercase(),
                precompiled(),
                normalizers.Replace(Regex(" {2,}"), " "),
            ]
        ),
        pre_tokenizers.Metaspace(prepend_scheme="first"),
        decoders.Metaspace(prepend_scheme="first"),
        ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
    )
    return surrounded(tokenizer, "[CLS]", "[SEP]")


def unigram_bytes():
    """A causal model whose SentencePiece model falls back to bytes and keeps every space."""
    tokenizer = train(
        normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]),
        pre_tokenizers.Metaspace(prepend_scheme="first"),
        None,
        ("<unk>", "<s>", "</s>"),
    )

    def change(data):
        pieces = data["model"]["vocab"]
        pieces[3:3] = [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
        # A piece twice, one with a score below that of two unknown characters, and equal sums.
        pieces += [["the", -9.5], ["\u4f60\u597d", -200.0], ["xyz", -3.0], ["xy", -1.0],
                   ["yz", -1.5], ["x", -1.5], ["z", -2.0], ["y", -2.0]]
        data["model"]["byte_fallback"] = True

    tokenizer = edited(tokenizer, change)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    )
    tokenizer.pre_tokenizer = None
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )
    return surrounded(tokenizer, "<s>", None)


FAMILIES = (t5, xlm_roberta, albert, unigram_bytes)


def without_special_pieces(tokenizer):
    """The tokenizer whose pieces of special tokens occur in no text: what plain text becomes.

    The libraries find those pieces in plain text, too, which Jige does not.
    """

    def hide(data):
        special = {t["content"] for t in data["added_tokens"] if t["special"]}
        data["added_tokens"] = [t for t in data["added_tokens"] if not t["special"]]
        data["post_processor"] = None
        for i, piece in enumerate(data["model"]["vocab"]):
            if piece[0] in special and len(piece[0]) > 1:
                piece[0] = f"\U0010fffd{i}\U0010fffd"

    return edited(tokenizer, hide)
