library(testthat)
library(agbudget)

test_check("agbudget")
