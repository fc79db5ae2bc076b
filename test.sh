#!/usr/bin/env bash
# Builds everything and runs all tests.
#   ./test.sh               unit and end-to-end tests (preset dev)
#   ./test.sh --unit        unit tests only
#   ./test.sh --sanitizers  the unit tests again under the address and the thread sanitizer
set -euo pipefail
cd "$(dirname "$0")"

label=(); sanitizers=no
for argument in "$@"; do
  case "$argument" in
    --unit) label=(--label-regex '^unit$') ;;
    --sanitizers) sanitizers=yes ;;
    *) sed -n '2,5p' "$(basename "$0")" | cut -c3-; [ "$argument" = --help ] && exit 0 || exit 2 ;;
  esac
done

tools/install-packages
jobs=$(nproc)

echo "== Building (preset dev)"
cmake --preset dev >/dev/null
cmake --build --preset dev -j "$jobs"
echo "== Testing"
ctest --preset dev "${label[@]}"

if [ "$sanitizers" = yes ]; then
  for preset in asan tsan; do
    echo "== Building and testing (preset $preset)"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset" -j "$jobs"
    ctest --preset "$preset" --label-regex '^unit$'
  done
fi
