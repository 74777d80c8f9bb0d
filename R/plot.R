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
  batch_and_targets = NA, weights = NA, superseded_weights = 45, gradients = NA,
  optimizer_state = 135, activations = NA, activation_gradients = 45, temporaries = 135,
  bookkeeping = NA
)

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
  label <- peak_label(events[peak, ])
  base <- label_base(top, if (memory_shown) memory, label$height)
  plot_window(
    list(xlim = c(0, nrow(events)), ylim = c(0, base$ylim), xaxs = "i", yaxs = "i"), ...
  )
  byte_axis()
  draw_stack(components[, shown, drop = FALSE])
  draw_phases(events$phase)
  if (memory_shown) draw_memory(memory, away_from = (peak - 0.5) / nrow(events))
  graphics::box(bty = "l")
  draw_peak_label(label, peak - 0.5, top, base$from)
  draw_legend(legend)
  graphics::title(xlab = "operations, in the order in which they run", line = 1.5,
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
  do.call(graphics::plot.window, c(given, defaults[setdiff(names(defaults), names(given))]))
}

# Room on the right for a legend, where the figure is wide enough for both.
figure_margins <- function(legend) {
  wide_enough <- graphics::par("fin")[[1L]] - legend$width >= 2.9
  c(0.5, 0.8, 0.7, if (wide_enough) legend$width else 0.2)
}

# Ticks at round numbers of one binary unit.
byte_ticks <- function(range, n = 5L) {
  units <- c("B", "KiB", "MiB", "GiB", "TiB", "PiB")
  power <- min(max(0, floor(log(max(range, 1), 1024))), length(units) - 1)
  at <- pretty(range / 1024^power, n)
  list(at = at * 1024^power, labels = paste(format(at, trim = TRUE), units[[power + 1]]))
}

byte_axis <- function() {
  range <- graphics::par("usr")[3:4]
  ticks <- byte_ticks(range)
  inside <- ticks$at >= range[[1L]] & ticks$at <= range[[2L]]
  graphics::abline(h = ticks$at[inside], col = "grey88", lwd = 0.8)
  graphics::axis(2L, ticks$at[inside], ticks$labels[inside], las = 1L, lwd = 0,
                 lwd.ticks = 1, cex.axis = 0.8)
}

# Each operation is a step of width 1; each component lies on those before it.
draw_stack <- function(components) {
  n <- nrow(components)
  x <- c(0, rep(seq_len(n - 1L), each = 2L), n)
  bottom <- numeric(n)
  for (name in colnames(components)) {
    top <- bottom + components[, name]
    area <- list(x = c(x, rev(x)), y = c(rep(top, each = 2L), rev(rep(bottom, each = 2L))))
    graphics::polygon(area, col = component_colours[[name]], border = NA)
    angle <- component_hatching[[name]]
    if (!is.na(angle)) {
      graphics::polygon(area, density = 14, angle = angle, col = "#00000066",
                        border = NA, lwd = 0.6)
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
  usr <- graphics::par("usr")
  left <- away_from > 0.5
  draw_text_on_white(
    paste("memory", bytes_text(memory)), if (left) usr[[1L]] else usr[[2L]], memory,
    adj = if (left) 0 else 1
  )
}

text_height <- function(lines = 1L) {
  lines * 1.35 * graphics::strheight("Mg", units = "inches", cex = 0.8)
}

# User coordinates of a length in inches on the plot's vertical axis.
vertical <- function(inches) graphics::grconvertY(inches, "inches", "user") -
  graphics::grconvertY(0, "inches", "user")
horizontal <- function(inches) graphics::grconvertX(inches, "inches", "user") -
  graphics::grconvertX(0, "inches", "user")

# A line of text that stands on `y`, over whatever is drawn there.
draw_text_on_white <- function(text, x, y, adj, font = 1L) {
  pad <- horizontal(0.05)
  width <- graphics::strwidth(text, cex = 0.8, font = font) + 2 * pad
  left <- x - adj * width
  graphics::rect(left, y + vertical(0.015), left + width,
                 y + vertical(0.015 + text_height()), col = "#FFFFFFD9", border = NA)
  graphics::text(left + pad, y + vertical(0.015 + text_height() / 2), text,
                 adj = c(0, 0.5), cex = 0.8, font = font)
}

peak_label <- function(event) {
  where <- if (event$phase == "setup") {
    "while the model is built"
  } else {
    paste(event$operation, "in", event$layer)
  }
  list(
    text = c(paste("peak", bytes_text(event$live_bytes)), where), font = c(2L, 1L),
    height = text_height(2L) + 0.08
  )
}

# Where the peak's label stands and where the axis ends so that it has room: on the peak,
# or above the memory's line and name if those are in the way.
label_base <- function(top, memory, height) {
  available <- graphics::par("pin")[[2L]]
  on_peak <- top * available / (available - height - 0.1)
  if (is.null(memory)) return(list(from = top, ylim = on_peak))
  name <- text_height() + 0.05
  above <- memory * available / (available - height - name)
  in_the_way <- memory >= top && memory < 1.05 * on_peak
  if (in_the_way) return(list(from = memory * (1 + name / available), ylim = above * 1.02))
  list(from = top, ylim = max(on_peak, memory * available / (available - name)))
}

draw_peak_label <- function(label, x, y, from) {
  usr <- graphics::par("usr")
  gap <- vertical(0.07)
  graphics::segments(x, y, x, from + gap, lwd = 1)
  graphics::points(x, y, pch = 21L, bg = "white", cex = 0.9, lwd = 1.4)
  pad <- horizontal(0.05)
  width <- max(graphics::strwidth(label$text, cex = 0.8, font = label$font)) + 2 * pad
  left <- min(max(x - width / 2, usr[[1L]]), usr[[2L]] - width)
  at <- from + gap
  for (i in 2:1) {
    line_width <- graphics::strwidth(label$text[[i]], cex = 0.8, font = label$font[[i]])
    share <- if (left + width >= usr[[2L]]) 1 else if (left <= usr[[1L]]) 0 else 0.5
    draw_text_on_white(
      label$text[[i]], left + share * (width), at, adj = share, font = label$font[[i]]
    )
    at <- at + vertical(text_height())
  }
}

# Legend of the stack, its top first, with the bytes at the peak.
stack_legend <- function(names, bytes) {
  labels <- unname(component_labels[names])
  values <- bytes_text(bytes)
  widths <- c(
    swatch = 0.24, label = max(graphics::strwidth(labels, units = "inches", cex = 0.75)),
    value = max(graphics::strwidth(c(values, "at the peak"), units = "inches", cex = 0.75))
  )
  list(
    names = names, labels = labels, values = values,
    width = sum(widths) + 0.15 + 0.12 + 0.1
  )
}

draw_legend <- function(legend) {
  usr <- graphics::par("usr")
  if (graphics::par("mai")[[4L]] < legend$width) return(invisible())
  left <- usr[[2L]] + horizontal(0.15)
  right <- usr[[2L]] + horizontal(legend$width - 0.1)
  row <- vertical(0.25)
  y <- usr[[4L]] - row * (seq_along(legend$names) + 0.5)
  old <- graphics::par(xpd = NA)
  on.exit(graphics::par(old))
  graphics::text(right, usr[[4L]] - row / 2, "at the peak", adj = c(1, 0.5), cex = 0.75,
                 font = 3L)
  for (i in seq_along(legend$names)) {
    name <- legend$names[[i]]
    at <- c(left, y[[i]] - row * 0.35, left + horizontal(0.18), y[[i]] + row * 0.35)
    do.call(graphics::rect, c(as.list(at), col = component_colours[[name]], border = NA))
    angle <- component_hatching[[name]]
    if (!is.na(angle)) {
      do.call(graphics::rect, c(as.list(at), density = 22, angle = angle,
                                col = "#00000066", border = NA, lwd = 0.6))
    }
    do.call(graphics::rect, c(as.list(at), border = "grey25", lwd = 0.6))
  }
  graphics::text(left + horizontal(0.24), y, legend$labels, adj = c(0, 0.5), cex = 0.75)
  graphics::text(right, y, legend$values, adj = c(1, 0.5), cex = 0.75)
}
