// The only file that knows R: convert, call the core, convert back.

#include <Rcpp.h>

#include "training_memory.h"

namespace {

constexpr R_xlen_t kRegion = 512;
constexpr R_xlen_t kPrefetchDistance = 8;
constexpr R_xlen_t kShapesBetweenInterruptChecks = R_xlen_t{1} << 18;

// The bits of integer64 are no double's value, so they must not be copied as doubles.
std::int64_t integer64_at(const double* stored) {
  return agbudget::integer64_bits(*stored);
}

// An ALTREP vector such as 1:n is read piece by piece: asked for a pointer to its data, R
// would write all of it out.
template <typename Element, typename Region>
bool multiply_regions(agbudget::ShapeSize& size, SEXP dims, R_xlen_t n, Region region) {
  Element buffer[kRegion];
  for (R_xlen_t from = 0; from < n; from += kRegion) {
    const R_xlen_t got = region(dims, from, kRegion, buffer);
    if (!size.multiply(buffer, static_cast<std::size_t>(got))) return false;
  }
  return true;
}

template <typename Element, typename Region>
bool multiply_elements(agbudget::ShapeSize& size, SEXP dims, R_xlen_t n, Region region) {
  const void* data = DATAPTR_OR_NULL(dims);
  if (data == nullptr) return multiply_regions<Element>(size, dims, n, region);
  return size.multiply(static_cast<const Element*>(data), static_cast<std::size_t>(n));
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
  const R_xlen_t n = Rf_xlength(dims);
  if (n == 0) return false;
  switch (TYPEOF(dims)) {
    case INTSXP:
      return multiply_elements<int>(size, dims, n, INTEGER_GET_REGION);
    case REALSXP:
      return multiply_elements<double>(size, dims, n, REAL_GET_REGION);
    default:
      return false;
  }
}

bool is_integer64(SEXP x) {
  return TYPEOF(x) == REALSXP && !Rf_isS4(x) && Rf_inherits(x, "integer64");
}

// Small vectors lie all over R's heap, and waiting for the next one's header would take
// most of the walk.
inline void prefetch(const SEXP* elements, R_xlen_t i, R_xlen_t n) {
#if defined(__GNUC__)
  if (elements != nullptr && i + kPrefetchDistance < n) {
    __builtin_prefetch(elements[i + kPrefetchDistance]);
  }
#endif
}

}  // namespace

// NULL where a shape is not a vector of positive dimensions.
// [[Rcpp::export(rng = false)]]
SEXP count_parameters(SEXP shapes, SEXP classed_shape_size) {
  const Rcpp::Shield<SEXP> list(TYPEOF(shapes) == LISTSXP ? Rf_PairToVectorList(shapes)
                                                          : shapes);
  const R_xlen_t n = Rf_xlength(list);
  const auto elements = static_cast<const SEXP*>(DATAPTR_OR_NULL(list));
  double params = 0;
  for (R_xlen_t i = 0; i < n; ++i) {
    if ((i + 1) % kShapesBetweenInterruptChecks == 0) Rcpp::checkUserInterrupt();
    prefetch(elements, i, n);
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

// Rf_mkNamed() rather than List::create(), which takes longer than everything else here.
// [[Rcpp::export(rng = false)]]
SEXP training_memory(double params, double state_copies, double activation_frac,
                     Rcpp::NumericVector batch_size, SEXP note) {
  const agbudget::FixedBytes fixed = agbudget::fixed_bytes(params, state_copies);
  const R_xlen_t n = batch_size.size();
  const char* names[] = {"params",           "weights",     "gradients",
                         "optimizer",        "activations", "total",
                         "bytes_per_scalar", "note",        ""};
  const Rcpp::Shield<SEXP> memory(Rf_mkNamed(VECSXP, names));
  const double scalars[] = {params, fixed.weights, fixed.gradients, fixed.optimizer};
  for (int i = 0; i < 4; ++i) SET_VECTOR_ELT(memory, i, Rf_ScalarReal(scalars[i]));
  SET_VECTOR_ELT(memory, 4, Rf_allocVector(REALSXP, n));
  SET_VECTOR_ELT(memory, 5, Rf_allocVector(REALSXP, n));
  SET_VECTOR_ELT(memory, 6, Rf_ScalarReal(agbudget::kBytesPerScalar));
  SET_VECTOR_ELT(memory, 7, note);
  double* activations = REAL(VECTOR_ELT(memory, 4));
  double* total = REAL(VECTOR_ELT(memory, 5));
  for (R_xlen_t i = 0; i < n; ++i) {
    activations[i] =
        agbudget::activation_bytes(fixed.weights, activation_frac, batch_size[i]);
    total[i] = agbudget::total_bytes(fixed, activations[i]);
  }
  return memory;
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
