# outbox: a PostgreSQL extension in C++20, built with PGXS.
#
#   make                    builds outbox.so       make WERROR=1     warnings are errors
#   make STOP_POINTS=1      builds it for tests that stop processes at certain places
#   make install            installs it            make SANITIZE=undefined   with UBSan
#   make check              all tests, through test/run
#   make history MINUTES=30 the history checker (test/history) for so long; SEED=... and
#                           ROUNDS=1 repeat a round that failed
#   make history-mutants    shows that it notices what breaks the extension
#   make examples           the examples of the docs, and those in six languages
#   make installcheck       whether what is installed works: some regression tests, on any running server
#   make relay              builds relay/outbox-relay; make install-relay installs it (PREFIX)
#   make verify             builds verify/outbox-verify; make install-verify installs it
#   make dist               outbox-VERSION.zip for PGXN, of the last commit; the tree must be clean
#   make pictures           docs/*.svg from docs/*.dot, by Graphviz
#   PG_CONFIG=...           chooses the server

PG_CONFIG ?= pg_config
MODULE_big = outbox
here := $(dir $(firstword $(MAKEFILE_LIST)))

# What is asked for without the server's development files. The tests may have to install them, and PGXS has a target named
# check that only says that it does nothing. Other goals of the same command are made first.
alone := check examples history history-mutants relay verify install-relay install-verify dist

ifneq (,$(filter $(alone),$(MAKECMDGOALS)))

others := $(filter-out $(alone),$(MAKECMDGOALS))
.PHONY: $(alone) $(others)
.NOTPARALLEL:
check: $(others)
	test/run
examples: $(others)
	test/run examples workers
# What is given on the command line is in its environment.
history: $(others)
	OUTBOX_TIMEOUT=$$(($(or $(MINUTES),30) * 60 + 1800)) test/run history
history-mutants: $(others)
	test/history/try_mutants

# Programs beside the extension: relay/Makefile, verify/Makefile.
relay verify: $(others)
	$(MAKE) -C $(here)$@
install-relay install-verify: install-%: %
	$(MAKE) -C $(here)$* install

release = outbox-$(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(here)outbox.control)
dist: $(others)
	@test -z "`git -C $(here). status --porcelain`" || { echo 'dist: what is not committed would be missing' >&2; exit 1; }
	git -C $(here). archive --format=zip --prefix=$(release)/ --output=$(release).zip HEAD

ifneq (,$(others))
$(others):
	$(MAKE) $@
endif

else

sources := $(sort $(patsubst $(here)%,%,$(wildcard $(here)src/*.cpp $(here)src/*/*.cpp)))
OBJS     = $(sources:.cpp=.o)
# outbox; the contracts over it, which are SQL only; and the extensions beside it, whose C++ is in src.
EXTENSION = outbox $(sort $(patsubst $(here)%.control,%,$(wildcard $(here)contracts/*/*.control $(here)extensions/*/*.control)))
DATA      = $(sort $(patsubst $(here)%,%,$(wildcard $(here)sql/*.sql $(here)contracts/*/sql/*.sql $(here)extensions/*/sql/*.sql)))

# No bitcode: JIT inlining has nothing to gain from this module.
override with_llvm = no

# Only what exports.txt names leaves the library. PGDLLEXPORT is empty on 15, so
# -fvisibility=hidden would hide the entry points as well.
SHLIB_EXPORTS = exports.txt
SHLIB_LINK   += -lstdc++ -lcrypto

# A directory named with -isystem is ignored where it comes again with -I: the
# server's headers are not warned about, our own code is.
PG_CPPFLAGS = -I$(here)src -isystem $(shell $(PG_CONFIG) --includedir-server)
# -Wshadow is what servers from 16 on are built with. COPT is for what the caller adds; PGXS knows it for C alone.
PG_CXXFLAGS = -std=c++20 -Wextra -Wshadow=compatible-local $(COPT)
ifneq (,$(filter-out 0,$(WERROR)))
PG_CXXFLAGS += -Werror
endif
ifneq (,$(filter-out 0,$(STOP_POINTS)))
PG_CPPFLAGS += -DOUTBOX_STOP_POINTS
endif
ifneq (,$(SANITIZE))
# Our own sums must not overflow, though the server is built to bear it.
PG_CXXFLAGS += -fsanitize=$(SANITIZE) -fno-wrapv
SHLIB_LINK  += -fsanitize=$(SANITIZE)
endif

# Those that pass on any server, with and without the background worker; test/run has all.
REGRESS = append_only cancel complete complete_batch enqueue enqueue_batch idempotency numbered renew replay rights transactions
REGRESS_OPTS = --inputdir=$(srcdir)/test --outputdir=. --load-extension=outbox \
	$(if $(filter-out 15,$(MAJORVERSION)),--expecteddir=$(srcdir))

EXTRA_CLEAN = $(OBJS:.o=.d) .build-flags .build-objects test/unit/build

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# Debian's PGXS has no dependency tracking.
$(OBJS): %.o: %.cpp .build-flags
	@$(MKDIR_P) $(@D)
	$(CXX) $(CXXFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

-include $(OBJS:.o=.d)

# A change of flags, or of the list of files, builds everything again.
$(shlib): .build-objects
.build-flags: stamp = $(CXX) $(CXXFLAGS) $(CPPFLAGS)
.build-objects: stamp = $(OBJS) $(SHLIB_LINK)
.build-flags .build-objects: FORCE
	@echo '$(stamp)' | cmp -s - $@ || echo '$(stamp)' >$@

# Each picture carries its source in a comment, which test/meta.pl compares.
.PHONY: pictures
pictures:
	$(MAKE) -s -C $(here)test/unit states >$(here)docs/states.dot
	set -e; for dot in $(here)docs/*.dot; do \
		{ dot -Tsvg $$dot; echo '<!--'; cat $$dot; echo '-->'; } >$${dot%.dot}.svg; \
	done

.PHONY: FORCE
FORCE:

endif
