// The only file that knows R: convert, call the core, convert back.

#include <Rcpp.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "program.h"
#include "training_memory.h"
#include "training_step.h"

// ag_estimate_training_memory() ------------------------------------------------------

namespace {

constexpr R_xlen_t region_length = 512;
constexpr R_xlen_t prefetch_distance = 8;
constexpr R_xlen_t shapes_between_interrupt_checks = R_xlen_t{1} << 18;

// The bits of integer64 are no double's value, so they must not be copied as doubles.
std::int64_t integer64_at(const double* stored) {
  return agbudget::integer64_bits(*stored);
}

// An ALTREP vector such as 1:n is read piece by piece: asked for a pointer to its data, R
// would write all of it out.
template <typename Element, typename Region>
bool multiply_regions(agbudget::ShapeSize& size, SEXP dims, R_xlen_t n, Region region) {
  Element buffer[region_length];
  for (R_xlen_t from = 0; from < n; from += region_length) {
    const R_xlen_t got = region(dims, from, region_length, buffer);
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
  if (elements != nullptr && i + prefetch_distance < n) {
    __builtin_prefetch(elements[i + prefetch_distance]);
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
    if ((i + 1) % shapes_between_interrupt_checks == 0) Rcpp::checkUserInterrupt();
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
  SET_VECTOR_ELT(memory, 6, Rf_ScalarReal(agbudget::bytes_per_scalar));
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
        value == agbudget::missing_integer64 ? NA_REAL : static_cast<double>(value);
  }
  return values;
}

// [[Rcpp::export(rng = false)]]
std::string group_thousands(std::string digits) {
  return agbudget::group_thousands(digits);
}

// ag_training_budget() ----------------------------------------------------------------

namespace {

using ProgramPtr = Rcpp::XPtr<agbudget::Program>;

// Calls the core. What a user's input can cause comes back as a message with a
// `kind`, for R to raise; anything else is a defect and an ordinary error.
template <typename Call>
SEXP guarded(Call call) {
  const auto failure = [](const char* kind, const char* message) {
    Rcpp::CharacterVector result = Rcpp::CharacterVector::create(message);
    result.attr("kind") = kind;
    return result;
  };
  try {
    return call();
  } catch (const agbudget::ShapeError& error) {
    return failure("bad_shape", error.what());
  } catch (const agbudget::ModelError& error) {
    return failure("bad_model", error.what());
  } catch (const std::overflow_error& error) {
    return failure("too_large", error.what());
  }
}

std::vector<std::int64_t> as_integers(const Rcpp::NumericVector& numbers) {
  return std::vector<std::int64_t>(numbers.begin(), numbers.end());
}

const char* phase_name(agbudget::Phase phase) {
  switch (phase) {
    case agbudget::Phase::setup:
      return "setup";
    case agbudget::Phase::forward:
      return "forward";
    case agbudget::Phase::backward:
      return "backward";
    case agbudget::Phase::step:
      return "step";
  }
  return "";
}

// Columns without names: step, phase, layer, operation, live bytes, the components.
Rcpp::List timeline_list(const std::vector<agbudget::Event>& events) {
  const R_xlen_t n = static_cast<R_xlen_t>(events.size());
  Rcpp::IntegerVector step(n), layer(n);
  Rcpp::CharacterVector phase(n), operation(n);
  Rcpp::NumericVector live(n);
  std::vector<Rcpp::NumericVector> components;
  for (std::size_t c = 0; c < agbudget::component_count; ++c) components.emplace_back(n);
  for (R_xlen_t i = 0; i < n; ++i) {
    const agbudget::Event& event = events[static_cast<std::size_t>(i)];
    step[i] = event.step;
    phase[i] = phase_name(event.phase);
    layer[i] = event.layer + 1;
    operation[i] = event.operation;
    live[i] = static_cast<double>(event.live);
    for (std::size_t c = 0; c < agbudget::component_count; ++c) {
      components[c][i] = static_cast<double>(event.components[c]);
    }
  }
  Rcpp::List columns(5 + components.size());
  columns[0] = step;
  columns[1] = phase;
  columns[2] = layer;
  columns[3] = operation;
  columns[4] = live;
  for (std::size_t c = 0; c < components.size(); ++c) columns[5 + c] = components[c];
  return columns;
}

// Operations with the most bytes first.
Rcpp::List tape_list(const agbudget::TapeReport& tape) {
  using Named = std::pair<std::string, agbudget::TapeReport::Operation>;
  std::vector<Named> operations(tape.by_operation.begin(), tape.by_operation.end());
  std::stable_sort(
      operations.begin(), operations.end(),
      [](const Named& a, const Named& b) { return a.second.bytes > b.second.bytes; });
  const R_xlen_t n = static_cast<R_xlen_t>(operations.size());
  Rcpp::CharacterVector op(n);
  Rcpp::NumericVector nodes(n), bytes(n);
  for (R_xlen_t i = 0; i < n; ++i) {
    const auto& [name, operation] = operations[static_cast<std::size_t>(i)];
    op[i] = name;
    nodes[i] = static_cast<double>(operation.nodes);
    bytes[i] = static_cast<double>(operation.bytes);
  }
  return Rcpp::List::create(
      Rcpp::_["nodes"] = static_cast<double>(tape.nodes),
      Rcpp::_["operands"] = static_cast<double>(tape.operands),
      Rcpp::_["activations"] = static_cast<double>(tape.activations),
      Rcpp::_["fields"] = static_cast<double>(tape.fields), Rcpp::_["op"] = op,
      Rcpp::_["op_nodes"] = nodes, Rcpp::_["op_bytes"] = bytes,
      Rcpp::_["layer_bytes"] =
          Rcpp::NumericVector(tape.by_layer.begin(), tape.by_layer.end()));
}

agbudget::TrainingPlan training_plan(double rows, double cols, bool indices,
                                     int optimizer, int loss, bool retained,
                                     int accumulate_steps) {
  agbudget::TrainingPlan plan;
  plan.input = {static_cast<agbudget::Extent>(rows), static_cast<agbudget::Extent>(cols)};
  plan.input_is_indices = indices;
  plan.optimizer = static_cast<agbudget::OptimizerKind>(optimizer);
  plan.loss = static_cast<agbudget::LossKind>(loss);
  plan.loop = retained ? agbudget::Loop::retained : agbudget::Loop::released;
  plan.accumulate_steps = accumulate_steps;
  plan.poll = [] { Rcpp::checkUserInterrupt(); };
  return plan;
}

}  // namespace

// [[Rcpp::export(rng = false)]]
SEXP program_new() { return ProgramPtr(new agbudget::Program()); }

// False after an object was saved and loaded: the program is not part of the file.
// [[Rcpp::export(rng = false)]]
bool program_is_alive(SEXP program) { return R_ExternalPtrAddr(program) != nullptr; }

// [[Rcpp::export(rng = false)]]
std::string object_address(SEXP object) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(object));
}

// What a name stands for that a function has as an argument and has not used: the
// expression and where it was written. NULL for any other name.
// [[Rcpp::export(rng = false)]]
SEXP unused_argument(SEXP name, SEXP environment) {
  const SEXP promise = Rf_findVarInFrame(environment, name);
  if (TYPEOF(promise) != PROMSXP || PRVALUE(promise) != R_UnboundValue) return R_NilValue;
  return Rcpp::List::create(Rcpp::_["code"] = R_PromiseExpr(promise),
                            Rcpp::_["env"] = PRENV(promise));
}

// The new value: its id, rows, columns, and whether it requires a gradient.
// [[Rcpp::export(rng = false)]]
SEXP program_append(SEXP program, const std::string& operation,
                    const std::vector<int>& operands,
                    const Rcpp::NumericVector& attributes) {
  return guarded([&]() -> SEXP {
    agbudget::Program& target = *ProgramPtr(program);
    const agbudget::ValueId id = target.append(agbudget::opcode_named(operation),
                                               operands, as_integers(attributes));
    const agbudget::Value& value = target.value(id);
    return Rcpp::NumericVector::create(id, static_cast<double>(value.shape.rows),
                                       static_cast<double>(value.shape.cols),
                                       value.requires_gradient);
  });
}

// [[Rcpp::export(rng = false)]]
void program_set_requires_grad(SEXP program, int id, bool requires_grad) {
  ProgramPtr(program)->set_requires_gradient(id, requires_grad);
}

// [[Rcpp::export(rng = false)]]
std::vector<int> program_built_parameters(SEXP program) {
  return ProgramPtr(program)->built_parameters();
}

// Rows and columns of values.
// [[Rcpp::export(rng = false)]]
Rcpp::NumericMatrix program_values(SEXP program, const std::vector<int>& ids) {
  Rcpp::NumericMatrix shapes(static_cast<int>(ids.size()), 2);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const agbudget::Shape& shape = ProgramPtr(program)->value(ids[i]).shape;
    shapes(static_cast<int>(i), 0) = static_cast<double>(shape.rows);
    shapes(static_cast<int>(i), 1) = static_cast<double>(shape.cols);
  }
  return shapes;
}

// [[Rcpp::export(rng = false)]]
int program_begin_layer(SEXP program, const std::string& label, const std::string& kind) {
  return ProgramPtr(program)->begin_layer(label, kind);
}

// [[Rcpp::export(rng = false)]]
void program_resume_layer(SEXP program, int layer) {
  ProgramPtr(program)->resume_layer(layer);
}

// [[Rcpp::export(rng = false)]]
void program_end_layer(SEXP program, int output) {
  ProgramPtr(program)->end_layer(output);
}

// [[Rcpp::export(rng = false)]]
void program_begin_forward(SEXP program) { ProgramPtr(program)->begin_forward(); }

// [[Rcpp::export(rng = false)]]
void program_resume_building(SEXP program) { ProgramPtr(program)->resume_building(); }

// [[Rcpp::export(rng = false)]]
SEXP program_finish(SEXP program, int output, const std::vector<int>& parameters) {
  return guarded([&]() -> SEXP {
    agbudget::Program& target = *ProgramPtr(program);
    target.set_output(output);
    target.set_parameters(parameters);
    return R_NilValue;
  });
}

// [[Rcpp::export(rng = false)]]
Rcpp::List program_layers(SEXP program) {
  const auto& layers = ProgramPtr(program)->layers();
  const R_xlen_t n = static_cast<R_xlen_t>(layers.size());
  Rcpp::CharacterVector label(n), kind(n);
  Rcpp::NumericVector rows(n), cols(n), parameters(n);
  for (R_xlen_t i = 0; i < n; ++i) {
    const agbudget::Layer& layer = layers[static_cast<std::size_t>(i)];
    label[i] = layer.label;
    kind[i] = layer.kind;
    rows[i] = static_cast<double>(layer.output.rows);
    cols[i] = static_cast<double>(layer.output.cols);
    parameters[i] = static_cast<double>(layer.parameters);
  }
  return Rcpp::List::create(Rcpp::_["label"] = label, Rcpp::_["kind"] = kind,
                            Rcpp::_["rows"] = rows, Rcpp::_["cols"] = cols,
                            Rcpp::_["parameters"] = parameters);
}

// [[Rcpp::export(rng = false)]]
SEXP run_training_program(SEXP program, double rows, double cols, bool indices,
                          int optimizer, int loss, bool retained, int accumulate_steps) {
  return guarded([&]() -> SEXP {
    agbudget::TrainingPlan plan =
        training_plan(rows, cols, indices, optimizer, loss, retained, accumulate_steps);
    plan.resident = true;
    const agbudget::TrainingRecord record =
        agbudget::run_training(*ProgramPtr(program), plan);
    return Rcpp::List::create(
        Rcpp::_["timeline"] = timeline_list(record.events),
        Rcpp::_["peak"] = static_cast<double>(record.peak_event + 1),
        Rcpp::_["tape"] = tape_list(record.tape),
        Rcpp::_["resident_bytes"] = static_cast<double>(record.resident_bytes));
  });
}

// The highest live bytes alone, for a search that asks for them many times.
// [[Rcpp::export(rng = false)]]
SEXP run_training_peak(SEXP program, double rows, double cols, bool indices,
                       int optimizer, int loss, bool retained, int accumulate_steps) {
  return guarded([&]() -> SEXP {
    agbudget::TrainingPlan plan =
        training_plan(rows, cols, indices, optimizer, loss, retained, accumulate_steps);
    plan.details = false;
    const agbudget::TrainingRecord record =
        agbudget::run_training(*ProgramPtr(program), plan);
    return Rcpp::NumericVector::create(static_cast<double>(record.peak().live));
  });
}

// The likely resident memory after a number of updates.
// [[Rcpp::export(rng = false)]]
SEXP run_training_resident(SEXP program, double rows, double cols, bool indices,
                           int optimizer, int loss, bool retained, int accumulate_steps,
                           int updates) {
  return guarded([&]() -> SEXP {
    agbudget::TrainingPlan plan =
        training_plan(rows, cols, indices, optimizer, loss, retained, accumulate_steps);
    plan.details = false;
    plan.resident = true;
    plan.updates = updates;
    const agbudget::TrainingRecord record =
        agbudget::run_training(*ProgramPtr(program), plan);
    return Rcpp::NumericVector::create(static_cast<double>(record.resident_bytes));
  });
}
