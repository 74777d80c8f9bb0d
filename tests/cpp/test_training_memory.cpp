#include <catch2/catch.hpp>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "../../src/training_memory.h"

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <typename Dimension>
double size_of(const std::vector<Dimension>& dims) {
  agbudget::ShapeSize size;
  REQUIRE(size.multiply(dims.data(), dims.size()));
  return size.value();
}

template <typename Dimension>
bool accepts(const std::vector<Dimension>& dims) {
  agbudget::ShapeSize size;
  return size.multiply(dims.data(), dims.size());
}

double total_of(double params, double copies, double frac, double batch) {
  const agbudget::FixedBytes fixed = agbudget::fixed_bytes(params, copies);
  return agbudget::total_bytes(fixed,
                               agbudget::activation_bytes(fixed.weights, frac, batch));
}

double stored(std::int64_t value) {
  double bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

TEST_CASE("a shape's size is the product of its dimensions") {
  CHECK(size_of<int>({512, 512}) == 262144);
  CHECK(size_of<double>({512, 512, 3}) == 786432);
  CHECK(size_of<int>({7}) == 7);
  CHECK(size_of<double>({2.5, 4}) == 10);
}

TEST_CASE("integer dimensions do not wrap at 2^31") {
  CHECK(size_of<int>({65536, 65536}) == 4294967296.0);
  CHECK(size_of<int>({2147483647}) == 2147483647.0);
  CHECK(size_of<int>({2147483647, 2147483647}) == 4611686014132420609.0);
}

TEST_CASE("products are formed in extended precision") {
  if (LDBL_MANT_DIG < 64) return;
  // (2^53 - 1) * 3 / 3 in doubles would lose the last bit on the way.
  const double odd = 9007199254740991.0;
  CHECK(size_of<double>({odd, 3, 1.0 / 4, 4}) == 27021597764222973.0);
  CHECK(size_of<double>({1 + DBL_EPSILON, 1 + DBL_EPSILON, 0.5}) ==
        0.5 * (1 + 2 * DBL_EPSILON));
  // Past the largest double on the way, and back.
  if (LDBL_MAX_EXP > DBL_MAX_EXP) CHECK(size_of<double>({DBL_MAX, 4, 0.25}) == DBL_MAX);
}

TEST_CASE("more than the largest double is infinite") {
  CHECK(size_of<double>({DBL_MAX}) == DBL_MAX);
  CHECK(size_of<double>({1e200, 1e200}) == kInf);
  if (LDBL_MANT_DIG < 64) return;
  // By a quarter of the last digit: rounding first would give DBL_MAX.
  const double above = 1 + 1.25 * std::ldexp(1.0, -27);
  const double below = 1 - 1.25 * std::ldexp(1.0, -27) + std::ldexp(1.0, -53);
  CHECK(static_cast<double>(static_cast<long double>(DBL_MAX) * above * below) ==
        DBL_MAX);
  CHECK(size_of<double>({DBL_MAX, above, below}) == kInf);
}

TEST_CASE("less than the smallest double is zero") {
  CHECK(size_of<double>({1e-200, 1e-200}) == 0);
}

TEST_CASE("a dimension is positive and finite") {
  CHECK_FALSE(accepts<int>({0}));
  CHECK_FALSE(accepts<int>({3, -1}));
  CHECK_FALSE(accepts<int>({std::numeric_limits<int>::min()}));
  CHECK_FALSE(accepts<double>({0.0}));
  CHECK_FALSE(accepts<double>({-0.0}));
  CHECK_FALSE(accepts<double>({-2.0}));
  CHECK_FALSE(accepts<double>({1, kInf}));
  CHECK_FALSE(accepts<double>({1, -kInf}));
  CHECK_FALSE(accepts<double>({std::nan("")}));
  CHECK_FALSE(accepts<std::int64_t>({0}));
  CHECK_FALSE(accepts<std::int64_t>({agbudget::missing_integer64}));
  CHECK(accepts<double>({DBL_MIN, DBL_TRUE_MIN}));
}

TEST_CASE("a vector can be multiplied in pieces") {
  agbudget::ShapeSize size;
  const std::vector<int> first = {3, 4};
  const std::vector<int> second = {5};
  REQUIRE(size.multiply(first.data(), first.size()));
  REQUIRE(size.multiply(second.data(), second.size()));
  CHECK(size.value() == 60);
}

TEST_CASE("64-bit dimensions are rounded to doubles first") {
  CHECK(size_of<std::int64_t>({std::int64_t{1} << 33}) == 8589934592.0);
  CHECK(size_of<std::int64_t>({(std::int64_t{1} << 53) + 1, 3}) == 27021597764222976.0);
}

TEST_CASE("integer64 is found in the bits of a double") {
  CHECK(agbudget::integer64_bits(stored(5)) == 5);
  CHECK(agbudget::integer64_bits(stored(-5)) == -5);
  CHECK(agbudget::integer64_bits(stored(INT64_MAX)) == INT64_MAX);
  CHECK(agbudget::integer64_bits(stored(INT64_MIN)) == agbudget::missing_integer64);
}

TEST_CASE("fixed terms are eight bytes for each scalar and copy") {
  const agbudget::FixedBytes adam = agbudget::fixed_bytes(100, 2);
  CHECK(adam.weights == 800);
  CHECK(adam.gradients == 800);
  CHECK(adam.optimizer == 1600);
  CHECK(agbudget::fixed_bytes(100, 1).optimizer == 800);
  CHECK(agbudget::fixed_bytes(100, 0).optimizer == 0);
}

TEST_CASE("activations are a share of the weights for each row") {
  CHECK(agbudget::activation_bytes(800, 0.25, 64) == 12800);
  CHECK(agbudget::activation_bytes(800, 0, 64) == 0);
  CHECK(agbudget::activation_bytes(800, 0.25, 0) == 0);
}

TEST_CASE("factors and terms are taken in ggmlR's order") {
  // Any other order rounds differently for these.
  const double w = 8 * 17.0;
  const double by_frac = w * (1.0 / 3);
  CHECK(agbudget::activation_bytes(w, 1.0 / 3, 2.3) == by_frac * 2.3);
  CHECK(agbudget::activation_bytes(1e308, 1e10, 1e-10) == kInf);
  CHECK(agbudget::activation_bytes(1e308, 1e-10, 1e10) < kInf);
  const agbudget::FixedBytes fixed = {1e16, 1, 1};
  CHECK(agbudget::total_bytes(fixed, 1) == 1e16);
  CHECK(agbudget::total_bytes({1, 1, 1}, 1e16) == 1e16 + 4);
  CHECK(agbudget::total_bytes({1e16, -1e16, 1}, 1) == 2);
}

TEST_CASE("the documented example") {
  const double params = 3 * size_of<double>({512, 512});
  CHECK(params == 786432);
  CHECK(total_of(params, 2, 0.01, 64) == 6291456.0 * 4 + 6291456.0 * 0.01 * 64);
}

TEST_CASE("laws of the estimate") {
  const double a = size_of<int>({512, 512});
  const double b = size_of<int>({128});
  SECTION("fixed bytes are additive over shapes") {
    const double both = agbudget::fixed_bytes(a + b, 2).optimizer;
    CHECK(both ==
          agbudget::fixed_bytes(a, 2).optimizer + agbudget::fixed_bytes(b, 2).optimizer);
  }
  SECTION("twice the batch doubles activations and nothing else") {
    const double once = agbudget::activation_bytes(8 * a, 0.01, 32);
    CHECK(agbudget::activation_bytes(8 * a, 0.01, 64) == 2 * once);
    CHECK(total_of(a, 2, 0.01, 0) == 32 * a);
  }
  SECTION("whole numbers are exact up to 2^53") {
    CHECK(agbudget::fixed_bytes(9007199254740992.0, 0).weights == 72057594037927936.0);
    CHECK(agbudget::activation_bytes(8.0 * 4294967296.0, 1, 2000000) ==
          68719476736000000.0);
  }
}

TEST_CASE("bytes beyond the largest double are infinite") {
  CHECK(agbudget::fixed_bytes(DBL_MAX, 2).weights == kInf);
  CHECK(std::isnan(agbudget::fixed_bytes(kInf, 0).optimizer));
}

TEST_CASE("thousands are grouped from the right") {
  CHECK(agbudget::group_thousands("7") == "7");
  CHECK(agbudget::group_thousands("786") == "786");
  CHECK(agbudget::group_thousands("1786") == "1 786");
  CHECK(agbudget::group_thousands("786432") == "786 432");
  CHECK(agbudget::group_thousands("4294967296") == "4 294 967 296");
}

TEST_CASE("only digits are grouped") {
  CHECK(agbudget::group_thousands("1e+05").empty());
  CHECK(agbudget::group_thousands("1234.5").empty());
  CHECK(agbudget::group_thousands("Inf").empty());
  CHECK(agbudget::group_thousands("-1234").empty());
  CHECK(agbudget::group_thousands("").empty());
}
