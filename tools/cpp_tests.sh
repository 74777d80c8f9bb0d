#!/bin/sh
# Builds the Catch2 suite with every warning an error and runs it; with --sanitize under
# AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer.
set -eu

sanitize=OFF
folder=build/cpp
if [ "${1:-}" = --sanitize ]; then
  sanitize=ON
  folder=build/cpp-sanitize
fi

cmake -S tests/cpp -B "$folder" -DAGBUDGET_MAINTAINER=ON -DAGBUDGET_SANITIZE="$sanitize"
cmake --build "$folder" --parallel "$(nproc 2>/dev/null || echo 2)"

export UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1
"$folder/agbudget_core_tests"
