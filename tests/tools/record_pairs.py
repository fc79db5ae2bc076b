"""Records tiny random rerankers with the scores that they give to a query and documents.

    python tests/tools/record_pairs.py [FOLDER [NAME...]]   default: tests/fixtures/pairs, all

Writes, for every model, FOLDER/NAME/ (config.json, safetensors, tokenizer.json,
tokenizer_config.json) and FOLDER/NAME/expected.json:

    query: TEXT, documents: [TEXT …], instruction: null | TEXT
    ids: [[id …] …], types: [[0 | 1 …] …]    of each pair
    logits: [f32 …], scores: [f32 …]

computed in float32: those of encoders by sentence-transformers' CrossEncoder, of GTE by
gte_model.py, those of Qwen3 by transformers, with the prompt that Qwen3-Reranker documents.
FOLDER/versions.json names the versions
of everything used.
"""

import json
import os
import shutil
import sys

import sentence_transformers
import tokenizers
import torch
import transformers
from gte_model import GteConfig, GteForSequenceClassification
from sentence_transformers import CrossEncoder
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    EuroBertConfig,
    EuroBertForSequenceClassification,
    MPNetConfig,
    MPNetForSequenceClassification,
    NomicBertConfig,
    NomicBertForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

VOCAB = 320
ENCODER = dict(
    vocab_size=VOCAB,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_labels=1,
)
QWEN3 = dict(
    vocab_size=VOCAB,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=512,
)
MODERN = dict(
    {**ENCODER, "num_hidden_layers": 4},
    max_position_embeddings=128,
    bos_token_id=0,
    eos_token_id=2,
    cls_token_id=0,
    sep_token_id=2,
    pad_token_id=1,
)
QUERY = "Who pays for repairs of a rented flat?"
DOCUMENTS = [
    "The landlord pays for repairs, unless the lease says otherwise.",
    "Gravity is a force that attracts two bodies towards each other; it gives weight to objects.",
    "",
    " Ein Satz mit Umlauten: Äpfel, Öl, Übermut, und einem Zeichen 你好.",
    "x",
]
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
OWN_INSTRUCTION = "Find the passages of a lease that answer the question"
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
IDENTITY = "torch.nn.modules.linear.Identity"


def make_bert_tokenizer():
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCAB, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(DOCUMENTS + [QUERY], trainer)
    return BertTokenizerFast(vocab=tokenizer.get_vocab(), model_max_length=96)


def make_tokenizer(processor, special):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(DOCUMENTS + [QUERY] + ["yes", "no"] * 99, trainer)
    if processor:
        ids = [(token, tokenizer.token_to_id(token)) for token in special]
        tokenizer.post_processor = processor(dict(ids))
    return tokenizer


def roberta_tokenizer(template):
    def processor(ids):
        if template:
            return processors.TemplateProcessing(
                single="<s> $A </s>",
                pair="<s> $A </s> </s> $B </s>",
                special_tokens=list(ids.items()),
            )
        return processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))

    return PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(processor, ["<s>", "<pad>", "</s>"]),
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        cls_token="<s>",
        sep_token="</s>",
        model_max_length=120,
        model_input_names=["input_ids", "attention_mask"],
    )


def modern_tokenizer():
    special = ["[CLS]", "[PAD]", "[SEP]"]

    def processor(ids):
        return processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0",
            special_tokens=list(ids.items()),
        )

    return PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(processor, special),
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        model_max_length=128,
        model_input_names=["input_ids", "attention_mask"],
    )


# As published tokenizers of DeBERTa v3 are written.
def unigram_tokenizer():
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    spaces = tokenizers.Regex(" {2,}")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.Replace(spaces, " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCAB - 1, special_tokens=special, unk_token="[UNK]", show_progress=False
    )
    tokenizer.train_from_iterator(DOCUMENTS + [QUERY], trainer)
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_max_length=128,
        model_input_names=["input_ids", "attention_mask", "token_type_ids"],
    )


def qwen3_tokenizer():
    return PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(
            None, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
        ),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )


# name: (class, configuration, stored type, tokenizer, fields of config.json that are added, or taken
# away where None, instruction)
MODELS = {
    "bert": (
        BertForSequenceClassification,
        BertConfig(**ENCODER, max_position_embeddings=96, type_vocab_size=2),
        torch.float32,
        make_bert_tokenizer,
        {"sentence_transformers": {"activation_fn": IDENTITY, "version": "5.0.0"}},
        None,
    ),
    "roberta": (
        RobertaForSequenceClassification,
        RobertaConfig(**ENCODER, max_position_embeddings=202, type_vocab_size=1, pad_token_id=1,
                      bos_token_id=0, eos_token_id=2),
        torch.float16,
        lambda: roberta_tokenizer(False),
        {},
        None,
    ),
    "xlm_roberta": (
        XLMRobertaForSequenceClassification,
        XLMRobertaConfig(**ENCODER, max_position_embeddings=202, type_vocab_size=1,
                         pad_token_id=1, bos_token_id=0, eos_token_id=2),
        torch.bfloat16,
        lambda: roberta_tokenizer(True),
        {},
        None,
    ),
    "qwen3": (
        Qwen3ForCausalLM,
        Qwen3Config(**QWEN3, tie_word_embeddings=True),
        torch.bfloat16,
        qwen3_tokenizer,
        {},
        OWN_INSTRUCTION,
    ),
    "qwen3_untied": (
        Qwen3ForCausalLM,
        Qwen3Config(**QWEN3, tie_word_embeddings=False),
        torch.float32,
        qwen3_tokenizer,
        {},
        None,
    ),
    "qwen3_class": (
        Qwen3ForSequenceClassification,
        Qwen3Config(**QWEN3, tie_word_embeddings=True, num_labels=1, pad_token_id=0),
        torch.float32,
        qwen3_tokenizer,
        {},
        None,
    ),
    # As files of transformers before 5 say it.
    "modernbert": (
        ModernBertForSequenceClassification,
        ModernBertConfig(**MODERN, local_attention=8),
        torch.float16,
        modern_tokenizer,
        {"layer_types": None, "rope_parameters": None, "global_attn_every_n_layers": 2,
         "global_rope_theta": 4000.0, "local_rope_theta": 300.0},
        None,
    ),
    "modernbert_mean": (
        ModernBertForSequenceClassification,
        ModernBertConfig(**MODERN, local_attention=15, attention_bias=True, mlp_bias=True,
                         norm_bias=True, classifier_bias=True, classifier_pooling="mean",
                         layer_types=["sliding_attention"] * 3 + ["full_attention"]),
        torch.float32,
        modern_tokenizer,
        {},
        None,
    ),
    "distilbert": (
        DistilBertForSequenceClassification,
        DistilBertConfig(vocab_size=VOCAB, dim=24, hidden_dim=40, n_layers=2, n_heads=3,
                         max_position_embeddings=96, num_labels=1),
        torch.float32,
        make_bert_tokenizer,
        {},
        None,
    ),
    "mpnet": (
        MPNetForSequenceClassification,
        MPNetConfig(**ENCODER, max_position_embeddings=202, pad_token_id=1, bos_token_id=0,
                    eos_token_id=2),
        torch.bfloat16,
        lambda: roberta_tokenizer(False),
        {},
        None,
    ),
    "nomic": (
        NomicBertForSequenceClassification,
        NomicBertConfig(**ENCODER, max_position_embeddings=96),
        torch.float32,
        make_bert_tokenizer,
        {},
        None,
    ),
    "deberta": (
        DebertaV2ForSequenceClassification,
        DebertaV2Config(**ENCODER, max_position_embeddings=128, relative_attention=True,
                        position_buckets=16, pos_att_type="p2c|c2p", share_att_key=True,
                        norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0),
        torch.float16,
        unigram_tokenizer,
        {},
        None,
    ),
    # Every product by projections of its own, token types, another activation behind the pooling.
    "deberta_own": (
        DebertaV2ForSequenceClassification,
        DebertaV2Config(**ENCODER, max_position_embeddings=128, relative_attention=True,
                        position_buckets=12, max_relative_positions=40,
                        pos_att_type="c2p|p2c", norm_rel_ebd="none", type_vocab_size=2,
                        pooler_hidden_act="tanh"),
        torch.float32,
        unigram_tokenizer,
        {"sentence_transformers": {"activation_fn": IDENTITY, "version": "5.0.0"}},
        None,
    ),
    "deberta_keys": (
        DebertaV2ForSequenceClassification,
        DebertaV2Config(**ENCODER, max_position_embeddings=128, relative_attention=True,
                        position_buckets=64, pos_att_type="p2c", share_att_key=False,
                        norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0),
        torch.float32,
        unigram_tokenizer,
        {},
        None,
    ),
    "gte": (
        GteForSequenceClassification,
        GteConfig(**ENCODER, max_position_embeddings=128, rope_theta=5000.0,
                  rope_scaling={"type": "ntk", "factor": 2.0}),
        torch.float32,
        lambda: roberta_tokenizer(True),
        {},
        None,
    ),
    "eurobert": (
        EuroBertForSequenceClassification,
        EuroBertConfig(**{**ENCODER, "num_attention_heads": 4}, num_key_value_heads=2,
                       max_position_embeddings=128, bos_token_id=0, eos_token_id=2,
                       pad_token_id=1, classifier_pooling="mean", attention_bias=True,
                       mlp_bias=True),
        torch.float32,
        lambda: roberta_tokenizer(True),
        {},
        None,
    ),
    "eurobert_bos": (
        EuroBertForSequenceClassification,
        EuroBertConfig(**ENCODER, max_position_embeddings=128, bos_token_id=0, eos_token_id=2,
                       pad_token_id=1, classifier_pooling="bos"),
        torch.float16,
        lambda: roberta_tokenizer(True),
        {},
        None,
    ),
}


def write_json(value, *path):
    with open(os.path.join(*path), "w") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def write_model(name, folder, seed):
    model_class, config, dtype, tokenizer, fields, _ = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    model = model_class(config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            norm = "norm" in key.lower() or "_ln." in key
            norm = norm and key.endswith("weight")
            parameter.copy_(1.0 + 0.2 * noise if norm else 0.25 * noise)
    model.to(dtype).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        written = json.load(file)
    written.update(fields)
    write_json({k: v for k, v in written.items() if k not in fields or v is not None}, path)


def judged_by_cross_encoder(folder):
    model = CrossEncoder(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    pairs = [(QUERY, document) for document in DOCUMENTS]
    # As lists, since a single empty text is taken for none.
    queries, documents = map(list, zip(*pairs))
    rows = model.tokenizer(queries, documents, return_token_type_ids=True)
    has_types = getattr(model.config, "type_vocab_size", 0) > 1
    return {
        "ids": rows["input_ids"],
        "types": rows["token_type_ids"] if has_types else [[0] * len(ids) for ids in rows["input_ids"]],
        "logits": model.predict(pairs, batch_size=2, activation_fn=torch.nn.Identity()).tolist(),
        "scores": model.predict(pairs, batch_size=2).tolist(),
    }


@torch.no_grad()
def judged_by_plain_model(name, folder):
    model = GteForSequenceClassification.load(folder, MODELS[name][1])
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids = tokenizer([QUERY] * len(DOCUMENTS), DOCUMENTS)["input_ids"]
    logits = torch.stack([model(one) for one in ids])
    return {
        "ids": ids,
        "types": [[0] * len(one) for one in ids],
        "logits": logits.tolist(),
        "scores": logits.sigmoid().tolist(),
    }


def judged_by_prompt(folder, model_class, instruction):
    model = model_class.from_pretrained(folder, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    ids_of = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    all_ids, logits = [], []
    for document in DOCUMENTS:
        text = f"<Instruct>: {instruction}\n<Query>: {QUERY}\n<Document>: {document}"
        ids = ids_of(BEFORE) + ids_of(text) + ids_of(BEHIND)
        with torch.no_grad():
            out = model(torch.tensor([ids])).logits[0]
        if model_class is Qwen3ForCausalLM:
            yes, no = (tokenizer.convert_tokens_to_ids(word) for word in ("yes", "no"))
            out = out[-1, yes] - out[-1, no]
        all_ids.append(ids)
        logits.append(float(out))
    return {
        "ids": all_ids,
        "types": [[0] * len(ids) for ids in all_ids],
        "logits": logits,
        "scores": torch.tensor(logits).sigmoid().tolist(),
    }


def record(name, folder):
    model_class, _, _, _, _, instruction = MODELS[name]
    if name.startswith("qwen3"):
        judged = judged_by_prompt(folder, model_class, instruction or INSTRUCTION)
    elif model_class is GteForSequenceClassification:
        judged = judged_by_plain_model(name, folder)
    else:
        judged = judged_by_cross_encoder(folder)
    for field in ("logits", "scores"):
        judged[field] = [float(f"{x:.9g}") for x in judged[field]]
    expected = {"query": QUERY, "documents": DOCUMENTS, "instruction": instruction, **judged}
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump(expected, file, ensure_ascii=False)
        file.write("\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "fixtures", "pairs")
    torch.set_num_threads(1)
    names = sys.argv[2:] or list(MODELS)
    for index, name in enumerate(MODELS):
        if name not in names:
            continue
        folder = os.path.join(root, name)
        shutil.rmtree(folder, ignore_errors=True)
        write_model(name, folder, 3000 + index)
        record(name, folder)
    versions = {
        module.__name__: module.__version__
        for module in (torch, transformers, sentence_transformers, tokenizers)
    }
    write_json(versions, root, "versions.json")


if __name__ == "__main__":
    main()
