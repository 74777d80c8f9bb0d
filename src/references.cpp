#include "references.h"

namespace {

SEXP field(SEXP environment, SEXP name) {
  return Rf_findVarInFrame3(environment, name, TRUE);
}

// R keeps each string once, and those of symbols for good.
bool has_string(SEXP strings, SEXP symbol, R_xlen_t* position = nullptr) {
  for (R_xlen_t i = 0; i < Rf_xlength(strings); ++i) {
    if (STRING_ELT(strings, i) != PRINTNAME(symbol)) continue;
    if (position != nullptr) *position = i;
    return true;
  }
  return false;
}

bool has_class(SEXP object, SEXP symbol) {
  return OBJECT(object) && has_string(Rf_getAttrib(object, R_ClassSymbol), symbol);
}

bool is_tensor(SEXP object) {
  static const SEXP name = Rf_install("agbudget_tensor");
  return TYPEOF(object) == ENVSXP && has_class(object, name);
}

bool is_matrix(SEXP object) {
  static const SEXP name = Rf_install("agbudget_matrix");
  return TYPEOF(object) == VECSXP && has_class(object, name);
}

bool is_layer(SEXP object) {
  static const SEXP name = Rf_install("agbudget_layer");
  return has_class(object, name);
}

SEXP element(SEXP list, SEXP symbol) {
  R_xlen_t position = 0;
  if (!has_string(Rf_getAttrib(list, R_NamesSymbol), symbol, &position)) {
    return R_NilValue;
  }
  return VECTOR_ELT(list, position);
}

const SEXP& id_name() {
  static const SEXP name = Rf_install("id");
  return name;
}

const SEXP& pass_name() {
  static const SEXP name = Rf_install("pass");
  return name;
}

const SEXP& trace_name() {
  static const SEXP name = Rf_install("trace");
  return name;
}

bool in_pass(SEXP made_in, int pass) {
  const int made = Rf_asInteger(made_in);
  return made == 0 || made == pass;
}

// Calls `visit` with each variable's value. Nothing is evaluated for it: neither
// arguments that have not been used nor active bindings.
template <typename Visit>
void for_each_variable(SEXP environment, Visit visit) {
  const SEXP names = PROTECT(R_lsInternal3(environment, TRUE, FALSE));
  for (R_xlen_t i = 0; i < Rf_xlength(names); ++i) {
    const SEXP symbol = Rf_installTrChar(STRING_ELT(names, i));
    if (R_BindingIsActive(symbol, environment)) continue;
    visit(Rf_findVarInFrame3(environment, symbol, TRUE));
  }
  UNPROTECT(1);
}

}  // namespace

int tensor_id(SEXP object, SEXP trace, int pass) {
  static const SEXP value_name = Rf_install("value");
  if (!is_tensor(object) || field(object, trace_name()) != trace) return NA_INTEGER;
  if (!in_pass(field(object, pass_name()), pass)) return NA_INTEGER;
  const SEXP value = field(object, value_name);
  return TYPEOF(value) == REALSXP ? static_cast<int>(REAL(value)[0]) : NA_INTEGER;
}

bool tensor_requires_grad(SEXP tensor) {
  static const SEXP requires_grad_name = Rf_install("requires_grad");
  const SEXP wanted = field(tensor, requires_grad_name);
  return TYPEOF(wanted) == LGLSXP && Rf_xlength(wanted) == 1 &&
         LOGICAL(wanted)[0] == TRUE;
}

References::References(SEXP trace, int pass, SEXP hosts, SEXP outside)
    : trace_(trace), pass_(pass), seen_{trace, R_EmptyEnv, R_GlobalEnv, R_BaseEnv} {
  static const SEXP object_name = Rf_install("object");
  for (R_xlen_t i = 0; i < Rf_xlength(hosts); ++i) {
    const SEXP host = VECTOR_ELT(hosts, i);
    if (!in_pass(element(host, pass_name()), pass)) continue;
    hosts_.emplace(element(host, object_name), Rf_asInteger(element(host, id_name())));
  }
  for (R_xlen_t i = 0; i < Rf_xlength(outside); ++i) seen_.insert(VECTOR_ELT(outside, i));
}

// Whether the object is a value, which is then noted, and leads nowhere.
bool References::note(SEXP object) {
  if (is_tensor(object)) {
    const int id = tensor_id(object, trace_, pass_);
    if (id != NA_INTEGER) values_.push_back(id);
    return true;
  }
  if (is_matrix(object)) {
    if (element(object, trace_name()) == trace_ &&
        in_pass(element(object, pass_name()), pass_)) {
      values_.push_back(Rf_asInteger(element(object, id_name())));
    }
    return true;
  }
  if (hosts_.empty()) return false;
  const auto host = hosts_.find(object);
  if (host != hosts_.end()) values_.push_back(host->second);
  return host != hosts_.end();
}

void References::follow_argument(SEXP promise) {
  if (TYPEOF(promise) != PROMSXP || PRVALUE(promise) == R_UnboundValue) return;
  const std::size_t before = values_.size();
  follow(PRVALUE(promise));
  // A list's elements may be replaced where they are.
  if (TYPEOF(PRVALUE(promise)) == VECSXP && !is_matrix(PRVALUE(promise))) return;
  for (std::size_t i = before; i < values_.size(); ++i) arguments_.push_back(values_[i]);
}

void References::follow_frame(SEXP frame) {
  arguments_.clear();
  for_each_variable(frame, [this](SEXP value) {
    if (TYPEOF(value) == PROMSXP) {
      follow_argument(value);
    } else if (TYPEOF(value) == DOTSXP) {
      for (SEXP rest = value; rest != R_NilValue; rest = CDR(rest)) {
        follow_argument(CAR(rest));
      }
    } else {
      follow(value);
    }
  });
}

void References::enter(SEXP environment, std::vector<SEXP>& pending) {
  if (!seen_.insert(environment).second) return;
  if (R_IsNamespaceEnv(environment) || R_IsPackageEnv(environment)) return;
  // A layer of ggmlR's: its fields, which a user may have added to.
  const bool fields_only = is_layer(environment);
  for_each_variable(environment, [&](SEXP value) {
    if (!fields_only || TYPEOF(value) != CLOSXP) pending.push_back(value);
  });
  if (!fields_only) pending.push_back(ENCLOS(environment));
}

void References::follow(SEXP object) {
  std::vector<SEXP> pending{object};
  while (!pending.empty()) {
    SEXP next = pending.back();
    pending.pop_back();
    if (TYPEOF(next) == PROMSXP) {
      if (PRVALUE(next) == R_UnboundValue) continue;
      next = PRVALUE(next);
    }
    if (TYPEOF(next) == CLOSXP) next = CLOENV(next);
    if (note(next)) continue;
    if (TYPEOF(next) == VECSXP) {
      // ag_linear()'s list holds its parameters only.
      if (is_layer(next) || !seen_.insert(next).second) continue;
      for (R_xlen_t i = 0; i < Rf_xlength(next); ++i) {
        pending.push_back(VECTOR_ELT(next, i));
      }
    } else if (TYPEOF(next) == DOTSXP) {
      for (SEXP rest = next; rest != R_NilValue; rest = CDR(rest)) {
        pending.push_back(CAR(rest));
      }
    } else if (TYPEOF(next) == ENVSXP) {
      enter(next, pending);
    }
  }
}
