/* SPDX-License-Identifier: MIT */
/*
 * A test bench for sessions
 *
 * The server is made as brokerd makes it, but no client connects to its socket. The session gets
 * one end of a socket pair, as if it had been accepted. Requests go directly to the functions that
 * handle them; answers are read from the other end.
 */
#include "support/session-rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "loop/loop.h"
#include "loop/offload.h"
#include "loop/turn.h"
#include "util/clock.h"

static void check(bool is_fine, const char *what, int line)
{
	if (is_fine)
		return;
	fprintf(stderr, "session-rig.c:%d: %s: %s\n", line, what, strerror(errno));
	abort();
}

#define CHECK(condition) check(condition, #condition, __LINE__)

/* --- fakes --- */

static struct fake *fake_of(struct executor *executor)
{
	return container_of(executor, struct fake, executor);
}

static void fake_arena_nothing(struct executor *executor, struct exec_arena *arena)
{
}

static int fake_plan_prepare(struct executor *executor, struct plan *plan)
{
	plan->device_state[executor->index] = fake_of(executor)->prepare_state;
	return 0;
}

static void fake_plan_release(struct executor *executor, struct plan *plan)
{
}

static void fake_run_inline(struct executor *executor, struct exec_task *task)
{
	struct fake *fake = fake_of(executor);

	if (fake->on_inline)
		fake->on_inline(fake->on_inline_data);
	fake->n_inline++;
	task->res = fake->inline_res;
	task->end_ticks = task->start_ticks + clock_ns_to_ticks(fake->inline_ns);
}

static int fake_submit(struct executor *executor, struct exec_task *task)
{
	struct fake *fake = fake_of(executor);

	if (fake->n_tasks + fake->n_done >= fake->capacity)
		return EXECUTOR_E_BUSY;
	fake->tasks[fake->n_tasks++] = task;
	fake->n_submitted++;
	return 0;
}

static void fake_flush(struct executor *executor)
{
	fake_of(executor)->n_flushed++;
}

static unsigned int fake_reap(struct executor *executor, struct exec_task **ret, unsigned int max)
{
	struct fake *fake = fake_of(executor);
	unsigned int n = fake->n_done < max ? fake->n_done : max;

	memcpy(ret, fake->done, n * sizeof(*ret));
	memmove(fake->done, fake->done + n, (fake->n_done - n) * sizeof(*ret));
	fake->n_done -= n;
	return n;
}

static struct executor *fake_free(struct executor *executor)
{
	return NULL;
}

static void fake_init(struct fake *fake, uint8_t index)
{
	*fake = (struct fake){
		.ops =
			{
				.arena_import = fake_arena_nothing,
				.arena_release = fake_arena_nothing,
				.plan_prepare = fake_plan_prepare,
				.plan_release = fake_plan_release,
				.run_inline = index == RBK_DEVICE_CPU ? fake_run_inline : NULL,
				.submit = fake_submit,
				.flush = fake_flush,
				.reap = fake_reap,
				.free = fake_free,
			},
		.executor =
			{
				.info =
					{
						.kind = index == RBK_DEVICE_CPU ? EXECUTOR_CPU
										: EXECUTOR_GPU,
						.name = "fake",
						.driver = "fake",
						.paths = "",
					},
				.index = index,
			},
		.prepare_state = PLAN_DEVICE_READY,
		.capacity = FAKE_MAX_TASKS,
		.inline_ns = 100,
	};
	fake->executor.ops = &fake->ops;
}

uint64_t fake_user_data(const struct exec_task *task)
{
	return container_of(task, struct run, exec)->task->user_data;
}

static int fake_find(const struct fake *fake, uint64_t user_data)
{
	for (unsigned int i = 0; i < fake->n_tasks; i++)
		if (fake_user_data(fake->tasks[i]) == user_data)
			return (int)i;
	return -1;
}

bool fake_begin(struct fake *fake, uint64_t user_data)
{
	int i = fake_find(fake, user_data);

	return i >= 0 && exec_task_begin(fake->tasks[i]);
}

void fake_finish_at(struct fake *fake, unsigned int i, int32_t res)
{
	struct exec_task *task = fake->tasks[i];

	memmove(fake->tasks + i, fake->tasks + i + 1,
		(fake->n_tasks - i - 1) * sizeof(*fake->tasks));
	fake->n_tasks--;
	if (atomic_load(&task->state) != EXEC_RUNNING && !exec_task_begin(task)) {
		res = -ECANCELED;
	} else {
		task->start_ticks = clock_ticks();
		task->end_ticks =
			task->start_ticks +
			clock_ns_to_ticks(fake->row_ns ? fake->row_ns * task->count : 1000);
	}
	task->res = res;
	fake->done[fake->n_done++] = task;
}

void fake_finish(struct fake *fake, uint64_t user_data, int32_t res)
{
	int i = fake_find(fake, user_data);

	CHECK(i >= 0);
	fake_finish_at(fake, (unsigned int)i, res);
}

void fake_finish_all(struct fake *fake, int32_t res)
{
	while (fake->n_tasks > 0)
		fake_finish(fake, fake_user_data(fake->tasks[0]), res);
}

/* --- beginning and end --- */

static void make_residency(struct rig *rig, uint32_t n_devices)
{
	const struct residency_options options = {
		.loop = rig->loop,
		.offload = rig->offload,
		.executors = rig->executors,
		.n_executors = n_devices,
	};

	CHECK(residency_new(&options, &rig->residency) == 0);
}

static void make_dispatch(struct rig *rig, uint32_t n_devices,
			  const struct rig_placement *placement)
{
	struct dispatch_options options = {
		.loop = rig->loop,
		.waker = &rig->waker,
		.executors = rig->executors,
		.n_executors = n_devices,
		.residency = rig->residency,
		.config = PLACE_CONFIG_DEFAULT,
		.spin_ns = 0,
		.n_processors = 4,
	};

	if (placement->config)
		options.config = *placement->config;
	for (uint32_t i = 0; i < n_devices; i++)
		options.profiles[i] = placement->profiles[i];
	CHECK(dispatch_new(&options, &rig->dispatch) == 0);
}

/* Make one tenant for all sessions, with limits that no test reaches. */
static void make_tenants(struct rig *rig, uint32_t n_devices)
{
	struct tenants_machine machine = {
		.host_bytes = 1ull << 50,
		.n_devices = n_devices,
		.n_fds = UINT64_MAX,
		.n_mappings = UINT64_MAX,
	};
	struct policy *policy = NULL;
	struct policy_errors errors = {.n = 0};

	for (uint32_t i = 1; i < n_devices; i++)
		machine.vram_bytes[i] = machine.gtt_bytes[i] = 1ull << 50;
	CHECK(account_book_new(&rig->book) == 0);
	CHECK(policy_defaults(&policy) == 0);
	CHECK(tenants_new(rig->book, &machine, policy, &rig->tenants, &errors) == 0);
}

static void make_server(struct rig *rig, uint32_t n_devices)
{
	struct server_options options = {
		.socket_path = rig->socket_path,
		.socket_mode = 0600,
		.limits = SERVER_LIMITS_DEFAULT,
		.loop = rig->loop,
		.offload = rig->offload,
		.tenants = rig->tenants,
		.executors = rig->executors,
		.n_executors = n_devices,
		.residency = rig->residency,
		.hooks = dispatch_hooks(rig->dispatch),
	};

	strcpy(rig->directory, "/tmp/session-rig-XXXXXX");
	CHECK(mkdtemp(rig->directory) != NULL);
	snprintf(rig->socket_path, sizeof(rig->socket_path), "%s/socket", rig->directory);
	CHECK(server_new(&options, &rig->server) == 0);
	rig->dispatch->server = rig->server;
	rig->dispatch->stats = server_stats(rig->server);
}

void rig_init(struct rig *rig, uint32_t n_devices)
{
	rig_init_placement(rig, n_devices, &(const struct rig_placement){0});
}

void rig_init_placement(struct rig *rig, uint32_t n_devices, const struct rig_placement *placement)
{
	int ends[2];

	memset(rig, 0, sizeof(*rig));
	clock_init();
	for (uint32_t i = 0; i < n_devices; i++) {
		fake_init(&rig->fakes[i], (uint8_t)i);
		rig->fakes[i].executor.waker = &rig->waker;
		rig->executors[i] = &rig->fakes[i].executor;
	}
	CHECK(loop_new(&rig->loop) == 0);
	/*
	 * The budget is so large that no batch ends early on a slow machine or under a sanitizer.
	 */
	turn_set_budget(loop_current(rig->loop), 1000000000);
	CHECK(waker_init(&rig->waker) == 0);
	CHECK(offload_new(rig->loop, &rig->offload) == 0);
	make_tenants(rig, n_devices);
	make_residency(rig, n_devices);
	make_dispatch(rig, n_devices, placement);
	make_server(rig, n_devices);
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
	CHECK(session_new(rig->server, ends[0], false, &rig->session, NULL) == 0);
	rig->session->features =
		RBK_FEAT_RESIDENCY | RBK_FEAT_REATTACH | RBK_FEAT_UNDO | RBK_FEAT_AFTER;
	greet_done(rig->session);
	rig->fd = ends[1];
}

void rig_settle(struct rig *rig)
{
	do {
		server_settle(rig->server);
		CHECK(loop_turn(rig->loop, false) >= 0);
		dispatch_answer_bells(rig->dispatch);
	} while (server_is_settling(rig->server));
}

static void stuck_run(struct closers_job *job)
{
	sem_wait(&container_of(job, struct rig_stuck, job)->gate);
}

static void stuck_done(struct closers_job *job)
{
	sem_destroy(&container_of(job, struct rig_stuck, job)->gate);
}

static void stick(struct rig *rig, struct account *account, struct rig_stuck *stuck, bool closes)
{
	*stuck =
		(struct rig_stuck){.job = {.run = stuck_run, .done = stuck_done, .closes = closes}};
	CHECK(sem_init(&stuck->gate, 0, 0) == 0);
	closers_submit(rig->server->closers, account, &stuck->job);
}

void rig_stick(struct rig *rig, struct account *account, struct rig_stuck *stuck)
{
	stick(rig, account, stuck, true);
}

void rig_stick_live(struct rig *rig, struct account *account, struct rig_stuck *stuck)
{
	stick(rig, account, stuck, false);
}

void rig_unstick(struct rig_stuck *stuck)
{
	sem_post(&stuck->gate);
}

void rig_deinit(struct rig *rig)
{
	char lock_path[sizeof(rig->socket_path) + sizeof(".lock")];

	server_end_sessions(rig->server, "the test is over");
	/*
	 * A closing thread that waits for a processor counts as stuck at the time of the test's
	 * clock, and a server with stuck threads as empty, though their sessions are still there.
	 */
	for (unsigned int i = 0; i < 100000; i++) {
		for (unsigned int k = 0; k < rig->dispatch->n_executors; k++)
			fake_finish_all(&rig->fakes[k], 0);
		rig_work(rig);
		rig_settle(rig);
		if (server_is_empty(rig->server) && server_n_discards(rig->server) == 0)
			break;
		usleep(100);
	}
	CHECK(server_is_empty(rig->server) && server_n_discards(rig->server) == 0);
	CHECK(rig->dispatch->n_submitted == 0 && rig->dispatch->n_queued == 0);
	CHECK(!rig->dispatch->woken.first && rig->residency->n_waiters == 0);
	CHECK(rig->dispatch->n_rings == 0 && rig->dispatch->n_active == 0);
	CHECK(dispatch_n_in_flight(rig->dispatch) == 0);

	close(rig->fd);
	rig->server = server_free(rig->server);
	rig->dispatch = dispatch_free(rig->dispatch);
	rig->residency = residency_free(rig->residency);
	rig->offload = offload_free(rig->offload);
	rig->tenants = tenants_free(rig->tenants);
	rig->book = account_book_free(rig->book);
	rig->loop = loop_free(rig->loop);
	waker_deinit(&rig->waker);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", rig->socket_path);
	unlink(lock_path);
	rmdir(rig->directory);
}

/* --- other connections --- */

int rig_connect_path(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	strcpy(address.sun_path, path);
	CHECK(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	return fd;
}

int rig_connect(const struct rig *rig)
{
	return rig_connect_path(rig->socket_path);
}

int rig_connect_as(const struct rig *rig, uid_t uid)
{
	int fd;

	CHECK(chmod(rig->directory, 0711) == 0);
	CHECK(chmod(rig->socket_path, 0666) == 0);
	CHECK(seteuid(uid) == 0);
	fd = rig_connect(rig);
	CHECK(seteuid(0) == 0);
	return fd;
}

ssize_t rig_try_send_empty(int fd, int what)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct msghdr message = {
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};

	control.header = (struct cmsghdr){
		.cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS,
		.cmsg_len = CMSG_LEN(sizeof(int)),
	};
	memcpy(CMSG_DATA(&control.header), &what, sizeof(what));
	return sendmsg(fd, &message, MSG_NOSIGNAL);
}

void rig_send_empty(int fd, int what)
{
	CHECK(rig_try_send_empty(fd, what) == 0);
}

unsigned int rig_count_answers(int fd)
{
	char buffer[8192];
	unsigned int n = 0;

	while (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) > 0)
		n++;
	return n;
}

/* --- requests --- */

static ssize_t receive(struct rig *rig, void *buffer, size_t bytes, int fds[3])
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int) * 3)];
	} control;
	struct iovec iov = {.iov_base = buffer, .iov_len = bytes};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header;
	ssize_t n = recvmsg(rig->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	header = n >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
	if (header && fds)
		memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
	return n;
}

static int answer(struct rig *rig, uint32_t type, void *reply, size_t bytes, int fds[3])
{
	struct rbk_wire_reply *head;
	char buffer[8192];
	ssize_t n;

	server_settle(rig->server);
	while ((n = receive(rig, buffer, sizeof(buffer), fds)) < 0) {
		CHECK(errno == EAGAIN &&
		      loop_turn(rig->loop, !server_is_settling(rig->server)) >= 0);
		server_settle(rig->server);
	}
	head = (struct rbk_wire_reply *)buffer;
	CHECK((size_t)n >= sizeof(*head) && head->type == type);
	if (head->res == 0 && reply) {
		CHECK((size_t)n == bytes);
		memcpy(reply, buffer, bytes);
	}
	return head->res;
}

int rig_answer(struct rig *rig, uint32_t type, void *reply, size_t bytes)
{
	return answer(rig, type, reply, bytes, NULL);
}

int rig_answer_fd(struct rig *rig, uint32_t type, void *reply, size_t bytes, int *ret_fd)
{
	int fds[3] = {-1, -1, -1}, r;

	r = answer(rig, type, reply, bytes, fds);
	*ret_fd = fds[0];
	return r;
}

bool rig_has_answer(struct rig *rig)
{
	struct pollfd poll_fd = {.fd = rig->fd, .events = POLLIN};

	for (unsigned int i = 0; i < 20; i++) {
		rig_settle(rig);
		if (poll(&poll_fd, 1, 0) > 0)
			return true;
		usleep(1000);
	}
	return false;
}

/*
 * Wait for the answer to a request of @type, map the ring, and ring its bell. @sq: the submission
 * area, if it is mapped already, or NULL.
 */
static void ring_map(struct rig *rig, uint32_t type, uint32_t n_entries, void *sq,
		     struct rig_ring *ret)
{
	struct rbk_wire_ring reply;
	int fds[3];
	void *area;

	CHECK(answer(rig, type, &reply, sizeof(reply), fds) == 0);
	*ret = (struct rig_ring){
		.ring = rig->session->rings[reply.id],
		.n_entries = n_entries,
		.sq_bytes = reply.sq_bytes,
		.cq_bytes = reply.cq_bytes,
		.bell = fds[2],
	};
	area = sq ? sq : mmap(NULL, reply.sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	CHECK(area != MAP_FAILED);
	ret->sq = area;
	area = mmap(NULL, reply.cq_bytes, PROT_READ, MAP_SHARED, fds[1], 0);
	CHECK(area != MAP_FAILED);
	ret->cq = area;
	close(fds[0]);
	close(fds[1]);
	/* The first bell says that the areas are mapped; then the dispatcher gets the ring. */
	CHECK(send(ret->bell, "", 1, MSG_NOSIGNAL) == 1);
	while (ret->ring->state != RING_READY) {
		CHECK(loop_turn(rig->loop, true) >= 0);
		server_settle(rig->server);
	}
}

void rig_ring_new(struct rig *rig, uint32_t n_entries, struct rig_ring *ret)
{
	CHECK(session_ring_add(rig->session, ++rig->next_cookie, n_entries) == 0);
	ring_map(rig, RBK_WIRE_RING_ADD, n_entries, NULL, ret);
}

void rig_ring_restore(struct rig *rig, struct rig_areas *areas, uint32_t n_entries,
		      struct rig_ring *ret)
{
	int fds[2] = {fcntl(areas->fds[0], F_DUPFD_CLOEXEC, 3),
		      fcntl(areas->fds[1], F_DUPFD_CLOEXEC, 3)};

	CHECK(session_ring_restore(rig->session, ++rig->next_cookie, n_entries, fds) == 0);
	ring_map(rig, RBK_WIRE_RING_RESTORE, n_entries, areas->sq, ret);
	areas->sq = NULL;
	ret->sq_tail = ret->sq->sq_tail;
	ret->cq_head = ret->sq->cq_head;
}

/* Return a memfd with the @bytes at @from, mapped at *ret_map and then sealed. */
static int area_copy(const void *from, size_t bytes, void **ret_map)
{
	int fd = rig_memfd(bytes, false);

	CHECK(pwrite(fd, from, bytes, 0) == (ssize_t)bytes);
	*ret_map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(*ret_map != MAP_FAILED);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
	return fd;
}

void rig_areas_copy(const struct rig_ring *ring, struct rig_areas *ret)
{
	void *cq;

	ret->sq_bytes = ring->sq_bytes;
	ret->fds[0] = area_copy(ring->sq, ring->sq_bytes, &ret->sq);
	ret->fds[1] = area_copy(ring->cq, ring->cq_bytes, &cq);
	munmap(cq, ring->cq_bytes);
}

void rig_areas_deinit(struct rig_areas *areas)
{
	if (areas->sq)
		munmap(areas->sq, areas->sq_bytes);
	close(areas->fds[0]);
	close(areas->fds[1]);
}

void rig_ring_new_for(struct rig *rig, struct tenant *tenant, uint32_t n_entries,
		      struct rig_ring *ret)
{
	struct tenant *own = rig->session->tenant;

	/*
	 * The session's account pays; the dispatcher reads the tenant once, when the ring is added.
	 */
	tenant->account = own->account;
	tenant->n_refs = tenant->n_refs ? tenant->n_refs : 1;
	if (!tenant->setup.items.next)
		fair_flow_init(&tenant->setup);
	rig->session->tenant = tenant;
	rig_ring_new(rig, n_entries, ret);
	rig->session->tenant = own;
}

void rig_ring_deinit(struct rig_ring *ring)
{
	munmap(ring->sq, ring->sq_bytes);
	munmap((void *)ring->cq, ring->cq_bytes);
	close(ring->bell);
}

void rig_ring_set_index(struct rig_ring *ring, uint32_t index)
{
	struct rbk_commit *base = &ring->ring->dispatch->commit_base;

	ring->sq_tail = ring->cq_head = index;
	ring->sq->sq_tail = ring->sq->cq_head = index;
	ring->ring->sq_head = ring->ring->cq_tail = ring->ring->cq_head_seen = index;
	ring->ring->cq->sq_head = ring->ring->cq->cq_tail = index;
	/* A base so far behind that completions soon need another one */
	base->sq_head = base->cq_tail = 0x100000000 + index - (1u << 29) + 8;
	ring->ring->dispatch->join.n_taken = 0x100000000 + index;
	ring->ring->cq->commit_base = *base;
	ring->ring->cq->commit = rbk_commit_word(index, index, 0);
}

int rig_memfd(uint64_t bytes, bool immutable)
{
	int fd = memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | (immutable ? F_SEAL_WRITE : 0);

	CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	CHECK(fallocate(fd, 0, 0, (off_t)bytes) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static struct session_arena *arena_add(struct rig *rig, int fd, uint64_t bytes, bool fixes)
{
	struct rbk_wire_id_reply reply;
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	CHECK(copy >= 0);
	CHECK(session_arena_add(rig->session, ++rig->next_cookie, &copy, bytes, fixes) == 0);
	CHECK(answer(rig, RBK_WIRE_ARENA_ADD, &reply, sizeof(reply), NULL) == 0);
	return rig->session->arenas[reply.id];
}

struct session_arena *rig_arena_of(struct rig *rig, int fd, uint64_t bytes)
{
	return arena_add(rig, fd, bytes, false);
}

struct session_arena *rig_arena_new(struct rig *rig, uint64_t bytes, bool immutable)
{
	int fd = rig_memfd(bytes, immutable);
	struct session_arena *arena = arena_add(rig, fd, bytes, true);

	close(fd);
	return arena;
}

struct session_plan *rig_plan_new(struct rig *rig, struct describe *describe)
{
	struct rbk_wire_plan reply;
	size_t bytes;
	void *desc = describe_finish(describe, &bytes);

	CHECK(session_plan_add(rig->session, ++rig->next_cookie, desc, bytes) == 0);
	free(desc);
	CHECK(answer(rig, RBK_WIRE_PLAN_ADD, &reply, sizeof(reply), NULL) == 0);
	return rig->session->plans[reply.id & 0xffff];
}

struct session_plan *rig_relu(struct rig *rig, bool queued)
{
	struct describe *describe = describe_new("relu", 64);
	struct session_plan *plan;

	describe_input(describe, "x", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_output(describe, "y", DESCRIBE_DIMS(DESCRIBE_COUNT, 16));
	describe_node(describe, "Relu", "it", "x", "y");
	plan = rig_plan_new(rig, describe);
	CHECK(plan->inline_max_count > 0);
	if (queued)
		plan->inline_max_count = 0;
	return plan;
}

/* --- entries --- */

void rig_put(struct rig_ring *ring, const struct rbk_sqe *sqe)
{
	CHECK(ring->sq_tail - rbk_ring_observe(&ring->cq->sq_head) < ring->n_entries);
	ring->sq->sqes[ring->sq_tail & (ring->n_entries - 1)] = *sqe;
	rbk_ring_publish(&ring->sq->sq_tail, ++ring->sq_tail);
}

bool rig_take(struct rig_ring *ring, struct rbk_cqe *ret)
{
	if (rbk_ring_observe(&ring->cq->cq_tail) == ring->cq_head)
		return false;
	*ret = ring->cq->cqes[ring->cq_head & (ring->n_entries - 1)];
	rbk_ring_publish(&ring->sq->cq_head, ++ring->cq_head);
	return true;
}

/* --- the dispatcher --- */

unsigned int rig_work(struct rig *rig)
{
	struct dispatch_ring *hostile = NULL;
	unsigned int n, n_total = 0, n_idle = 0;

	/* An event of the kernel, such as a timer, may end a round after any ring. */
	while (n_idle <= rig->dispatch->n_active) {
		n = dispatch_answer_bells(rig->dispatch);
		n += dispatch_work(rig->dispatch, &hostile);
		CHECK(!hostile);
		n_total += n;
		n_idle = n > 0 ? 0 : n_idle + 1;
	}
	return n_total;
}

struct dispatch_ring *rig_dispatch_ring(const struct rig_ring *ring)
{
	return ring->ring->dispatch;
}

static void on_stop(void *data, uint32_t events)
{
	struct rig *rig = data;

	/*
	 * The acquire orders the client's accesses before the following; a thread sanitizer sees no
	 * order in an eventfd. Pairs with the store in run_client().
	 */
	CHECK(atomic_load_explicit(&rig->is_client_done, memory_order_acquire));
	rig->stop_watch = loop_unwatch(rig->stop_watch);
	dispatch_stop(rig->dispatch);
}

static void *run_client(void *data)
{
	struct rig *rig = data;

	rig->client(rig->client_data);
	/* Pairs with the load in on_stop(). */
	atomic_store_explicit(&rig->is_client_done, true, memory_order_release);
	CHECK(eventfd_write(rig->stop_fd, 1) == 0);
	return NULL;
}

void rig_run(struct rig *rig, void (*client)(void *data), void *data)
{
	pthread_t thread;

	rig->client = client;
	rig->client_data = data;
	atomic_store_explicit(&rig->is_client_done, false, memory_order_relaxed);
	rig->stop_fd = eventfd(0, EFD_CLOEXEC);
	CHECK(rig->stop_fd >= 0);
	CHECK(loop_watch(rig->loop, rig->stop_fd, POLLIN, on_stop, rig, &rig->stop_watch) == 0);
	CHECK(pthread_create(&thread, NULL, run_client, rig) == 0);
	CHECK(dispatch_run(rig->dispatch, rig->server) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	rig->stop_fd = close_fd(rig->stop_fd);
}
