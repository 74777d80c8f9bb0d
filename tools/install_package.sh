#!/bin/sh
# Installs agbudget into build/lib when its sources, or R, changed since the last time.
set -eu

stamp=build/installed
current=$(
  {
    R --version | head -n 1
    find DESCRIPTION NAMESPACE R src inst man -type f \
      ! -name '*.o' ! -name '*.so' 2>/dev/null | LC_ALL=C sort | xargs cksum
  } | cksum
)

if [ -f "$stamp" ] && [ -d build/lib/agbudget ] && [ "$(cat "$stamp")" = "$current" ]; then
  exit 0
fi

mkdir -p build/lib
rm -f "$stamp"
echo "installing agbudget into build/lib"
# --preclean: R's make rules know nothing of headers, an old object could survive.
if ! MAKEFLAGS="-j$(nproc 2>/dev/null || echo 2)" \
  R CMD INSTALL --preclean --clean --library=build/lib . >build/install-agbudget.log 2>&1
then
  cat build/install-agbudget.log
  exit 1
fi
echo "$current" >"$stamp"
