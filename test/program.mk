# What the Makefiles of test programs share that speak to a server through libpq.

PG_CONFIG ?= pg_config

CXX = g++
# Without -O: they wait for the server, and are built for each run of the tests.
CXXFLAGS = -std=c++20 -Wall -Wextra -Werror -g
CPPFLAGS = -I$(shell $(PG_CONFIG) --includedir) -MMD -MP
LDLIBS = -L$(shell $(PG_CONFIG) --libdir) -lpq

all:

build/%.o: %.cpp Makefile ../program.mk
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) $(CPPFLAGS) -c -o $@ $<

clean:
	rm -rf build

-include $(wildcard build/*.d)

.PHONY: all clean
