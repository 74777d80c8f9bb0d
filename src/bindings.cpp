// The only file that knows R: convert, call the core, convert back.

#include <Rcpp.h>
