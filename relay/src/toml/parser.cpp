// The parser of toml++, compiled once; see parser.h.
#define TOML_IMPLEMENTATION
#include "toml/parser.h"
