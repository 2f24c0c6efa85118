/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing request_handle()
 *
 * The input is a series of messages to a server without a listening socket. Each message is
 * preceded by a byte with the number of its descriptors (bits 0 to 2) and their kind (bits 3 and
 * 4), and by two bytes with its length. The highest bit of the first byte selects the second of two
 * sessions. At the end no session and no charge may remain.
 *
 * With FUZZ_ADMIN the sessions are those of the administrators' socket, opened by the user who runs
 * this program, who may change everything there.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/loop.h"
#include "loop/offload.h"
#include "memory/residency.h"
#include "session/server-private.h"
#include "session/sigbus.h"
#include "util/clock.h"
#include "util/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#ifndef FUZZ_ADMIN
#define FUZZ_ADMIN false
#endif

enum { MAX_MESSAGES = 32, PAGE = 4096, N_DEVICES = 2, GPU_BYTES = 16 * PAGE };

static struct loop *loop;
static struct offload *offload;
static struct closers *closers;
static struct account_book *book;
static struct tenants *tenants;
static struct residency *residency;
static int memfds[3]; /* writable, immutable, unsealed */

/* ---- An executor and a dispatcher that do nothing ---- */

static void no_arena(struct executor *executor, struct exec_arena *arena)
{
}

static int no_prepare(struct executor *executor, struct plan *plan)
{
	plan->device_state[0] = PLAN_DEVICE_READY;
	return 0;
}

static void no_release(struct executor *executor, struct plan *plan)
{
}

static const struct executor_ops no_ops = {
	.arena_import = no_arena,
	.arena_release = no_arena,
	.plan_prepare = no_prepare,
	.plan_release = no_release,
};
static struct executor no_executor = {.ops = &no_ops,
				      .info = {.name = "none", .driver = "", .paths = ""}};
/*
 * The device has memory, so that leases are possible; its figures are small, so that inputs reach
 * limits.
 */
static struct executor no_gpu = {.ops = &no_ops,
				 .index = RBK_DEVICE_GPU,
				 .info = {.kind = EXECUTOR_GPU,
					  .name = "none",
					  .driver = "",
					  .paths = "",
					  .memory_bytes = GPU_BYTES,
					  .memory_page_bytes = PAGE,
					  .memory_align_bytes = PAGE}};
static struct executor *const executors[] = {&no_executor, &no_gpu};

static uint64_t no_bytes(uint32_t n_entries)
{
	return n_entries;
}

static int no_added(void *context, struct session_ring *ring)
{
	return 0;
}

static void no_ring(void *context, struct session_ring *ring)
{
}

static uint64_t no_plan_bytes(void *context, const struct session_plan *plan)
{
	return 1;
}

static void no_plan_made(void *context)
{
}

static int no_plan_added(void *context, struct session_plan *plan)
{
	return 0;
}

static void no_plan(void *context, struct session_plan *plan)
{
}

static uint64_t no_tasks(void *context)
{
	return 0;
}

static const struct server_hooks no_hooks = {
	.ring_bytes = no_bytes,
	.ring_make = no_added,
	.ring_unmake = no_ring,
	.ring_added = no_added,
	.ring_closing = no_ring,
	.ring_freed = no_ring,
	.ring_bell = no_ring,
	.plan_bytes = no_plan_bytes,
	.plan_make = no_plan_made,
	.plan_ready = no_plan_added,
	.plan_removing = no_plan,
	.plan_freed = no_plan,
	.tasks_in_flight = no_tasks,
};

static int any_force_cpu(void *context, int value)
{
	assert(value >= -1 && value <= 1);
	return value > 0;
}

/* ---- Changes by administrators: limits are applied, all others are only recorded ---- */

static bool is_drained[2]; /* by kind: tenant, device */

static int set_limit(void *context, struct tenant *tenant, const char *key, const char *value,
		     char **ret_why)
{
	int r = tenants_set(tenants, tenant, key, value, ret_why);

	assert(r == 0 || (r == POLICY_E_INVALID && *ret_why && (*ret_why)[0]));
	return r ? SERVER_E_INVALID : 0;
}

static void drain(bool *what, enum rbk_wire_drain_action action, struct server_drained *ret)
{
	assert(action <= RBK_WIRE_DRAIN_END);
	if (action != RBK_WIRE_DRAIN_ASK)
		*what = action == RBK_WIRE_DRAIN_BEGIN;
	*ret = (struct server_drained){.is_drained = *what};
}

static void drain_tenant(void *context, struct tenant *tenant, enum rbk_wire_drain_action action,
			 struct server_drained *ret)
{
	drain(&is_drained[0], action, ret);
}

static void drain_device(void *context, uint8_t device, enum rbk_wire_drain_action action,
			 struct server_drained *ret)
{
	assert(device != RBK_DEVICE_CPU);
	drain(&is_drained[1], action, ret);
}

static const struct server_control a_control = {
	.set = set_limit,
	.drain_tenant = drain_tenant,
	.drain_device = drain_device,
};

static int make_memfd(int seals)
{
	static const uint8_t page[PAGE];
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	/* Pages that were allocated but not written count as holes. */
	assert(fd >= 0 && write(fd, page, PAGE) == PAGE);
	assert(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void prepare(void)
{
	const struct tenants_machine machine = {
		.host_bytes = 1 << 30,
		.n_devices = N_DEVICES,
		.vram_bytes = {0, GPU_BYTES},
		.n_fds = 1 << 20,
		.n_mappings = 1 << 20,
	};
	struct residency_options residency_options = {.executors = executors,
						      .n_executors = N_DEVICES};
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};

	clock_init();
	log_set_level(LOG_LEVEL_ERROR);
	assert(sigbus_init() == 0);
	assert(loop_new(&loop) == 0);
	assert(offload_new(loop, &offload) == 0);
	assert(closers_new(loop, &closers) == 0);
	assert(account_book_new(&book) == 0);
	assert(policy_defaults(&policy) == 0);
	assert(tenants_new(book, &machine, policy, &tenants, &errors) == 0);
	residency_options.loop = loop;
	residency_options.offload = offload;
	assert(residency_new(&residency_options, &residency) == 0);
}

static void make_memfds(void)
{
	memfds[0] = make_memfd(F_SEAL_SHRINK | F_SEAL_GROW);
	memfds[1] = make_memfd(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	memfds[2] = make_memfd(0);
}

/* Memory that became a ring's area stays charged until the client has closed it. */
static void close_memfds(void)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(memfds); i++)
		memfds[i] = close_fd(memfds[i]);
}

/*
 * Return true if a request is still being handled, so that the broker would not read the next one.
 * A removal that waits for the bell of a restored ring, which never rings here, is not.
 */
static bool is_handling(const struct session *session)
{
	if (session->awaits_restoring)
		return false;
	return session->is_suspended || session->resume || session->reset.is_begun;
}

/*
 * Handle one message.
 * Return: the input bytes it took; 0 at the end of the input.
 */
static size_t one_message(struct session *session, int peer, const uint8_t *data, size_t bytes,
			  bool *ret_over)
{
	static _Alignas(8) uint8_t message[RBK_WIRE_MAX_BYTES];
	int fds[RBK_WIRE_MAX_FDS] = {-1, -1, -1, -1};
	unsigned int n_fds;
	const char *why = NULL;
	size_t n_bytes;
	char answer[8192];
	int r;

	if (bytes < 3)
		return 0;
	n_bytes = (size_t)(data[1] | data[2] << 8);
	if (n_bytes > bytes - 3)
		n_bytes = bytes - 3;
	memcpy(message, data + 3, n_bytes);
	n_fds = (data[0] & 7) % (RBK_WIRE_MAX_FDS + 1);
	for (unsigned int i = 0; i < n_fds; i++) {
		const unsigned int kind = data[0] >> 3 & 3;

		/*
		 * Kind 3: either area of an idle ring of up to 16 entries. Areas stay charged until
		 * the client closes them, so they are not kept.
		 */
		fds[i] = kind == 3 ? make_memfd(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)
				   : fcntl(memfds[kind], F_DUPFD_CLOEXEC, 0);
		assert(fds[i] >= 0);
	}
	r = request_handle(session, message, n_bytes, fds, n_fds, &why);
	assert(r == 0 || (r == SESSION_E_HOSTILE && why && why[0]));
	for (unsigned int i = 0; i < n_fds; i++)
		close_fd(fds[i]);
	/* Wait until other threads have returned the jobs, run slices, and read the answers. */
	while (session->n_jobs > 0 || (!session->is_ending && is_handling(session))) {
		server_settle(session->server);
		assert(loop_turn(loop, !server_is_settling(session->server)) >= 0);
	}
	while (recv(peer, answer, sizeof(answer), MSG_DONTWAIT) > 0)
		;
	*ret_over = r != 0 || session->is_ending || session->awaits_restoring;
	return n_bytes + 3;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	/*
	 * The server's watches of memory are kept from input to input, because the kernel takes
	 * milliseconds to close them.
	 */
	static struct server server;
	struct session *sessions[2] = {NULL, NULL};
	bool is_over = false;
	int pairs[2][2];
	size_t n = 1;

	if (!loop)
		prepare();
	/* The limits are small, so that inputs reach them. */
	server = (struct server){
		.options =
			{
				.limits = SERVER_LIMITS_DEFAULT,
				.executors = executors,
				.n_executors = N_DEVICES,
				.hooks = no_hooks,
				.publisher = {.force_cpu = any_force_cpu},
				.control = a_control,
			},
		.clients = LISTENER_INIT,
		.admins = LISTENER_INIT,
		.holds = server.holds,
	};
	server.options.limits.max_rings = 3;
	server.options.limits.max_arenas = 4;
	server.options.limits.max_plans = 3;
	server.options.limits.max_arena_bytes = 3 * PAGE;
	server.options.limits.max_ring_entries = 64;
	server.closers = closers;
	server.options.loop = loop;
	server.options.offload = offload;
	server.options.tenants = tenants;
	server.options.residency = residency;
	list_init(&server.sessions);
	server_work_init(&server);
	assert(greet_init(&server) == 0);
	assert(server.holds || holds_init(&server) == 0);
	assert(server_stats_init(&server) == 0);
	assert(timeslices_start(&server) == 0);
	/*
	 * Lease numbers begin at a random number in each broker. Here they begin at 0, because
	 * inputs name them.
	 */
	residency_leases(residency)->next_number = 0;
	make_memfds();
	for (unsigned int i = 0; i < 2; i++) {
		assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pairs[i]) == 0);
		assert(session_new(&server, pairs[i][0], FUZZ_ADMIN, &sessions[i], NULL) == 0);
	}
	for (unsigned int i = 0; i < MAX_MESSAGES && n > 0 && !is_over; i++) {
		unsigned int which = bytes > 0 ? data[0] >> 7 : 0;

		n = one_message(sessions[which], pairs[which][1], data, bytes, &is_over);
		data += n;
		bytes -= n;
	}

	for (unsigned int i = 0; i < 2; i++)
		session_end(sessions[i], false, "the input ended");
	for (unsigned int i = 0; server.n_sessions > 0 || closers_n_jobs(closers) > 0; i++) {
		server_settle(&server);
		if (server.n_sessions > 0 || closers_n_jobs(closers) > 0)
			assert(loop_turn(loop, !server_is_settling(&server)) >= 0);
		assert(i < 1000);
	}
	close(pairs[0][1]);
	close(pairs[1][1]);
	close_memfds();
	for (struct tenant *tenant = tenants_first(tenants); tenant;
	     tenant = tenants_next(tenants, tenant))
		holds_look(&server, tenant->account);
	holds_look(&server, tenants_broker_account(tenants));
	timeslices_stop(&server);
	server_stats_deinit(&server);
	greet_deinit(&server);
	owners_deinit(&server);
	assert(server.n_watchers == 0 && server.n_root_watchers == 0);
	assert(server.n_admin_sessions == 0);
	log_set_level(LOG_LEVEL_ERROR);
	assert(server.n_rings == 0 && server.n_arenas == 0 && server.n_plans == 0);
	for (unsigned int i = 0; i < ACCOUNT_SLOT_COUNT; i++)
		assert(account_book_total(book, (enum account_slot)i) == 0);
	return 0;
}
