# Needs GNU make, R, and for the first run either root on Debian (apt-get) or the
# tools named in tools/install_dependencies.R. Everything made here goes to build/.

LC_ALL ?= C.UTF-8
RSCRIPT ?= Rscript
BUILD := $(CURDIR)/build
# agbudget goes to a library of its own, so that no installed copy is replaced.
export LC_ALL
export R_LIBS := $(BUILD)/lib$(if $(R_LIBS),:$(R_LIBS))

.PHONY: demo test install install-deps install-deps-demo install-deps-ci document \
	lint format-check format cpp-test sanitize valgrind gctorture check bench readme clean

demo: install-deps-demo install
	@$(RSCRIPT) tools/demo.R

test: install-deps install
	@NOT_CRAN=true $(RSCRIPT) tools/run_tests.R

install: | $(BUILD)/lib
	@sh tools/install_package.sh

install-deps: | $(BUILD)/lib
	@$(RSCRIPT) tools/install_dependencies.R test

install-deps-demo: | $(BUILD)/lib
	@$(RSCRIPT) tools/install_dependencies.R demo

install-deps-ci: | $(BUILD)/lib
	@$(RSCRIPT) tools/install_dependencies.R ci

# The Debian machine has R but perhaps no compiler yet: order matters under -j.
install: install-deps-demo
install-deps: install-deps-demo

document: install-deps-ci
	@$(RSCRIPT) -e 'Rcpp::compileAttributes()'
	@sh tools/install_package.sh
	@$(RSCRIPT) -e 'roxygen2::roxygenise(load_code = "installed")'

readme: install-deps-ci install
	@$(RSCRIPT) -e 'rmarkdown::render("README.Rmd", quiet = TRUE)'
	@rm -f README.html

lint: install-deps-ci install
	@$(RSCRIPT) tools/lint.R

format-check: install-deps-ci
	@sh tools/format.sh --check

format: install-deps-ci
	@sh tools/format.sh

cpp-test: install-deps
	@sh tools/cpp_tests.sh

sanitize: install-deps
	@sh tools/cpp_tests.sh --sanitize

valgrind: install-deps-ci install
	@sh tools/valgrind.sh

gctorture: install
	@$(RSCRIPT) tools/gctorture.R

check: install-deps-ci
	@$(RSCRIPT) tools/check_package.R

bench: install-deps install
	@$(RSCRIPT) tools/install_dependencies.R bench
	@for script in bench/*.R; do $(RSCRIPT) "$$script" || exit 1; done

$(BUILD)/lib:
	@mkdir -p "$@"

clean:
	rm -rf "$(BUILD)" agbudget_*.tar.gz agbudget.Rcheck src/*.o src/*.so
