# The same results with a collection at every allocation: whatever the C++ side forgot to
# protect would be gone.

source(file.path("tools", "short_session.R"))

invisible(loadNamespace("agbudget"))
expected <- short_session()
# Twice: byte-compiling on the way would not be comparable, nor fast.
invisible(short_session())

gctorture(TRUE)
tortured <- short_session()
gctorture(FALSE)

if (!identical(tortured, expected)) {
  print(all.equal(expected, tortured))
  stop("results differ under gctorture", call. = FALSE)
}
cat(length(expected), "calls, the same results under gctorture\n")
