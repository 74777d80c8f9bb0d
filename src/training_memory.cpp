#include "training_memory.h"

#include <algorithm>
#include <cstring>

namespace agbudget {

FixedBytes fixed_bytes(double params, double state_copies) {
  const double weights = params * bytes_per_scalar;
  const double gradients = params * bytes_per_scalar;
  return {weights, gradients, params * bytes_per_scalar * state_copies};
}

// Floating-point results depend on the order of these factors, and of the terms below;
// both orders are those of ggmlR's ag_estimate_training_memory().
double activation_bytes(double weights, double activation_frac, double batch_size) {
  return weights * activation_frac * batch_size;
}

double total_bytes(const FixedBytes& fixed, double activations) {
  return fixed.weights + fixed.gradients + fixed.optimizer + activations;
}

std::int64_t integer64_bits(double stored) {
  std::int64_t bits;
  static_assert(sizeof bits == sizeof stored, "integer64 fills a double");
  std::memcpy(&bits, &stored, sizeof bits);
  return bits;
}

std::string group_thousands(const std::string& digits) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::all_of(digits.begin(), digits.end(), is_digit)) return {};
  std::string grouped;
  grouped.reserve(digits.size() + digits.size() / 3);
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped += ' ';
    grouped += digits[i];
  }
  return grouped;
}

}  // namespace agbudget
