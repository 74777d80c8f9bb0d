#include "references.h"

#include <cstring>

namespace {

SEXP field(SEXP environment, SEXP name) {
  return Rf_findVarInFrame3(environment, name, TRUE);
}

SEXP element(SEXP list, const char* name) {
  const SEXP names = Rf_getAttrib(list, R_NamesSymbol);
  for (R_xlen_t i = 0; i < Rf_xlength(names); ++i) {
    if (std::strcmp(CHAR(STRING_ELT(names, i)), name) == 0) return VECTOR_ELT(list, i);
  }
  return R_NilValue;
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
  static const SEXP trace_name = Rf_install("trace");
  static const SEXP pass_name = Rf_install("pass");
  static const SEXP value_name = Rf_install("value");
  if (TYPEOF(object) != ENVSXP || !Rf_inherits(object, "agbudget_tensor")) {
    return NA_INTEGER;
  }
  if (field(object, trace_name) != trace) return NA_INTEGER;
  if (!in_pass(field(object, pass_name), pass)) return NA_INTEGER;
  const SEXP value = field(object, value_name);
  return TYPEOF(value) == REALSXP ? static_cast<int>(REAL(value)[0]) : NA_INTEGER;
}

bool tensor_requires_grad(SEXP tensor) {
  static const SEXP requires_grad_name = Rf_install("requires_grad");
  const SEXP wanted = field(tensor, requires_grad_name);
  return TYPEOF(wanted) == LGLSXP && Rf_xlength(wanted) == 1 &&
         LOGICAL(wanted)[0] == TRUE;
}

References::References(SEXP trace, int pass, SEXP hosts) : trace_(trace), pass_(pass) {
  for (R_xlen_t i = 0; i < Rf_xlength(hosts); ++i) {
    const SEXP host = VECTOR_ELT(hosts, i);
    if (!in_pass(element(host, "pass"), pass)) continue;
    hosts_.emplace(element(host, "object"), Rf_asInteger(element(host, "id")));
  }
}

// Whether the object is a value, which is then noted, and leads nowhere.
bool References::note(SEXP object) {
  if (TYPEOF(object) == ENVSXP) {
    if (!Rf_inherits(object, "agbudget_tensor")) return false;
    const int id = tensor_id(object, trace_, pass_);
    if (id != NA_INTEGER) values_.push_back(id);
    return true;
  }
  if (TYPEOF(object) == VECSXP) {
    if (!Rf_inherits(object, "agbudget_matrix")) return false;
    if (element(object, "trace") == trace_ && in_pass(element(object, "pass"), pass_)) {
      values_.push_back(Rf_asInteger(element(object, "id")));
    }
    return true;
  }
  const auto host = hosts_.find(object);
  if (host != hosts_.end()) values_.push_back(host->second);
  return host != hosts_.end();
}

void References::follow_listed(SEXP object) {
  if (note(object) || TYPEOF(object) != VECSXP) return;
  for (R_xlen_t i = 0; i < Rf_xlength(object); ++i) follow_listed(VECTOR_ELT(object, i));
}

void References::follow_frame(SEXP frame) {
  arguments_.clear();
  const auto follow_argument = [this](SEXP promise) {
    if (TYPEOF(promise) != PROMSXP || PRVALUE(promise) == R_UnboundValue) return;
    const std::size_t before = values_.size();
    follow_listed(PRVALUE(promise));
    for (std::size_t i = before; i < values_.size(); ++i) {
      arguments_.push_back(values_[i]);
    }
  };
  for_each_variable(frame, [&](SEXP value) {
    if (TYPEOF(value) == PROMSXP) {
      follow_argument(value);
    } else if (TYPEOF(value) == DOTSXP) {
      for (SEXP rest = value; rest != R_NilValue; rest = CDR(rest)) {
        follow_argument(CAR(rest));
      }
    } else {
      follow_listed(value);
    }
  });
}

void References::follow(SEXP object, SEXP outside) {
  std::vector<SEXP> pending{object};
  const auto is_outside = [outside](SEXP environment) {
    return environment == outside || environment == R_EmptyEnv ||
           environment == R_GlobalEnv || environment == R_BaseEnv ||
           R_IsNamespaceEnv(environment) || R_IsPackageEnv(environment);
  };
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
      for (R_xlen_t i = 0; i < Rf_xlength(next); ++i) {
        pending.push_back(VECTOR_ELT(next, i));
      }
    } else if (TYPEOF(next) == DOTSXP) {
      for (SEXP rest = next; rest != R_NilValue; rest = CDR(rest)) {
        pending.push_back(CAR(rest));
      }
    } else if (TYPEOF(next) == ENVSXP && Rf_inherits(next, "agbudget_layer")) {
      // A layer of ggmlR's: its fields, which a user may have added to.
      for_each_variable(next, [&pending](SEXP value) {
        if (TYPEOF(value) != CLOSXP) pending.push_back(value);
      });
    } else if (TYPEOF(next) == ENVSXP && next != trace_ && !is_outside(next) &&
               seen_.insert(next).second) {
      for_each_variable(next, [&pending](SEXP value) { pending.push_back(value); });
      pending.push_back(ENCLOS(next));
    }
  }
}
