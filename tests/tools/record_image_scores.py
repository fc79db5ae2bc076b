"""Records how likely transformers finds answers to questions about pictures.

    python tests/tools/record_image_scores.py     writes tests/fixtures/image_towers/gemma3/scores.json

Takes the tiny Gemma 3 of record_image_towers.py and pictures of tests/fixtures/images/files. A list
of records as `jige score` takes them, each with "expected": of messages the log-probabilities of the
tokens of each answer, its end-of-turn token included; of choices their sums, without that token.
"""

import json
import os

import torch
from PIL import Image
from transformers import Gemma3ForConditionalGeneration, Gemma3Processor
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from record_image_towers import GEMMA_TEMPLATE, gemma_tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "fixtures", "image_towers", "gemma3")
PICTURES = os.path.join(HERE, "..", "fixtures", "images", "files")
END_OF_TURN = 5
MESSAGES = [
    ("user", ["rgb8.png", "What is it?"]), ("assistant", "a cat"),
    ("user", ["And this", "grey.jpg"]), ("assistant", "no"),
]
QUESTION = dict(question="What is it?", images=["grey.jpg", "rgb8.png"],
                choices=["a cat", "two", "none at all"])


def parts(content, image):
    if isinstance(content, str):
        return [dict(type="text", text=content)]
    return [image(one) if "." in one else dict(type="text", text=one) for one in content]


class Scorer:
    def __init__(self):
        self.model = Gemma3ForConditionalGeneration.from_pretrained(
            FOLDER, dtype=torch.float32, attn_implementation="eager").eval()
        rows = self.model.config.mm_tokens_per_image
        self.processor = Gemma3Processor(
            Gemma3ImageProcessorPil.from_pretrained(FOLDER), gemma_tokenizer(),
            chat_template=GEMMA_TEMPLATE, image_seq_length=rows)

    def encode(self, messages, prompt):
        def image(name):
            picture = Image.open(os.path.join(PICTURES, name)).convert("RGB")
            return dict(type="image", image=picture)

        told = [dict(role=role, content=parts(content, image)) for role, content in messages]
        return self.processor.apply_chat_template(
            told, tokenize=True, add_generation_prompt=prompt, return_dict=True,
            return_tensors="pt")

    def logprobs(self, messages, answer):
        """Of the tokens of message `answer`."""
        begin = self.encode(messages[:answer], True)["input_ids"].shape[1]
        made = self.encode(messages[:answer + 1], False)
        ids = made["input_ids"][0]
        with torch.no_grad():
            logits = self.model(**made).logits[0]
        found = []
        for place in range(begin, len(ids)):
            found.append(float(logits[place - 1].log_softmax(-1)[ids[place]]))
            if ids[place] == END_OF_TURN:
                return found
        raise ValueError("the answer does not end")


def main():
    torch.set_num_threads(1)
    scorer = Scorer()
    chat = [dict(role=role, content=parts(content, lambda name: dict(type="image", image=name)))
            for role, content in MESSAGES]
    answers = [i for i, (role, _) in enumerate(MESSAGES) if role == "assistant"]
    records = [dict(messages=chat, expected=[scorer.logprobs(MESSAGES, i) for i in answers])]
    content = QUESTION["images"] + [QUESTION["question"]]
    sums = [sum(scorer.logprobs([("user", content), ("assistant", choice)], 1)[:-1])
            for choice in QUESTION["choices"]]
    records.append(dict(QUESTION, expected=sums))
    with open(os.path.join(FOLDER, "scores.json"), "w") as file:
        json.dump(records, file, indent=2)
        file.write("\n")
    print(sums, [len(one) for one in records[0]["expected"]])


if __name__ == "__main__":
    main()
