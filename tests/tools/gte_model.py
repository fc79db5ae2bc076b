"""GTE of the kind whose model_type is "new", as a plain PyTorch model: what its folders are computed
by, written from the published description, since transformers has no class of its own for it.

    embeddings   LayerNorm(word + token type 0 or 1)
    layer        x = attn_ln(x + o_proj(attention(q, k, v)))   q|k|v = qkv_proj(x), heads turn
                 x = mlp_ln(x + down_proj(gelu(gate) * up))    up|gate = up_gate_proj(x), no bias
    angles       position / base^(2i / d), with rope_scaling of type ntk and a factor s of
                 base s for base, and divided by s^(2 / d)
    classifier   classifier(tanh(new.pooler.dense(x[0])))

One text at a time, without padding. Names of tensors are those of published files.
"""

import json
import os
import types

import safetensors.torch
import torch
from torch import nn
from torch.nn import functional


class GteConfig(types.SimpleNamespace):
    """The fields of config.json."""

    def __init__(self, **fields):
        usual = dict(
            model_type="new",
            hidden_act="gelu",
            layer_norm_type="layer_norm",
            position_embedding_type="rope",
            layer_norm_eps=1e-12,
            rope_theta=10000.0,
            rope_scaling=None,
            pack_qkv=True,
            logn_attention_scale=False,
            type_vocab_size=1,
            pad_token_id=0,
        )
        super().__init__(**{**usual, **fields})


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        if config.type_vocab_size > 0:
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, ids, token_types):
        rows = self.word_embeddings(ids)
        if hasattr(self, "token_type_embeddings"):
            rows = rows + self.token_type_embeddings(token_types)
        return self.LayerNorm(rows)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        if config.pack_qkv:
            self.qkv_proj = nn.Linear(width, 3 * width)
        else:
            self.q_proj = nn.Linear(width, width)
            self.k_proj = nn.Linear(width, width)
            self.v_proj = nn.Linear(width, width)
        self.o_proj = nn.Linear(width, width)

    def forward(self, x, cos, sin):
        count, width = x.shape
        if hasattr(self, "qkv_proj"):
            parts = self.qkv_proj(x).split(width, dim=-1)
        else:
            parts = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = (part.view(count, self.heads, -1).transpose(0, 1) for part in parts)
        q, k = (turned(part, cos, sin) for part in (q, k))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        attended = scores.softmax(-1) @ v
        return self.o_proj(attended.transpose(0, 1).reshape(count, width))


def turned(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_gate_proj = nn.Linear(
            config.hidden_size, 2 * config.intermediate_size, bias=False
        )
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        up, gate = self.up_gate_proj(x).chunk(2, dim=-1)
        return self.down_proj(functional.gelu(gate) * up)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config)
        self.mlp = Mlp(config)
        self.attn_ln = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp_ln = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x, cos, sin):
        x = self.attn_ln(x + self.attention(x, cos, sin))
        return self.mlp_ln(x + self.mlp(x))


def angles(config, count):
    columns = config.hidden_size // config.num_attention_heads
    base, divisor = config.rope_theta, 1.0
    if config.rope_scaling:
        factor = config.rope_scaling["factor"]
        base, divisor = base * factor, factor ** (2 / columns)
    powers = torch.arange(0, columns, 2).float() / columns
    inverse = 1.0 / base**powers / divisor
    each = torch.outer(torch.arange(count).float(), inverse)
    both = torch.cat((each, each), dim=-1)
    return both.cos(), both.sin()


class SavedModel(nn.Module):
    def save_pretrained(self, folder):
        os.makedirs(folder, exist_ok=True)
        tensors = {name: value.contiguous() for name, value in self.state_dict().items()}
        safetensors.torch.save_file(
            tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"}
        )
        dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
        fields = dict(architectures=[self.published_class], torch_dtype=dtype, **vars(self.config))
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(fields, file, indent=2)
            file.write("\n")

    @classmethod
    def load(cls, folder, config):
        """In float32."""
        model = cls(config)
        tensors = safetensors.torch.load_file(os.path.join(folder, "model.safetensors"))
        model.load_state_dict({name: value.float() for name, value in tensors.items()})
        return model


class GteModel(SavedModel):
    published_class = "NewModel"

    def __init__(self, config, pools=False):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        if pools:
            self.pooler = nn.Module()
            self.pooler.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, ids, token_types=None):
        """[tokens, width] of a list of ids."""
        types_of = token_types or [0] * len(ids)
        x = self.embeddings(torch.tensor(ids), torch.tensor(types_of))
        cos, sin = angles(self.config, len(ids))
        for layer in self.encoder.layer:
            x = layer(x, cos, sin)
        return x


class GteForSequenceClassification(SavedModel):
    published_class = "NewForSequenceClassification"

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.new = GteModel(config, pools=True)
        self.classifier = nn.Linear(config.hidden_size, 1)

    def forward(self, ids, token_types=None):
        """The logit of a pair."""
        first = self.new(ids, token_types)[0]
        return self.classifier(torch.tanh(self.new.pooler.dense(first)))[0]
