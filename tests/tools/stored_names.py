"""Tensors under the names that they have in files and in Jige, which transformers has in memory
under others, or several in one."""

# Of modules, as transformers has them in memory and as files of EXAONE 3 do.
EXAONE_NAMES = (
    ("model.embed_tokens.", "transformer.wte."), ("model.layers.", "transformer.h."),
    ("model.norm.", "transformer.ln_f."), (".self_attn.o_proj.", ".self_attn.out_proj."),
    (".self_attn.", ".attn.attention."), (".input_layernorm.", ".ln_1."),
    (".post_attention_layernorm.", ".ln_2."), (".gate_proj.", ".c_fc_0."),
    (".up_proj.", ".c_fc_1."), (".down_proj.", ".c_proj."),
)


def as_experts_of_gpt_oss(tensors):
    """Every expert by itself, [out, in], under the names that Jige gives them."""
    stored = {}
    for name, tensor in tensors.items():
        prefix, found, part = name.partition(".experts.")
        if not found:
            stored[name] = tensor.contiguous()
            continue
        kind = "bias" if part.endswith("_bias") else "weight"
        for index in range(tensor.shape[0]):
            at = f"{prefix}.experts.{index}."
            one = tensor[index] if kind == "bias" else tensor[index].T
            if part.startswith("down_proj"):
                stored[f"{at}down_proj.{kind}"] = one.clone().contiguous()
            else:
                stored[f"{at}gate_proj.{kind}"] = one[0::2].clone().contiguous()
                stored[f"{at}up_proj.{kind}"] = one[1::2].clone().contiguous()
    return stored


def as_stored(model, tensors):
    """Parameters' tensors under the names of Jige: every expert, every head's norm by itself."""
    if model.config.model_type == "gpt_oss":
        return as_experts_of_gpt_oss(tensors)
    mixtral = model.config.model_type in ("mixtral", "minimax_m2")
    kimi = model.config.model_type == "kimi_linear"
    short = mixtral or kimi or model.config.model_type == "lfm2_moe"
    gate, up, down = ("w1", "w3", "w2") if short else ("gate_proj", "up_proj", "down_proj")
    stored = {}
    for name, tensor in tensors.items():
        if model.config.model_type == "gpt_neox":
            name = name.replace("lm_head.", "embed_out.")
        if mixtral:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if model.config.model_type == "exaone":
            for usual, own in EXAONE_NAMES:
                name = name.replace(usual, own)
        if model.config.model_type == "nemotron_h" and name.startswith("model."):
            name = name.replace("model.", "backbone.", 1)
        if kimi:
            name = name.replace(".forget_gate.", ".")
            if any(part in name for part in (".experts.", ".shared_experts.", ".mlp.gate.")):
                name = name.replace(".mlp.", ".block_sparse_moe.")
            if ".conv1d." in name:
                for part, rows in zip("qkv", tensor.chunk(3)):
                    stored[name.replace("conv1d", f"{part}_conv1d")] = rows.clone()
                continue
        if model.config.model_type == "hy_v3":
            name = name.replace(".mlp.gate.", ".mlp.router.gate.")
            name = name.replace(".mlp.shared_experts.", ".mlp.shared_mlp.")
        if model.config.model_type == "lfm3":
            name = name.replace(".self_attn.g_proj.", ".self_attn.gate_proj.")
        if model.config.model_type != "granitemoe_swa":
            name = name.replace(".block_sparse_moe.router.", ".block_sparse_moe.router.layer.")
        if model.config.model_type == "olmo_hybrid" and name.startswith("model.layers."):
            if model.config.layer_types[int(name.split(".")[2])] == "linear_attention":
                name = name.replace("input_layernorm", "attention_layer_norm")
                name = name.replace("post_attention_layernorm", "feedforward_layer_norm")
            if ".conv1d." in name:
                keys = model.config.linear_num_key_heads * model.config.linear_key_head_dim
                values = tensor.shape[0] - 2 * keys
                for part, rows in zip("qkv", tensor.split((keys, keys, values))):
                    stored[name.replace("conv1d", f"{part}_conv1d")] = rows.clone()
                continue
        if name.endswith("_norm.weight") and tensor.dim() == 2:
            for index, row in enumerate(tensor):
                stored[name.replace(".weight", f".{index}.weight")] = row.clone()
            continue
        prefix, found, part = name.partition(".experts.")
        if found and model.config.model_type == "llama4_text":
            tensor = tensor.transpose(1, 2)
        for index in range(tensor.shape[0] if found else 0):
            at = f"{prefix}.experts.{index}."
            if part == "down_proj":
                stored[f"{at}{down}.weight"] = tensor[index].clone().contiguous()
            elif part == "up_proj":
                stored[f"{at}{up}.weight"] = tensor[index].clone()
            else:
                halves = tensor[index].chunk(2)
                stored[f"{at}{gate}.weight"] = halves[0].clone().contiguous()
                stored[f"{at}{up}.weight"] = halves[1].clone().contiguous()
        if not found:
            stored[name] = tensor.contiguous()
    return stored
