/*-------------------------------------------------------------------------
 *
 * options.c
 *	  The command line.
 *
 * What is wrong with it is said before anything is done, together with where help
 * is to be found.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <getopt.h>

#include "clock.h"
#include "options.h"
#include "report.h"

#define TTL_LEAST		(100 * CLOCK_MS)
#define TTL_MOST		(24 * 60 * 60 * CLOCK_SECOND)
#define DURATION_MOST	(366 * 24 * 60 * 60 * CLOCK_SECOND)
#define NAME_MOST		255

/* Options without a short form */
enum
{
	OPTION_HELP = 256,
	OPTION_JSON,
	OPTION_KILL_AFTER,
	OPTION_LOG_JSON,
	OPTION_METADATA,
	OPTION_NAME,
	OPTION_ON_LOSS,
	OPTION_RELUCTANT,
	OPTION_SESSION,
	OPTION_TIMEOUT,
	OPTION_TTL,
	OPTION_WATCHDOG
};

/* Which actions an option is for */
#define FOR(action)		(1 << (action))
#define FOR_RUN			FOR(ACTION_RUN)
#define FOR_ALL			(~0)
#define FOR_PRINTING	(FOR_ALL & ~FOR_RUN)

static const struct
{
	struct option option;
	int			actions;
}			known[] = {
	{{"dbname", required_argument, NULL, 'd'}, FOR_ALL},
	{{"election", required_argument, NULL, 'e'}, FOR_ALL},
	{{"help", no_argument, NULL, OPTION_HELP}, FOR_ALL},
	{{"host", required_argument, NULL, 'h'}, FOR_ALL},
	{{"json", no_argument, NULL, OPTION_JSON}, FOR_PRINTING},
	{{"kill-after", required_argument, NULL, OPTION_KILL_AFTER}, FOR_RUN},
	{{"lines", required_argument, NULL, 'n'}, FOR(ACTION_HISTORY)},
	{{"log-json", no_argument, NULL, OPTION_LOG_JSON}, FOR_ALL},
	{{"metadata", required_argument, NULL, OPTION_METADATA}, FOR_RUN},
	{{"name", required_argument, NULL, OPTION_NAME}, FOR_RUN},
	{{"on-loss", required_argument, NULL, OPTION_ON_LOSS}, FOR_RUN},
	{{"port", required_argument, NULL, 'p'}, FOR_ALL},
	{{"quiet", no_argument, NULL, 'q'}, FOR_ALL},
	{{"reluctant", required_argument, NULL, OPTION_RELUCTANT}, FOR_RUN},
	{{"session", no_argument, NULL, OPTION_SESSION}, FOR_RUN},
	{{"timeout", required_argument, NULL, OPTION_TIMEOUT}, FOR_RUN},
	{{"ttl", required_argument, NULL, OPTION_TTL}, FOR_RUN},
	{{"username", required_argument, NULL, 'U'}, FOR_ALL},
	{{"version", no_argument, NULL, 'V'}, FOR_ALL},
	{{"watchdog", required_argument, NULL, OPTION_WATCHDOG}, FOR_RUN},
};

#define N_KNOWN		(sizeof(known) / sizeof(known[0]))

static const char *const action_names[] = {
	"run", "status", "watch", "history", "depose", "pause", "resume"
};

#define N_ACTIONS	(sizeof(action_names) / sizeof(action_names[0]))

static const char help[] =
"leaderctl runs a program while it is the leader, and shows who leads.\n"
"\n"
"Usage:\n"
"  leaderctl run -e ELECTION [OPTION]... [--] COMMAND [ARGUMENT]...\n"
"  leaderctl status [-e ELECTION] [--json]\n"
"  leaderctl watch [-e ELECTION] [--json]\n"
"  leaderctl history -e ELECTION [-n LINES] [--json]\n"
"  leaderctl depose | pause | resume -e ELECTION [--json]\n"
"\n"
"Options of run (a DURATION is a number with ms, s, min, h or d; seconds if alone):\n"
"  --ttl DURATION          how long the lease lasts without renewal\n"
"                          (default: what the election or the server is set to,\n"
"                          15s with --session)\n"
"  --session               bind the term to the connection, too\n"
"  --timeout DURATION      give up (exit code 124) if not the leader by then\n"
"  --on-loss restart|exit  stand again when leadership is lost, or exit with 123\n"
"                          (default: restart)\n"
"  --watchdog DURATION     stop a command that does not send WATCHDOG=1 so often\n"
"  --reluctant DURATION    stand only when the election has been free for so long\n"
"  --kill-after DURATION   when told to end, kill the command after that time\n"
"  --name NAME             begins the holder's name, instead of the host's\n"
"  --metadata JSON         what others are to know of this leader\n"
"\n"
"Other options:\n"
"  -e, --election=ELECTION\n"
"  -n, --lines=LINES       only the last terms\n"
"  --json                  print JSON, an object on each line\n"
"  -q, --quiet             say nothing but warnings and errors\n"
"  --log-json              messages on stderr are JSON\n"
"  -V, --version           print the version and exit\n"
"  --help                  print this and exit\n"
"\n"
"Connection options, else as PostgreSQL's environment variables say:\n"
"  -h, --host=HOST         database servers, or directories of sockets\n"
"  -p, --port=PORT\n"
"  -U, --username=USER\n"
"  -d, --dbname=DBNAME     a database, connection string or URI\n"
"\n"
"Exit codes of run: the command's own, 128+N if signal N ended it; 123 leadership\n"
"lost, 124 not leader in time, 125 leaderctl failed, 126 and 127 the command could\n"
"not be executed or was not found.\n";

static void usage(const char *format,...) pg_attribute_printf(1, 2) __attribute__((noreturn));

static void
usage(const char *format,...)
{
	char	   *message;
	va_list		args;

	va_start(args, format);
	if (vasprintf(&message, format, args) < 0)
		message = "out of memory";
	va_end(args);
	fail("%s; try \"leaderctl --help\"", message);
}

/* The answer is in microseconds; nothing that is not a positive duration passes. */
static int64
duration(const char *option, const char *words, int64 least, int64 most)
{
	static const struct
	{
		const char *name;
		int64		us;
	}			units[] = {
		{"", CLOCK_SECOND},
		{"ms", CLOCK_MS},
		{"s", CLOCK_SECOND},
		{"m", 60 * CLOCK_SECOND},
		{"min", 60 * CLOCK_SECOND},
		{"h", 3600 * CLOCK_SECOND},
		{"d", 86400 * CLOCK_SECOND},
	};
	char	   *end = NULL;
	double		number = -1;

	/* strtod() takes more than numbers: signs, blanks, "inf", "0x10", "1e9". */
	if (isdigit((unsigned char) words[0]))
	{
		size_t		digits = strspn(words, "0123456789.");
		char	   *copy = strndup(words, digits);
		char	   *copy_end;

		number = strtod(copy, &copy_end);
		end = *copy_end ? NULL : (char *) words + digits;
		free(copy);
	}
	while (end && *end == ' ')
		end++;
	for (size_t i = 0; end && i < sizeof(units) / sizeof(units[0]); i++)
	{
		double		us = number * units[i].us;

		if (strcmp(end, units[i].name) != 0)
			continue;
		if (us < least || us > most)
			usage("--%s must be from %lld ms to %lld s, not \"%s\"", option,
				  (long long) (least / CLOCK_MS), (long long) (most / CLOCK_SECOND), words);
		return (int64) us;
	}
	usage("--%s must be a duration such as 500ms, 15s or 5min, not \"%s\"", option, words);
}

/* Longer than a lease may be; what is shorter than a millisecond is a mistake. */
static int64
any_duration(const char *option, const char *words)
{
	return duration(option, words, CLOCK_MS, DURATION_MOST);
}

/* As the server would say, but before the first connection */
static void
check_name(const char *option, const char *name, size_t most)
{
	size_t		length = strlen(name);

	if (length == 0 || length > most)
		usage("%s must have 1 to %zu bytes, not %zu", option, most, length);
	for (const char *c = name; *c; c++)
	{
		if (iscntrl((unsigned char) *c))
			usage("%s must not have control characters", option);
	}
}

static Action
parse_action(const char *name)
{
	for (size_t i = 0; i < N_ACTIONS; i++)
	{
		if (strcmp(name, action_names[i]) == 0)
			return (Action) i;
	}
	usage("there is no command \"%s\"", name);
}

static void
parse_option(Options *options, int value, const char *name, const char *words)
{
	RunOptions *run = &options->run;

	switch (value)
	{
		case 'd':
			options->target.dbname = words;
			break;
		case 'e':
			check_name("the name of an election", words, NAME_MOST);
			options->election = run->election = words;
			break;
		case 'h':
			options->target.host = words;
			break;
		case 'n':
			if (strspn(words, "0123456789") != strlen(words) || strlen(words) > 9 || atoi(words) < 1)
				usage("--lines must be a number from 1, not \"%s\"", words);
			options->lines = words;
			break;
		case 'p':
			options->target.port = words;
			break;
		case 'U':
			options->target.user = words;
			break;
		case OPTION_JSON:
			options->json = true;
			break;
		case OPTION_KILL_AFTER:
			run->kill_after = any_duration(name, words);
			break;
		case OPTION_METADATA:
			run->metadata = words;
			break;
		case OPTION_NAME:
			/* A process number and random digits follow. */
			check_name("--name", words, NAME_MOST - 32);
			run->name = words;
			break;
		case OPTION_ON_LOSS:
			if (strcmp(words, "exit") != 0 && strcmp(words, "restart") != 0)
				usage("--on-loss must be \"restart\" or \"exit\", not \"%s\"", words);
			run->exit_on_loss = strcmp(words, "exit") == 0;
			break;
		case OPTION_RELUCTANT:
			run->reluctant = any_duration(name, words);
			break;
		case OPTION_SESSION:
			run->session = true;
			break;
		case OPTION_TIMEOUT:
			run->timeout = any_duration(name, words);
			break;
		case OPTION_TTL:
			run->ttl = duration(name, words, TTL_LEAST, TTL_MOST);
			break;
		case OPTION_WATCHDOG:
			run->watchdog = any_duration(name, words);
			break;
	}
}

static void
check_options(const Options *options, int argc, char **argv)
{
	bool		names_all = options->action == ACTION_STATUS || options->action == ACTION_WATCH;

	if (options->election == NULL && !names_all)
		usage("\"%s\" needs an election: -e ELECTION", action_names[options->action]);
	if (options->action == ACTION_RUN && optind >= argc)
		usage("there is no command to run");
	if (options->action != ACTION_RUN && optind < argc)
		usage("\"%s\" is too much", argv[optind]);
}

/* As it was written, or nearly */
static const char *
option_word(char **argv)
{
	static char letter[] = "-x";

	if (optopt == 0 || optopt >= OPTION_HELP || strncmp(argv[optind - 1], "--", 2) == 0)
		return argv[optind - 1];
	letter[1] = optopt;
	return letter;
}

static void
print_and_exit(const char *words)
{
	fputs(words, stdout);
	finish_output();
	exit(0);
}

#define SHORT_OPTIONS "+:d:e:h:n:p:qU:V"

/* First of all how to say what is wrong with the rest */
static void
choose_reports(int argc, char **argv, const struct option *long_options)
{
	int			value;

	while ((value = getopt_long(argc, argv, SHORT_OPTIONS, long_options, NULL)) != -1)
	{
		if (value == 'q')
			report_quiet();
		else if (value == OPTION_LOG_JSON)
			report_as_json();
	}
	optind = 0;
}

/* Ends the program where help or the version is asked for, or something is wrong. */
void
options_parse(Options *options, int argc, char **argv)
{
	struct option long_options[N_KNOWN + 1] = {0};
	bool		named = argc > 1 && argv[1][0] != '-';
	int			value;

	for (size_t i = 0; i < N_KNOWN; i++)
		long_options[i] = known[i].option;

	/* getopt() begins behind the first, which it takes for our name. */
	if (named)
	{
		options->action = parse_action(argv[1]);
		argc--;
		argv++;
	}
	opterr = 0;
	choose_reports(argc, argv, long_options);
	while ((value = getopt_long(argc, argv, SHORT_OPTIONS, long_options, NULL)) != -1)
	{
		size_t		i = 0;

		if (value == OPTION_HELP || (value == '?' && optopt == '?'))
			print_and_exit(help);
		if (value == 'V')
			print_and_exit("leaderctl (leader_election) " LEADERCTL_VERSION "\n");
		if (value == '?' && optopt != 0 && strncmp(argv[optind - 1], "--", 2) == 0)
			usage("\"%s\": this option takes no value", option_word(argv));
		if (value == '?')
			usage("there is no option \"%s\"", option_word(argv));
		if (value == ':')
			usage("option \"%s\" needs a value", option_word(argv));
		while (known[i].option.val != value)
			i++;
		if (named && !(known[i].actions & FOR(options->action)))
			usage("\"%s\" has no option --%s", action_names[options->action], known[i].option.name);
		parse_option(options, value, known[i].option.name, optarg);
	}
	if (!named)
		usage("the first argument must say what to do: run, status, watch, history, depose, pause or resume");
	check_options(options, argc, argv);
	options->run.command = argv + optind;
}
