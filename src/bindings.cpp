// The only file that knows R: convert, call the core, convert back.

#include <Rcpp.h>

#include <string>

#include "program.h"
#include "training_step.h"

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

Rcpp::List timeline_list(const std::vector<agbudget::Event>& events) {
  const R_xlen_t n = static_cast<R_xlen_t>(events.size());
  Rcpp::IntegerVector step(n), layer(n);
  Rcpp::CharacterVector phase(n), operation(n);
  Rcpp::NumericVector live(n);
  Rcpp::NumericMatrix components(static_cast<int>(n),
                                 static_cast<int>(agbudget::component_count));
  for (R_xlen_t i = 0; i < n; ++i) {
    const agbudget::Event& event = events[static_cast<std::size_t>(i)];
    step[i] = event.step;
    phase[i] = phase_name(event.phase);
    layer[i] = event.layer + 1;
    operation[i] = event.operation;
    live[i] = static_cast<double>(event.live);
    for (std::size_t c = 0; c < agbudget::component_count; ++c) {
      components(static_cast<int>(i), static_cast<int>(c)) =
          static_cast<double>(event.components[c]);
    }
  }
  return Rcpp::List::create(Rcpp::_["step"] = step, Rcpp::_["phase"] = phase,
                            Rcpp::_["layer"] = layer, Rcpp::_["operation"] = operation,
                            Rcpp::_["live_bytes"] = live,
                            Rcpp::_["components"] = components);
}

Rcpp::List tape_list(const agbudget::TapeReport& tape) {
  Rcpp::CharacterVector op;
  Rcpp::NumericVector nodes, bytes;
  for (const auto& [name, operation] : tape.by_operation) {
    op.push_back(name);
    nodes.push_back(static_cast<double>(operation.nodes));
    bytes.push_back(static_cast<double>(operation.bytes));
  }
  return Rcpp::List::create(
      Rcpp::_["nodes"] = static_cast<double>(tape.nodes),
      Rcpp::_["operands"] = static_cast<double>(tape.operands),
      Rcpp::_["activations"] = static_cast<double>(tape.activations),
      Rcpp::_["fields"] = static_cast<double>(tape.fields),
      Rcpp::_["op"] = op, Rcpp::_["op_nodes"] = nodes, Rcpp::_["op_bytes"] = bytes,
      Rcpp::_["layer_bytes"] =
          Rcpp::NumericVector(tape.by_layer.begin(), tape.by_layer.end()));
}

}  // namespace

// [[Rcpp::export(rng = false)]]
SEXP program_new() { return ProgramPtr(new agbudget::Program()); }

// A copy to go on from: the same model, another forward pass.
// [[Rcpp::export(rng = false)]]
SEXP program_fork(SEXP program) {
  return ProgramPtr(new agbudget::Program(*ProgramPtr(program)));
}

// False after an object was saved and loaded: the program is not part of the file.
// [[Rcpp::export(rng = false)]]
bool program_is_alive(SEXP program) { return R_ExternalPtrAddr(program) != nullptr; }

// The new value: its id, rows, columns, and whether it requires a gradient.
// [[Rcpp::export(rng = false)]]
SEXP program_append(SEXP program, const std::string& operation,
                    const std::vector<int>& operands,
                    const Rcpp::NumericVector& attributes) {
  return guarded([&]() -> SEXP {
    agbudget::Program& target = *ProgramPtr(program);
    const agbudget::ValueId id = target.append(agbudget::opcode_named(operation), operands,
                                               as_integers(attributes));
    const agbudget::Value& value = target.value(id);
    return Rcpp::NumericVector::create(id, static_cast<double>(value.shape.rows),
                                       static_cast<double>(value.shape.cols),
                                       value.requires_gradient);
  });
}

// [[Rcpp::export(rng = false)]]
void program_set_requires_grad(SEXP program, const std::vector<int>& ids,
                               const std::vector<bool>& requires_grad) {
  agbudget::Program& target = *ProgramPtr(program);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    target.set_requires_gradient(ids[i], requires_grad[i]);
  }
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
void program_finish(SEXP program, int output, const std::vector<int>& parameters) {
  agbudget::Program& target = *ProgramPtr(program);
  target.set_output(output);
  target.set_parameters(parameters);
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
                          int optimizer, int loss, bool retained, int accumulate_steps,
                          bool resident) {
  return guarded([&]() -> SEXP {
    agbudget::TrainingPlan plan;
    plan.input = {static_cast<agbudget::Extent>(rows),
                  static_cast<agbudget::Extent>(cols)};
    plan.input_is_indices = indices;
    plan.optimizer = static_cast<agbudget::OptimizerKind>(optimizer);
    plan.loss = static_cast<agbudget::LossKind>(loss);
    plan.loop = retained ? agbudget::Loop::retained : agbudget::Loop::released;
    plan.accumulate_steps = accumulate_steps;
    plan.resident = resident;
    const agbudget::TrainingRecord record =
        agbudget::run_training(*ProgramPtr(program), plan);
    return Rcpp::List::create(
        Rcpp::_["timeline"] = timeline_list(record.events),
        Rcpp::_["peak"] = static_cast<double>(record.peak_event + 1),
        Rcpp::_["tape"] = tape_list(record.tape),
        Rcpp::_["resident_bytes"] = static_cast<double>(record.resident_bytes),
        Rcpp::_["collections"] =
            Rcpp::IntegerVector(record.collections.begin(), record.collections.end()));
  });
}
