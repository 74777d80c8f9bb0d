# The same results with a collection at every allocation, or for budgets, which allocate
# far more, at every few: whatever the C++ side forgot to protect would be gone.

source(file.path("tools", "short_session.R"))

invisible(loadNamespace("agbudget"))
expected <- short_session()
# Twice: byte-compiling on the way would not be comparable, nor fast.
invisible(short_session())

gctorture(TRUE)
tortured <- short_session()
gctorture(FALSE)

expected_budgets <- short_budgets()
invisible(short_budgets())
invisible(gctorture2(step = 7))
tortured_budgets <- short_budgets()
invisible(gctorture2(step = 0))

expected <- c(expected, expected_budgets)
tortured <- c(tortured, tortured_budgets)
if (!identical(tortured, expected)) {
  print(all.equal(expected, tortured))
  stop("results differ under gctorture", call. = FALSE)
}
cat(length(expected), "calls, the same results under gctorture\n")
