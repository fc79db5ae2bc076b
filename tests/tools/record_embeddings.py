"""Records tiny random embedding models with what sentence-transformers makes of texts.

    python tests/tools/record_embeddings.py [FOLDER [NAME...]]   default: tests/fixtures/embedding,
                                                                 all

Writes, for every model, FOLDER/NAME/ as sentence-transformers lays it out (config.json of a base
class, safetensors, tokenizer.json, modules.json, 1_Pooling, 2_Dense and so on,
config_sentence_transformers.json) and
FOLDER/NAME/expected.json:

    cases: [{"prompt": null | NAME, "prompt_text": null | TEXT, "max_seq_length": null | N,
             "dimensions": null | N, "vectors": [[f32 …] …]} …]     one vector for each text
    texts: [TEXT …]
    ids: [[id …] …]                                                 of the texts without a prompt

computed in float32; those of GTE ("new") by gte_model.py. FOLDER/versions.json names the versions of everything used.
"""

import json
import os
import shutil
import sys

import numpy
import safetensors.torch
import sentence_transformers
import tokenizers
import torch
import transformers
from gte_model import GteConfig, GteModel
from sentence_transformers import SentenceTransformer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    DebertaV2Config,
    DebertaV2Model,
    DebertaV2Tokenizer,
    DistilBertConfig,
    DistilBertModel,
    EuroBertConfig,
    EuroBertModel,
    Gemma3TextConfig,
    Gemma3TextModel,
    LlamaConfig,
    LlamaModel,
    MistralConfig,
    MistralModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    NomicBertConfig,
    NomicBertModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2Model,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

VOCAB = 288
COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
ENCODER = dict(
    vocab_size=VOCAB,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=3,
)
# What stands behind the pooling: inputs, outputs, whether there is a bias, the activation.
DENSE = {
    "several": [(96, 20, True, "torch.nn.modules.activation.Tanh")],
    "gemma": [(24, 40, False, "torch.nn.modules.linear.Identity"),
              (40, 20, True, "torch.nn.modules.activation.Tanh")],
}
TEXTS = [
    "What is the capital of China?",
    "The capital of China is Beijing.",
    "Gravity is a force that attracts two bodies towards each other; it gives weight to physical "
    "objects and keeps the planets in their orbits around the sun.",
    " Ein Satz mit Umlauten: Äpfel, Öl, Übermut, und einem Zeichen 你好.",
    "x",
]
BOS, EOS = "<|startoftext|>", "<|endoftext|>"
PAD = "<|padding|>"
QUERY = "Instruct: find passages that answer the question\nQuery:"

# name: (class, configuration, stored type, what the tokenizer puts before and after a text,
#        1_Pooling/config.json, whether 2_Normalize follows, prompts, default prompt, cases)
MODELS = {
    "qwen3": (
        Qwen3Model,
        Qwen3Config(**COMMON, head_dim=8, tie_word_embeddings=True),
        torch.bfloat16,
        ([], [EOS]),
        {"word_embedding_dimension": 24, "pooling_mode_cls_token": False,
         "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False,
         "pooling_mode_mean_sqrt_len_tokens": False, "pooling_mode_weightedmean_tokens": False,
         "pooling_mode_lasttoken": True, "include_prompt": True},
        True,
        {"query": QUERY, "document": ""},
        None,
        [{}, {"prompt": "query"}, {"max_seq_length": 9}, {"dimensions": 10}],
    ),
    "mistral": (
        MistralModel,
        MistralConfig(**COMMON, sliding_window=7),
        torch.float16,
        ([BOS], [EOS]),
        {"embedding_dimension": 24, "pooling_mode": "mean", "include_prompt": False},
        False,
        {"query": QUERY},
        "query",
        [{}, {"prompt_text": ""}, {"prompt_text": "passage: "}],
    ),
    "llama": (
        LlamaModel,
        LlamaConfig(**COMMON, rms_norm_eps=1e-5),
        torch.float32,
        ([BOS], []),
        {"word_embedding_dimension": 24, "pooling_mode_cls_token": False,
         "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False,
         "pooling_mode_mean_sqrt_len_tokens": False, "pooling_mode_weightedmean_tokens": True,
         "pooling_mode_lasttoken": False},
        True,
        {},
        None,
        [{}, {"max_seq_length": 5}],
    ),
    # Tokens see those behind them: in half the window, and in windows to both sides.
    "gemma": (
        Gemma3TextModel,
        Gemma3TextConfig(**COMMON, head_dim=8, query_pre_attn_scalar=12, sliding_window=7,
                         use_bidirectional_attention=True,
                         layer_types=["sliding_attention", "full_attention"]),
        torch.bfloat16,
        ([BOS], [EOS]),
        {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True, "include_prompt": True},
        True,
        {"query": "task: search result | query: ", "document": "title: none | text: "},
        None,
        [{}, {"prompt": "query"}, {"dimensions": 6}, {"max_seq_length": 17}],
    ),
    "qwen2": (
        Qwen2Model,
        Qwen2Config(**COMMON, is_causal=False),
        torch.float32,
        ([], [EOS]),
        {"embedding_dimension": 24, "pooling_mode": "max", "include_prompt": False},
        True,
        {"query": QUERY},
        None,
        [{}, {"prompt": "query"}],
    ),
    "mistral_ahead": (
        MistralModel,
        MistralConfig(**COMMON, sliding_window=3, is_causal=False),
        torch.bfloat16,
        ([BOS], [EOS]),
        {"embedding_dimension": 24, "pooling_mode": "mean"},
        False,
        {},
        None,
        [{}],
    ),
    "bert": (
        BertModel,
        BertConfig(**ENCODER, max_position_embeddings=96, type_vocab_size=2, hidden_act="gelu"),
        torch.float32,
        None,
        {"word_embedding_dimension": 24, "pooling_mode_cls_token": True,
         "pooling_mode_mean_tokens": False},
        True,
        {"query": "Represent this sentence for searching relevant passages: "},
        None,
        [{}, {"prompt": "query"}, {"max_seq_length": 8}],
    ),
    "roberta": (
        RobertaModel,
        RobertaConfig(**ENCODER, max_position_embeddings=202, type_vocab_size=1, pad_token_id=1,
                      bos_token_id=0, eos_token_id=2),
        torch.float16,
        ([BOS], [EOS]),
        {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True},
        True,
        {},
        None,
        [{}],
    ),
    "xlm_roberta": (
        XLMRobertaModel,
        XLMRobertaConfig(**ENCODER, max_position_embeddings=202, type_vocab_size=1, pad_token_id=1,
                         bos_token_id=0, eos_token_id=2),
        torch.float32,
        ([BOS], [EOS]),
        {"word_embedding_dimension": 24, "pooling_mode_cls_token": True},
        True,
        {"query": "query: "},
        None,
        [{}, {"prompt": "query"}],
    ),
    "modernbert": (
        ModernBertModel,
        ModernBertConfig(**{**ENCODER, "num_hidden_layers": 5}, max_position_embeddings=200,
                         local_attention=10, bos_token_id=0, eos_token_id=2, cls_token_id=0,
                         sep_token_id=2, pad_token_id=1),
        torch.bfloat16,
        ([BOS], [EOS]),
        {"embedding_dimension": 24, "pooling_mode": "mean"},
        True,
        {"query": "search_query: "},
        None,
        [{}, {"prompt": "query"}, {"dimensions": 16}],
    ),
    "distilbert": (
        DistilBertModel,
        DistilBertConfig(vocab_size=VOCAB, dim=24, hidden_dim=40, n_layers=2, n_heads=3,
                         max_position_embeddings=96),
        torch.float16,
        None,
        {"word_embedding_dimension": 24, "pooling_mode_mean_sqrt_len_tokens": True},
        False,
        {},
        None,
        [{}],
    ),
    "mpnet": (
        MPNetModel,
        MPNetConfig(**ENCODER, max_position_embeddings=202),
        torch.float32,
        ([BOS], [EOS]),
        {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True},
        True,
        {},
        None,
        [{}, {"max_seq_length": 24}],
    ),
    "nomic": (
        NomicBertModel,
        NomicBertConfig(**ENCODER, max_position_embeddings=96),
        torch.float32,
        None,
        {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True},
        True,
        {"query": "search_query: "},
        None,
        [{}, {"prompt": "query"}, {"dimensions": 8}],
    ),
    "several": (
        BertModel,
        BertConfig(**ENCODER, max_position_embeddings=96, type_vocab_size=1),
        torch.float32,
        None,
        {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True,
         "pooling_mode_cls_token": True, "pooling_mode_mean_sqrt_len_tokens": True,
         "pooling_mode_max_tokens": True},
        True,
        {},
        None,
        [{}, {"dimensions": 12}],
    ),
    # As v3: no positions but those of scores, rows behind a norm; texts beyond their reach.
    "deberta": (
        DebertaV2Model,
        DebertaV2Config(**ENCODER, max_position_embeddings=160, relative_attention=True,
                        position_buckets=10, max_relative_positions=32,
                        pos_att_type="p2c|c2p", share_att_key=True, norm_rel_ebd="layer_norm",
                        position_biased_input=False, type_vocab_size=0),
        torch.bfloat16,
        "unigram",
        {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True},
        True,
        {"query": "query: "},
        None,
        [{}, {"prompt": "query"}, {"max_seq_length": 11}],
    ),
    # Rows of their own projections for queries alone, a row a distance, positions and token types.
    "deberta_own": (
        DebertaV2Model,
        DebertaV2Config(**ENCODER, max_position_embeddings=160, relative_attention=True,
                        max_relative_positions=14, pos_att_type=["c2p"],
                        position_biased_input=True, type_vocab_size=2, hidden_act="gelu_new"),
        torch.float32,
        "unigram",
        {"word_embedding_dimension": 24, "pooling_mode_cls_token": True},
        True,
        {},
        None,
        [{}],
    ),
    "gte": (
        GteModel,
        GteConfig(**ENCODER, max_position_embeddings=160, rope_theta=2000.0,
                  rope_scaling={"type": "ntk", "factor": 8.0}),
        torch.float16,
        ([BOS], [EOS]),
        {"word_embedding_dimension": 24, "pooling_mode_cls_token": True},
        True,
        {"query": "query: "},
        None,
        [{}, {"prompt": "query"}, {"dimensions": 12}, {"max_seq_length": 17}],
    ),
    "gte_plain": (
        GteModel,
        GteConfig(**ENCODER, max_position_embeddings=160, type_vocab_size=0, pack_qkv=False),
        torch.float32,
        ([BOS], [EOS]),
        {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True},
        True,
        {},
        None,
        [{}],
    ),
    "eurobert": (
        EuroBertModel,
        EuroBertConfig(**COMMON, bos_token_id=0, eos_token_id=2, pad_token_id=1,
                       rope_parameters={"rope_type": "default", "rope_theta": 250000.0}),
        torch.bfloat16,
        ([BOS], [EOS]),
        {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True},
        True,
        {"query": "query: "},
        None,
        [{}, {"prompt": "query"}],
    ),
}


def make_bert_tokenizer():
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCAB, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS + [QUERY], trainer)
    return BertTokenizerFast(vocab=tokenizer.get_vocab(), model_max_length=96)


def make_unigram_tokenizer():
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCAB - 1, special_tokens=special, unk_token="[UNK]", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS + [QUERY], trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    return DebertaV2Tokenizer(vocab=[tuple(piece) for piece in pieces])


def make_tokenizer(before, after, pad):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[BOS, PAD, EOS] if pad else [BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS + [QUERY], trainer)
    special = [(token, tokenizer.token_to_id(token)) for token in (BOS, EOS)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(before + ["$A"] + after), special_tokens=special
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=PAD if pad else EOS
    )


def write_json(value, *path):
    os.makedirs(os.path.dirname(os.path.join(*path)), exist_ok=True)
    with open(os.path.join(*path), "w") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def write_model(name, folder, seed):
    model_class, config, dtype, around, pooling, normalised, prompts, default, _ = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    model = model_class(config)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            norm = "norm" in key.lower() or "_ln." in key
            norm = norm and key.endswith("weight")
            # Gemma's norms add one to their weights.
            one = 0.0 if model_class is Gemma3TextModel else 1.0
            parameter.copy_(one + 0.2 * noise if norm else 0.25 * noise)
    model.to(dtype).save_pretrained(folder)
    # RoBERTa gives tokens of padding no position.
    pad = "roberta" in name or name in ("modernbert", "mpnet", "gte", "gte_plain", "eurobert")
    if around == "unigram":
        tokenizer = make_unigram_tokenizer()
    else:
        tokenizer = make_tokenizer(*around, pad) if around else make_bert_tokenizer()
    tokenizer.save_pretrained(folder)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    for inputs, outputs, bias, activation in DENSE.get(name, []):
        path = f"{len(modules)}_Dense"
        modules.append((path, "Dense"))
        fields = {"in_features": inputs, "out_features": outputs, "bias": bias,
                  "activation_function": activation}
        write_json(fields, folder, path, "config.json")
        tensors = {"linear.weight": 0.25 * torch.randn(outputs, inputs, generator=generator)}
        if bias:
            tensors["linear.bias"] = 0.25 * torch.randn(outputs, generator=generator)
        safetensors.torch.save_file(tensors, os.path.join(folder, path, "model.safetensors"))
    if normalised:
        path = f"{len(modules)}_Normalize"
        modules.append((path, "Normalize"))
        write_json({}, folder, path, "config.json")
    write_json(
        [
            {"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
            for i, (path, kind) in enumerate(modules)
        ],
        folder,
        "modules.json",
    )
    write_json(pooling, folder, "1_Pooling", "config.json")
    write_json(
        {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": "cosine"},
        folder,
        "config_sentence_transformers.json",
    )
    longest = min(200, config.max_position_embeddings)
    write_json(
        {"max_seq_length": longest, "do_lower_case": False}, folder, "sentence_bert_config.json"
    )


class PlainEncoder:
    """As much of SentenceTransformer as is recorded here, of a model that it does not know."""

    def __init__(self, name, folder):
        _, config, _, _, pooling, self.normalised, self.prompts, _, _ = MODELS[name]
        self.first = pooling.get("pooling_mode_cls_token", False)
        self.model = GteModel.load(folder, config)
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self.max_seq_length = min(200, config.max_position_embeddings)

    @torch.no_grad()
    def encode(self, texts, prompt_name, prompt, truncate_dim, **_):
        prompt = self.prompts[prompt_name] if prompt_name else prompt or ""
        vectors = []
        for text in texts:
            rows = self.tokenizer(prompt + text, truncation=True, max_length=self.max_seq_length)
            x = self.model(rows["input_ids"])
            vector = x[0] if self.first else x.mean(0)
            vector = vector[:truncate_dim] if truncate_dim else vector
            vectors.append(vector / vector.norm() if self.normalised else vector)
        return torch.stack(vectors)


def load_encoder(name, folder):
    if MODELS[name][0] is GteModel:
        return PlainEncoder(name, folder)
    return SentenceTransformer(
        folder,
        device="cpu",
        model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"},
    )


def record(name, folder):
    cases = []
    for case in MODELS[name][-1]:
        model = load_encoder(name, folder)
        if case.get("max_seq_length"):
            model.max_seq_length = case["max_seq_length"]
        vectors = model.encode(
            TEXTS,
            prompt_name=case.get("prompt"),
            prompt=case.get("prompt_text"),
            truncate_dim=case.get("dimensions"),
            normalize_embeddings=case.get("dimensions") is not None,
            batch_size=2,
        )
        fields = ("prompt", "prompt_text", "max_seq_length", "dimensions")
        cases.append({field: case.get(field) for field in fields})
        cases[-1]["vectors"] = [[float(f"{x:.9g}") for x in row] for row in vectors.tolist()]
    expected = {
        "texts": TEXTS,
        "ids": [model.tokenizer(text)["input_ids"] for text in TEXTS],
        "cases": cases,
    }
    with open(os.path.join(folder, "expected.json"), "w") as file:
        json.dump(expected, file, ensure_ascii=False)
        file.write("\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "fixtures", "embedding")
    torch.set_num_threads(1)
    names = sys.argv[2:] or list(MODELS)
    for index, name in enumerate(MODELS):
        if name not in names:
            continue
        folder = os.path.join(root, name)
        shutil.rmtree(folder, ignore_errors=True)
        write_model(name, folder, 2000 + index)
        record(name, folder)
    versions = {
        module.__name__: module.__version__
        for module in (torch, transformers, sentence_transformers, tokenizers, numpy)
    }
    write_json(versions, root, "versions.json")


if __name__ == "__main__":
    main()
