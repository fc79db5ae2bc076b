"""Records small images with the pixels that Pillow gives of them, and what resizing makes of pixels.

    python tests/tools/record_images.py [FOLDER]          default: tests/fixtures/images

Writes FOLDER/files/NAME.{png,jpg,webp,gif} and

    FOLDER/decoded.json    [{"file": NAME, "width": w, "height": h, "rgb": BASE64} …]
    FOLDER/resized.json    [{"from": [w, h], "to": [w, h], "filter": NAME, "rgb": BASE64} …]
    FOLDER/patches.json    {"width", "height", "patch", "mean", "std", "rows": BASE64 of f32}

Pixels of a file are those of exif_transpose and convert("RGB"), but for greys of 16 bits, where
Pillow cuts at 255 and the high byte is recorded. What is resized is drawn(w, h, seed of the case's number);
tests draw the same. Pillow resizes rows before columns up to version 12; later versions turn that
round where columns shrink more, so that rows and columns are asked for one after the other here.
Patches are those of transformers' PixtralImageProcessor. FOLDER/versions.json names the versions.
In the end it prints how far torchvision's resizing is from Pillow's.
"""

import base64
import io
import json
import pathlib
import shutil
import struct
import sys
import zlib

import numpy
import PIL
import torch
import torchvision
import transformers
from PIL import Image, ImageOps, features
from torchvision.transforms.v2 import functional

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
SHAPES = [
    ((1, 1), (7, 5)), ((2, 2), (31, 1)), ((1, 50), (1, 7)), ((50, 1), (7, 1)), ((3, 4), (4, 3)),
    ((300, 2), (3, 2)), ((2, 300), (2, 3)), ((97, 61), (40, 33)), ((33, 21), (57, 40)),
    ((640, 480), (28, 21)), ((5, 5), (5, 9)), ((9, 5), (3, 5)), ((71, 65), (47, 9)),
    ((18, 78), (12, 45)), ((40, 11), (39, 12)), ((64, 48), (32, 24)), ((1000, 7), (1, 1)),
    ((11, 13), (44, 26)), ((200, 150), (14, 42)), ((7, 9), (300, 1)), ((29, 31), (28, 28)),
]


def drawn(width, height, seed):
    """Bytes of a linear congruential generator; every third seed gives black and white alone."""
    state = seed
    values = bytearray()
    for _ in range(width * height * 3):
        state = (state * 1664525 + 1013904223) % 2**32
        value = state >> 24
        values.append(255 * (value > 127) if seed % 3 == 0 else value)
    return numpy.frombuffer(bytes(values), numpy.uint8).reshape(height, width, 3)


def scene(width, height):
    """Smooth colours with an edge, which JPEG keeps nearly."""
    y, x = numpy.mgrid[0:height, 0:width]
    red = 255 * x // max(width - 1, 1)
    green = 255 * y // max(height - 1, 1)
    blue = numpy.where(x + y < (width + height) // 2, 40, 210)
    return numpy.stack([red, green, blue], -1).astype(numpy.uint8)


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(values, depth, colour, interlaced=False, before=b"", after=b""):
    """A PNG of samples [height, width, channels], as the format says: Pillow writes few kinds."""
    height, width, channels = values.shape
    bits = "".join

    def rows(part):
        packed = b""
        for row in part:
            text = bits(format(int(v), f"0{depth}b") for v in row.reshape(-1))
            text += "0" * (-len(text) % 8)
            packed += b"\0" + int(text, 2).to_bytes(len(text) // 8, "big")
        return packed

    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    if interlaced:
        parts = [values[y0::dy, x0::dx] for x0, y0, dx, dy in passes]
        data = b"".join(rows(part) for part in parts if part.size)
    else:
        data = rows(values)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(data))
            + after + chunk(b"IEND", b""))


def exif(orientation, order="II", type_name="H"):
    mark = {"II": "<", "MM": ">"}[order]
    kind = {"B": 1, "H": 3, "I": 4}[type_name]
    value = struct.pack(mark + type_name, orientation).ljust(4, b"\0")
    entries = struct.pack(mark + "HHI", 0x010F, 2, 4) + b"abc\0"  # the maker, which is passed over
    entries += struct.pack(mark + "HHI", 0x0112, kind, 1) + value
    return order.encode() + struct.pack(mark + "HIH", 42, 8, 2) + entries + struct.pack(mark + "I", 0)


def xmp(orientation, as_element=False):
    if as_element:
        return f"<x><tiff:Orientation>{orientation}</tiff:Orientation></x>".encode()
    return f'<x tiff:Orientation="{orientation}"/>'.encode()


def png_files():
    random = numpy.random.default_rng(1)

    def samples(channels, depth, width=13, height=9):
        return random.integers(0, 2**depth, (height, width, channels), dtype=numpy.uint32)

    for depth in (1, 2, 4, 8, 16):
        yield f"grey{depth}", png(samples(1, depth), depth, 0)
    for depth in (1, 2, 4, 8):
        palette = chunk(b"PLTE", random.integers(0, 256, 3 * 2**depth, dtype=numpy.uint8).tobytes())
        see_through = chunk(b"tRNS", bytes(range(0, 2**min(depth, 4))))
        yield f"palette{depth}", png(samples(1, depth), depth, 3, before=palette)
        yield f"palette{depth}_clear", png(samples(1, depth), depth, 3, True, palette + see_through)
    for depth in (8, 16):
        yield f"grey_alpha{depth}", png(samples(2, depth), depth, 4)
        yield f"rgb{depth}", png(samples(3, depth), depth, 2)
        yield f"rgba{depth}", png(samples(4, depth), depth, 6)
    yield "rgb_clear", png(samples(3, 8), 8, 2, before=chunk(b"tRNS", b"\0\1\0\2\0\3"))
    yield "grey_clear", png(samples(1, 4), 4, 0, before=chunk(b"tRNS", b"\0\1"))
    for width, height in ((1, 1), (2, 3), (5, 17), (17, 5)):
        yield f"interlaced_{width}x{height}", png(samples(3, 8, width, height), 8, 2, True)
    yield "interlaced_grey1", png(samples(1, 1, 11, 10), 1, 0, True)
    yield "gamma", png(samples(3, 8), 8, 2, before=chunk(b"gAMA", struct.pack(">I", 100000)))
    yield "turned_before", png(samples(3, 8), 8, 2, before=chunk(b"eXIf", exif(6)))
    yield "turned_after", png(samples(3, 8), 8, 2, after=chunk(b"eXIf", exif(8, "MM")))


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def segment(number, data):
    return bytes([0xFF, number]) + struct.pack(">H", len(data) + 2) + data


def with_segments(jpeg, *segments):
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def jpeg_files():
    image = Image.fromarray(scene(35, 19))
    small = Image.fromarray(scene(12, 8))
    inks = Image.fromarray(numpy.concatenate([scene(20, 12), scene(20, 12)[..., :1] // 3], -1), "CMYK")
    for sampling in ("4:4:4", "4:2:2", "4:2:0"):
        name = sampling.replace(":", "")
        yield f"sampled{name}", saved(image, "JPEG", subsampling=sampling, quality=85)
        yield f"progressive{name}", saved(image, "JPEG", subsampling=sampling, progressive=True)
    yield "grey", saved(image.convert("L"), "JPEG")
    yield "grey_progressive", saved(image.convert("L"), "JPEG", progressive=True)
    yield "kept_rgb", saved(image, "JPEG", keep_rgb=True)
    yield "restarts", saved(image, "JPEG", restart_marker_blocks=2)
    yield "one_pixel", saved(Image.fromarray(scene(1, 1)), "JPEG")
    yield "trailing", saved(small, "JPEG") + b"behind the end"
    cmyk = saved(inks, "JPEG")
    adobe = cmyk.index(b"Adobe")
    yield "cmyk", cmyk
    yield "ycck", cmyk[:adobe + 11] + b"\2" + cmyk[adobe + 12:]
    yield "cmyk_unmarked", cmyk[:adobe - 4] + cmyk[adobe + 12:]
    plain = saved(small, "JPEG", quality=90, subsampling=0)
    for orientation in range(10):
        data = b"Exif\0\0" + exif(orientation, "II" if orientation % 2 else "MM")
        yield f"turned{orientation}", with_segments(plain, segment(0xE1, data))
    whole = b"Exif\0\0" + exif(5, "MM", "I")
    yield "turned_in_parts", with_segments(plain, segment(0xE1, whole[:20]), segment(0xE1, whole[:6] + whole[20:]))
    title = b"http://ns.adobe.com/xap/1.0/\0"
    yield "turned_xmp", with_segments(plain, segment(0xE1, title + xmp(3)))
    told = [segment(0xE1, title + xmp(3)), segment(0xE1, b"Exif\0\0" + exif(6, "II", "B"))]
    yield "turned_both", with_segments(plain, *told)


def webp_parts(webp):
    """The chunks of a WebP file, as (name, data)."""
    at = 12
    while at < len(webp):
        size = struct.unpack("<I", webp[at + 4:at + 8])[0]
        yield webp[at:at + 4], webp[at + 8:at + 8 + size]
        at += 8 + size + size % 2


def webp_file(parts):
    body = b"WEBP"
    for name, data in parts:
        body += name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def three_bytes(*numbers):
    return b"".join(struct.pack("<I", number)[:3] for number in numbers)


def animation(pixels, width, height, left, top):
    """An animation whose first picture covers a part of its canvas; Pillow writes whole ones."""
    still = dict(webp_parts(saved(Image.fromarray(pixels), "WEBP", lossless=True)))
    picture = webp_file([(b"VP8L", still[b"VP8L"])])[12:]
    rest = three_bytes(left // 2, top // 2, pixels.shape[1] - 1, pixels.shape[0] - 1, 100) + b"\0"
    frame = (b"ANMF", rest + picture)
    return webp_file([(b"VP8X", b"\2\0\0\0" + three_bytes(width - 1, height - 1)),
                      (b"ANIM", b"\x10\x20\x30\xff\0\0"), frame, frame])


def webp_files():
    image = Image.fromarray(scene(35, 19))
    small = Image.fromarray(scene(12, 8))
    alpha = numpy.concatenate([drawn(12, 8, 4), drawn(12, 8, 5)[..., :1]], -1)
    yield "lossy", saved(image, "WEBP", quality=80)
    yield "lossless", saved(Image.fromarray(drawn(13, 9, 1)), "WEBP", lossless=True)
    yield "lossy_alpha", saved(Image.fromarray(alpha), "WEBP", quality=80)
    yield "lossless_alpha", saved(Image.fromarray(alpha), "WEBP", lossless=True, exact=True)
    yield "turned", saved(small, "WEBP", lossless=True, exif=b"Exif\0\0" + exif(6))
    yield "turned_xmp", saved(small, "WEBP", lossless=True, xmp=xmp(8, True))
    yield "animated", saved(small, "WEBP", lossless=True, save_all=True,
                            append_images=[Image.fromarray(drawn(12, 8, 2))])
    yield "animated_part", animation(drawn(6, 5, 7), 14, 11, 4, 2)


def new_codes(pixels):
    """GIF's codes as (code, bits): a clear before each pixel, so that all codes are of nine bits."""
    for value in pixels.reshape(-1):
        yield from ((256, 9), (value, 9))
    yield 257, 9


def table_codes(pixels):
    """GIF's codes as (code, bits), with a table that stays as it is once it is full."""
    table = {bytes([i]): i for i in range(256)}
    count, bits, run = 258, 9, b""
    yield 256, bits
    for value in pixels.reshape(-1):
        longer = run + bytes([value])
        if longer in table:
            run = longer
            continue
        yield table[run], bits
        if count < 4096:
            table[longer] = count
            count += 1
            bits = min(12, (count - 1).bit_length())
        run = bytes([value])
    yield table[run], bits
    yield 257, bits


def gif(pixels, palette, screen=None, place=(0, 0), flags=0, before=b"", local=b"", version=b"GIF89a",
        codes=new_codes):
    """A GIF of one picture: Pillow writes whole screens alone."""
    height, width = pixels.shape
    screen = screen or (width, height)
    size = struct.pack("<HH", *screen)
    table = (bytes([0x80 + (len(palette) // 3).bit_length() - 2]) if palette else b"\0") + b"\0\0" + palette
    local_flags = 0x80 + (len(local) // 3).bit_length() - 2 if local else 0
    picture = b"," + struct.pack("<HHHH", *place, width, height) + bytes([flags | local_flags]) + local
    bits = "".join(format(code, f"0{width}b")[::-1] for code, width in codes(pixels))
    bits += "0" * (-len(bits) % 8)
    data = bytes(int(bits[i:i + 8][::-1], 2) for i in range(0, len(bits), 8))
    blocks = b"".join(bytes([len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255))
    return version + size + table + before + picture + b"\x08" + blocks + b"\0;"


def gif_files():
    random = numpy.random.default_rng(3)
    photo = Image.fromarray(scene(35, 19)).quantize(64)
    yield "photo", saved(photo, "GIF")
    yield "photo_interlaced", saved(photo, "GIF", interlace=True)
    yield "two_colours", saved(Image.fromarray(scene(12, 8)).convert("1"), "GIF")
    yield "animated", saved(photo, "GIF", save_all=True, append_images=[photo.rotate(180)])
    palette = random.integers(0, 256, 3 * 256, dtype=numpy.uint8).tobytes()
    pixels = random.integers(0, 256, (5, 7), dtype=numpy.uint8)
    rows = numpy.zeros((11, 3), numpy.uint8) + numpy.arange(11, dtype=numpy.uint8)[:, None]
    clear = b"!\xf9\4\1\0\0\x09\0"
    comment = b"!\xfe\5hello\3you\0"
    yield "whole", gif(pixels, palette, version=b"GIF87a")
    yield "interlaced_rows", gif(rows, palette, flags=0x40)
    yield "part", gif(pixels, palette, (12, 10), (3, 2))
    yield "part_clear", gif(pixels, palette, (12, 10), (3, 2), before=comment + clear)
    yield "outside", gif(pixels, palette, (4, 4), (3, 2))
    yield "own_colours", gif(pixels, palette, local=palette[::-1])
    yield "kept_table", gif(drawn(80, 90, 1)[..., 0], palette, codes=table_codes)
    yield "no_colours", gif(pixels, b"")


def text(values):
    return base64.b64encode(numpy.ascontiguousarray(values).tobytes()).decode()


KINDS = {"png": png_files, "jpg": jpeg_files, "webp": webp_files, "gif": gif_files}


def record_files(folder):
    (folder / "files").mkdir()
    cases = []
    for ending, files in KINDS.items():
        for name, data in files():
            (folder / "files" / f"{name}.{ending}").write_bytes(data)
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
            if image.mode == "I;16":
                image = Image.fromarray((numpy.asarray(image) >> 8).astype(numpy.uint8))
            pixels = numpy.asarray(image.convert("RGB"))
            height, width, _ = pixels.shape
            cases.append({"file": f"{name}.{ending}", "width": width, "height": height, "rgb": text(pixels)})
    return cases


def resized(image, size, method):
    if method == Image.Resampling.NEAREST:
        return image.resize(size, method)
    return image.resize((size[0], image.height), method).resize(size, method)


def record_resizing():
    cases = []
    for source, size in SHAPES:
        for name, method in FILTERS.items():
            image = Image.fromarray(drawn(*source, len(cases)))
            cases.append({"from": source, "to": size, "filter": name, "rgb": text(resized(image, size, method))})
    return cases


def record_patches():
    width, height, patch = 28, 42, 14
    processor = transformers.PixtralImageProcessor(patch_size={"height": patch, "width": patch})
    image = Image.fromarray(drawn(width, height, 1))
    pixels = processor(image, return_tensors="pt")["pixel_values"][0]
    rows = torch.nn.functional.unfold(pixels[None], patch, stride=patch)[0].T
    assert pixels.shape == (3, height, width)
    return {"width": width, "height": height, "patch": patch, "mean": processor.image_mean,
            "std": processor.image_std, "rows": text(rows.numpy().astype("<f4"))}


def farthest_of_torchvision():
    """How far bytes of torchvision's resizing, which rounds weights to 16 bits, are from Pillow's."""
    random = numpy.random.default_rng(2)
    most = 0
    for number in range(200):
        width, height, *size = (int(side) for side in random.integers(2, 200, 4))
        image = drawn(width, height, number) if number % 2 else scene(width, height)
        pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)
        for name in ("bilinear", "bicubic", "lanczos"):
            mode = getattr(functional.InterpolationMode, name.upper())
            theirs = functional.resize(pixels, size[::-1], interpolation=mode, antialias=True)
            ours = numpy.asarray(resized(Image.fromarray(image), tuple(size), FILTERS[name]))
            away = numpy.abs(theirs.permute(1, 2, 0).numpy().astype(int) - ours)
            most = max(most, int(away.max()))
    return most


def main():
    root = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "images"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root
    shutil.rmtree(folder, ignore_errors=True)

    def write(name, value):
        lines = ",\n".join(json.dumps(case) for case in value) if isinstance(value, list) else ""
        body = f"[\n{lines}\n]" if lines else json.dumps(value, indent=2)
        (folder / name).write_text(body + "\n")

    folder.mkdir(parents=True)
    write("decoded.json", record_files(folder))
    write("resized.json", record_resizing())
    write("patches.json", record_patches())
    write("versions.json", {"pillow": PIL.__version__, "libjpeg_turbo": features.version("libjpeg_turbo"),
                            "libwebp": features.version("webp"), "torchvision": torchvision.__version__,
                            "transformers": transformers.__version__, "torch": torch.__version__})
    print(f"torchvision resizes to bytes up to {farthest_of_torchvision()} away from Pillow's")


if __name__ == "__main__":
    main()
