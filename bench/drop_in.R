# Usage, from the package's root: Rscript bench/drop_in.R
# The drop-in beside ggmlR's function and beside a walk over the same list that
# does no more than it must. Needs bench; ratios are of minimal times, for a busy
# machine only ever adds to those.

reference <- ggmlR::ag_estimate_training_memory
ours <- agbudget::ag_estimate_training_memory

Rcpp::sourceCpp(code = "
#include <Rcpp.h>

// [[Rcpp::export(rng = false)]]
double bare_walk(SEXP shapes) {
  double params = 0;
  const R_xlen_t n = Rf_xlength(shapes);
  for (R_xlen_t i = 0; i < n; ++i) {
    const SEXP dims = VECTOR_ELT(shapes, i);
    const R_xlen_t length = Rf_xlength(dims);
    long double size = 1;
    if (TYPEOF(dims) == INTSXP) {
      const int* values = INTEGER(dims);
      for (R_xlen_t j = 0; j < length; ++j) size *= values[j];
    } else {
      const double* values = REAL(dims);
      for (R_xlen_t j = 0; j < length; ++j) size *= values[j];
    }
    params += static_cast<double>(size);
  }
  return params;
}
")

million_shapes <- function() {
  set.seed(1L)
  rows <- sample.int(64L, 1e6, replace = TRUE)
  columns <- sample.int(64L, 1e6, replace = TRUE)
  lapply(seq_len(1e6), function(i) {
    dims <- c(rows[i], columns[i])
    if (i %% 2L == 0L) as.double(dims) else dims
  })
}

report <- function(what, value, bar, met) {
  verdict <- if (met) "ok" else "NOT MET"
  cat(sprintf("%-52s %12s  (bar: %s) %s\n", what, value, bar, verdict))
}

bench_million <- function() {
  shapes <- million_shapes()
  stopifnot(
    identical(reference(shapes, quiet = TRUE), ours(shapes, quiet = TRUE)),
    identical(bare_walk(shapes), ours(shapes, quiet = TRUE)$params)
  )
  fast <- bench::mark(
    ours = ours(shapes, quiet = TRUE), bare = bare_walk(shapes),
    check = FALSE, min_iterations = 15, filter_gc = FALSE
  )
  slow <- bench::mark(
    reference = reference(shapes, quiet = TRUE),
    iterations = 3, filter_gc = FALSE, memory = FALSE
  )
  least <- as.numeric(c(fast$min, slow$min))
  speedup <- least[3L] / least[1L]
  walk <- least[1L] / least[2L]
  report(
    "a million shapes: times faster than ggmlR", sprintf("%.1f", speedup),
    ">= 25", speedup >= 25
  )
  report(
    "a million shapes: of a bare C++ walk", sprintf("%.2f", walk),
    "<= 1.4", walk <= 1.4
  )
  fast$mem_alloc[1L]
}

bench_example <- function() {
  shapes <- list(c(512, 512), c(512, 512), c(512, 512))
  nowhere <- file(nullfile(), "w")
  on.exit(close(nowhere))
  sink(nowhere)
  marks <- tryCatch(
    bench::mark(
      reference(shapes, batch_size = 64), ours(shapes, batch_size = 64),
      reference(shapes, batch_size = 64, quiet = TRUE),
      ours(shapes, batch_size = 64, quiet = TRUE),
      check = FALSE, min_time = 1
    ),
    finally = sink()
  )
  least <- as.numeric(marks$min)
  printed <- least[2L] / least[1L]
  quiet <- least[4L] / least[3L]
  report(
    "the documented example, printed: of ggmlR's time", sprintf("%.2f", printed),
    "<= 0.75", printed <= 0.75
  )
  report(
    "the documented example, quiet: of ggmlR's time", sprintf("%.2f", quiet),
    "<= 0.75", quiet <= 0.75
  )
}

bench_example()
# Called before, so that nothing of it is still to be compiled.
small <- rep(list(c(3L, 4L), c(5, 6)), 5L)
small_alloc <- bench::mark(ours(small, quiet = TRUE))$mem_alloc
million_alloc <- bench_million()
report(
  "memory allocated, 10 and a million shapes (bytes)",
  paste(as.numeric(small_alloc), "and", as.numeric(million_alloc)),
  "no growth", million_alloc <= small_alloc
)
