"""A random embedding model and texts for it, for the comparisons that make vectors."""
import json
import os
import random
import subprocess

import random_forms
import random_llama

DEBERTA_BUCKETS = 256  # as published
MODULES = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]


def write_json(value, *path):
    os.makedirs(os.path.dirname(os.path.join(*path)), exist_ok=True)
    with open(os.path.join(*path), "w") as out:
        json.dump(value, out)


def encoder_tensors(size, pairs):
    """Of a BERT as wide and deep as the Llama of that size: name, type, shape and bytes of each;
    with the head of a cross-encoder, where it is to judge pairs."""
    s = random_llama.SIZES[size]
    width, ffn = s["width"], 4 * s["width"]
    prefix = "bert." if pairs else ""

    def matrix(name, rows, columns):
        yield (f"{name}.weight", "BF16", [rows, columns],
               random_forms.floats("bf16", name, rows * columns))

    def vectors(name, count, weight=False):
        if weight:
            yield f"{name}.weight", "BF16", [count], b"\x80\x3f" * count
        yield f"{name}.bias", "BF16", [count], b"\0\0" * count

    for name, rows in (("word", random_llama.VOCABULARY), ("position", random_llama.CONTEXT),
                       ("token_type", 2)):
        yield from matrix(f"{prefix}embeddings.{name}_embeddings", rows, width)
    yield from vectors(f"{prefix}embeddings.LayerNorm", width, weight=True)
    for i in range(s["layers"]):
        layer = f"{prefix}encoder.layer.{i}."
        for part in ("query", "key", "value"):
            yield from matrix(f"{layer}attention.self.{part}", width, width)
            yield from vectors(f"{layer}attention.self.{part}", width)
        for name, rows, columns in (("attention.output", width, width),
                                    ("intermediate", ffn, width), ("output", width, ffn)):
            yield from matrix(f"{layer}{name}.dense", rows, columns)
            yield from vectors(f"{layer}{name}.dense", rows)
            if rows == width:
                yield from vectors(f"{layer}{name}.LayerNorm", width, weight=True)
    if pairs:
        for name, rows in (("bert.pooler.dense", width), ("classifier", 1)):
            yield from matrix(name, rows, width)
            yield from vectors(name, rows)


def modern_tensors(size):
    """The same of a ModernBERT."""
    s = random_llama.SIZES[size]
    width, ffn = s["width"], modern_ffn(size)

    def matrix(name, rows, columns):
        return (f"{name}.weight", "BF16", [rows, columns],
                random_forms.floats("bf16", name, rows * columns))

    def norm(name):
        return f"{name}.weight", "BF16", [width], b"\x80\x3f" * width

    yield matrix("embeddings.tok_embeddings", random_llama.VOCABULARY, width)
    yield norm("embeddings.norm")
    for i in range(s["layers"]):
        layer = f"layers.{i}."
        if i > 0:
            yield norm(layer + "attn_norm")
        yield matrix(layer + "attn.Wqkv", 3 * width, width)
        yield matrix(layer + "attn.Wo", width, width)
        yield norm(layer + "mlp_norm")
        yield matrix(layer + "mlp.Wi", 2 * ffn, width)
        yield matrix(layer + "mlp.Wo", width, ffn)
    yield norm("final_norm")


def modern_ffn(size):
    return random_llama.SIZES[size]["width"] * 3 // 2  # as published


def write_modern(folder, size):
    s = random_llama.SIZES[size]
    write_json({"architectures": ["ModernBertModel"], "model_type": "modernbert",
                "torch_dtype": "bfloat16", "vocab_size": random_llama.VOCABULARY,
                "hidden_size": s["width"], "num_hidden_layers": s["layers"],
                "num_attention_heads": s["heads"], "intermediate_size": modern_ffn(size),
                "max_position_embeddings": random_llama.CONTEXT, "pad_token_id": 0,
                "bos_token_id": 0, "eos_token_id": 0, "cls_token_id": 0, "sep_token_id": 0},
               folder, "config.json")
    random_llama.write_safetensors(os.path.join(folder, "model.safetensors"),
                                   lambda: modern_tensors(size))


def write_encoder(folder, size, pairs):
    s = random_llama.SIZES[size]
    name = "BertForSequenceClassification" if pairs else "BertModel"
    write_json({"architectures": [name], "id2label": {"0": "LABEL_0"},
                "model_type": "bert", "torch_dtype": "bfloat16",
                "vocab_size": random_llama.VOCABULARY, "hidden_size": s["width"],
                "num_hidden_layers": s["layers"], "num_attention_heads": s["heads"],
                "intermediate_size": 4 * s["width"], "type_vocab_size": 2,
                "max_position_embeddings": random_llama.CONTEXT, "hidden_act": "gelu",
                "pad_token_id": 0}, folder, "config.json")
    random_llama.write_safetensors(os.path.join(folder, "model.safetensors"),
                                   lambda: encoder_tensors(size, pairs))


def deberta_tensors(size, pairs):
    """The same of a DeBERTa v3."""
    s = random_llama.SIZES[size]
    width, ffn = s["width"], 4 * s["width"]
    prefix = "deberta." if pairs else ""

    def matrix(name, rows, columns):
        return (f"{name}.weight", "BF16", [rows, columns],
                random_forms.floats("bf16", name, rows * columns))

    def linear(name, rows, columns):
        yield matrix(name, rows, columns)
        yield f"{name}.bias", "BF16", [rows], b"\0\0" * rows

    def norm(name):
        yield f"{name}.weight", "BF16", [width], b"\x80\x3f" * width
        yield f"{name}.bias", "BF16", [width], b"\0\0" * width

    yield matrix(f"{prefix}embeddings.word_embeddings", random_llama.VOCABULARY, width)
    yield from norm(f"{prefix}embeddings.LayerNorm")
    yield matrix(f"{prefix}encoder.rel_embeddings", 2 * DEBERTA_BUCKETS, width)
    yield from norm(f"{prefix}encoder.LayerNorm")
    for i in range(s["layers"]):
        layer = f"{prefix}encoder.layer.{i}."
        for part in ("query", "key", "value"):
            yield from linear(f"{layer}attention.self.{part}_proj", width, width)
        for name, rows, columns in (("attention.output", width, width),
                                    ("intermediate", ffn, width), ("output", width, ffn)):
            yield from linear(f"{layer}{name}.dense", rows, columns)
            if rows == width:
                yield from norm(f"{layer}{name}.LayerNorm")
    if pairs:
        yield from linear("pooler.dense", width, width)
        yield from linear("classifier", 1, width)


def write_deberta(folder, size, pairs):
    s = random_llama.SIZES[size]
    name = "DebertaV2ForSequenceClassification" if pairs else "DebertaV2Model"
    write_json({"architectures": [name], "id2label": {"0": "LABEL_0"},
                "model_type": "deberta-v2", "torch_dtype": "bfloat16",
                "vocab_size": random_llama.VOCABULARY, "hidden_size": s["width"],
                "num_hidden_layers": s["layers"], "num_attention_heads": s["heads"],
                "intermediate_size": 4 * s["width"], "type_vocab_size": 0,
                "max_position_embeddings": random_llama.CONTEXT, "hidden_act": "gelu",
                "relative_attention": True, "position_buckets": DEBERTA_BUCKETS,
                "max_relative_positions": 512, "pos_att_type": "p2c|c2p", "share_att_key": True,
                "norm_rel_ebd": "layer_norm", "position_biased_input": False,
                "pad_token_id": 0}, folder, "config.json")
    random_llama.write_safetensors(os.path.join(folder, "model.safetensors"),
                                   lambda: deberta_tensors(size, pairs))


def write_pooling(folder, size):
    width = random_llama.SIZES[size]["width"]
    write_json([{"idx": i, "name": str(i), "path": path,
                 "type": "sentence_transformers.models." + kind}
                for i, (path, kind) in enumerate(MODULES)], folder, "modules.json")
    write_json({"word_embedding_dimension": width, "pooling_mode_mean_tokens": True},
               folder, "1_Pooling", "config.json")
    write_json({}, folder, "2_Normalize", "config.json")
    write_json({"max_seq_length": 1024}, folder, "sentence_bert_config.json")


def frame_pairs(folder):
    """Has the folder's tokenizer put two texts together as BERT's do, and not as a chat."""
    path = os.path.join(folder, "chat_template.jinja")
    if os.path.exists(path):
        os.remove(path)
    path = os.path.join(folder, "tokenizer_config.json")
    with open(path) as file:
        config = json.load(file)
    config.pop("chat_template", None)
    config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    write_json(config, path)
    path = os.path.join(folder, "tokenizer.json")
    with open(path) as file:
        tokenizer = json.load(file)
    token = tokenizer["added_tokens"][0]
    frame = [token["content"], token["id"]]
    tokenizer["post_processor"] = {"type": "BertProcessing", "cls": frame, "sep": frame}
    write_json(tokenizer, path)


def write_model(folder, jige, size, encoder=None, pairs=False):
    """A model folder with the pooling of sentence-transformers and a tokenizer of its own; a Llama
    or an encoder ("bert", "modernbert", "deberta") of that width and depth, or a BERT or DeBERTa
    that judges pairs."""
    random_llama.write_folder(folder, size)
    if encoder == "modernbert" and not pairs:
        write_modern(folder, size)
    elif encoder == "deberta":
        write_deberta(folder, size, pairs)
    elif encoder or pairs:
        write_encoder(folder, size, pairs)
    if not pairs:
        write_pooling(folder, size)
    subprocess.run([jige, "corpus", "--out", os.path.join(folder, "corpus"), "--quiet"],
                   check=True)
    os.remove(os.path.join(folder, "tokenizer.json"))
    corpus = os.path.join(folder, "corpus", "train.jsonl")
    subprocess.run([jige, "tokenizer", "train", corpus, "--vocab-size", "4096", "--out",
                    os.path.join(folder, "tokenizer"), "--quiet"], check=True)
    for name in os.listdir(os.path.join(folder, "tokenizer")):
        os.rename(os.path.join(folder, "tokenizer", name), os.path.join(folder, name))
    if pairs:
        frame_pairs(folder)
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
