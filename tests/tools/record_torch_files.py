"""Records files of torch.save: what they may hold, in both containers, and what is refused.

    python tests/tools/record_torch_files.py    # torch, safetensors

The tensors of all_types are those that record_safetensors.py records, and some that share their
storage. Versions are noted in the recording. Output: tests/fixtures/formats/torch/.
"""

import collections
import io
import json
import os
import pathlib
import shutil
import zipfile

import safetensors.torch
import torch

from record_safetensors import every_type

ROOT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "formats" / "torch"


def all_types():
    tensors = collections.OrderedDict(every_type())
    tensors["tied"] = tensors["f32"]
    tensors["second row"] = tensors["f32"][1]
    tensors["once"] = tensors["f32"][1].expand(1, 3)  # its first stride does not matter
    tensors["parameter"] = torch.nn.Parameter(tensors["bf16"])
    tensors._metadata = {"": {"version": 1}}
    return tensors


def small():
    return collections.OrderedDict(w=torch.tensor([1.0, 2.0]), b=torch.tensor([3.0]).half())


def strided():
    """Views whose elements do not follow one another, of elements of every size."""
    whole = torch.arange(2 * 6 * 10).reshape(2, 6, 10)
    tensors = collections.OrderedDict()
    for dtype in (torch.int8, torch.bfloat16, torch.float32, torch.int64):
        values = (whole % 97).to(dtype)
        name = str(dtype).removeprefix("torch.")
        tensors[f"{name} transposed"] = values[0].T
        tensors[f"{name} permuted"] = values.permute(2, 0, 1)
        tensors[f"{name} columns"] = values[1, 2:5, 1:9:3]
        tensors[f"{name} every other"] = values.flatten()[1::2]
        tensors[f"{name} row of one"] = values[:, :1, 7:8]
        tensors[f"{name} deep"] = values.reshape(2, 2, 3, 5, 2).permute(4, 2, 0, 3, 1)
    tensors["twice"] = torch.arange(6.0).as_strided((2, 2), (0, 3))
    return tensors


def saved(value, **options):
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def repacked(archive, changes=None, method=zipfile.ZIP_STORED):
    """The archive again, with other contents of some entries, or None for none."""
    changes = changes or {}
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w", method) as new:
        for name in old.namelist():
            content = changes.pop(name, old.read(name))
            if content is not None:
                new.writestr(zipfile.ZipInfo(name), content, method)
        for name, content in changes.items():
            new.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


class Command:
    """What a malicious file holds in place of a tensor."""

    def __reduce__(self):
        return os.system, ("touch called",)


LEGACY = {"_use_new_zipfile_serialization": False}


def good():
    yield "all_types", saved(all_types())
    yield "all_types_legacy", saved(all_types(), **LEGACY)
    yield "protocol4", saved(all_types(), pickle_protocol=4)
    yield "protocol4_legacy", saved(all_types(), pickle_protocol=4, **LEGACY)
    yield "strided", saved(strided())
    yield "strided_legacy", saved(strided(), **LEGACY)
    yield "small", saved(small())
    yield "small_legacy", saved(small(), **LEGACY)
    yield "repacked", repacked(saved(small()))
    checkpoint = {"epoch": 3, "state_dict": small(), "lr": 1e-3, "done": True, "name": "é",
                  "large": 2**80, "called": Command(), "optimizer": {"state": {0: {"step": 5}}}}
    yield "nested", saved(checkpoint)
    yield "nested_legacy", saved({"model": dict(small())}, **LEGACY)
    yield "beside_plain", saved(dict(small(), epoch=3, extra=None))


def refused():
    yield "command", saved(dict(small(), evil=Command())), "\"evil\" is an object of posix.system"
    yield ("command_legacy", saved(dict(small(), evil=Command()), **LEGACY),
           "\"evil\" is an object of posix.system")
    yield "called", saved(Command()), "no state dict but an object of posix.system"
    yield "packed", repacked(saved(small()), method=zipfile.ZIP_DEFLATED), "is packed"
    yield ("expanded", saved({"w": torch.ones(2, 1).expand(2, 4)}),
           "tensor \"w\" has elements that stand for many: 32 bytes in 8 of storage")
    yield "expanded_legacy", saved({"w": torch.ones(1).expand(4)}, **LEGACY), "16 bytes in 4 of"
    yield "sparse", saved({"w": torch.eye(2).to_sparse()}), "made by _rebuild_sparse_tensor"
    complex_ones = torch.ones(2, dtype=torch.complex64)
    yield "conjugate", saved({"w": complex_ones.conj()}), "changes its values"
    yield ("negative", saved({"w": torch.tensor([1 + 2j, 3j]).conj().imag.contiguous(),
                              "v": torch.ones(3, dtype=torch.complex64).conj()[:1].imag}),
           "tensor \"v\" is a view that changes its values")
    yield ("wide_complex", saved({"w": torch.ones(2, dtype=torch.complex128)}),
           "is a torch.ComplexDoubleStorage")
    yield "module", saved(torch.nn.Linear(2, 1)), "an object of torch.nn.modules.linear.Linear"
    yield "list", saved([torch.ones(1)]), "no state dict but another value"
    yield "numbers", saved({"lr": 1e-3}), "holds no tensors by name"
    yield ("two", saved({"model": small(), "ema": small()}),
           "holds tensors in \"model\" and in \"ema\"")
    yield ("two_levels", saved(dict(small(), ema=small())),
           "holds tensors at the top and in \"ema\"")
    yield "big", repacked(saved(small()), {"archive/byteorder": b"big"}), "big-endian"
    yield ("program", repacked(saved(small()), {"archive/constants.pkl": b"\x80\x02)."}),
           "TorchScript")
    yield ("short_storage", repacked(saved(small()), {"archive/data/0": b"1234"}),
           "tensor \"w\" is in storage \"0\" of 8 bytes, of which the file has 4")
    yield ("no_storage", repacked(saved(small()), {"archive/data/0": None}),
           "which the file does not have")
    yield ("no_pickle", repacked(saved(small()), {"archive/data.pkl": None}),
           "without an entry data.pkl")
    yield "two_pickles", repacked(saved(small()), {"b/data.pkl": b"\x80\x02)."}), "two entries"


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    for folder in ("good", "refused"):
        (ROOT / folder).mkdir(parents=True)
    for name, content in good():
        (ROOT / "good" / f"{name}.bin").write_bytes(content)
    words = {}
    contiguous = {name: tensor.contiguous() for name, tensor in strided().items()}
    safetensors.torch.save_file(contiguous, ROOT / "strided.safetensors")
    (ROOT / "strided.safetensors").chmod(0o644)
    for name, content, said in refused():
        (ROOT / "refused" / f"{name}.bin").write_bytes(content)
        words[name] = said
    expected = {"versions": {"torch": torch.__version__}, "refused": words}
    (ROOT / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
