// Where R and the core meet: convert, call the core, convert back.

#include <Rcpp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "program.h"
#include "references.h"
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

// Without the copy of the pointer's SEXP that an XPtr holds.
agbudget::Program& program_at(SEXP pointer) {
  auto* program = TYPEOF(pointer) == EXTPTRSXP
                      ? static_cast<agbudget::Program*>(R_ExternalPtrAddr(pointer))
                      : nullptr;
  if (program == nullptr) Rcpp::stop("a program is gone");
  return *program;
}

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

Rcpp::NumericVector component_vector(const agbudget::ComponentBytes& components) {
  return Rcpp::NumericVector(components.begin(), components.end());
}

// A name for each event. Events share a few literals, which are looked up once each.
class Names {
 public:
  explicit Names(R_xlen_t n) : names_(Rf_allocVector(STRSXP, n)) {}

  void set(R_xlen_t i, const char* literal) {
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const auto& name) {
      return name.first == literal;
    });
    if (known == known_.end()) {
      SET_STRING_ELT(names_, i, Rf_mkChar(literal));
      known_.emplace_back(literal, STRING_ELT(names_, i));
    } else {
      SET_STRING_ELT(names_, i, known->second);
    }
  }
  SEXP get() const { return names_; }

 private:
  Rcpp::Shield<SEXP> names_;
  std::vector<std::pair<const char*, SEXP>> known_;
};

// Columns without names: step, phase, layer, operation, live bytes, the components.
SEXP timeline_list(const std::vector<agbudget::Event>& events) {
  const R_xlen_t n = static_cast<R_xlen_t>(events.size());
  constexpr int first_component = 5;
  constexpr int column_count = first_component + int{agbudget::component_count};
  const Rcpp::Shield<SEXP> columns(Rf_allocVector(VECSXP, column_count));
  SET_VECTOR_ELT(columns, 0, Rf_allocVector(INTSXP, n));
  SET_VECTOR_ELT(columns, 2, Rf_allocVector(INTSXP, n));
  std::array<double*, column_count> numbers{};
  for (int c = first_component - 1; c < column_count; ++c) {
    SET_VECTOR_ELT(columns, c, Rf_allocVector(REALSXP, n));
    numbers[static_cast<std::size_t>(c)] = REAL(VECTOR_ELT(columns, c));
  }
  int* step = INTEGER(VECTOR_ELT(columns, 0));
  int* layer = INTEGER(VECTOR_ELT(columns, 2));
  Names phase(n);
  Names operation(n);
  for (R_xlen_t i = 0; i < n; ++i) {
    const agbudget::Event& event = events[static_cast<std::size_t>(i)];
    step[i] = event.step;
    phase.set(i, phase_name(event.phase));
    layer[i] = event.layer + 1;
    operation.set(i, event.operation);
    numbers[first_component - 1][i] = static_cast<double>(event.live);
    for (std::size_t c = 0; c < agbudget::component_count; ++c) {
      numbers[first_component + c][i] = static_cast<double>(event.components[c]);
    }
  }
  SET_VECTOR_ELT(columns, 1, phase.get());
  SET_VECTOR_ELT(columns, 3, operation.get());
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
SEXP program_append(SEXP program, SEXP operation, SEXP operands, SEXP attributes) {
  return guarded([&]() -> SEXP {
    agbudget::Program& target = program_at(program);
    const Rcpp::Shield<SEXP> values(Rf_coerceVector(operands, INTSXP));
    const Rcpp::Shield<SEXP> options(Rf_coerceVector(attributes, REALSXP));
    const int* ids = INTEGER(values);
    const double* numbers = REAL(options);
    const agbudget::ValueId id =
        target.append(agbudget::opcode_named(CHAR(STRING_ELT(operation, 0))),
                      std::vector<agbudget::ValueId>(ids, ids + Rf_xlength(values)),
                      agbudget::Attributes(numbers, numbers + Rf_xlength(options)));
    const agbudget::Value& value = target.value(id);
    const SEXP result = Rf_allocVector(REALSXP, 4);
    REAL(result)[0] = id;
    REAL(result)[1] = static_cast<double>(value.shape.rows);
    REAL(result)[2] = static_cast<double>(value.shape.cols);
    REAL(result)[3] = value.requires_gradient;
    return result;
  });
}

// The object that stands for a tensor in R: see R/trace.R.
// [[Rcpp::export(rng = false)]]
SEXP make_tensor(SEXP value, SEXP trace, SEXP pass, SEXP classes) {
  static const SEXP value_name = Rf_install("value");
  static const SEXP requires_grad_name = Rf_install("requires_grad");
  static const SEXP pass_name = Rf_install("pass");
  static const SEXP trace_name = Rf_install("trace");
  const Rcpp::Shield<SEXP> tensor(R_NewEnv(R_EmptyEnv, FALSE, 0));
  Rf_defineVar(value_name, value, tensor);
  Rf_defineVar(requires_grad_name, Rf_ScalarLogical(REAL(value)[3] != 0), tensor);
  Rf_defineVar(pass_name, pass, tensor);
  Rf_defineVar(trace_name, trace, tensor);
  Rf_setAttrib(tensor, R_ClassSymbol, classes);
  return tensor;
}

// The ids of those objects that are tensors of this trace, and of this pass or of the
// built model; NA for the others. Whether the user wants their gradients is told to the
// program, for ggmlR's operations ask when they run.
// [[Rcpp::export(rng = false)]]
SEXP tensor_ids(SEXP program, SEXP objects, SEXP trace, int pass) {
  agbudget::Program& target = program_at(program);
  const R_xlen_t n = Rf_xlength(objects);
  const Rcpp::Shield<SEXP> ids(Rf_allocVector(INTSXP, n));
  for (R_xlen_t i = 0; i < n; ++i) {
    const SEXP object = VECTOR_ELT(objects, i);
    const int id = tensor_id(object, trace, pass);
    INTEGER(ids)[i] = id;
    if (id == NA_INTEGER) continue;
    const bool wanted = tensor_requires_grad(object);
    if (wanted != target.value(id).requires_gradient) {
      target.set_requires_gradient(id, wanted);
    }
  }
  return ids;
}

// What the frames after the first `outer`, and the environments that closures captured,
// hold while the next instruction runs. The arguments of calls, a list of frames and ids,
// are returned for the next time.
// [[Rcpp::export(rng = false)]]
SEXP program_bind(SEXP program, SEXP frames, int outer, Rcpp::List captured, SEXP trace,
                  int pass, SEXP hosts, SEXP outside, Rcpp::List arguments) {
  agbudget::Program& target = program_at(program);
  References references(trace, pass, hosts, outside);
  for (; outer > 0 && frames != R_NilValue; --outer, frames = CDR(frames)) {
    references.exclude(CAR(frames));
  }
  Rcpp::List seen(Rf_length(frames));
  for (R_xlen_t i = 0; frames != R_NilValue; frames = CDR(frames), ++i) {
    const SEXP frame = CAR(frames);
    references.follow_frame(frame);
    std::vector<int> held = references.arguments();
    if (i < arguments.size()) {
      const Rcpp::List before = arguments[i];
      if (static_cast<SEXP>(before[0]) == frame) {
        const Rcpp::IntegerVector ids = before[1];
        held.insert(held.end(), ids.begin(), ids.end());
      }
    }
    std::sort(held.begin(), held.end());
    held.erase(std::unique(held.begin(), held.end()), held.end());
    target.bind(held);
    const Rcpp::IntegerVector ids(held.begin(), held.end());
    seen[i] = Rcpp::List::create(frame, ids);
  }
  for (const SEXP environment : captured) references.follow(environment);
  target.bind(references.values());
  return seen;
}

// [[Rcpp::export(rng = false)]]
bool program_makes_matrices(SEXP program) { return program_at(program).makes_matrices(); }

// Whatever can be reached from these objects outlives the forward pass.
// [[Rcpp::export(rng = false)]]
void program_survive(SEXP program, Rcpp::List objects, SEXP trace, int pass, SEXP hosts,
                     SEXP outside) {
  References references(trace, pass, hosts, outside);
  for (const SEXP object : objects) references.follow(object);
  program_at(program).survive(references.values());
}

// What the function of the checkpoint that begins with `begin` has in reach.
// [[Rcpp::export(rng = false)]]
void program_capture(SEXP program, int begin, SEXP environment, SEXP trace, int pass,
                     SEXP hosts, SEXP outside) {
  References references(trace, pass, hosts, outside);
  references.follow(environment);
  program_at(program).capture(begin, references.values());
}

// [[Rcpp::export(rng = false)]]
Rcpp::LogicalVector program_are_parameters(SEXP program, const Rcpp::IntegerVector& ids) {
  Rcpp::LogicalVector are_parameters(ids.size());
  for (R_xlen_t i = 0; i < ids.size(); ++i) {
    are_parameters[i] =
        ids[i] != NA_INTEGER && program_at(program).value(ids[i]).is_parameter;
  }
  return are_parameters;
}

// [[Rcpp::export(rng = false)]]
std::vector<int> program_built_parameters(SEXP program) {
  return program_at(program).built_parameters();
}

// Rows and columns of values.
// [[Rcpp::export(rng = false)]]
Rcpp::NumericMatrix program_values(SEXP program, const std::vector<int>& ids) {
  Rcpp::NumericMatrix shapes(static_cast<int>(ids.size()), 2);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const agbudget::Shape& shape = program_at(program).value(ids[i]).shape;
    shapes(static_cast<int>(i), 0) = static_cast<double>(shape.rows);
    shapes(static_cast<int>(i), 1) = static_cast<double>(shape.cols);
  }
  return shapes;
}

// [[Rcpp::export(rng = false)]]
int program_begin_layer(SEXP program, const char* name, const char* kind) {
  return program_at(program).begin_layer(name, kind);
}

// "" outside of layers.
// [[Rcpp::export(rng = false)]]
std::string program_layer_label(SEXP program) {
  const agbudget::Program& target = program_at(program);
  if (target.depth() == 1) return "";
  return target.layers()[static_cast<std::size_t>(target.current_layer())].label;
}

// [[Rcpp::export(rng = false)]]
void program_resume_layer(SEXP program, int layer) {
  program_at(program).resume_layer(layer);
}

// [[Rcpp::export(rng = false)]]
void program_end_layer(SEXP program, int output) {
  program_at(program).end_layer(output);
}

// [[Rcpp::export(rng = false)]]
void program_begin_forward(SEXP program) { program_at(program).begin_forward(); }

// [[Rcpp::export(rng = false)]]
void program_resume_building(SEXP program) { program_at(program).resume_building(); }

// [[Rcpp::export(rng = false)]]
SEXP program_finish(SEXP program, int output, const std::vector<int>& parameters) {
  return guarded([&]() -> SEXP {
    agbudget::Program& target = program_at(program);
    target.set_output(output);
    target.set_parameters(parameters);
    return R_NilValue;
  });
}

// [[Rcpp::export(rng = false)]]
Rcpp::List program_layers(SEXP program) {
  const auto& layers = program_at(program).layers();
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
        agbudget::run_training(program_at(program), plan);
    return Rcpp::List::create(
        Rcpp::_["timeline"] = timeline_list(record.events),
        Rcpp::_["peak"] = static_cast<double>(record.peak_event + 1),
        Rcpp::_["components"] = component_vector(record.peak().components),
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
        agbudget::run_training(program_at(program), plan);
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
        agbudget::run_training(program_at(program), plan);
    return Rcpp::NumericVector::create(static_cast<double>(record.resident_bytes));
  });
}
