/* SPDX-License-Identifier: MIT */
/*
 * A client that obeys commands, for tests written in Python
 *
 * model-client SOCKET. Reads one command per line from standard input and answers each with one
 * line:
 *
 *   plan NAME MIB          a product with a constant matrix of that size      "plan NAME"
 *   free NAME                                                                 "free NAME"
 *   run NAME               a task that prefers the GPU          "run NAME RES DEVICE REASON"
 *   start NAME             tasks one after the other, in a thread             "start NAME"
 *   stop NAME              ends them                  "stop NAME N DEVICE:REASON=N ...", N in all
 *   prefetch NAME, evict NAME                  "prefetch NAME RES", "evict NAME RES"
 *   memory NAME            on the GPU    "memory NAME STATE RESIDENT REQUIRED EVICTIONS RETURNS"
 *   await NAME STATE       until it is in that state, or (not-STATE) in another
 *                                                                    "await NAME MONOTONIC-NS"
 *   tenant                 its charges                 "tenant VRAM GTT HOST EVICTIONS RETURNS"
 *
 * STATE is vram, gtt, evicted, never, lost or none. Ends with its input. Ends with status 1 if a
 * task completes with an error, the broker is gone, or a state is not reached within 30 s.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ringbroker.h>

enum {
	COLUMNS = 4096,
	MAX_PLANS = 64,
	MAX_REASONS = 16,
	N_ENTRIES = 8,
};

static const uint64_t patience_ns = 30000000000;

struct model {
	char name[32];
	uint32_t rows;
	struct rbk_plan *plan;
	struct rbk_arena *arena; /* of the plan's tensors */
	struct rbk_ring *ring;
	pthread_t thread;
	_Atomic bool is_running;
	uint32_t n_tasks;
	uint32_t counts[RBK_MAX_DEVICES][MAX_REASONS];
};

static struct rbk *rbk;
static struct model models[MAX_PLANS];

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static void must(int r, const char *what, const struct rbk_error *error)
{
	if (r < 0)
		die("%s: %s%s%s", what, strerror(-r), error ? ": " : "", error ? error->text : "");
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct model *find(const char *name)
{
	for (unsigned int i = 0; i < MAX_PLANS; i++)
		if (strcmp(models[i].name, name) == 0)
			return &models[i];
	die("no plan \"%s\"", name);
}

static void make(struct model *model, unsigned int mib)
{
	const uint32_t rows = mib * ((1u << 20) / (COLUMNS * sizeof(float)));
	const uint32_t in[] = {RBK_DIM_COUNT, rows}, out[] = {RBK_DIM_COUNT, COLUMNS};
	const uint32_t dims[] = {rows, COLUMNS};
	struct rbk_builder *b = rbk_builder_new(model->name);
	struct rbk_arena *constants;
	struct rbk_error error;
	unsigned int x, w, y;

	model->rows = rows;
	must(rbk_arena_new(rbk, (size_t)mib << 20, &constants, &error), "rbk_arena_new", &error);
	must(rbk_arena_seal(constants, &error), "rbk_arena_seal", &error);
	x = rbk_builder_input(b, "x", RBK_DTYPE_F32, 2, in);
	w = rbk_builder_constant(b, "w", RBK_DTYPE_F32, 2, dims, constants, 0);
	y = rbk_builder_output(b, "y", RBK_DTYPE_F32, 2, out);
	rbk_builder_binary(b, "MatMul", x, w, y);
	must(rbk_plan_new(rbk, b, 1, &model->plan, &error), "rbk_plan_new", &error);
	rbk_builder_free(b);
	rbk_arena_free(constants);
	must(rbk_arena_new(rbk, (rows + COLUMNS) * sizeof(float), &model->arena, &error),
	     "rbk_arena_new", &error);
	must(rbk_ring_new(rbk, N_ENTRIES, &model->ring, &error), "rbk_ring_new", &error);
}

static void unmake(struct model *model)
{
	rbk_ring_free(model->ring);
	rbk_plan_free(model->plan);
	rbk_arena_free(model->arena);
	*model = (struct model){.name = ""};
}

static struct rbk_cqe complete(struct model *model)
{
	const struct rbk_cqe *cqe = NULL;
	struct rbk_cqe copy;

	must(rbk_submit(model->ring), "rbk_submit", NULL);
	must(rbk_wait_cqe_timeout(model->ring, &cqe, patience_ns), "rbk_wait_cqe_timeout", NULL);
	copy = *cqe;
	rbk_cqe_seen(model->ring, cqe);
	return copy;
}

static struct rbk_cqe run(struct model *model)
{
	const uint64_t refs[] = {rbk_arena_ref(model->arena, 0),
				 rbk_arena_ref(model->arena, model->rows * sizeof(float))};
	struct rbk_sqe *sqe = rbk_get_sqe(model->ring);

	rbk_prep_run(sqe, rbk_plan_id(model->plan), 1, refs, 2);
	rbk_sqe_set_strategy(sqe, RBK_STRATEGY_PREFER_GPU);
	return complete(model);
}

static void *run_on(void *data)
{
	struct model *model = data;

	/* Run at least one task, however soon "stop" arrives. */
	do {
		struct rbk_cqe cqe = run(model);

		if (cqe.res < 0)
			die("a task of %s: %s", model->name, strerror(-cqe.res));
		model->n_tasks++;
		model->counts[cqe.device][cqe.reason]++;
	} while (atomic_load(&model->is_running));
	return NULL;
}

static void start(struct model *model)
{
	memset(model->counts, 0, sizeof(model->counts));
	model->n_tasks = 0;
	atomic_store(&model->is_running, true);
	if (pthread_create(&model->thread, NULL, run_on, model))
		die("no thread");
}

static void stop(struct model *model)
{
	atomic_store(&model->is_running, false);
	pthread_join(model->thread, NULL);
	printf("stop %s %u", model->name, model->n_tasks);
	for (unsigned int device = 0; device < RBK_MAX_DEVICES; device++)
		for (unsigned int reason = 0; reason < RBK_REASON_COUNT; reason++)
			if (model->counts[device][reason] > 0)
				printf(" %u:%s=%u", device, rbk_reason_name(reason),
				       model->counts[device][reason]);
	putchar('\n');
}

static struct rbk_plan_memory memory_of(const struct model *model)
{
	struct rbk_plan_memory devices[RBK_MAX_DEVICES] = {{0}};
	unsigned int n;

	must(rbk_plan_memory(model->plan, devices, RBK_MAX_DEVICES, &n, NULL), "rbk_plan_memory",
	     NULL);
	return devices[RBK_DEVICE_GPU];
}

static const char *state_of(const struct rbk_plan_memory *memory)
{
	switch (memory->state) {
	case RBK_MEMORY_RESIDENT:
		return memory->tier == RBK_TIER_GTT ? "gtt" : "vram";
	case RBK_MEMORY_EVICTED:
		return "evicted";
	case RBK_MEMORY_NEVER_FITS:
		return "never";
	case RBK_MEMORY_LOST:
		return "lost";
	default:
		return "none";
	}
}

static bool is_in(const struct model *model, const char *state)
{
	struct rbk_plan_memory memory = memory_of(model);

	if (strncmp(state, "not-", 4) == 0)
		return strcmp(state + 4, state_of(&memory)) != 0;
	return strcmp(state, state_of(&memory)) == 0;
}

static void await(const struct model *model, const char *state)
{
	const struct timespec moment = {0, 500000};
	uint64_t since_ns = now_ns();

	while (!is_in(model, state)) {
		if (now_ns() - since_ns > patience_ns)
			die("%s does not get into state %s", model->name, state);
		nanosleep(&moment, NULL);
	}
	printf("await %s %llu\n", model->name, (unsigned long long)now_ns());
}

static void obey(const char *command, const char *name, const char *argument)
{
	struct rbk_plan_memory memory;
	struct rbk_tenant tenant;
	struct rbk_sqe *sqe;
	struct rbk_cqe cqe;

	if (strcmp(command, "plan") == 0) {
		struct model *model = find("");

		snprintf(model->name, sizeof(model->name), "%s", name);
		make(model, (unsigned int)atoi(argument));
		printf("plan %s\n", name);
	} else if (strcmp(command, "free") == 0) {
		unmake(find(name));
		printf("free %s\n", name);
	} else if (strcmp(command, "run") == 0) {
		cqe = run(find(name));
		printf("run %s %d %u %s\n", name, cqe.res, cqe.device, rbk_reason_name(cqe.reason));
	} else if (strcmp(command, "start") == 0) {
		start(find(name));
		printf("start %s\n", name);
	} else if (strcmp(command, "stop") == 0) {
		stop(find(name));
	} else if (strcmp(command, "prefetch") == 0) {
		sqe = rbk_get_sqe(find(name)->ring);
		rbk_prep_prefetch(sqe, rbk_plan_id(find(name)->plan));
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_DEVICE(RBK_DEVICE_GPU));
		printf("prefetch %s %d\n", name, complete(find(name)).res);
	} else if (strcmp(command, "evict") == 0) {
		sqe = rbk_get_sqe(find(name)->ring);
		rbk_prep_evict(sqe, rbk_plan_id(find(name)->plan));
		rbk_sqe_set_strategy(sqe, RBK_STRATEGY_DEVICE(RBK_DEVICE_GPU));
		printf("evict %s %d\n", name, complete(find(name)).res);
	} else if (strcmp(command, "memory") == 0) {
		memory = memory_of(find(name));
		printf("memory %s %s %llu %llu %llu %llu\n", name, state_of(&memory),
		       (unsigned long long)memory.resident_bytes,
		       (unsigned long long)memory.required_bytes,
		       (unsigned long long)memory.n_evictions,
		       (unsigned long long)memory.n_returns);
	} else if (strcmp(command, "await") == 0) {
		await(find(name), argument);
	} else if (strcmp(command, "tenant") == 0) {
		must(rbk_tenant(rbk, &tenant), "rbk_tenant", NULL);
		printf("tenant %llu %llu %llu %llu %llu\n",
		       (unsigned long long)tenant.devices[RBK_DEVICE_GPU].vram.used,
		       (unsigned long long)tenant.devices[RBK_DEVICE_GPU].gtt.used,
		       (unsigned long long)tenant.host_bytes.used,
		       (unsigned long long)tenant.n_evictions,
		       (unsigned long long)tenant.n_returns);
	} else {
		die("what is \"%s\"?", command);
	}
}

int main(int argc, char **argv)
{
	const struct rbk_options options = {.size = sizeof(options),
					    .socket_path = argc > 1 ? argv[1] : NULL,
					    .name = "model-client"};
	char line[128], command[16], name[32], argument[16];
	struct rbk_error error;

	must(rbk_connect(&options, &rbk, &error), "rbk_connect", &error);
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		name[0] = argument[0] = '\0';
		if (sscanf(line, "%15s %31s %15s", command, name, argument) < 1)
			die("cannot read \"%s\"", line);
		obey(command, name, argument);
	}
	for (unsigned int i = 0; i < MAX_PLANS; i++)
		if (models[i].plan)
			unmake(&models[i]);
	rbk_disconnect(rbk);
	return 0;
}
