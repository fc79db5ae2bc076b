"""Tiny models of every family: MODELS has by name what record_models.py makes, with random weights,
of classes and configurations of transformers.

A seed was chosen, where it is not of the usual row, so that no token's two best answers, or choices
of experts, are as close as the errors of what the tests compare, such as those of 8 bits."""

import dataclasses

from tiny_models import dense, early, experts, gemma, granite, images, latents, llama, recurrent

MODELS = {
    name: model
    for family in (llama, dense, early, gemma, granite, experts, latents, recurrent, images)
    for name, model in family.MODELS.items()
}
# As transformers keeps experts in memory, and writes them where it is told to; so are published
# folders of Qwen 3.5.
MODELS |= {
    name + "_stacked": dataclasses.replace(
        MODELS[name], gradients=False, steps=False, save_options={"save_original_format": False}
    )
    for name in ("mixtral", "qwen3_moe", "qwen3_5_moe_images")
}
