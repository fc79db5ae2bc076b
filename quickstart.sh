#!/usr/bin/env bash
# From nothing to a chat: installs what is missing, builds, trains a small Llama on a corpus made on
# the spot, asks it questions it has never seen, and shows how to go on. Run it again: what is done is
# skipped.
#
#   ./quickstart.sh                   about two minutes of training on two cores; the faster the
#                                     machine, the more it learns in them
#   ./quickstart.sh --fast            a few seconds of training: everything runs, little is learned
#   ./quickstart.sh --corpus FILE...  your own text or JSONL instead of the made corpus
set -euo pipefail

steps=
run=runs/quickstart
fast=
corpus=()
while [ $# -gt 0 ]; do
  case "$1" in
    --fast) steps=30; fast=-fast; shift ;;
    --corpus) shift
      while [ $# -gt 0 ] && [[ "$1" != --* ]]; do
        if [ ! -f "$1" ]; then  # before packages and the build take their time
          echo "error: $1: no such file; --corpus takes text or JSONL" >&2
          exit 3
        fi
        corpus+=("$(realpath -- "$1")"); shift
      done
      [ ${#corpus[@]} -gt 0 ] || { echo "error: --corpus needs a file" >&2; exit 2; }
      run=runs/quickstart-own ;;
    *) sed -n '2,9p' "$0" | cut -c3-; [ "$1" = --help ] && exit 0 || exit 2 ;;
  esac
done
cd "$(dirname "$0")"
run=$run$fast

# As many steps as this machine makes in 100 seconds, in wholes of 80, from 640 to 1280; the model
# has learned its sums by then.
steps_for_this_machine() {
  local rate
  rate=$($jige bench train --size tiny --batch-tokens 2048 --seconds 2 --json --quiet |
    sed -n 's/^{"name":"train",.*"value":\([0-9]*\)[.,].*"unit":"tokens\/s".*/\1/p')
  local steps=$((${rate:-0} * 100 / 2048 / 80 * 80))
  echo $((steps < 640 ? 640 : steps > 1280 ? 1280 : steps))
}

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }
jige=build/release/jige
model=$run/model

title "1. Packages"
tools/install-packages

title "2. Build"
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
cmake --build --preset release --target jige
$jige version

title "3. Corpus"
if [ ${#corpus[@]} -eq 0 ]; then
  corpus=("$run/corpus/train.jsonl")
  [ -f "${corpus[0]}" ] || $jige corpus --out "$run/corpus"
  echo "Conversations such as:"
  for words in 'a story' ' plus ' 'capital' 'What does .* have'; do
    grep -m 1 "$words" "${corpus[0]}" | cut -c1-150
  done
else
  names=$(printf '%s\n' "${corpus[@]}")
  echo "$names"
  # What is done is skipped, so it must have been done with the same files.
  if [ -f "$run/corpus.txt" ] && [ "$(cat "$run/corpus.txt")" != "$names" ]; then
    echo "error: $run was made of other files, see $run/corpus.txt; remove it first" >&2
    exit 2
  fi
  mkdir -p "$run"
  echo "$names" >"$run/corpus.txt"
fi

title "4. Tokenizer"
[ -f "$run/tokenizer/tokenizer.json" ] ||
  $jige tokenizer train "${corpus[@]}" --vocab-size 1024 --out "$run/tokenizer"
$jige tokenize "$run/tokenizer" --pieces --text "What is the capital of France?"

title "5. Training, on two logical devices that have less memory than the model needs"
if [ -f "$model/config.json" ]; then
  echo "done before: $model"
else
  # A run that was stopped goes on with the steps that it began with.
  [ -z "$steps" ] || echo "$steps" >"$run/steps.txt"
  if [ ! -s "$run/steps.txt" ]; then
    echo "Trying for some seconds how fast this machine trains"
    steps_for_this_machine >"$run/steps.txt"
  fi
  steps=$(cat "$run/steps.txt")
  $jige train --data "${corpus[@]}" --tokenizer "$run/tokenizer" --out "$run" --size tiny \
    --steps "$steps" --batch-tokens 2048 --lr 0.005 --warmup 30 --min-lr-ratio 0.02 \
    --devices 2 --device-memory 12MiB --micro-batch-tokens 256
fi

title "6. Chat"
[ -z "$fast" ] ||
  echo "Trained for $steps steps alone, it has learned little; leave out --fast for a model that has."
ask() {
  printf '\033[36m> %s\033[0m\n' "$1"
  printf '%s\n' "$1" | $jige chat "$model" --quiet --max-new-tokens 200
}
if [ -f "$run/corpus/questions.jsonl" ]; then
  ask "Tell me a story about a hedgehog."
  ask "Which city is the capital of Korea?"
  ask "Mia has a red kite. Tom has a golden bell. What does Tom have?"
  title "7. Questions it has never seen"
  echo "Facts in a wording they were not asked in, sums that no conversation holds, and small texts to"
  echo "read. These are the hardest for so small a model: which of two people has what?"
  [ -z "$fast" ] ||
    echo "After the $steps steps of --fast nearly every answer is wrong; that is expected."
  $jige score "$model" "$run/corpus/questions.jsonl" --chat --max-new-tokens 24 \
    --out "$run/answers.jsonl"
else
  $jige generate "$model" --max-new-tokens 120 --prompt "The"
fi

title "Try next"
cat <<TXT
  $jige chat $model
  $jige report $run        # a page: what the devices did when, memory, loss
  $jige serve $model       # an OpenAI-compatible server, and a page to chat in
TXT
