"""Lets lm-evaluation-harness measure a running `jige serve`, and compares with `jige score`.

    jige serve MODEL --port 8000 &
    python tests/tools/check_lm_eval.py http://127.0.0.1:8000 MODEL build/release/jige

Needs the packages lm_eval[api] and transformers (for the tokenizer). The task is made of the questions of
`jige corpus`, with a few choices each; nothing is downloaded. The harness asks as its users let it:
token ids, `echo`, `logprobs` 1, several prompts a request and several requests at once. Ends with 0
when every sum of log-probabilities is that of `jige score` to the last bit, and when what the harness
takes for greedy is what the server answers greedily.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

TASK = """task: jige_facts
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list:
  - metric: acc
  - metric: acc_norm
"""


def check(condition, what):
    if not condition:
        sys.exit(f"failed: {what}")


def run(*command, **more):
    return subprocess.run([str(part) for part in command], check=True, **more)


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def make_items(url, jige, folder, count):
    """Questions with the right answer, three answers to others of their kind, and the server's."""
    run(jige, "corpus", "--out", folder / "corpus", "--quiet", stdout=subprocess.DEVNULL)
    by_kind = {}
    for question in lines_of(folder / "corpus" / "questions.jsonl"):
        by_kind.setdefault(question["kind"], []).append(question)
    items = []
    for questions in by_kind.values():
        answers = list(dict.fromkeys(q["answer"] for q in questions))
        for i, question in enumerate(questions[:count]):
            others = [a for a in answers if a != question["answer"]]
            choices = [others[(i + k) % len(others)] for k in range(min(3, len(others)))]
            choices.insert(i % 4, question["answer"])
            choices = [" " + choice for choice in choices]
            answer = choices.index(" " + question["answer"])
            own = ask(url, "/v1/completions", {"prompt": question["question"], "temperature": 0,
                                               "max_tokens": 4})["choices"][0]["text"]
            if own and own not in choices:
                choices.append(own)
            items.append({"question": question["question"], "choices": choices, "answer": answer})
    return items


def ask(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def evaluate(url, model, folder, items):
    """What the harness has got for each item: a list of (log-probability, greedy)."""
    data = folder / "items.jsonl"
    data.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    tasks = folder / "tasks"
    tasks.mkdir()
    (tasks / "facts.yaml").write_text(TASK.format(data=data), encoding="utf-8")
    name = ask(url, "/v1/models")["data"][0]["id"]
    environment = dict(os.environ, HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1",
                       TRANSFORMERS_OFFLINE="1", HF_HOME=str(folder / "cache"))
    arguments = (f"model={name},base_url={url}/v1/completions,tokenizer={model},"
                 "tokenizer_backend=huggingface,tokenized_requests=True,add_bos_token=True,"
                 "num_concurrent=4,max_length=256")
    run(sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", arguments,
        "--tasks", "jige_facts", "--include_path", tasks, "--batch_size", "8", "--log_samples",
        "--output_path", folder / "out", env=environment)
    samples = lines_of(next((folder / "out").rglob("samples_*.jsonl")))
    results = json.loads(next((folder / "out").rglob("results_*.json")).read_text())
    print(json.dumps(results["results"]["jige_facts"]))
    numbers = [None] * len(items)
    for sample in samples:
        numbers[sample["doc_id"]] = [(float(logprob), str(greedy) == "True")
                                     for [[logprob, greedy]] in sample["resps"]]
    return numbers


def score(jige, model, folder, items):
    """What `jige score` gives for the same: the log-probabilities of each choice's tokens."""
    records = folder / "records.jsonl"
    records.write_text("".join(json.dumps({"prompt": item["question"], "completion": choice}) + "\n"
                               for item in items for choice in item["choices"]), encoding="utf-8")
    run(jige, "score", model, records, "--out", folder / "scores.jsonl", "--quiet")
    return lines_of(folder / "scores.jsonl")


def is_greedy(url, question, record):
    answer = ask(url, "/v1/completions", {"prompt": question, "temperature": 0, "ignore_eos": True,
                                          "max_tokens": len(record["tokens"]), "logprobs": 0})
    got = answer["choices"][0]["logprobs"]["tokens"]
    want = ask(url, "/tokenize", {"prompt": question + record["text"],
                                  "return_token_strs": True})["token_strs"]
    return got == want[-len(got):]


def main(url, model, jige, count=40):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        items = make_items(url, jige, folder, int(count))
        numbers = evaluate(url, model, folder, items)
        records = iter(score(jige, model, folder, items))
        compared = greedy_count = 0
        for item, choices in zip(items, numbers):
            for choice, (logprob, greedy) in zip(item["choices"], choices):
                record = next(records)
                where = f"{item['question']!r} {choice!r}"
                check(logprob == sum(record["logprobs"]),
                      f"{where}: {logprob!r}, jige score says {sum(record['logprobs'])!r}")
                check(greedy == is_greedy(url, item["question"], {**record, "text": choice}),
                      f"{where}: greedy is {greedy}")
                compared += 1
                greedy_count += greedy
        check(greedy_count > 0, "the server's own answers are greedy")
        print(f"{compared} choices of {len(items)} questions are those of jige score to the bit, "
              f"{greedy_count} of them greedy")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
