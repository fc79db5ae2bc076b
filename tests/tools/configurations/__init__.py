"""Configurations of every family: CASES has by name the configuration class of transformers and the
arguments of its constructor."""

from configurations import dense, early, experts, gemma, granite, latents, recurrent

CASES = {
    name: case
    for family in (dense, early, gemma, granite, experts, latents, recurrent)
    for name, case in family.CASES.items()
}
