# Pictures of a budget and of a comparison, in base graphics.

# Okabe and Ito's colours, told apart by people with any kind of colour vision
# (https://jfly.uni-koeln.de/color/), in an order in which neighbours of the stack differ
# in luminance; hatching tells apart what print in black and white could confuse.
component_colours <- c(
  batch_and_targets = "#B3B3B3", weights = "#0072B2", superseded_weights = "#56B4E9",
  gradients = "#D55E00", optimizer_state = "#E69F00", activations = "#009E73",
  activation_gradients = "#F0E442", temporaries = "#CC79A7", bookkeeping = "#000000"
)
component_hatching <- c(
  batch_and_targets = NA, weights = NA, superseded_weights = 45, gradients = 0,
  optimizer_state = 135, activations = NA, activation_gradients = 45, temporaries = 135,
  bookkeeping = NA
)

hatching <- "#00000066"

#' Plot a budget
#'
#' Draws the live bytes over the operations of one training step, stacked by component,
#' with the peak labelled.
#'
#' @param x An [ag_training_budget()].
#' @param step The step to show: 0 is building the model, 1 and on are steps of training.
#'   By default the one that holds the peak.
#' @param main The title; by default what is shown.
#' @param ... Further graphical parameters for [graphics::plot.window()], such as `ylim`
#'   (in bytes).
#' @return `x`, invisibly.
#' @details
#' Each operation of the step takes one unit of the horizontal axis, forward to backward
#' to the optimizer's step; its height is the highest number of live bytes while it ran.
#' Where the budget has a `memory`, it is a dashed line, or a note if it is far above.
#' @seealso [ag_training_budget()]; `summary()` of a budget for its layers in figures.
#' @export
#' @examples
#' plot(ag_training_budget(
#'   ag_sequential(
#'     ag_linear(784L, 256L, activation = "relu"),
#'     ag_batch_norm(256L),
#'     ag_linear(256L, 10L)
#'   ),
#'   batch_size = 512, memory = "64 MiB"
#' ))
plot.ag_training_budget <- function(x, step = NULL, main = NULL, ...) {
  steps <- unique(x$timeline$step)
  if (is.null(step)) step <- x$peak$step
  if (!is_number(step) || !step %in% steps) {
    stop_agbudget(
      "bad_argument", "`step` must be one of the steps that the budget ran, ", min(steps),
      " to ", max(steps), ", not ", describe(step), "."
    )
  }
  events <- thin_events(x$timeline[x$timeline$step == step, ])
  components <- as.matrix(events[component_names])
  peak <- which.max(events$live_bytes)
  shown <- component_names[colSums(components) > 0]
  top <- events$live_bytes[[peak]]
  memory <- x$memory
  memory_shown <- !is.null(memory) && memory <= 1.6 * top

  graphics::plot.new()  # text is measured on a page
  legend <- stack_legend(rev(shown), components[peak, rev(shown)])
  old <- graphics::par(
    mai = figure_margins(legend), mgp = c(2.1, 0.5, 0), tcl = -0.25, new = TRUE
  )
  on.exit(graphics::par(old))
  graphics::plot.new()
  label <- peak_label(events[peak, ], top == x$heap_bytes)
  room <- label_room(top, if (memory_shown) memory, label$height)
  plot_window(
    list(xlim = c(0, nrow(events)), ylim = c(0, room$ylim), xaxs = "i", yaxs = "i"), ...
  )
  byte_axis()
  # What is missing while the model is built (negative bookkeeping) is taken off below.
  draw_stack(pmax(components[, shown, drop = FALSE], 0),
             bottom = pmin(components[, "bookkeeping"], 0))
  draw_phases(events$phase)
  if (memory_shown) draw_memory(memory, away_from = (peak - 0.5) / nrow(events))
  draw_peak_label(label, peak - 0.5, top, room$above)
  graphics::box(bty = "l")
  draw_legend(legend)
  graphics::title(xlab = "operations, in the order in which they run", line = 0.6,
                  cex.lab = 0.85)
  graphics::title(main = main %||% budget_title(x, step, memory_shown), adj = 0,
                  line = 1.7, cex.main = 1)
  invisible(x)
}

budget_title <- function(x, step, memory_shown) {
  paste0(
    if (step == 0) "Building the model" else paste("Step", step), ": batch ",
    count_text(x$batch_size), ", ", x$optimizer, ", ", x$loop, " loop",
    if (!is.null(x$memory) && !memory_shown) paste0("; memory ", bytes_text(x$memory))
  )
}

# A long model has more operations than a plot has dots: keep the highest of each run.
thin_events <- function(events, most = 1500L) {
  if (nrow(events) <= most) return(events)
  bin <- ceiling(seq_len(nrow(events)) * most / nrow(events))
  highest <- tapply(seq_len(nrow(events)), bin, function(rows) {
    rows[[which.max(events$live_bytes[rows])]]
  })
  events[as.integer(highest), ]
}

# plot.window() with defaults that `...` may replace.
plot_window <- function(defaults, ...) {
  given <- list(...)
  defaults <- defaults[setdiff(names(defaults), names(given))]
  do.call(graphics::plot.window, c(given, defaults))
}

# Room on the right for a legend, where the figure is wide enough for both.
figure_margins <- function(legend) {
  wide_enough <- graphics::par("fin")[[1L]] - legend$width >= 2.9
  c(0.4, 0.8, 0.7, if (wide_enough) legend$width else 0.2)
}

# Ticks at round numbers of one binary unit.
byte_ticks <- function(range, n = 5L) {
  units <- c("B", "KiB", "MiB", "GiB", "TiB", "PiB")
  power <- min(max(0, floor(log(max(range, 1), 1024))), length(units) - 1)
  at <- pretty(range / 1024^power, n)
  list(at = at * 1024^power, labels = paste(format(at, trim = TRUE), units[[power + 1]]))
}

byte_axis <- function() {
  range <- plot_region()[3:4]
  doublings <- if (graphics::par("ylog")) log2(range[[2L]] / range[[1L]]) else 0
  ticks <- if (doublings > 2.5) {
    at <- 2^seq(ceiling(log2(range[[1L]])), log2(range[[2L]]), ceiling(doublings / 8))
    list(at = at, labels = bytes_text(at))
  } else {
    byte_ticks(range)
  }
  inside <- ticks$at >= range[[1L]] & ticks$at <= range[[2L]]
  graphics::abline(h = ticks$at[inside], col = "grey88", lwd = 0.8)
  graphics::axis(2L, ticks$at[inside], ticks$labels[inside], las = 1L, lwd = 0,
                 lwd.ticks = 1, cex.axis = 0.8)
}

# Each operation is a step of width 1; each component lies on those before it.
draw_stack <- function(components, bottom) {
  n <- nrow(components)
  x <- c(0, rep(seq_len(n - 1L), each = 2L), n)
  for (name in colnames(components)) {
    top <- bottom + components[, name]
    edges <- c(rep(top, each = 2L), rev(rep(bottom, each = 2L)))
    area <- list(x = c(x, rev(x)), y = edges)
    graphics::polygon(area, col = component_colours[[name]], border = NA)
    angle <- component_hatching[[name]]
    if (!is.na(angle)) {
      graphics::polygon(area, density = 14, angle = angle, col = hatching, border = NA,
                        lwd = 0.6)
    }
    bottom <- top
    graphics::lines(x, rep(top, each = 2L), col = "white", lwd = 0.7)
  }
  graphics::lines(x, rep(bottom, each = 2L), lwd = 1.1)
}

draw_phases <- function(phases) {
  runs <- rle(phases)
  to <- cumsum(runs$lengths)
  from <- to - runs$lengths
  graphics::abline(v = to[-length(to)], lty = "13", lwd = 1.1)
  width <- graphics::strwidth(runs$values, cex = 0.8)
  # A narrow phase's name hangs over on its own side, not into its neighbour.
  middle <- (from + to) / 2
  narrow <- width > 0.95 * (to - from)
  at <- ifelse(narrow & seq_along(to) == length(to), from, middle)
  for (i in seq_along(to)) {
    graphics::mtext(
      runs$values[[i]], side = 3L, line = 0.2, at = at[[i]], cex = 0.8, font = 3L,
      adj = if (at[[i]] == from[[i]]) 0 else 0.5
    )
  }
}

# The memory's name at the end of its line that is farther from the peak.
draw_memory <- function(memory, away_from) {
  graphics::abline(h = memory, lty = "62", lwd = 1.6)
  left <- away_from > 0.5
  draw_text_on_white(
    paste("memory", bytes_text(memory)), plot_region()[[if (left) 1L else 2L]], memory,
    adj = if (left) 0 else 1
  )
}

text_height <- function(lines = 1L) {
  lines * 1.35 * graphics::strheight("Mg", units = "inches", cex = 0.8)
}

# `x` and `y` moved by inches, on logarithmic axes too.
shift_x <- function(x, inches) {
  at <- graphics::grconvertX(x, "user", "inches")
  graphics::grconvertX(at + inches, "inches", "user")
}
shift_y <- function(y, inches) {
  at <- graphics::grconvertY(y, "user", "inches")
  graphics::grconvertY(at + inches, "inches", "user")
}

# The plot's region: left, right, bottom, top.
plot_region <- function() {
  usr <- graphics::par("usr")
  c(if (graphics::par("xlog")) 10^usr[1:2] else usr[1:2],
    if (graphics::par("ylog")) 10^usr[3:4] else usr[3:4])
}

text_inches <- function(text, font = 1L, cex = 0.8) {
  graphics::strwidth(text, units = "inches", cex = cex, font = font)
}

# A line of text that stands on `y`, over whatever is drawn there.
draw_text_on_white <- function(text, x, y, adj, font = 1L) {
  pad <- 0.05
  width <- text_inches(text, font) + 2 * pad
  left <- shift_x(x, -adj * width)
  graphics::rect(left, shift_y(y, 0.015), shift_x(left, width),
                 shift_y(y, 0.015 + text_height()), col = "#FFFFFFD9", border = NA)
  graphics::text(shift_x(left, pad), shift_y(y, 0.015 + text_height() / 2), text,
                 adj = c(0, 0.5), cex = 0.8, font = font)
}

peak_label <- function(event, is_peak) {
  where <- if (event$phase == "setup") {
    "while the model is built"
  } else {
    paste(event$operation, "in", event$layer)
  }
  list(
    text = c(
      paste(if (is_peak) "peak" else "peak of this step", bytes_text(event$live_bytes)),
      where
    ),
    font = c(2L, 1L),
    height = text_height(2L) + 0.08
  )
}

# Where the axis ends so that the peak's label has room: on the peak, or `above` it on
# the memory's line and its name if those are in the way.
label_room <- function(top, memory, height) {
  available <- graphics::par("pin")[[2L]]
  end <- top * available / max(available - height - 0.1, available / 4)
  if (is.null(memory)) return(list(above = NULL, ylim = end))
  name <- text_height() + 0.05
  in_the_way <- memory >= top && memory < 1.05 * end
  room <- if (in_the_way) height + name + 0.1 else name
  list(
    above = if (in_the_way) memory,
    ylim = max(end, memory * available / max(available - room, available / 4))
  )
}

draw_peak_label <- function(label, x, y, above) {
  region <- plot_region()
  base <- if (is.null(above)) shift_y(y, 0.07) else shift_y(above, text_height() + 0.05)
  graphics::segments(x, y, x, base, lwd = 1)
  graphics::points(x, y, pch = 21L, bg = "white", cex = 0.9, lwd = 1.4)
  # Centred on the peak, or flush with the side of the plot that is too near.
  half <- max(mapply(text_inches, label$text, label$font)) / 2 + 0.05
  side <- 0.5
  if (shift_x(x, -half) < region[[1L]]) side <- 0
  if (shift_x(x, half) > region[[2L]]) side <- 1
  at <- switch(as.character(side), "0" = region[[1L]], "1" = region[[2L]], x)
  draw_text_on_white(label$text[[2L]], at, base, side, label$font[[2L]])
  draw_text_on_white(label$text[[1L]], at, shift_y(base, text_height()), side,
                     label$font[[1L]])
}

# Legend of the stack, its top first, with the bytes at the peak.
stack_legend <- function(names, bytes) {
  labels <- unname(component_labels[names])
  values <- bytes_text(bytes)
  text <- max(text_inches(labels, cex = 0.75)) +
    max(text_inches(c(values, "at the peak"), cex = 0.75))
  list(names = names, labels = labels, values = values, width = text + 0.61)
}

draw_legend <- function(legend) {
  if (graphics::par("mai")[[4L]] < legend$width) return(invisible())
  region <- plot_region()
  left <- shift_x(region[[2L]], 0.15)
  right <- shift_x(region[[2L]], legend$width - 0.1)
  y <- shift_y(region[[4L]], -0.25 * (seq_along(legend$names) + 0.5))
  old <- graphics::par(xpd = NA)
  on.exit(graphics::par(old))
  graphics::text(right, shift_y(region[[4L]], -0.125), "at the peak", adj = c(1, 0.5),
                 cex = 0.75, font = 3L)
  for (i in seq_along(legend$names)) {
    name <- legend$names[[i]]
    swatch <- function(...) {
      graphics::rect(left, shift_y(y[[i]], -0.0875), shift_x(left, 0.18),
                     shift_y(y[[i]], 0.0875), lwd = 0.6, ...)
    }
    swatch(col = component_colours[[name]], border = NA)
    angle <- component_hatching[[name]]
    if (!is.na(angle)) swatch(density = 22, angle = angle, col = hatching, border = NA)
    swatch(border = "grey25")
  }
  graphics::text(shift_x(left, 0.24), y, legend$labels, adj = c(0, 0.5), cex = 0.75)
  graphics::text(right, y, legend$values, adj = c(1, 0.5), cex = 0.75)
}

# Comparison --------------------------------------------------------------------

optimizer_colours <- c(adam = "#0072B2", sgd = "#D55E00", sgd_plain = "#009E73")
optimizer_symbols <- c(adam = 21L, sgd = 24L, sgd_plain = 22L)

#' Plot a comparison
#'
#' Draws the vector heap that training needs against the batch size, a line for each
#' optimizer and loop, labelled at its end. Lines that coincide share a label. Both axes
#' are logarithmic where the batch sizes span a factor of 8 or more.
#'
#' @param x An [ag_compare()].
#' @param main The title.
#' @param ... Further graphical parameters for [graphics::plot.window()], such as `ylim`
#'   (in bytes) or `log`.
#' @return `x`, invisibly.
#' @seealso [ag_compare()]
#' @export
#' @examples
#' plot(ag_compare(
#'   ag_sequential(
#'     ag_linear(784L, 256L, activation = "relu"),
#'     ag_linear(256L, 10L)
#'   ),
#'   batch_size = 2^(4:12), optimizer = c("adam", "sgd"), memory = "100 MiB"
#' ))
plot.ag_comparison <- function(x, main = "Vector heap that training needs", ...) {
  missing <- setdiff(comparison_columns, names(x))
  if (length(missing) > 0L || nrow(x) == 0L) {
    stop_agbudget(
      "bad_argument", "`x` has ",
      if (length(missing) > 0L) paste0("no column `", missing[[1L]], "`") else "no row",
      " any more; plot() needs the table as ag_compare() made it."
    )
  }
  lines <- comparison_lines(x)
  memory <- attr(x, "memory")
  top <- max(x$heap_bytes)
  if (!is.null(memory) && (memory > 4 * top || memory < min(x$heap_bytes) / 4)) {
    main <- paste0(main, "; memory ", bytes_text(memory))
    memory <- NULL
  }
  log <- list(...)$log %||% (if (max(x$batch_size) >= 8 * min(x$batch_size)) "xy" else "")

  graphics::plot.new()
  names_width <- max(text_inches(vapply(lines, function(line) line$label, ""))) + 0.4
  old <- graphics::par(
    mai = c(0.75, 0.85, 0.5, names_width), mgp = c(1.9, 0.5, 0), tcl = -0.25, new = TRUE
  )
  on.exit(graphics::par(old))
  graphics::plot.new()
  plot_window(
    list(
      xlim = comparison_range(x$batch_size, grepl("x", log), pad = 0.04),
      ylim = comparison_range(c(x$heap_bytes, memory), grepl("y", log), pad = 0.07),
      log = log, xaxs = "i", yaxs = "i"
    ), ...
  )
  byte_axis()
  batches <- sort(unique(x$batch_size))
  graphics::axis(1L, batches, count_text(batches), lwd = 0, lwd.ticks = 1, cex.axis = 0.8)
  if (!is.null(memory)) draw_memory(memory, away_from = 1)
  for (line in lines) draw_comparison_line(line)
  graphics::box(bty = "l")
  label_lines(lines)
  graphics::title(xlab = "batch size", cex.lab = 0.9)
  graphics::title(main = main, adj = 0, line = 0.8, cex.main = 1)
  invisible(x)
}

# A line an optimizer and loop.
comparison_lines <- function(x) {
  lines <- list()
  kinds <- interaction(factor(x$optimizer, optimizers), factor(x$loop, loops),
                       lex.order = TRUE, drop = TRUE)
  for (group in split(seq_len(nrow(x)), kinds)) {
    rows <- group[order(x$batch_size[group])]
    first <- rows[[1L]]
    line <- list(
      batch = x$batch_size[rows], bytes = x$heap_bytes[rows],
      loop = x$loop[[first]], colour = optimizer_colours[[x$optimizer[[first]]]],
      symbol = optimizer_symbols[[x$optimizer[[first]]]],
      label = paste0(x$optimizer[[first]], ", ", x$loop[[first]])
    )
    lines[[length(lines) + 1L]] <- line
  }
  lines
}

comparison_range <- function(x, log, pad) {
  range <- range(x)
  if (!log) return(c(0, range[[2L]] * (1 + pad)))
  if (range[[1L]] == range[[2L]]) range <- range * c(0.5, 2)
  range * (range[[2L]] / range[[1L]])^c(-pad, pad)
}

# Where both loops need the same, the released one's small open points lie on the
# retained one's large full ones.
draw_comparison_line <- function(line) {
  retained <- line$loop == "retained"
  graphics::lines(line$batch, line$bytes, col = line$colour, lwd = 1.8,
                  lty = if (retained) "solid" else "42")
  draw_symbol(line, line$batch, line$bytes)
}

draw_symbol <- function(line, x, y) {
  retained <- line$loop == "retained"
  graphics::points(x, y, pch = line$symbol, col = line$colour, lwd = 1.4,
                   bg = if (retained) line$colour else "white",
                   cex = if (retained) 1.15 else 0.7)
}

# Each line's name beside its end, moved apart where ends are close, with a leader.
label_lines <- function(lines) {
  region <- plot_region()
  ends <- vapply(lines, function(line) line$bytes[[length(line$bytes)]], 0)
  last <- vapply(lines, function(line) line$batch[[length(line$batch)]], 0)
  inches <- graphics::grconvertY(ends, "user", "inches")
  limits <- graphics::grconvertY(region[3:4], "user", "inches")
  y <- graphics::grconvertY(spread_apart(inches, text_height() * 1.25, limits),
                            "inches", "user")
  old <- graphics::par(xpd = NA)
  on.exit(graphics::par(old))
  graphics::segments(shift_x(last, 0.07), ends, shift_x(region[[2L]], 0.12), y,
                     col = "grey50", lwd = 0.8)
  for (i in seq_along(lines)) {
    draw_symbol(lines[[i]], shift_x(region[[2L]], 0.2), y[[i]])
    graphics::text(shift_x(region[[2L]], 0.31), y[[i]], lines[[i]]$label,
                   adj = c(0, 0.5), cex = 0.8)
  }
}

# Positions at least `gap` apart and within `limits`, each near where it was: those that
# are too close form a block around their mean.
spread_apart <- function(at, gap, limits) {
  order <- order(at, rev(seq_along(at)))
  blocks <- list()
  for (position in at[order]) {
    block <- list(n = 1L, centre = position)
    while (length(blocks) > 0L) {
      below <- blocks[[length(blocks)]]
      if (block$centre - below$centre >= gap * (below$n + block$n) / 2) break
      n <- below$n + block$n
      block <- list(n = n, centre = (below$n * below$centre + block$n * block$centre) / n)
      blocks[[length(blocks)]] <- NULL
    }
    blocks[[length(blocks) + 1L]] <- block
  }
  placed <- unlist(lapply(blocks, function(block) {
    block$centre + gap * (seq_len(block$n) - (block$n + 1) / 2)
  }))
  placed <- placed + max(0, limits[[1L]] + gap / 2 - placed[[1L]])
  placed <- placed - max(0, placed[[length(placed)]] - limits[[2L]])
  placed[order(order)]
}
