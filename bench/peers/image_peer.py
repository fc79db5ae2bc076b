"""Rows of an image by transformers on the CPU: a tower of Mistral 3 with random weights; prints one
JSON object with the seconds of the second image.
"""
import argparse
import json
import time

from model_peer import import_libraries


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", type=int)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, required=True)
    parser.set_defaults(device="cpu")
    args = parser.parse_args()

    torch, transformers, torchvision = import_libraries(args, "torchvision")
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    # The sizes of bench/image_bench.cc; the language model is not run.
    config = transformers.Mistral3Config(
        vision_config=dict(model_type="pixtral", hidden_size=1024, num_hidden_layers=24,
                           num_attention_heads=16, head_dim=64, intermediate_size=4096,
                           patch_size=14, image_size=1540, hidden_act="silu"),
        text_config=dict(model_type="mistral", vocab_size=128, hidden_size=4096,
                         intermediate_size=64, num_hidden_layers=1, num_attention_heads=32,
                         num_key_value_heads=8, head_dim=128),
        spatial_merge_size=2)
    with torch.device("meta"):
        model = transformers.Mistral3Model(config)
    model = model.to_empty(device="cpu").to(dtype).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    rope = model.vision_tower.patch_positional_embedding
    rope.inv_freq = rope.compute_axial_rope_parameters(config.vision_config)[0]
    processor = transformers.PixtralImageProcessor(size={"longest_edge": 1540},
                                                   patch_size={"height": 28, "width": 28})
    pixels = torch.randint(0, 256, (3, args.side, args.side), dtype=torch.uint8)

    def run():
        read = processor(pixels, return_tensors="pt")
        features = model.get_image_features(read["pixel_values"].to(dtype), read["image_sizes"])
        return features.pooler_output[0]

    with torch.inference_mode():
        run()  # warms up
        start = time.perf_counter()
        rows = run()
        seconds = time.perf_counter() - start
    if not torch.isfinite(rows).all():
        raise SystemExit("error: rows that are not finite")
    print(json.dumps({"seconds": seconds, "rows": rows.shape[0],
                      "peer": f"torch {torch.__version__}, transformers "
                      f"{transformers.__version__}"}))


if __name__ == "__main__":
    main()
