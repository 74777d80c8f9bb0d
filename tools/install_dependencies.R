# Installs what a purpose needs and is not there yet:
#
#   Rscript tools/install_dependencies.R demo|test|bench|ci
#
# The R packages are those of DESCRIPTION. Debian's prebuilt packages come first, where
# R is Debian's own and we are root; whatever is still missing comes from CRAN. Nothing
# is asked of either when everything is there.

purpose <- commandArgs(trailingOnly = TRUE)
if (length(purpose) != 1L || !purpose %in% c("demo", "test", "bench", "ci")) {
  stop("usage: install_dependencies.R demo|test|bench|ci", call. = FALSE)
}

# The release whose behaviour the differential test compares with.
ggmlr_version <- "0.8.8.1"

# Commands, each with the Debian package that has it; files likewise.
commands <- list(
  demo = c("g++" = "g++", make = "make"),
  test = c(cmake = "cmake"),
  bench = character(),
  ci = c(
    git = "git", valgrind = "valgrind", "clang-format" = "clang-format",
    pandoc = "pandoc", qpdf = "qpdf", tidy = "tidy"
  )
)
extra_packages <- list(
  demo = character(), test = character(), bench = "bench", ci = c("lintr", "roxygen2")
)
catch2_header <- "/usr/include/catch2/catch.hpp"
includes <- list(
  demo = "demo", test = c("demo", "test"), bench = c("demo", "test", "bench"),
  ci = c("demo", "test", "ci")
)[[purpose]]

log_file <- file.path("build", "install.log")
dir.create(file.path("build", "lib"), showWarnings = FALSE, recursive = TRUE)
project_library <- normalizePath(file.path("build", "lib"))
debian_r <- normalizePath(R.home()) == "/usr/lib/R" && nzchar(Sys.which("dpkg"))
can_use_apt <- nzchar(Sys.which("apt-get")) &&
  identical(unname(Sys.info()["effective_user"]), "root")

# name = minimal version ("" for any), from the fields of DESCRIPTION
declared_packages <- function(fields) {
  entries <- read.dcf("DESCRIPTION", fields = fields)
  entries <- trimws(unlist(strsplit(entries[!is.na(entries)], ",")))
  names <- sub("[[:space:]]*[(].*", "", entries)
  versions <- ifelse(
    grepl(">=", entries), gsub(".*>=[[:space:]]*|[)].*", "", entries), ""
  )
  keep <- names != "R" & !duplicated(names)
  stats::setNames(versions[keep], names[keep])
}

needed_packages <- function() {
  fields <- c("Depends", "Imports", "LinkingTo", if ("test" %in% includes) "Suggests")
  declared <- declared_packages(fields)
  extra <- setdiff(unlist(extra_packages[includes]), names(declared))
  c(declared, stats::setNames(rep("", length(extra)), extra))
}

is_installed <- function(name, version) {
  if (length(find.package(name, quiet = TRUE)) == 0L) {
    return(FALSE)
  }
  found <- utils::packageVersion(name)
  if (name == "ggmlR") {
    return(found == ggmlr_version)
  }
  !nzchar(version) || found >= version
}

missing_packages <- function() {
  needed <- needed_packages()
  names(needed)[!mapply(is_installed, names(needed), needed)]
}

missing_debian_tools <- function() {
  wanted <- unlist(unname(commands[includes]))
  absent <- wanted[!nzchar(Sys.which(names(wanted)))]
  c(absent, if ("test" %in% includes && !file.exists(catch2_header)) "catch2")
}

run_logged <- function(command, args) {
  status <- system2(command, args, stdout = log_file, stderr = log_file)
  if (status != 0L) {
    writeLines(utils::tail(readLines(log_file, warn = FALSE), 15L))
  }
  status == 0L
}

install_with_apt <- function(packages) {
  message("installing with apt-get: ", paste(packages, collapse = " "))
  Sys.setenv(DEBIAN_FRONTEND = "noninteractive")
  run_logged("apt-get", c("update", "-q")) &&
    run_logged("apt-get", c("install", "-q", "-y", "--no-install-recommends", packages))
}

debian_names <- function(packages) {
  candidates <- paste0("r-cran-", tolower(packages))
  known <- system2("apt-cache", c("pkgnames", "r-cran-"), stdout = TRUE, stderr = FALSE)
  intersect(candidates, known)
}

repositories <- function() {
  configured <- getOption("repos")
  configured["CRAN"] <- if (configured["CRAN"] %in% c("@CRAN@", NA)) {
    utils::getCRANmirrors(local.only = TRUE)[1L, "URL"]
  } else {
    configured["CRAN"]
  }
  configured
}

# The machine's own library, so that the next clone finds the package there; the
# project's where that is not ours to write or holds another version.
library_for <- function(package) {
  shared <- setdiff(normalizePath(.libPaths()), project_library)
  writable <- shared[file.access(shared, 2L) == 0L]
  taken <- length(find.package(package, lib.loc = shared, quiet = TRUE)) > 0L
  if (taken || length(writable) == 0L) project_library else writable[[1L]]
}

install_from_cran <- function(packages) {
  message("installing from CRAN: ", paste(packages, collapse = " "))
  for (package in packages) {
    utils::install.packages(
      package,
      lib = library_for(package), repos = repositories(), quiet = TRUE, Ncpus = cores
    )
  }
}

install_ggmlr <- function() {
  message("installing ggmlR ", ggmlr_version, " from CRAN (a few minutes)")
  repos <- repositories()
  source_package <- paste0("ggmlR_", ggmlr_version, ".tar.gz")
  destination <- file.path(tempdir(), source_package)
  contrib <- utils::contrib.url(repos[["CRAN"]], type = "source")
  # The current release, or one that a later has put in the archive.
  problems <- character()
  for (place in paste0(contrib, c("/", "/Archive/ggmlR/"), source_package)) {
    problem <- tryCatch(
      {
        utils::download.file(place, destination, mode = "wb", quiet = TRUE)
        NULL
      },
      error = conditionMessage, warning = conditionMessage
    )
    if (is.null(problem)) break
    problems <- c(problems, problem)
  }
  if (!is.null(problem)) {
    stop(
      "no source of ggmlR ", ggmlr_version, ", current or archived:\n  ",
      paste(problems, collapse = "\n  "),
      call. = FALSE
    )
  }
  if (!is_installed("generics", "")) {
    install_from_cran("generics")
  }
  # Vulkan plays no part on the CPU path, and needs system libraries.
  utils::install.packages(
    destination,
    lib = library_for("ggmlR"), repos = NULL, type = "source", quiet = TRUE,
    configure.args = "--without-vulkan", INSTALL_opts = "--no-docs"
  )
}

cores <- max(1L, parallel::detectCores(), na.rm = TRUE)
Sys.setenv(MAKEFLAGS = paste0("-j", cores))

tools <- missing_debian_tools()
packages <- missing_packages()
if (length(tools) + length(packages) > 0L && can_use_apt) {
  wanted <- tools
  if (debian_r) {
    needs_generics <- "ggmlR" %in% packages && !is_installed("generics", "")
    wanted <- c(wanted, debian_names(c(packages, if (needs_generics) "generics")))
  }
  if (length(wanted) > 0L) {
    invisible(install_with_apt(unname(wanted)))
  }
}

from_cran <- missing_packages()
if (length(setdiff(from_cran, "ggmlR")) > 0L) {
  install_from_cran(setdiff(from_cran, "ggmlR"))
}
if ("ggmlR" %in% from_cran) {
  install_ggmlr()
}

still_missing <- c(missing_debian_tools(), missing_packages())
if (length(still_missing) > 0L) {
  stop(
    "still missing: ", paste(still_missing, collapse = ", "), " (see ", log_file, ")",
    call. = FALSE
  )
}
