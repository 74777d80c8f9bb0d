#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "pool.h"

using agbudget::Pool;

TEST_CASE("A pool finds each record by its number, and leaves it where it is") {
  Pool<std::string> pool;
  const auto first = pool.add("first");
  const std::string* place = &pool[first];
  std::vector<Pool<std::string>::Index> numbers;
  for (int i = 0; i < 10000; ++i) numbers.push_back(pool.add(std::to_string(i)));
  CHECK(&pool[first] == place);
  CHECK(pool[first] == "first");
  for (int i = 0; i < 10000; ++i) {
    REQUIRE(pool[numbers[static_cast<std::size_t>(i)]] == std::to_string(i));
  }
}

TEST_CASE("A pool gives the number of a removed record again, and no other") {
  Pool<int> pool;
  const auto one = pool.add(1);
  const auto two = pool.add(2);
  pool.remove(one);
  CHECK(pool.add(3) == one);
  CHECK(pool[one] == 3);
  CHECK(pool[two] == 2);
  const auto four = pool.add(4);
  CHECK(four != one);
  CHECK(four != two);
}
