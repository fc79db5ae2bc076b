"""transformers' Gemma 4 without a tower, as Jige has it: where two ways of transformers are not the
same, or its own is not Pillow's."""

import numpy
import torch
from PIL import Image
from transformers.models.gemma4_unified import image_processing_gemma4_unified as pixels
from transformers.models.gemma4_unified import modeling_gemma4_unified as modeling


def resize_by_pillow():
    """Pictures are resized as those of other models, rows first; its own processor has torchvision,
    which rounds other bytes."""

    def resize(self, image, patch_size, max_patches, pooling_kernel_size, resample):
        high, wide = pixels.get_aspect_ratio_preserving_size(
            image.shape[-2], image.shape[-1], patch_size, max_patches, pooling_kernel_size)
        made = Image.fromarray(image.permute(1, 2, 0).numpy())
        for size in ((wide, made.height), (wide, high)):
            made = made.resize(size, Image.Resampling.BICUBIC)
        return torch.from_numpy(numpy.array(made)).permute(2, 0, 1)

    pixels.Gemma4UnifiedImageProcessor.aspect_ratio_preserving_resize = resize


def see_as_generating():
    """Rows of an image see one another in layers with a window alone, as `generate` has it; the
    forward of the model takes them for all layers."""
    usual = modeling.create_masks_for_generate

    def masks(**options):
        if options.get("block_sequence_ids") is None:
            return usual(**options)
        return modeling.create_masks_for_vision_model(**options)

    modeling.create_masks_for_generate = masks
