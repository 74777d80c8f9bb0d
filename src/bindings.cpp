// The only file that knows R: convert, call the core, convert back.

#include <Rcpp.h>

#include "training_memory.h"

namespace {

constexpr R_xlen_t kRegion = 512;
constexpr R_xlen_t kShapesBetweenInterruptChecks = R_xlen_t{1} << 18;

// The bits of integer64 are no double's value, so they must not be copied as doubles.
std::int64_t integer64_at(const double* stored) {
  return agbudget::integer64_bits(*stored);
}

// An ALTREP vector such as 1:n is read piece by piece: a pointer to its data would have R
// write all of it out.
template <typename Element, typename Region>
bool multiply_regions(agbudget::ShapeSize& size, SEXP dims, Region region) {
  Element buffer[kRegion];
  const R_xlen_t n = Rf_xlength(dims);
  for (R_xlen_t from = 0; from < n; from += kRegion) {
    const R_xlen_t got = region(dims, from, kRegion, buffer);
    if (!size.multiply(buffer, static_cast<std::size_t>(got))) return false;
  }
  return true;
}

bool multiply_integers(agbudget::ShapeSize& size, SEXP dims) {
  if (ALTREP(dims)) return multiply_regions<int>(size, dims, INTEGER_GET_REGION);
  return size.multiply(INTEGER(dims), static_cast<std::size_t>(Rf_xlength(dims)));
}

bool multiply_doubles(agbudget::ShapeSize& size, SEXP dims) {
  if (ALTREP(dims)) return multiply_regions<double>(size, dims, REAL_GET_REGION);
  return size.multiply(REAL(dims), static_cast<std::size_t>(Rf_xlength(dims)));
}

bool multiply_integer64(agbudget::ShapeSize& size, SEXP dims) {
  const double* stored = REAL(dims);
  const R_xlen_t n = Rf_xlength(dims);
  for (R_xlen_t i = 0; i < n; ++i) {
    const std::int64_t dim = integer64_at(stored + i);
    if (!size.multiply(&dim, 1)) return false;
  }
  return true;
}

// True where `dims` held positive dimensions only.
bool multiply_plain(agbudget::ShapeSize& size, SEXP dims) {
  if (Rf_xlength(dims) == 0) return false;
  switch (TYPEOF(dims)) {
    case INTSXP:
      return multiply_integers(size, dims);
    case REALSXP:
      return multiply_doubles(size, dims);
    default:
      return false;
  }
}

bool is_integer64(SEXP x) {
  return TYPEOF(x) == REALSXP && !Rf_isS4(x) && Rf_inherits(x, "integer64");
}

}  // namespace

// NULL where a shape is not a vector of positive dimensions.
// [[Rcpp::export(rng = false)]]
SEXP count_parameters(SEXP shapes, SEXP classed_shape_size) {
  const Rcpp::Shield<SEXP> list(TYPEOF(shapes) == LISTSXP ? Rf_PairToVectorList(shapes)
                                                          : shapes);
  const R_xlen_t n = Rf_xlength(list);
  double params = 0;
  for (R_xlen_t i = 0; i < n; ++i) {
    if ((i + 1) % kShapesBetweenInterruptChecks == 0) Rcpp::checkUserInterrupt();
    const SEXP dims = VECTOR_ELT(list, i);
    agbudget::ShapeSize size;
    if (!Rf_isObject(dims)) {
      if (!multiply_plain(size, dims)) return R_NilValue;
      params += size.value();
    } else if (is_integer64(dims)) {
      if (Rf_xlength(dims) == 0 || !multiply_integer64(size, dims)) return R_NilValue;
      params += size.value();
    } else {
      const Rcpp::Function by_generics(classed_shape_size);
      params += Rcpp::as<double>(by_generics(dims, static_cast<double>(i + 1)));
    }
  }
  return Rf_ScalarReal(params);
}

// [[Rcpp::export(rng = false)]]
Rcpp::List training_memory(double params, double state_copies, double activation_frac,
                           Rcpp::NumericVector batch_size) {
  const agbudget::FixedBytes fixed = agbudget::fixed_bytes(params, state_copies);
  Rcpp::NumericVector activations(Rcpp::no_init(batch_size.size()));
  Rcpp::NumericVector total(Rcpp::no_init(batch_size.size()));
  for (R_xlen_t i = 0; i < batch_size.size(); ++i) {
    activations[i] =
        agbudget::activation_bytes(fixed.weights, activation_frac, batch_size[i]);
    total[i] = agbudget::total_bytes(fixed, activations[i]);
  }
  return Rcpp::List::create(
      Rcpp::_["params"] = params, Rcpp::_["weights"] = fixed.weights,
      Rcpp::_["gradients"] = fixed.gradients, Rcpp::_["optimizer"] = fixed.optimizer,
      Rcpp::_["activations"] = activations, Rcpp::_["total"] = total,
      Rcpp::_["bytes_per_scalar"] = agbudget::kBytesPerScalar);
}

// [[Rcpp::export(rng = false)]]
Rcpp::NumericVector integer64_as_double(Rcpp::NumericVector x) {
  Rcpp::NumericVector values(Rcpp::no_init(x.size()));
  for (R_xlen_t i = 0; i < x.size(); ++i) {
    const std::int64_t value = integer64_at(x.begin() + i);
    values[i] =
        value == agbudget::kMissingInteger64 ? NA_REAL : static_cast<double>(value);
  }
  return values;
}

// [[Rcpp::export(rng = false)]]
std::string group_thousands(std::string digits) {
  return agbudget::group_thousands(digits);
}
