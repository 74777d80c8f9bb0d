#!/bin/sh
# Formats the C++ files, or with --check only says which differ.
set -eu

if [ "${1:-}" = --check ]; then
  set -- --dry-run -Werror
else
  set -- -i
fi
# RcppExports.cpp is written by Rcpp.
find src tests/cpp \( -name '*.cpp' -o -name '*.h' \) ! -name RcppExports.cpp \
  -exec clang-format --style=file "$@" {} +
