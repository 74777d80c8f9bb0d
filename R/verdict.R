# Whether a budget fits into the memory there is, and what to do about it.

# What an R that has ggmlR 0.8.8.1 loaded and has trained a model of two weights holds
# on its vector heap (R 4.2.2, measured).
idle_heap_bytes <- 6250 * 2^10

# What R's byte-code compiler takes for a moment while it compiles the training loop.
compiler_bytes <- 2.5e6

# R's vector heap starts at 64 MiB unless R_VSIZE says otherwise. When it must grow, R
# wants a fifth of where it started to spare (AdjustHeapSize() of src/main/memory.c).
usual_vsize <- 2^26
tight_vsize <- 2^20
spare_share <- 0.2

# R_MAX_VSIZE, and R_VSIZE, which is R's own unless that start is too much beside the
# memory: with these R runs the job, and stops with an error of its own if it wants more.
heap_settings <- function(heap_bytes, memory) {
  needed <- idle_heap_bytes + max(heap_bytes, compiler_bytes)
  usual <- max(usual_vsize, if (needed > usual_vsize) needed + spare_share * usual_vsize)
  if (usual - idle_heap_bytes <= memory) return(heap_setting(usual, "64M"))
  heap_setting(needed + spare_share * tight_vsize, "1M")
}

heap_setting <- function(bytes, r_vsize) {
  kib <- ceiling(bytes / 2^10)
  list(
    r_vsize = r_vsize, r_max_vsize = paste0(formatC(kib, format = "f", digits = 0L), "K"),
    r_max_vsize_bytes = kib * 2^10
  )
}

verdict_fields <- c(
  "memory", "memory_source", "verdict", "fits", "spare_bytes", "max_batch_size",
  "resident_long_bytes", "r_vsize", "r_max_vsize", "r_max_vsize_bytes"
)
verdicts <- c("fits", "fits_with_limit", "does_not_fit")

# Adds the verdict's fields. R that collects lazily grows past `heap_bytes`, and a long
# training grows it further than a few updates do; unless R's own limit is what bounds it.
add_verdict <- function(budget, memory, need, resident_long = budget$resident_bytes) {
  budget$memory <- memory$bytes
  budget$memory_source <- memory$source
  budget$fits <- budget$heap_bytes <= memory$bytes
  budget$spare_bytes <- memory$bytes - budget$heap_bytes
  budget$max_batch_size <- searched_batch_size(need, memory$bytes)
  budget$resident_long_bytes <- resident_long
  budget <- c(budget, heap_settings(budget$heap_bytes, memory$bytes))
  outgrows <- memory$source != "R's own limit" && resident_long > memory$bytes
  budget$verdict <- verdicts[[if (!budget$fits) 3L else if (outgrows) 2L else 1L]]
  class(budget) <- "ag_training_budget"
  budget
}

# NA where the model does not run at some other batch size, such as one that reshapes to
# fixed extents: that is no reason to withhold the budget at the size that was asked for.
searched_batch_size <- function(need, limit) {
  tryCatch(
    largest_fitting(need, limit, .Machine$integer.max),
    error = function(e) NA_real_
  )
}

# One line that a person can act on.
verdict_text <- function(x) {
  if (x$verdict == "fits") {
    larger <- isTRUE(x$max_batch_size > x$batch_size)
    return(paste0(
      "fits with ", bytes_text(x$spare_bytes), " to spare",
      if (larger) paste0("; up to batch ", count_text(x$max_batch_size), " fits")
    ))
  }
  if (x$verdict == "fits_with_limit") {
    return(paste0(
      "fits where ", if (x$r_vsize != "64M") paste0("R_VSIZE=", x$r_vsize, " and "),
      "R_MAX_VSIZE=", x$r_max_vsize, " is set (an ordinary R would grow to about ",
      bytes_text(x$resident_long_bytes), ")"
    ))
  }
  ways <- c(
    if (isTRUE(x$max_batch_size > 0)) {
      paste0("batch ", count_text(x$max_batch_size), " fits")
    } else if (isTRUE(x$max_batch_size == 0) && x$batch_size > 1) {
      "not even batch 1 fits"
    },
    if (x$loop == "retained" && x$other_loop_bytes <= x$memory) {
      "the released loop would fit"
    }
  )
  paste(c(paste("short by", bytes_text(-x$spare_bytes)), ways), collapse = "; ")
}

verdict_line <- function(x) {
  if (is.null(x$verdict)) return(character())
  source <- if (x$memory_source == "given") "" else paste0(" (", x$memory_source, ")")
  paste0("  memory ", bytes_text(x$memory), source, ": ", verdict_text(x))
}
