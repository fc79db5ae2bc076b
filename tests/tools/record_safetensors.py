"""Records files of safetensors, written by the real library, and files that lie.

    python tests/tools/record_safetensors.py weights    # safetensors, torch, transformers, peft
    python tests/tools/record_safetensors.py lies       # needs nothing but Python

Versions are noted in the recording. Output: tests/fixtures/formats/.
"""

import json
import pathlib
import shutil
import struct
import sys
import tempfile

from configurations.common import SIZES

ROOT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "formats"


def save(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def every_type():
    """A tensor of every type, and of every rank and name that is not usual."""
    import torch

    ramp = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    return {
        "f32": ramp + 0.5,
        "bf16": (ramp - 2).to(torch.bfloat16),
        "f16": (ramp / 4).to(torch.float16),
        "i8": (ramp - 3).to(torch.int8),
        "i32": (ramp * 1000).to(torch.int32),
        "i64": ramp.to(torch.int64) * 10**10,
        "u8": (ramp + 250).to(torch.uint8),
        "f64": ramp.to(torch.float64),
        "bool": ramp > 2,
        "f8": ramp.to(torch.float8_e4m3fn),
        "scalar": torch.tensor(7.0),
        "none": torch.zeros(0, 4),
        "rank6": torch.zeros(1, 1, 1, 1, 1, 2),
        "quote\" and é": torch.ones(1),
    }


def record_weights():
    import peft
    import safetensors
    import safetensors.torch
    import torch
    import transformers

    folder = ROOT / "weights"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tensors = every_type()
    safetensors.torch.save_file(tensors, folder / "all_types.safetensors", {"format": "pt"})
    readable = {name: tensors[name].contiguous() for name in
                ("f32", "bf16", "f16", "i8", "i32", "i64", "u8", "scalar", "none", "quote\" and é")}
    safetensors.torch.save_file(readable, folder / "readable.safetensors", {"format": "pt"})

    torch.manual_seed(1)
    config = transformers.LlamaConfig(**dict(SIZES, num_hidden_layers=1))
    model = transformers.LlamaForCausalLM(config)
    model.name_or_path = "base"
    sums = {name: float(value.double().sum()) for name, value in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch, max_shard_size="12KB")
        shutil.copytree(scratch, folder / "sharded_llama")
        adapted = peft.get_peft_model(
            model, peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"],
                                   task_type="CAUSAL_LM", base_model_name_or_path="base"))
        adapted.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    save(folder / "expected.json", json.dumps({
        "versions": {"safetensors": safetensors.__version__, "torch": torch.__version__,
                     "transformers": transformers.__version__, "peft": peft.__version__},
        "sharded_llama_sums": sums,
    }, indent=1) + "\n")


def container(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return dict({"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}, **more)


def nested_lists(depth):
    return [nested_lists(depth - 1)] if depth else []


def record_lies():
    """One safetensors file per kind of lie, with words the error must hold."""
    eight = b"\0" * 8
    good = container({"a": tensor()}, eight)
    huge = 2**62
    entry = b'{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    lies = {
        "empty_file": (b"", "too few"),
        "seven_bytes": (b"\1\0\0\0\0\0\0", "too few"),
        "length_beyond_file": (container({"a": tensor()}, eight, length=10**6), "truncated"),
        "length_all_ones": (container({"a": tensor()}, eight, length=2**64 - 1), "truncated"),
        "length_zero": (container({"a": tensor()}, eight, length=0), "does not begin"),
        "length_short": (container({"a": tensor()}, eight, length=20), "not valid JSON"),
        "length_long": (container({"a": tensor()}, eight, length=len(good) - 10), "JSON"),
        "truncated_header": (good[:30], "truncated"),
        "truncated_data": (good[:-1], "truncated"),
        "one_byte_more": (good + b"\0", "after the last tensor"),
        "leading_space": (container(b' {"a":' + entry + b"}", eight), "does not begin"),
        "not_an_object": (container(b"[1,2,3]"), "does not begin"),
        "broken_json": (container(b'{"a":' + entry, eight), "not valid JSON"),
        "nul_in_header": (container(b'{"a":' + entry + b"}\0{", eight), "NUL"),
        "invalid_utf8": (container(b'{"\xff\xfe":' + entry + b"}", eight), "not valid JSON"),
        "text_after_header": (container(b'{"a":' + entry + b"} x", eight), "not valid JSON"),
        "duplicate_name": (container(b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":'
                                     + entry + b"}", eight), "appears twice"),
        "duplicate_field": (container(b'{"a":{"dtype":"F32","dtype":"F32","shape":[2],'
                                      b'"data_offsets":[0,8]}}', eight), "appears twice"),
        "duplicate_metadata": (container(b'{"__metadata__":{},"__metadata__":{},"a":' + entry + b"}",
                                         eight), "appears twice"),
        "metadata_number": (container({"__metadata__": {"step": 1}, "a": tensor()}, eight),
                            "unexpected a number"),
        "metadata_text": (container(b'{"__metadata__":"pt","a":' + entry + b"}", eight),
                          "unexpected a string"),
        "entry_number": (container({"a": 1}, eight), "unexpected a number"),
        "entry_null": (container({"a": None}, eight), "unexpected null"),
        "no_dtype": (container({"a": {"shape": [2], "data_offsets": [0, 8]}}, eight), "missing"),
        "no_shape": (container({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, eight), "missing"),
        "no_offsets": (container({"a": {"dtype": "F32", "shape": [2]}}, eight), "missing"),
        "dtype_number": (container({"a": tensor(dtype=32)}, eight), "unexpected a number"),
        "shape_negative": (container({"a": tensor(shape=[-2])}, eight), "negative"),
        "shape_fraction": (container({"a": tensor(shape=[2.0])}, eight), "fraction"),
        "shape_text": (container({"a": tensor(shape=["2"])}, eight), "unexpected a string"),
        "shape_too_large": (container({"a": tensor(shape=[2**63])}, eight), "too large"),
        "shape_beyond_u64": (container({"a": tensor(shape=[2**70])}, eight), "fraction"),
        "shape_nested": (container({"a": tensor(shape=[[2]])}, eight), "unexpected an array"),
        "shape_overflow": (container({"a": tensor(shape=[huge, huge])}, eight), "overflows"),
        "shape_wraps_to_size": (container({"a": tensor(shape=[2**63 - 1, 2, 2])}, eight), "overflows"),
        "shape_zero_hides_overflow": (container({"a": tensor(shape=[0, huge, huge], offsets=[0, 0])}),
                                      "overflows"),
        "shape_rank": (container({"a": tensor(shape=[1] * 70 + [2])}, eight), "dimensions"),
        "shape_too_small": (container({"a": tensor(shape=[1])}, eight), "need 4 bytes"),
        "shape_too_big": (container({"a": tensor(shape=[3])}, eight), "need 12 bytes"),
        "dtype_size": (container({"a": tensor(dtype="F64")}, eight), "need 16 bytes"),
        "half_bytes": (container({"a": tensor(dtype="F4", shape=[3], offsets=[0, 1])}, b"\0"), "need"),
        "offsets_one": (container({"a": tensor(offsets=[0])}, eight), "two numbers"),
        "offsets_three": (container({"a": tensor(offsets=[0, 8, 8])}, eight), "unexpected a number"),
        "offsets_backwards": (container({"a": tensor(offsets=[8, 0])}, eight), "backwards"),
        "offsets_negative": (container({"a": tensor(offsets=[-8, 0])}, eight), "negative"),
        "offsets_beyond": (container({"a": tensor(offsets=[8, 16])}, eight), "has only 8"),
        "offsets_huge": (container({"a": tensor(offsets=[0, 2**64 - 1])}, eight), "has only 8"),
        "offsets_overlap": (container({"a": tensor(), "b": tensor(offsets=[4, 12])}, eight + b"\0" * 4),
                            "inside the tensor"),
        "offsets_same": (container({"a": tensor(), "b": tensor()}, eight), "inside the tensor"),
        "offsets_gap": (container({"a": tensor(), "b": tensor(offsets=[12, 20])}, b"\0" * 20), "gap"),
        "offsets_gap_first": (container({"a": tensor(offsets=[4, 12])}, b"\0" * 12), "gap"),
        "deep_unknown_field": (container({"a": tensor(note=nested_lists(40))}, eight), "deep"),
    }
    folder = ROOT / "lies"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, (content, _) in lies.items():
        (folder / f"{name}.safetensors").write_bytes(content)
    save(folder / "expected.json", json.dumps({k: v[1] for k, v in lies.items()}, indent=1) + "\n")


if __name__ == "__main__":
    parts = {"weights": record_weights, "lies": record_lies}
    for part in sys.argv[1:] or sys.exit(__doc__):
        parts[part]()
