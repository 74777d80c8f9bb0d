// Sizes of R's vectors. The stored values are those of R 4.2.2 on 64 bits:
//   object.size(numeric(n)), object.size(integer(n)), object.size(matrix(0, n, 1))
// and for the heap, the growth of gc()[2, 1] (8-byte cells) per vector while a list of
// 100,000 such vectors was filled:
//   x <- vector("list", 1e5); a <- gc()[2, 1]
//   for (i in 1:1e5) x[[i]] <- numeric(n)
//   (gc()[2, 1] - a) / 1e5

#include <catch2/catch.hpp>

#include "bookkeeping.h"
#include "counting.h"

using agbudget::Bytes;
using agbudget::vector_heap_bytes;

TEST_CASE("the heap rounds small vectors to its classes and others to words") {
  const std::pair<Bytes, Bytes> known[] = {
      {-1, 0},    {0, 0},     {1, 8},     {7, 8},     {8, 8},       {9, 16},
      {16, 16},   {17, 32},   {31, 32},   {32, 32},   {33, 64},     {48, 64},
      {49, 64},   {63, 64},   {64, 64},   {65, 128},  {127, 128},   {128, 128},
      {129, 136}, {136, 136}, {137, 144}, {144, 144}, {1000, 1000}, {1001, 1008}};
  for (const auto& [payload, bytes] : known) {
    CAPTURE(payload);
    CHECK(vector_heap_bytes(payload) == bytes);
  }
}

TEST_CASE("vectors of doubles take the cells that gc() reports") {
  const std::pair<Bytes, Bytes> cells[] = {{1, 1},   {2, 2},   {3, 4},  {4, 4},  {5, 8},
                                           {6, 8},   {7, 8},   {8, 8},  {9, 16}, {12, 16},
                                           {16, 16}, {17, 17}, {18, 18}};
  for (const auto& [length, words] : cells) {
    CAPTURE(length);
    CHECK(vector_heap_bytes(8 * length) == 8 * words);
  }
}

TEST_CASE("object sizes are those of object.size()") {
  counting::Bench bench;
  struct Size {
    agbudget::Extent length;
    Bytes doubles;
    Bytes integers;
    Bytes matrix;
  };
  const Size known[] = {
      {1, 56, 56, 224},      {2, 64, 56, 232},        {3, 80, 64, 248},
      {4, 80, 64, 248},      {5, 96, 80, 264},        {6, 96, 80, 264},
      {7, 112, 80, 280},     {8, 112, 80, 280},       {9, 176, 96, 344},
      {12, 176, 96, 344},    {13, 176, 112, 344},     {16, 176, 112, 344},
      {17, 184, 176, 352},   {32, 304, 176, 472},     {33, 312, 184, 480},
      {100, 848, 448, 1016}, {1001, 8056, 4056, 8224}};
  for (const Size& size : known) {
    CAPTURE(size.length);
    CHECK(object_size(bench.engine.reals(size.length)) == size.doubles);
    CHECK(object_size(bench.engine.integers(size.length)) == size.integers);
    CHECK(object_size(bench.engine.real({size.length, 1})) == size.matrix);
  }
  // object.size(matrix(TRUE, 3, 5)), object.size(matrix(TRUE, 100, 100)), NULL
  CHECK(object_size(bench.engine.logical({3, 5})) == 280);
  CHECK(object_size(bench.engine.logical({100, 100})) == 40216);
  CHECK(object_size(agbudget::Matrix()) == 0);
}

TEST_CASE("a matrix takes its data and its dim attribute") {
  counting::Bench bench;
  const agbudget::Matrix real = bench.engine.real({100, 100});
  CHECK(bench.heap.live() == 80000 + 8);
  const agbudget::Matrix logical = bench.engine.logical({100, 100});
  CHECK(bench.heap.live() == 80008 + 40000 + 8);
  const agbudget::Matrix integers = bench.engine.integers(101);
  CHECK(bench.heap.live() == 120016 + 408);
  const agbudget::Matrix reals = bench.engine.reals(3);
  CHECK(bench.heap.live() == 120424 + 32);
}

TEST_CASE("lists take a pointer an element, environments' tables 29 of them at first") {
  CHECK(agbudget::list_bytes(0) == 0);
  CHECK(agbudget::list_bytes(17) == 136);
  CHECK(agbudget::hash_table_bytes(0) == 29 * 8);
  CHECK(agbudget::hash_table_bytes(24) == 29 * 8);  // 24 <= 0.85 * 29 = 24.65
  CHECK(agbudget::hash_table_bytes(25) == 34 * 8);  // floor(29 * 1.2)
  CHECK(agbudget::hash_table_bytes(28) == 34 * 8);  // 28 <= 0.85 * 34 = 28.9
  CHECK(agbudget::hash_table_bytes(29) == 40 * 8);  // floor(34 * 1.2)
}
