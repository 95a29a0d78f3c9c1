# Fuzzes what the sink http makes of responses and URLs, under libFuzzer: clang-14 and libclang-rt-14-dev.
#
#   make -f responses.mk check        SECONDS=10; a find is left in build, and run again by build/responses FILE

SECONDS = 10
CXXFLAGS = -std=c++20 -Wall -Wextra -Wno-missing-field-initializers -Werror -O1 -g -fsanitize=fuzzer,address,undefined \
	-fno-sanitize-recover=all
sources = responses.cpp $(patsubst %,../../src/%.cpp,core/secret core/taxonomy sinks/address sinks/http_codes \
	sinks/http_request sinks/http_target sinks/signature)

check: build/responses
	mkdir -p build/corpus
	build/responses -max_total_time=$(SECONDS) -max_len=4096 -timeout=10 -artifact_prefix=build/ -print_final_stats=1 \
		build/corpus seeds/responses

build/responses: $(sources) $(wildcard ../../src/sinks/*.h)
	mkdir -p build
	clang++-14 $(CXXFLAGS) -I../../src -o $@ $(sources) -lcurl -lcrypto

.PHONY: check
