#pragma once

// R's API alone: the core does not know R, and bindings.cpp only converts.

#define R_NO_REMAP
#include <Rinternals.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

// Finds the symbolic values of one trace (R/trace.R, R/symbolic_matrix.R) that R's own
// objects refer to. A symbolic value is bound, kept in a list or captured by a closure
// exactly where the real one would be.
class References {
 public:
  // `hosts` is the trace's list of real matrices: each entry an `object` and its `id`.
  // Environments in the list `outside` are not entered.
  References(SEXP trace, int pass, SEXP hosts, SEXP outside);

  // Nor are these.
  void exclude(SEXP environment) { seen_.insert(environment); }
  // Everything that can be reached from an object: through lists, environments and what
  // closures capture.
  void follow(SEXP object);
  // The same from the variables of a call's frame, but not from where its function was
  // defined.
  void follow_frame(SEXP frame);

  // Ids, each as often as it was met.
  const std::vector<int>& values() const { return values_; }
  // Of the last frame: those that are arguments of the call. R holds an argument until
  // the call returns, though its variable may be bound to something else by then.
  const std::vector<int>& arguments() const { return arguments_; }

 private:
  bool note(SEXP object);
  void follow_argument(SEXP promise);
  void enter(SEXP environment, std::vector<SEXP>& pending);

  SEXP trace_;
  int pass_;
  std::unordered_map<SEXP, int> hosts_;
  std::unordered_set<SEXP> seen_;
  std::vector<int> values_;
  std::vector<int> arguments_;
};

// The id of a symbolic tensor that belongs to this trace and may be used in this pass;
// else NA_INTEGER.
int tensor_id(SEXP object, SEXP trace, int pass);
// Whether the user wants its gradient: `isTRUE(x$requires_grad)`.
bool tensor_requires_grad(SEXP tensor);
