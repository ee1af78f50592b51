# leader_election: how it is built, installed and tested.
#
#	make && make install	build and install for the server that PG_CONFIG names
#	make test		install from the distribution what is missing, build, run every test
#	make demo		the same preparation, then the demonstration
#	make installcheck	regress, isolation and TAP against what is installed
#	make model		search the model of the rules for broken promises
#	make mutants		show that the tests notice broken promises
#	make torture		do harm to servers and clients for two minutes, or DURATION=1h
#	make torture-mutants	show that it notices broken promises
#	make indent		lay out the C sources as pgindent does
#	make typedefs		after new types: renew typedefs.list, which indent reads
#
# "test" and "demo" start from a machine that has nothing but git, make and root
# or sudo, so this file must also be readable by make where pg_config is absent.

EXTENSION   = leader_election
MODULE_big  = leader_election
PGFILEDESC  = "leader_election - leader election with leases and fenced writes"

OBJS = \
	$(WIN32RES) \
	src/answer.o \
	src/arguments.o \
	src/asked.o \
	src/change.o \
	src/clock.o \
	src/config.o \
	src/configure.o \
	src/cover.o \
	src/election.o \
	src/epoch.o \
	src/external.o \
	src/fence.o \
	src/guard.o \
	src/guc.o \
	src/history.o \
	src/leader_election.o \
	src/lock.o \
	src/names.o \
	src/place.o \
	src/protect.o \
	src/protected.o \
	src/quorum.o \
	src/relations.o \
	src/renewal.o \
	src/rights.o \
	src/row.o \
	src/session.o \
	src/setting.o \
	src/shmem.o \
	src/sitter.o \
	src/sqlfuncs.o \
	src/standby.o \
	src/stats.o \
	src/statsfuncs.o \
	src/status.o \
	src/steer.o \
	src/store.o \
	src/template.o \
	src/token.o \
	src/view.o \
	src/wait.o

DATA = \
	sql/leader_election--1.0.sql

# Tests, in the order in which they run.  sql/ also holds the install scripts,
# told apart by the double hyphen.
REGRESS = \
	acquire \
	api \
	asked \
	configure \
	depose \
	drop \
	drop_election \
	epoch_column \
	external \
	external_privileges \
	fence \
	history \
	inheritance \
	names \
	partitions \
	privileges \
	protect \
	protected \
	prune \
	release \
	schema \
	session \
	setting \
	stats \
	status \
	tamper \
	template \
	transactions

ISOLATION = \
	candidates \
	commit_paused \
	configure_owner \
	cover_concurrent \
	cover_detach \
	cover_names \
	cover_temporary \
	cover_unprotect \
	depose_fence \
	depose_race \
	drop_race \
	external_configure \
	external_paused \
	external_raise \
	fence_many \
	fence_old_snapshot \
	fence_read_committed \
	fence_repeatable_read \
	fence_serializable \
	fence_template \
	fence_template_moved \
	latest_state \
	loser \
	metadata_open \
	pause \
	pending \
	protected_locked \
	release_commit \
	release_open \
	release_takeover \
	renew_takeover \
	savepoint \
	serializable \
	session_end \
	session_fence \
	session_frozen \
	session_mixed \
	session_release \
	session_renew \
	session_rollback \
	session_wait \
	stale_commit_blocks \
	wait

TAP_TESTS    = 1
PROVE_TESTS ?= test/t/*.pl

REGRESS_OPTS   = --load-extension=leader_election
ISOLATION_OPTS = --inputdir=$(srcdir)/test/isolation --load-extension=leader_election

# Where this file lies, which is not the current directory in a VPATH build.
here := $(dir $(lastword $(MAKEFILE_LIST)))

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

# pg_config, and in some distributions pgxs.mk, come with the client programs:
# what tells is whether the server's headers are there.
ifneq ($(wildcard $(shell $(PG_CONFIG) --includedir-server 2>/dev/null)/postgres.h),)

include $(PGXS)

# Packaged PGXS is configured without dependency tracking: without this, an
# object would outlive a change of a struct in a header.
$(OBJS) $(OBJS:.o=.bc): $(wildcard $(srcdir)/src/*.h)

# A VPATH build starts in an empty directory.
$(OBJS) $(OBJS:.o=.bc): | $(CURDIR)/src
$(CURDIR)/src:
	$(MKDIR_P) $@

# The client has a Makefile of its own, which is called wherever we are built; it
# needs Linux.
ifeq ($(PORTNAME),linux)
cli_make = $(MKDIR_P) cli && $(MAKE) -C cli -f $(abspath $(here))/cli/Makefile \
	VPATH=$(abspath $(here))/cli PG_CONFIG='$(PG_CONFIG)'

all: cli-all
install: cli-install
uninstall: cli-uninstall
clean distclean: cli-clean
cli-all cli-install cli-uninstall cli-clean:
	+$(cli_make) $(@:cli-%=%)

.PHONY: cli-all cli-install cli-uninstall cli-clean

endif

else

all install installdirs uninstall clean distclean installcheck:
	@echo 'leader_election: no PostgreSQL server headers for PG_CONFIG=$(PG_CONFIG).' >&2
	@echo 'On Debian install postgresql-server-dev-NN, where NN is the major version of the server' >&2
	@echo '(15 on Debian 12, 17 on Debian 13), or name its pg_config: make PG_CONFIG=/path/to/pg_config.' >&2
	@echo '"make test" and "make demo" install what they need by themselves.' >&2
	@exit 1

.PHONY: all install installdirs uninstall clean distclean installcheck

endif

test:
	@$(here)test/run

demo:
	@$(here)demo/run

model:
	@$(here)test/run model

mutants:
	@$(here)test/run mutants

# What is set on the command line of make reaches the script.
torture:
	@$(if $(DURATION),DURATION='$(DURATION)') $(if $(SEED),SEED='$(SEED)') \
		$(if $(FAULTS),FAULTS='$(FAULTS)') $(here)test/run torture

torture-mutants:
	@$(here)test/run torture-mutants

# The layout is pgindent's.  Debian ships the program under it, pg_bsd_indent,
# with the server's client programs from PostgreSQL 17 on; the options are those
# of pgindent, and so is what is done before (a comment that starts with dashes
# keeps its form) and after (one blank before the star of a returned pointer).
PG_BSD_INDENT ?= $(firstword $(shell command -v pg_bsd_indent || \
	ls -r /usr/lib/postgresql/*/bin/pg_bsd_indent 2>/dev/null))
INDENT_FLAGS = -bad -bap -bbb -bc -bl -cli1 -cp33 -cdb -nce -d0 -di12 -nfc1 -i4 \
	-l79 -lp -lpl -nip -npro -sac -tpg -ts4 -Utypedefs.list

indent:
	@test -n "$(PG_BSD_INDENT)" || { \
		echo 'leader_election: no pg_bsd_indent; Debian has it in postgresql-client-17 and later' >&2; \
		exit 1; }
	@cd $(here) && for file in src/*.[ch] cli/*.[ch]; do \
		sed 's,/\*  *---,/*---X_X,' $$file | $(PG_BSD_INDENT) $(INDENT_FLAGS) | \
		sed 's,/\*---X_X,/* ---,; s,^\([A-Za-z_][^[:space:]]*\)[[:space:]]*\*$$,\1 *,' >$$file.new && \
		test -s $$file.new || exit 1; \
		cmp -s $$file $$file.new || { echo $$file; cat $$file.new >$$file; }; \
		rm -f $$file.new; \
	done

# pg_bsd_indent must be told which words are types: those in the debugging
# information of the objects that the sources name.
typedefs: $(OBJS) cli-all
	@objdump --dwarf=info $(OBJS) cli/*.o | \
	awk '/DW_TAG_typedef/ { t = 1; next } t && /DW_AT_name/ { print $$NF; t = 0 }' | \
	LC_ALL=C sort -u >$(here)typedefs.new
	@cat $(here)src/*.[ch] $(here)cli/*.[ch] | grep -ow '[A-Za-z_][A-Za-z_0-9]*' | LC_ALL=C sort -u | \
	LC_ALL=C comm -12 - $(here)typedefs.new >$(here)typedefs.list
	@rm -f $(here)typedefs.new

.PHONY: test demo model mutants torture torture-mutants indent typedefs
