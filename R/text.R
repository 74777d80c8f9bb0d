# Words for messages and tables.

`%||%` <- function(a, b) if (is.null(a)) b else a

shape_text <- function(shape) paste(count_text(shape), collapse = " x ")

# Whole numbers with a thousands separator, whatever the session's options.
count_text <- function(x) {
  trimws(formatC(x, format = "f", digits = 0L, big.mark = ",", decimal.mark = "."))
}

# "1 layer", "2 layers".
counted_text <- function(n, noun) paste0(count_text(n), " ", noun, if (n != 1) "s")

percent_text <- function(share, digits = 0L) {
  paste0(formatC(100 * share, format = "f", digits = digits, decimal.mark = "."), " %")
}

# Bytes as base R writes them in binary units: KiB, MiB, GiB.
bytes_text <- function(bytes) {
  old <- options(OutDec = ".", scipen = 0, digits = 7)
  on.exit(options(old))
  vapply(bytes, function(b) {
    text <- format(structure(abs(b), class = "object_size"), units = "auto",
                   standard = "IEC", digits = 1L)
    if (b < 0) paste0("-", text) else text
  }, "")
}

# A string in quotes, escaped, and cut where it is long.
quoted_text <- function(x) {
  x <- iconv(x, to = "UTF-8", sub = "byte")
  if (nchar(x) > 60L) x <- paste0(substr(x, 1L, 57L), "...")
  encodeString(x, quote = "\"")
}

# A short description of a value for an error message.
describe <- function(x) {
  if (is.null(x)) return("`NULL`")
  if (is.function(x)) return("a function")
  if (inherits(x, "agbudget_probe")) return("the batch, whose rows are not known yet")
  if (inherits(x, "agbudget_value")) return(paste("the", gsub("[<>]", "", format(x))))
  if (is.environment(x)) {
    return(paste0("an environment of class ", paste(class(x), collapse = "/")))
  }
  if (is.object(x)) return(paste0("an object of class ", paste(class(x), collapse = "/")))
  if (is.list(x)) return(paste0("a list of length ", length(x)))
  if (!is.atomic(x)) return(paste0("a ", typeof(x)))
  if (length(x) == 0L) return(paste0("an empty ", typeof(x), " vector"))
  if (length(x) == 1L) {
    if (is.character(x) && !is.na(x)) return(quoted_text(x))
    return(paste0("`", format(x, digits = 15L), "`"))
  }
  kind <- if (is.matrix(x)) {
    paste0(shape_text(dim(x)), " ", typeof(x), " matrix")
  } else {
    paste0(typeof(x), " vector of length ", length(x))
  }
  paste0("a", if (grepl("^[aeiou]", kind)) "n", " ", kind)
}
