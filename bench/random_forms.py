"""Matrices with random codes in the forms that folders hold them in: tensors of safetensors, by the
name of a module, and the quantization_config that goes with them."""
import random
import struct

GROUP = 128
SCALE = {"F16": b"\x00\x14", "BF16": b"\x80\x3a", "F32": struct.pack("<f", 2.0 ** -10)}  # 2^-10
FORMS = ["bf16", "f16", "fp8", "packed4", "gptq4", "awq4"]


def config_of(form):
    """What config.json says; None for floating point."""
    if form == "fp8":
        return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                "weight_block_size": [GROUP, GROUP]}
    if form == "packed4":
        weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
                   "group_size": GROUP}
        return {"quant_method": "compressed-tensors", "format": "pack-quantized",
                "quantization_status": "compressed", "ignore": ["lm_head"],
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    if form == "gptq4":
        return {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False,
                "sym": True}
    if form == "awq4":
        return {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True,
                "version": "gemm"}
    return None


def random_bytes(name, count):
    return random.Random(name).randbytes(count)


def spread_codes(name, count):
    """Bytes of two codes of 4 bits each, around 8 as trained ones are: means of four random ones."""
    low_bits = int.from_bytes(b"\x77" * count, "little")
    a, b, c, d = (int.from_bytes(random_bytes(f"{name} {i}", count), "little") for i in range(4))

    def mean(x, y):  # rounded up, in each half of a byte
        return (x | y) - ((x ^ y) >> 1 & low_bits)

    return mean(mean(a, b), mean(c, d)).to_bytes(count, "little")


def floats(form, name, count):
    """16 bits each with random sign and mantissa and one exponent, 2^-7."""
    kept, exponent = (b"\xff\x83", b"\x00\x20") if form == "f16" else (b"\x7f\x80", b"\x00\x3c")
    bits = int.from_bytes(random_bytes(name, 2 * count), "little")
    bits = bits & int.from_bytes(kept * count, "little")
    return (bits | int.from_bytes(exponent * count, "little")).to_bytes(2 * count, "little")


def tensors(form, module, rows, columns):
    """Name, type, shape and bytes of all that stands for the matrix [rows, columns]."""
    def part(name, dtype, shape, data):
        return f"{module}.{name}", dtype, shape, data

    count, groups, words = rows * columns, columns // GROUP, columns // 8
    if form in ("bf16", "f16"):
        yield part("weight", form.upper(), [rows, columns], floats(form, module, count))
    elif form == "fp8":
        codes = int.from_bytes(random_bytes(module, count), "little")
        codes &= int.from_bytes(b"\xbf" * count, "little")  # none is NaN
        scales = [-(-rows // GROUP), -(-columns // GROUP)]
        yield part("weight", "F8_E4M3", [rows, columns], codes.to_bytes(count, "little"))
        yield part("weight_scale_inv", "F32", scales, SCALE["F32"] * (scales[0] * scales[1]))
    elif form == "packed4":
        yield part("weight_packed", "I32", [rows, words], spread_codes(module, count // 2))
        yield part("weight_scale", "BF16", [rows, groups], SCALE["BF16"] * (rows * groups))
        yield part("weight_shape", "I64", [2], struct.pack("<2q", rows, columns))
    else:
        shape = [words, rows] if form == "gptq4" else [columns, rows // 8]
        yield part("qweight", "I32", shape, spread_codes(module, count // 2))
        yield part("qzeros", "I32", [groups, rows // 8], b"\x77" * (groups * rows // 2))
        yield part("scales", "F16", [groups, rows], SCALE["F16"] * (groups * rows))
        if form == "gptq4":
            order = struct.pack(f"<{columns}i", *(k // GROUP for k in range(columns)))
            yield part("g_idx", "I32", [columns], order)
