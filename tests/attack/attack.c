/* SPDX-License-Identifier: MIT */
/*
 * attack: attacks on private brokers, and their effect on a neighbour; usage() lists the arguments
 *
 * This file has the rows, the options, and the processes that are members of an attack; see
 * attack.h.
 *
 * Each row asserts that the broker lives, that every result of the neighbour is right and none
 * waits for a second, and that memory is charged. Afterwards, clients can connect, and sessions,
 * rings, arenas, plans, charges, descriptors, threads and memory are back at their earlier figures.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "attack/attack.h"
#include "support/test.h"

enum { MAX_SESSIONS = 1000, USAGE_STATUS = 2, COUNT_SECONDS = 40000 };

static const struct attack_row rows[] = {
	{1, "parts", "tasks of a plan in many parts, more than slots, at once", attack_parts,
	 ATTACK_FRIEND_PRODUCTS, 1, .must_succeed = true, .needs_parts = true},
	{2, "constants", "constants that overlap, packed once per node", attack_constants,
	 ATTACK_FRIEND_SET_UP, 1, "host-max = 96MiB\n"},
	{3, "verify", "plans of 4,094 nodes", attack_verify, ATTACK_FRIEND_SET_UP, 4},
	{4, "descriptors", "sockets that linger, refused connections", attack_descriptors,
	 ATTACK_FRIEND_INLINE, 1, "sessions-max = 8\n", .n_files = 4000},
	{5, "products", "8 tasks of long products a session", attack_products,
	 ATTACK_FRIEND_PRODUCTS, 1},
	{6, "accepts", "connections without a word", attack_accepts, ATTACK_FRIEND_INLINE, 1},
	{7, "arenas", "large arenas, added and removed", attack_arenas, ATTACK_FRIEND_SET_UP, 1},
	{8, "cancels", "CANCEL of what is not there, among 30,000 tasks", attack_cancels,
	 ATTACK_FRIEND_PRODUCTS, 1},
	{9, "rings", "rings of 32,768 entries, added and removed", attack_rings,
	 ATTACK_FRIEND_SET_UP, 4},
	{10, "punch", "argument tables and tensors in memory that is punched", attack_punch,
	 ATTACK_FRIEND_INLINE, 1},
	{11, "refill", "arenas that are punched and filled again", attack_refill,
	 ATTACK_FRIEND_PRODUCTS, 4},
	{12, "watch", "statistics of others", attack_watch, ATTACK_FRIEND_INLINE, 2},
	{13, "many-rings", "256 rings of one tenant, full of small tasks", attack_many_rings,
	 ATTACK_FRIEND_INLINE, 16},
	{14, "setup-flood", "plans to prepare, of many sessions", attack_setup_flood,
	 ATTACK_FRIEND_SET_UP, 16},
	{15, "leases", "leases opened and closed in a loop", attack_leases, ATTACK_FRIEND_SET_UP,
	 4},
	{16, "links", "chains of tasks with argument tables", attack_links, ATTACK_FRIEND_INLINE,
	 2},
	{17, "tables", "argument tables of rings that go meanwhile", attack_tables,
	 ATTACK_FRIEND_SET_UP, 2},
	{18, "observers", "administrators and scrapers that do not read, or say half",
	 attack_observers, ATTACK_FRIEND_INLINE, 4, .has_metrics = true},
	{19, "oddities", "epolls, timers, processes and io_urings for memory", attack_oddities,
	 ATTACK_FRIEND_SET_UP, 2},
	{20, "plan-flood", "plans to prepare, of the neighbour's own tenant", attack_setup_flood,
	 ATTACK_FRIEND_SET_UP, 16, .is_one_tenant = true},
	{21, "bells", "bells of 960 rings without an entry", attack_bells, ATTACK_FRIEND_INLINE,
	 15},
	{22, "plan-queue", "descriptions that wait, charged with all of the host's memory",
	 attack_plan_queue, ATTACK_FRIEND_SET_UP, 16, .arguments = "--host-max=256MiB"},
	{23, "waiters", "a connection that is waited for 320,000 times", attack_waiters,
	 ATTACK_FRIEND_INLINE, 1},
	{24, "entries", "entries that are valid but for one field", attack_entries,
	 ATTACK_FRIEND_INLINE, 4, .arguments = "--gpu=none", .must_succeed = true},
	{25, "messages", "messages that are valid but for one detail", attack_messages,
	 ATTACK_FRIEND_SET_UP, 4, .must_succeed = true},
	{26, "device-entries", "entries that change while they are read, for two devices",
	 attack_device_entries, ATTACK_FRIEND_INLINE, 4, .must_succeed = true},
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct attack_row *row;
static struct attack_options options = {.window_ns = 0};
static FILE *json;

/* ---- Members ---- */

struct attacker_thread {
	struct attack *attack;
	unsigned int number;
	pthread_t thread;
};

static void *attacker_main(void *data)
{
	const struct attacker_thread *self = data;

	for (unsigned int i = 0; i < N_ROWS; i++)
		if (rows[i].number == self->attack->row)
			rows[i].run(self->attack, self->number);
	return NULL;
}

static void be_attacker(struct attack *attack)
{
	struct attacker_thread threads[16];

	for (unsigned int i = 0; i < attack->n_threads; i++) {
		threads[i] = (struct attacker_thread){.attack = attack, .number = i};
		if (pthread_create(&threads[i].thread, NULL, attacker_main, &threads[i]))
			attack_fail(attack, "no thread");
	}
	for (unsigned int i = 0; i < attack->n_threads; i++)
		pthread_join(threads[i].thread, NULL);
}

static int be_member(const char *fd, const char *role)
{
	struct rlimit files;
	struct attack *attack =
		mmap(NULL, sizeof(*attack), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(fd), 0);

	if (attack == MAP_FAILED)
		return 1;
	test_abort_outside();
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (strcmp(role, "neighbour") == 0)
		attack_be_neighbour(attack);
	else if (strcmp(role, "friend") == 0)
		attack_be_friend(attack);
	else
		be_attacker(attack);
	return 0;
}

/* ---- A row ---- */

TEST(test_attack)
{
	struct attack_result result;
	unsigned int n_wrong;

	attack_referee(row, &options, &result);
	attack_print_table(&result);
	if (json)
		attack_print_json(&result, json);
	n_wrong = result.n_wrong;
	attack_result_deinit(&result);
	if (n_wrong > 0)
		fail_msg("row %u: see above", row->number);
}

/* ---- Options ---- */

static int usage(FILE *file, int status)
{
	fputs("usage: attack [OPTION...] ROW...\n"
	      "\n"
	      "Attacks a private brokerd beside a neighbour of another tenant, and prints what "
	      "the\n"
	      "neighbour suffers: times beside the attacker, beside a friend that keeps the "
	      "broker\n"
	      "as busy with honest tasks, and their ratio. Windows of both take turns. Then: the\n"
	      "reactor's longest turn and its cause, the broker's memory beside its charges, and\n"
	      "what it has before and after. Times are in milliseconds.\n"
	      "\n"
	      "ROW is a number, a name, or all:\n",
	      file);
	for (unsigned int i = 0; i < N_ROWS; i++)
		fprintf(file, "  %2u %-14s %s (%u sessions)\n", rows[i].number, rows[i].name,
			rows[i].what, rows[i].n_sessions);
	fputs("\n"
	      "  --sessions=N   attack with N sessions, 1 to 1000 (default: as above)\n"
	      "  --seconds=N    of the attacker, and of the friend, in all (default: 0.5)\n"
	      "  --windows=N    into which these are divided (default: 2)\n"
	      "  --count=N      go on until the attacker has N results, as in row 24 the\n"
	      "                 completions of entries, and in row 25 messages; the friend's\n"
	      "                 windows then last up to 20 s\n"
	      "  --rest         let the neighbour be active for a tenth of the time: while it is,\n"
	      "                 the broker serves an attacker's messages slowly\n"
	      "  --soak         64 sessions, 60 s, 10 windows, unless said otherwise\n"
	      "  --quick        one window of the attacker, of 0.25 s unless said otherwise, and\n"
	      "                 a visit of the friend: the row compares no times (JSON: null)\n"
	      "  --json         one line of JSON for each row on standard output, with times in\n"
	      "                 nanoseconds; all else goes to standard error\n"
	      "  --help         this text\n"
	      "\n"
	      "A row fails if a result is wrong, the broker dies, an entry of the neighbour waits\n"
	      "for a second, memory is above charges by more than 64 MiB, others cannot connect\n"
	      "afterwards, or anything is left behind. Times above what is to be reached are said\n"
	      "and fail nothing. Exit status: 0 no row failed, 1 some did, 2 wrong use.\n",
	      file);
	return status;
}

/*
 * Parse a number.
 * Return: false if @text is no number, or out of range.
 */
static bool parse(const char *text, unsigned long least, unsigned long most, unsigned int *ret)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (end == text || *end || value < least || value > most)
		return false;
	*ret = (unsigned int)value;
	return true;
}

static const struct attack_row *find_row(const char *name)
{
	unsigned int number = 0;

	parse(name, 1, N_ROWS, &number);
	for (unsigned int i = 0; i < N_ROWS; i++)
		if (strcmp(name, rows[i].name) == 0 || rows[i].number == number)
			return &rows[i];
	return NULL;
}

/* Reserve standard output for JSON; all other output moves to standard error. */
static bool open_json(void)
{
	int fd = dup(STDOUT_FILENO);

	json = fd >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0 ? fdopen(fd, "w") : NULL;
	return json != NULL;
}

int main(int argc, char **argv)
{
	enum { SECONDS = 1, SESSIONS, WINDOWS, COUNT, REST, SOAK, QUICK, JSON, HELP };
	static const struct option known[] = {
		{"seconds", required_argument, NULL, SECONDS},
		{"sessions", required_argument, NULL, SESSIONS},
		{"windows", required_argument, NULL, WINDOWS},
		{"count", required_argument, NULL, COUNT},
		{"rest", no_argument, NULL, REST},
		{"soak", no_argument, NULL, SOAK},
		{"quick", no_argument, NULL, QUICK},
		{"json", no_argument, NULL, JSON},
		{"help", no_argument, NULL, HELP},
		{NULL, 0, NULL, 0},
	};
	unsigned int seconds = 0, n_sessions = 0, n_wanted = 0, n_least = 0;
	const struct attack_row *wanted[N_ROWS];
	static char program[4096];
	uint64_t all_ns;
	bool is_soak = false;
	int option, n_failed = 0;

	if (argc == 4 && strcmp(argv[1], "member") == 0)
		return be_member(argv[2], argv[3]);
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == HELP)
			return usage(stdout, 0);
		if ((option == SECONDS && parse(optarg, 1, 3600, &seconds)) ||
		    (option == SESSIONS && parse(optarg, 1, MAX_SESSIONS, &n_sessions)) ||
		    (option == WINDOWS && parse(optarg, 1, 1000, &options.n_windows)) ||
		    (option == COUNT && parse(optarg, 1, UINT32_MAX, &n_least)) ||
		    (option == JSON && open_json()))
			continue;
		if (option != SOAK && option != REST && option != QUICK)
			return usage(stderr, USAGE_STATUS);
		is_soak |= option == SOAK;
		options.is_quick |= option == QUICK;
		options.neighbour_rests |= option == REST;
	}
	for (; optind < argc; optind++) {
		bool is_all = strcmp(argv[optind], "all") == 0;

		for (unsigned int i = 0; i < N_ROWS && n_wanted < N_ROWS; i++)
			if (is_all || find_row(argv[optind]) == &rows[i])
				wanted[n_wanted++] = &rows[i];
		if (!is_all && !find_row(argv[optind]))
			return usage(stderr, USAGE_STATUS);
	}
	if (n_wanted == 0 || readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		return usage(stderr, USAGE_STATUS);
	options.program = program;
	if (seconds == 0 && is_soak)
		seconds = 60;
	if (options.n_windows == 0)
		options.n_windows = is_soak ? 10 : options.is_quick ? 1 : 2;
	all_ns = seconds ? seconds * 1000000000ull : options.is_quick ? 250000000 : 500000000;
	options.window_ns = all_ns / options.n_windows;
	for (unsigned int i = 0; i < n_wanted; i++) {
		row = wanted[i];
		options.n_sessions = n_sessions ? n_sessions : is_soak ? 64 : row->n_sessions;
		options.n_least = n_least;
		harness_limit_seconds(n_least ? COUNT_SECONDS : 120 + 3 * seconds);
		n_failed += test_run(NULL, NULL);
	}
	return n_failed > 0;
}
