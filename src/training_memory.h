#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace agbudget {

// Everything on the autograd path is a matrix of doubles in R.
constexpr double bytes_per_scalar = 8;

constexpr bool is_dimension(int value) { return value > 0; }
constexpr bool is_dimension(std::int64_t value) { return value > 0; }
constexpr bool is_dimension(double value) { return value > 0 && value <= DBL_MAX; }

// The number of parameters in one shape. prod() multiplies in long double and calls
// whatever exceeds the largest double infinite before it rounds; so does this.
class ShapeSize {
 public:
  // False where a dimension is not a positive finite number; the size then means nothing.
  template <typename Dimension>
  bool multiply(const Dimension* dims, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      if (!is_dimension(dims[i])) return false;
      // A 64-bit integer is rounded to a double first, as as.double() does.
      product_ *= static_cast<double>(dims[i]);
    }
    return true;
  }

  double value() const {
    if (product_ > DBL_MAX) return std::numeric_limits<double>::infinity();
    return static_cast<double>(product_);
  }

 private:
  long double product_ = 1;
};

// Bytes of what does not depend on the batch.
struct FixedBytes {
  double weights;
  double gradients;
  double optimizer;
};

// `state_copies`: how many matrices of a parameter's size the optimizer keeps for it.
FixedBytes fixed_bytes(double params, double state_copies);

double activation_bytes(double weights, double activation_frac, double batch_size);

double total_bytes(const FixedBytes& fixed, double activations);

// The integers behind bit64's integer64, which keeps their bits in doubles.
std::int64_t integer64_bits(double stored);
constexpr std::int64_t missing_integer64 = std::numeric_limits<std::int64_t>::min();

// "1234567" as "1 234 567"; empty where `digits` holds anything but digits.
std::string group_thousands(const std::string& digits);

}  // namespace agbudget
