/* SPDX-License-Identifier: MIT */
/*
 * Check that the report names the right culprits
 *
 *	run-queue-culprits TRIALS [SEED]
 *
 * In each trial a thread competes for a processor with culprits: one, three at once, or a chain of
 * short processes that have ended before the report is read. Culprits have cgroups of their own and
 * names of random bytes. The report must name exactly the culprits as its first causes. Where the
 * machine allows it, they have more weight than all other processes, so that they come first.
 *
 * Skipped (77), with the reason, without the scheduler probes. Ends with 0 if all trials were
 * right, and prints the wrong ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cgroup-v2.h"
#include "contention/run-queue.h"
#include "util/cgroup.h"
#include "util/clock.h"

enum { MAX_CULPRITS = 3, PATH_BYTES = 256, NAME_BYTES = 32, CHAIN = 6, SKIP = 77, WEIGHT = -15 };

static const uint64_t together_ns = 400000000, alone_ns = 60000000, patience_ns = 5000000000u;

enum kind { ONE, THREE, SHORT, N_KINDS };
static const char *const kind_names[] = {"one", "three at once", "short-lived"};

struct culprit {
	char comm[RUN_QUEUE_NAME_BYTES];  /* name that the culprit gives itself */
	char shown[RUN_QUEUE_NAME_BYTES]; /* name that the report must show */
	char cgroup[NAME_BYTES];          /* empty: no cgroup of its own */
	char cgroup_path[PATH_BYTES];
	pid_t pid;
};

struct trial {
	enum kind kind;
	unsigned int n;
	struct culprit culprits[MAX_CULPRITS];
};

static uint64_t random_state;
static char cgroup_root[PATH_BYTES - NAME_BYTES - 1]; /* empty: no cgroups can be made */
static int cpu;
static atomic_uint *go; /* shared with culprits; 1: the culprits and the victim begin */
static atomic_bool is_over;

static uint32_t draw(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((random_state >> 32) * n >> 32);
}

static void moment(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void pin(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

static void compute_until(uint64_t end_ns)
{
	volatile uint64_t value = 1;

	while (clock_now_ns() < end_ns)
		for (unsigned int i = 0; i < 1000; i++)
			value = value * 6364136223846793005u + 1;
}

/* ---- The victim ---- */

static void *victim_main(void *data)
{
	_Atomic pid_t *tid = data;

	prctl(PR_SET_NAME, "rb-cpu-0");
	pin();
	setpriority(PRIO_PROCESS, (id_t)gettid(), WEIGHT);
	atomic_store(tid, gettid());
	while (!atomic_load(&is_over)) {
		if (atomic_load(go))
			compute_until(clock_now_ns() + 3000000);
		else
			moment();
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	return NULL;
}

/* ---- Culprits ---- */

static void wait_for_go(void)
{
	while (atomic_load(go) == 0)
		moment();
}

/* Run short processes one after the other; all have ended before the report is read. */
static void chain_main(void)
{
	for (unsigned int i = 0; i < CHAIN; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			compute_until(clock_now_ns() + alone_ns);
			_exit(0);
		}
		while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	_exit(0);
}

static void culprit_main(const struct culprit *culprit, enum kind kind, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	pin();
	setpriority(PRIO_PROCESS, 0, WEIGHT);
	/*
	 * Before it runs: a process that changes its name while it runs is reported under both
	 * names.
	 */
	prctl(PR_SET_NAME, culprit->comm);
	wait_for_go();
	if (kind == SHORT)
		chain_main();
	compute_until(clock_now_ns() + together_ns);
	_exit(0);
}

static void name_culprit(struct culprit *culprit, unsigned int trial, unsigned int i)
{
	unsigned int n = 3 + draw(RUN_QUEUE_NAME_BYTES - 3);
	char cgroup[NAME_BYTES];

	for (unsigned int k = 0; k < n; k++) {
		/* Half of the bytes are arbitrary, such as control characters or beyond ASCII. */
		char c = (char)(draw(2) ? 'a' + (char)draw(26) : (char)(1 + draw(255)));

		culprit->comm[k] = c;
		culprit->shown[k] = c >= ' ' && c <= '~' ? c : '?';
	}
	/* Distinct first letters: no two culprits are shown alike. */
	culprit->comm[0] = culprit->shown[0] = (char)('A' + i);
	if (!cgroup_root[0])
		return;
	snprintf(cgroup, sizeof(cgroup), "rbc-%d-%u-%u", (int)getpid(), trial, i);
	snprintf(culprit->cgroup_path, sizeof(culprit->cgroup_path), "%s/%s", cgroup_root, cgroup);
	if (mkdir(culprit->cgroup_path, 0755) == 0)
		strcpy(culprit->cgroup, cgroup);
}

/* Return false if no process can be started. */
static bool start_culprit(struct culprit *culprit, enum kind kind)
{
	pid_t parent = getpid();

	culprit->pid = fork();
	if (culprit->pid == 0)
		culprit_main(culprit, kind, parent);
	if (culprit->pid > 0 && culprit->cgroup[0] &&
	    !cgroup_v2_move(culprit->cgroup_path, culprit->pid))
		culprit->cgroup[0] = '\0';
	return culprit->pid > 0;
}

static void end_culprits(struct trial *trial)
{
	for (unsigned int i = 0; i < trial->n; i++) {
		struct culprit *culprit = &trial->culprits[i];

		while (culprit->pid > 0 && waitpid(culprit->pid, NULL, 0) < 0 && errno == EINTR)
			;
		if (culprit->cgroup_path[0])
			rmdir(culprit->cgroup_path);
	}
}

/* ---- Reports ---- */

static bool find_report(const struct run_queue *rq, pid_t tid, struct run_queue_report *ret)
{
	struct run_queue_thread_report report;

	for (uint32_t i = 0; run_queue_thread(rq, i, &report); i++)
		if (report.tid == tid) {
			*ret = report.report;
			return true;
		}
	return false;
}

static bool is_cause(const struct run_queue_cause *cause, const struct culprit *culprit)
{
	size_t path = strlen(cause->cgroup), name = strlen(culprit->cgroup);

	return strcmp(cause->comm, culprit->shown) == 0 && !cause->is_own &&
	       cause->tenant == RUN_QUEUE_NO_TENANT && path >= name &&
	       strcmp(cause->cgroup + path - name, culprit->cgroup) == 0;
}

/* Return true if the first causes are exactly the trial's culprits. */
static bool is_right(const struct trial *trial, const struct run_queue_report *report)
{
	unsigned int n_found = 0;

	for (unsigned int i = 0; i < trial->n && i < report->n_causes; i++)
		for (unsigned int k = 0; k < trial->n; k++)
			n_found += is_cause(&report->causes[i], &trial->culprits[k]);
	return n_found == trial->n;
}

static void print_name(const char *name)
{
	for (; *name; name++)
		printf(*name >= ' ' && *name <= '~' ? "%c" : "\\x%02x", (unsigned char)*name);
}

static void explain(const struct trial *trial, const struct run_queue_report *report)
{
	for (unsigned int i = 0; i < trial->n; i++) {
		printf("  culprit ");
		print_name(trial->culprits[i].comm);
		printf(" in %s\n", trial->culprits[i].cgroup);
	}
	for (unsigned int i = 0; i < report->n_causes; i++)
		printf("  cause %s in %s, process %d: %.1f ms, %u preemptions%s\n",
		       report->causes[i].comm, report->causes[i].cgroup, (int)report->causes[i].pid,
		       (double)report->causes[i].wait_ns / 1e6,
		       (unsigned int)report->causes[i].n_preemptions,
		       report->causes[i].is_own ? ", our own" : "");
}

/* ---- Trials ---- */

/* Return: 1, right; 0, wrong; SKIP; or a negative errno. */
static int run_trial(unsigned int number, enum kind kind, pid_t tid)
{
	const struct run_queue_options options = {.source = RUN_QUEUE_SOURCE_EBPF};
	struct trial trial = {.kind = kind, .n = kind == THREE ? 3 : 1};
	struct run_queue_report report = {.n_causes = 0};
	struct run_queue *rq = NULL;
	uint64_t end_ns;
	int r;

	/* Start afresh: the report keeps causes of the last ten seconds. */
	r = run_queue_new(&options, &rq);
	if (r)
		return r;
	if (run_queue_source(rq) != RUN_QUEUE_SOURCE_EBPF) {
		printf("skipped: %s\n", run_queue_sentence(rq, 0));
		run_queue_free(rq);
		return SKIP;
	}
	run_queue_set_pace(rq, RUN_QUEUE_PACE_CONTENDED);
	for (end_ns = clock_now_ns() + patience_ns;
	     !find_report(rq, tid, &report) && clock_now_ns() < end_ns;)
		moment();

	for (unsigned int i = 0; i < trial.n && r == 0; i++) {
		name_culprit(&trial.culprits[i], number, i);
		if (!start_culprit(&trial.culprits[i], kind))
			r = -EAGAIN;
	}
	atomic_store(go, 1);
	/* The culprits and their cgroups are gone when the report is read. */
	end_culprits(&trial);
	atomic_store(go, 0);
	for (end_ns = clock_now_ns() + patience_ns; r == 0 && clock_now_ns() < end_ns;) {
		r = find_report(rq, tid, &report) && is_right(&trial, &report);
		if (r == 0)
			moment();
	}
	if (r == 0) {
		printf("trial %u, %s: wrong\n", number, kind_names[kind]);
		explain(&trial, &report);
	}
	run_queue_free(rq);
	return r;
}

/*
 * Raise the weight of this session. With autogroups a process's weight counts within its session
 * only.
 */
static void weigh_session(void)
{
	int fd;

	setsid();
	if (getsid(0) != getpid())
		return;
	fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (dprintf(fd, "%d", WEIGHT) < 0)
		printf("without more weight than others\n");
	close(fd);
}

static void choose_cpu(void)
{
	cpu_set_t cpus;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &cpus))
			cpu = i;
}

int main(int argc, char **argv)
{
	unsigned int n_trials = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 0;
	unsigned int n_right[N_KINDS] = {0}, n_wrong = 0;
	_Atomic pid_t tid = 0;
	pthread_t victim;
	int r = 1;

	if (n_trials == 0) {
		fprintf(stderr, "usage: run-queue-culprits TRIALS [SEED]\n");
		return 2;
	}
	clock_init();
	random_state = argc > 2 ? strtoull(argv[2], NULL, 0) : clock_now_ns();
	printf("seed %llu\n", (unsigned long long)random_state);
	setvbuf(stdout, NULL, _IOLBF, 0);
	weigh_session();
	choose_cpu();
	if (!cgroup_find_root(cgroup_root, sizeof(cgroup_root)) || access(cgroup_root, W_OK) < 0) {
		printf("without cgroups of their own: none can be made\n");
		cgroup_root[0] = '\0';
	}
	go = mmap(NULL, sizeof(*go), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (go == MAP_FAILED || pthread_create(&victim, NULL, victim_main, &tid))
		return 1;
	while (atomic_load(&tid) == 0)
		moment();
	for (unsigned int i = 0; i < n_trials && (r == 0 || r == 1); i++) {
		enum kind kind = (enum kind)(i % N_KINDS);

		r = run_trial(i, kind, atomic_load(&tid));
		n_right[kind] += r == 1;
		n_wrong += r == 0;
	}
	atomic_store(&is_over, true);
	pthread_join(victim, NULL);
	if (r == SKIP)
		return SKIP;
	if (r < 0) {
		printf("%s\n", strerror(-r));
		return 1;
	}
	for (unsigned int i = 0; i < N_KINDS; i++)
		printf("%s: %u right\n", kind_names[i], n_right[i]);
	printf("%u of %u trials right\n", n_trials - n_wrong, n_trials);
	return n_wrong > 0;
}
