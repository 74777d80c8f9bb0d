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

# Exactly these: the release whose behaviour the differential tests compare with, and the
# tools whose findings and generated files change from release to release.
pinned <- c(ggmlR = "0.8.8.1", lintr = "3.0.2", roxygen2 = "7.2.3")

# Commands, each with the Debian package that has it; files likewise.
commands <- list(
  demo = c("g++" = "g++", make = "make"),
  test = c(cmake = "cmake"),
  bench = c(valgrind = "valgrind"),
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

# name = minimal version ("" for any), from the fields of a DESCRIPTION
declared_packages <- function(fields, file = "DESCRIPTION") {
  entries <- read.dcf(file, fields = fields)
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
  if (name %in% names(pinned)) {
    return(found == pinned[[name]])
  }
  !nzchar(version) || found >= version
}

not_installed <- function(versions) {
  names(versions)[!as.logical(mapply(is_installed, names(versions), versions))]
}

missing_packages <- function() not_installed(needed_packages())

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
  run_logged("apt-get", c("install", "-q", "-y", "--no-install-recommends", packages))
}

# Of those that Debian has. Asks apt's lists, which a new machine has yet to get.
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
  if (length(packages) > 0L) {
    message("installing from CRAN: ", paste(packages, collapse = " "))
  }
  for (package in packages) {
    utils::install.packages(
      package,
      lib = library_for(package), repos = repositories(), quiet = TRUE, Ncpus = cores
    )
  }
}

# The source of a pinned release: the current one, or one that a later has put in the
# archive.
download_pinned <- function(package) {
  source_package <- paste0(package, "_", pinned[[package]], ".tar.gz")
  destination <- file.path(tempdir(), source_package)
  contrib <- utils::contrib.url(repositories()[["CRAN"]], type = "source")
  problems <- character()
  folders <- c("/", paste0("/Archive/", package, "/"))
  for (place in paste0(contrib, folders, source_package)) {
    problem <- tryCatch(
      {
        utils::download.file(place, destination, mode = "wb", quiet = TRUE)
        return(destination)
      },
      error = conditionMessage, warning = conditionMessage
    )
    problems <- c(problems, problem)
  }
  stop(
    "no source of ", package, " ", pinned[[package]], ", current or archived:\n  ",
    paste(problems, collapse = "\n  "),
    call. = FALSE
  )
}

# Makes the first one found what an earlier library hides, such as Debian's behind a newer
# one from CRAN.
uncover_pinned <- function(package) {
  holds <- function(library) {
    file.exists(file.path(library, package, "DESCRIPTION")) &&
      utils::packageVersion(package, lib.loc = library) == pinned[[package]]
  }
  hidden <- Filter(holds, setdiff(normalizePath(.libPaths()), project_library))
  if (length(hidden) == 0L) {
    return(FALSE)
  }
  link <- file.path(project_library, package)
  unlink(link, recursive = TRUE)
  file.symlink(file.path(hidden[[1L]], package), link)
}

install_pinned <- function(package) {
  message("installing ", package, " ", pinned[[package]], " from CRAN")
  source_package <- download_pinned(package)
  description <- file.path(package, "DESCRIPTION")
  utils::untar(source_package, description, exdir = tempdir())
  dependencies <- declared_packages(
    c("Depends", "Imports", "LinkingTo"), file.path(tempdir(), description)
  )
  install_from_cran(not_installed(dependencies))
  utils::install.packages(
    source_package,
    lib = library_for(package), repos = NULL, type = "source", quiet = TRUE,
    # ggmlR: Vulkan plays no part on the CPU path, and needs system libraries.
    configure.args = if (package == "ggmlR") "--without-vulkan",
    INSTALL_opts = "--no-docs"
  )
}

cores <- max(1L, parallel::detectCores(), na.rm = TRUE)
Sys.setenv(MAKEFLAGS = paste0("-j", cores))

tools <- missing_debian_tools()
packages <- missing_packages()
if (length(tools) + length(packages) > 0L && can_use_apt) {
  Sys.setenv(DEBIAN_FRONTEND = "noninteractive")
  invisible(run_logged("apt-get", c("update", "-q")))
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
install_from_cran(setdiff(from_cran, names(pinned)))
for (package in intersect(from_cran, names(pinned))) {
  if (!uncover_pinned(package)) install_pinned(package)
}

still_missing <- c(missing_debian_tools(), missing_packages())
if (length(still_missing) > 0L) {
  stop(
    "still missing: ", paste(still_missing, collapse = ", "), " (see ", log_file, ")",
    call. = FALSE
  )
}
