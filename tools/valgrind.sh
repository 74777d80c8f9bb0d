#!/bin/sh
# valgrind's memory checker over a short session with the package.
set -eu

R --vanilla --no-echo -d "valgrind --quiet --error-exitcode=99 --leak-check=full \
  --errors-for-leak-kinds=definite --show-leak-kinds=definite --num-callers=30" \
  -e 'source("tools/short_session.R")' \
  -e 'invisible(short_session()); invisible(short_budgets()); cat("session done\n")'
echo "valgrind: no finding"
