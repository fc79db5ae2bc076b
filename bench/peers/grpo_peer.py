"""Steps of GRPO by TRL's GRPOTrainer on the CPU, as asked for; JSON lines.

The first line names the peer. Then every line of the standard input asks for a step, which is
answered by its seconds and by the tokens of its answers. Answers are drawn by transformers, as TRL does
where there is no vLLM, and scored by a number that depends on their length.
f32: everything in f32. bf16: f32 weights, autocast.
"""
import argparse
import json
import os
import sys
import tempfile
import time
import warnings

from model_peer import import_libraries


def write_line(record):
    print(json.dumps(record), file=sys.__stdout__, flush=True)


def make_callback(transformers, trainer_of):
    class OnRequest(transformers.TrainerCallback):
        """A step begins when it is asked for, and is told when it has ended."""

        def on_step_begin(self, args, state, control, **rest):
            if not sys.stdin.readline():
                os._exit(0)
            self.begin = time.perf_counter()

        def on_step_end(self, args, state, control, **rest):
            seconds = time.perf_counter() - self.begin
            lengths = trainer_of()._metrics["train"]["completions/mean_length"]
            write_line({"name": "step", "value": seconds, "answer_tokens": lengths[-1]})

    return OnRequest()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("prompts", help="JSON lines with \"prompt\"")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prompts-per-step", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=64)
    parser.set_defaults(device="cpu")
    args = parser.parse_args()

    torch, transformers, datasets, trl = import_libraries(args, "datasets", "trl")
    datasets.disable_progress_bars()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")
    sys.stdout = sys.stderr  # what the trainer prints
    with open(args.prompts) as lines:
        prompts = [{"prompt": json.loads(line)["prompt"]} for line in lines]
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token_id = tokenizer.eos_token_id or 0
    answers = args.prompts_per_step * args.group
    with tempfile.TemporaryDirectory() as out:
        config = trl.GRPOConfig(
            output_dir=out, use_cpu=True, bf16=args.dtype == "bf16", learning_rate=1e-5,
            per_device_train_batch_size=answers, gradient_accumulation_steps=1,
            num_generations=args.group, max_completion_length=args.max_new_tokens, temperature=1.0,
            beta=0.0, epsilon=0.2, epsilon_high=0.28, loss_type="dapo", max_grad_norm=1.0,
            weight_decay=0.1, adam_beta2=0.95, optim="adamw_torch_fused",
            gradient_checkpointing=False, max_steps=100000, logging_steps=1, save_strategy="no",
            report_to=[], disable_tqdm=True)
        trainer = None
        trainer = trl.GRPOTrainer(
            model=model, processing_class=tokenizer, args=config,
            train_dataset=datasets.Dataset.from_list(prompts),
            reward_funcs=lambda completions, **rest: [float(len(c) % 97) for c in completions],
            callbacks=[make_callback(transformers, lambda: trainer)])
        trainer.remove_callback(transformers.PrinterCallback)
        write_line({"peer": f"trl {trl.__version__}, torch {torch.__version__}, transformers "
                            f"{transformers.__version__}"})
        trainer.train()


if __name__ == "__main__":
    main()
