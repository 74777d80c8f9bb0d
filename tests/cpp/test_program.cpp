#include <catch2/catch.hpp>
#include <limits>

#include "program.h"
#include "program_builder.h"

using namespace agbudget;
using counting::ProgramBuilder;

namespace {

// The result's shape of an operation on matrices of the given shapes.
Shape shape_of(Opcode op, const std::vector<Shape>& operands,
               Attributes attributes = {}) {
  ProgramBuilder builder;
  std::vector<ValueId> ids;
  for (const Shape& shape : operands) {
    ids.push_back(builder.parameter(shape.rows, shape.cols));
  }
  const ValueId id = builder.append(op, ids, std::move(attributes));
  return builder.program.value(id).shape;
}

#define CHECK_REFUSED(...) CHECK_THROWS_AS(shape_of(__VA_ARGS__), ShapeError)

}  // namespace

TEST_CASE("every operation has its name and no other has") {
  CHECK(opcode_named("matmul") == Opcode::matmul);
  CHECK(opcode_named("checkpoint_end") == Opcode::checkpoint_end);
  CHECK(opcode_named("log_softmax") == Opcode::log_softmax);
  CHECK_THROWS_AS(opcode_named("Matmul"), std::invalid_argument);
  CHECK_THROWS_AS(opcode_named(""), std::invalid_argument);
}

TEST_CASE("a product of matrices joins their outer extents") {
  CHECK(shape_of(Opcode::matmul, {{3, 4}, {4, 5}}) == Shape{3, 5});
  CHECK_REFUSED(Opcode::matmul, {{3, 4}, {3, 5}});
}

TEST_CASE("sums take a second operand that is equal, a column or a row") {
  for (const Opcode op : {Opcode::add, Opcode::sub}) {
    CHECK(shape_of(op, {{3, 4}, {3, 4}}) == Shape{3, 4});
    CHECK(shape_of(op, {{3, 4}, {3, 1}}) == Shape{3, 4});
    CHECK(shape_of(op, {{3, 4}, {1, 4}}) == Shape{3, 4});
    CHECK(shape_of(op, {{1, 4}, {1, 1}}) == Shape{1, 4});
    CHECK(shape_of(op, {{3, 1}, {1, 1}}) == Shape{3, 1});
    CHECK_REFUSED(op, {{3, 4}, {1, 1}});  // a column of one row becomes a row
    CHECK_REFUSED(op, {{3, 1}, {3, 4}});
    CHECK_REFUSED(op, {{1, 4}, {3, 4}});
    CHECK_REFUSED(op, {{3, 4}, {4, 3}});
  }
}

TEST_CASE("products by element expand either operand") {
  CHECK(shape_of(Opcode::mul, {{3, 4}, {3, 4}}) == Shape{3, 4});
  CHECK(shape_of(Opcode::mul, {{3, 1}, {1, 4}}) == Shape{3, 4});
  CHECK(shape_of(Opcode::mul, {{1, 1}, {3, 4}}) == Shape{3, 4});
  CHECK_REFUSED(Opcode::mul, {{3, 4}, {2, 4}});
}

TEST_CASE("a constant may be recycled to an extent that it does not divide") {
  ProgramBuilder builder;
  const ValueId a = builder.parameter(3, 4);
  const ValueId host = builder.append(Opcode::host, {}, {2, 4, 8, 1, 0});
  CHECK(builder.program.value(builder.append(Opcode::mul, {a, host})).shape ==
        Shape{3, 4});
  const ValueId taller = builder.append(Opcode::host, {}, {6, 4, 8, 1, 0});
  CHECK_THROWS_AS(builder.append(Opcode::mul, {a, taller}), ShapeError);
}

TEST_CASE("a vector without dimensions is recycled where its length divides") {
  ProgramBuilder builder;
  const ValueId a = builder.parameter(3, 4);
  const ValueId six = builder.append(Opcode::host, {}, {6, 1, 8, 0, 0});
  const ValueId five = builder.append(Opcode::host, {}, {5, 1, 8, 0, 0});
  CHECK(builder.program.value(builder.append(Opcode::add, {a, six})).shape ==
        Shape{3, 4});
  CHECK(builder.program.value(builder.append(Opcode::sub, {six, a})).shape ==
        Shape{3, 4});
  CHECK_THROWS_AS(builder.append(Opcode::add, {a, five}), ShapeError);
  CHECK_THROWS_AS(builder.append(Opcode::mul, {a, six}), ShapeError);
}

TEST_CASE("what changes extents") {
  CHECK(shape_of(Opcode::sum, {{3, 4}}, {0}) == Shape{1, 1});
  CHECK(shape_of(Opcode::mean, {{3, 4}}, {1}) == Shape{3, 1});
  CHECK(shape_of(Opcode::sum, {{3, 4}}, {2}) == Shape{1, 4});
  CHECK(shape_of(Opcode::transpose, {{3, 4}}) == Shape{4, 3});
  CHECK(shape_of(Opcode::gather, {{3, 4}}) == Shape{1, 4});
  CHECK(shape_of(Opcode::max, {{3, 4}}) == Shape{1, 4});
  CHECK(shape_of(Opcode::reshape, {{3, 4}}, {6, 2}) == Shape{6, 2});
  CHECK(shape_of(Opcode::reshape, {{3, 4}}, {-1, 2}) == Shape{6, 2});
  CHECK(shape_of(Opcode::reshape, {{3, 4}}, {12, -1}) == Shape{12, 1});
  CHECK_REFUSED(Opcode::reshape, {{3, 4}}, {5, -1});
  CHECK_REFUSED(Opcode::reshape, {{3, 4}}, {-1, -1});
  CHECK_REFUSED(Opcode::reshape, {{3, 4}}, {0, 12});
  CHECK(shape_of(Opcode::slice_rows, {{3, 4}}, {1, 2}) == Shape{2, 4});
  CHECK_REFUSED(Opcode::slice_rows, {{3, 4}}, {2, 2});
  CHECK(shape_of(Opcode::concat_rows, {{3, 4}, {2, 4}}) == Shape{5, 4});
  CHECK_REFUSED(Opcode::concat_rows, {{3, 4}, {3, 5}});
}

TEST_CASE("losses want a target of the prediction's shape") {
  for (const Opcode op : {Opcode::mse_loss, Opcode::cross_entropy_loss,
                          Opcode::softmax_cross_entropy_loss}) {
    CHECK(shape_of(op, {{3, 4}, {3, 4}}) == Shape{1, 1});
    CHECK_REFUSED(op, {{3, 4}, {4, 3}});
  }
  CHECK(shape_of(Opcode::softmax_cross_entropy_loss, {{3, 4}, {1, 4}}) == Shape{1, 1});
  CHECK_REFUSED(Opcode::softmax_cross_entropy_loss, {{3, 4}, {1, 3}});
  CHECK_REFUSED(Opcode::cross_entropy_loss, {{3, 4}, {1, 4}});
}

TEST_CASE("class indices may have any shape of the right length") {
  const Opcode op = Opcode::softmax_cross_entropy_loss;
  CHECK(shape_of(op, {{3, 4}, {4, 1}}, {1}) == Shape{1, 1});
  CHECK(shape_of(op, {{3, 4}, {2, 2}}, {1}) == Shape{1, 1});
  CHECK_REFUSED(op, {{3, 4}, {4, 1}}, {0});
  CHECK_REFUSED(op, {{3, 4}, {3, 4}}, {1});
}

TEST_CASE("layers want the rows they were made for") {
  CHECK(shape_of(Opcode::linear, {{4, 9}, {3, 4}, {3, 1}}, {0}) == Shape{3, 9});
  CHECK_REFUSED(Opcode::linear, {{5, 9}, {3, 4}, {3, 1}}, {0});
  CHECK(shape_of(Opcode::embedding, {{1, 9}, {5, 100}}) == Shape{5, 9});
  CHECK(shape_of(Opcode::embedding, {{3, 3}, {5, 100}}) == Shape{5, 9});
  CHECK_REFUSED(Opcode::layer_norm, {{4, 9}}, {5});
  const Shape w{4, 4};
  CHECK(shape_of(Opcode::attention, {{4, 9}, {4, 7}, {4, 7}, w, w, w, w}, {2, 0, 0}) ==
        Shape{4, 9});
  CHECK_REFUSED(Opcode::attention, {{4, 9}, {4, 7}, {4, 6}, w, w, w, w}, {2, 0, 0});
  CHECK_REFUSED(Opcode::attention, {{4, 9}, {5, 7}, {4, 7}, w, w, w, w}, {2, 0, 0});
}

TEST_CASE("messages name both shapes") {
  CHECK_THROWS_WITH(
      shape_of(Opcode::matmul, {{3, 4}, {5, 6}}),
      "`A` is 3 x 4 and `B` is 5 x 6; the columns of `A` must equal the rows of `B`");
  CHECK_THROWS_WITH(shape_of(Opcode::linear, {{1, 9}, {3, 4}, {3, 1}}, {0}),
                    "expects an input of 4 rows; found 1 row (1 x 9)");
}

TEST_CASE("a result requires a gradient where an operand does") {
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(3, 3);
  const ValueId x = builder.input(3, 4);
  CHECK_FALSE(builder.program.value(builder.append(Opcode::relu, {x})).requires_gradient);
  const ValueId h = builder.append(Opcode::matmul, {weight, x});
  CHECK(builder.program.value(h).requires_gradient);
  CHECK_FALSE(
      builder.program.value(builder.append(Opcode::argmax, {h})).requires_gradient);
  CHECK_FALSE(
      builder.program.value(builder.append(Opcode::mse_loss, {x, h})).requires_gradient);
  builder.program.set_requires_gradient(weight, false);
  CHECK_FALSE(builder.program.value(builder.append(Opcode::matmul, {weight, x}))
                  .requires_gradient);
}

TEST_CASE("what is made from a tensor's values requires no gradient") {
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(3, 3);
  const ValueId values = builder.append(Opcode::host, {weight}, {3, 3, 8, 1, 0});
  CHECK_FALSE(builder.program.value(values).requires_gradient);
  const ValueId tensor = builder.append(Opcode::tensor, {values});
  CHECK_FALSE(builder.program.value(tensor).requires_gradient);
}

TEST_CASE("no gradient passes a checkpoint whose function returns a matrix") {
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(3, 3);
  const ValueId x = builder.input(3, 4);
  const ValueId h = builder.append(Opcode::matmul, {weight, x});
  builder.append(Opcode::checkpoint_begin, {h});
  const ValueId values = builder.append(Opcode::host, {h}, {3, 4, 8, 1, 0});
  const ValueId checkpoint = builder.append(Opcode::checkpoint_end, {values}, {1});
  const ValueId loss = builder.append(Opcode::mse_loss, {h, checkpoint});
  const ValueId sum = builder.append(Opcode::add, {h, checkpoint});
  CHECK_THROWS_AS(builder.program.set_output(checkpoint), ModelError);
  CHECK_THROWS_AS(builder.program.set_output(sum), ModelError);
  CHECK_NOTHROW(builder.program.set_output(h));
  CHECK_NOTHROW(builder.program.set_output(loss));
  builder.program.set_requires_gradient(checkpoint, false);
  CHECK_NOTHROW(builder.program.set_output(sum));
}

TEST_CASE("a parameter belongs to the layer that uses it first") {
  const Program program = counting::dense(8, 3, 4);
  REQUIRE(program.layers().size() >= 4);
  CHECK(program.layers()[0].parameters == 0);
  for (int i = 1; i <= 3; ++i) {
    CHECK(program.layers()[static_cast<std::size_t>(i)].parameters == 8 * 8 + 8);
  }
  const Program tied = counting::dense(8, 3, 4, true);
  CHECK(tied.layers()[1].parameters == 8 * 8 + 8);
  CHECK(tied.layers()[2].parameters == 0);
}

TEST_CASE("layers nest") {
  Program program;
  CHECK(program.current_layer() == 0);
  const int outer = program.begin_layer("outer", "module");
  const int inner = program.begin_layer("inner", "ag_linear()");
  CHECK(program.current_layer() == inner);
  CHECK(program.depth() == 3);
  const ValueId value = program.append(Opcode::parameter, {}, {2, 2, 0});
  program.end_layer(value);
  CHECK(program.current_layer() == outer);
  program.end_layer(value);
  program.resume_layer(inner);
  CHECK(program.current_layer() == inner);
  program.end_layer(value);
  CHECK(program.current_layer() == 0);
  CHECK(program.layers()[static_cast<std::size_t>(inner)].output == Shape{2, 2});
}

TEST_CASE("layers are numbered by name, anew in every pass") {
  Program program;
  const auto label = [&program](const char* name) {
    return program.layers()[static_cast<std::size_t>(program.begin_layer(name, "kind"))]
        .label;
  };
  program.begin_forward();
  CHECK(label("linear") == "linear_1");
  CHECK(label("dropout") == "dropout_1");
  CHECK(label("linear") == "linear_2");
  program.begin_forward();
  CHECK(label("linear") == "linear_1");
}

TEST_CASE("a switch while the model is built holds at the start of every pass") {
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(8, 8);
  builder.program.set_requires_gradient(weight, false);
  for (int pass = 0; pass < 2; ++pass) {
    builder.input(8, 4);
    CHECK_FALSE(builder.program.value(weight).requires_gradient);
    builder.program.set_requires_gradient(weight, true);
    CHECK(builder.program.value(weight).requires_gradient);
    CHECK(builder.program.gradient_switches().size() == 2);
  }
}

TEST_CASE("a tensor's matrix needs no gradient and no memory of its own") {
  ProgramBuilder builder;
  const ValueId weight = builder.parameter(8, 8);
  const ValueId x = builder.input(8, 4);
  const ValueId h = builder.append(Opcode::matmul, {weight, x});
  const ValueId data = builder.append(Opcode::data, {h});
  CHECK_FALSE(builder.program.value(data).requires_gradient);
  CHECK(builder.program.value(data).shape == Shape{8, 4});
}

TEST_CASE("what cannot be counted is refused with the operation at hand") {
  ProgramBuilder builder;
  constexpr Extent huge = Extent{1} << 31;
  CHECK_THROWS_AS(builder.parameter(huge, huge), std::overflow_error);  // 2^62 * 8 bytes
  const ValueId a = builder.parameter(huge, 1);
  const ValueId b = builder.parameter(1, huge);
  CHECK_THROWS_AS(builder.append(Opcode::matmul, {a, b}), std::overflow_error);
  constexpr Extent most = std::numeric_limits<Extent>::max();
  CHECK_THROWS_AS(builder.parameter(most, 1), std::overflow_error);
}
