/* SPDX-License-Identifier: MIT */
/*
 * The protocol does not change under a program
 *
 * data/wire-1.4.record has all that passed between a client of version 1.4 and its broker:
 *requests, answers, the kinds of their descriptors, entries and completions. It is never written
 *again: programs with that library exist. Today's broker must answer that client as it was answered
 *then, and today's library must understand that broker. Additions that wire.h permits are no
 * differences.
 *
 * A new version adds a record of its own:
 *	RBK_WIRE_WRITE=tests/integration/data/wire-1.N.record RBK_TEST_FILTER='*record' test-wire
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "integration/plans.h"
#include "integration/raw.h"
#include "shm/ring.h"
#include "support/test.h"

enum {
	ROWS = 4,
	WIDTH = 4,
	MAX_STEPS = 64,
	MAX_BYTES = 4096,
	N_TASKS = 4,
};

/* A request, an answer, an entry or a completion. */
struct step {
	char kind; /* '>', '<', 's', 'c' */
	_Alignas(8) unsigned char bytes[MAX_BYTES];
	size_t n_bytes;
	unsigned int n_fds;
	struct {
		long bytes; /* -1: no memfd */
		int seals;
	} fds[RBK_WIRE_MAX_FDS];
};

struct record {
	struct step steps[MAX_STEPS];
	unsigned int n;
};

/* --- The session --- */

/* Connect, share memory, prepare a plan, run tasks, and give everything back, as any client does.
 */
static void session_run(const char *socket_path)
{
	static const int results[N_TASKS] = {0, 0, -ERANGE, -ENOENT};
	const struct rbk_options options = {
		.size = sizeof(options), .socket_path = socket_path, .name = "frozen"};
	struct rbk_arena *arena, *constants;
	struct rbk_error error = {""};
	const struct rbk_cqe *cqe;
	struct rbk_ring *ring;
	struct rbk_plan *plan;
	struct rbk_sqe *sqe;
	struct rbk *rbk;
	uint64_t refs[2];

	if (rbk_connect(&options, &rbk, &error))
		fail_msg("%s", error.text);
	assert_int_equal(rbk_arena_new_flags(rbk, 8192, RBK_ARENA_MEMFD, &arena, &error), 0);
	assert_int_equal(rbk_arena_new_flags(rbk, 4096, RBK_ARENA_MEMFD, &constants, &error), 0);
	assert_int_equal(rbk_arena_seal(constants, &error), 0);
	if (plan_elements(rbk, "Neg", 1, ROWS, WIDTH, &plan, &error))
		fail_msg("%s", error.text);
	assert_int_equal(rbk_ring_new(rbk, 8, &ring, &error), 0);
	refs[0] = rbk_arena_ref(arena, 0);
	refs[1] = rbk_arena_ref(arena, 4096);
	for (unsigned int i = 0; i < N_TASKS; i++) {
		sqe = rbk_get_sqe(ring);
		assert_non_null(sqe);
		if (i == 0)
			rbk_prep_nop(sqe);
		else if (i < 3)
			rbk_prep_run(sqe, rbk_plan_id(plan), i == 1 ? ROWS : ROWS + 1, refs, 2);
		else
			rbk_prep_cancel(sqe, 999);
		rbk_sqe_set_data64(sqe, i);
	}
	assert_int_equal(rbk_submit(ring), N_TASKS);
	for (unsigned int n = 0; n < N_TASKS; n++) {
		assert_int_equal(rbk_wait_cqe(ring, &cqe), 0);
		assert_true(cqe->user_data < N_TASKS);
		assert_int_equal(cqe->res, results[cqe->user_data]);
		rbk_cqe_seen(ring, cqe);
	}
	rbk_ring_free(ring);
	rbk_plan_free(plan);
	rbk_arena_free(constants);
	rbk_arena_free(arena);
	rbk_disconnect(rbk);
}

/* --- Records on disk --- */

static void record_write(const struct record *record, const char *path)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fprintf(file,
		"# SPDX-License-Identifier: MIT\n"
		"# A client of version %d.%d: see test-wire.c.\n",
		RBK_ABI_MAJOR, RBK_ABI_MINOR);
	for (unsigned int i = 0; i < record->n; i++) {
		const struct step *step = &record->steps[i];

		fprintf(file, "%c ", step->kind);
		for (size_t k = 0; k < step->n_bytes; k++)
			fprintf(file, "%02x", step->bytes[k]);
		for (unsigned int k = 0; k < step->n_fds; k++)
			fprintf(file, " %ld/%x", step->fds[k].bytes,
				(unsigned int)step->fds[k].seals);
		fputc('\n', file);
	}
	assert_int_equal(fclose(file), 0);
}

static void parse_step(char *line, struct step *step)
{
	char *rest = NULL, *word = strtok_r(line, " \n", &rest);
	unsigned int byte;

	step->kind = word[0];
	word = strtok_r(NULL, " \n", &rest);
	assert_non_null(word);
	for (; *word; word += 2) {
		assert_true(step->n_bytes < MAX_BYTES && sscanf(word, "%2x", &byte) == 1);
		step->bytes[step->n_bytes++] = (unsigned char)byte;
	}
	while ((word = strtok_r(NULL, " \n", &rest))) {
		assert_true(step->n_fds < RBK_WIRE_MAX_FDS);
		assert_int_equal(sscanf(word, "%ld/%x", &step->fds[step->n_fds].bytes,
					(unsigned int *)&step->fds[step->n_fds].seals),
				 2);
		step->n_fds++;
	}
}

static struct record *record_read(const char *path)
{
	struct record *record = calloc(1, sizeof(*record));
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;

	assert_non_null(record);
	assert_non_null(file);
	while (getline(&line, &room, file) > 0) {
		if (line[0] == '#')
			continue;
		assert_true(record->n < MAX_STEPS);
		parse_step(line, &record->steps[record->n++]);
	}
	free(line);
	fclose(file);
	assert_true(record->n > 10);
	return record;
}

static uint32_t type_of(const struct step *step)
{
	return ((const struct rbk_wire_request *)step->bytes)->type;
}

static uint32_t cookie_of(const struct step *step)
{
	return ((const struct rbk_wire_request *)step->bytes)->cookie;
}

/* Return the recorded answer to the request @step. */
static const struct step *answer_to(const struct record *record, const struct step *step)
{
	for (unsigned int i = 0; i < record->n; i++)
		if (record->steps[i].kind == '<' && cookie_of(&record->steps[i]) == cookie_of(step))
			return &record->steps[i];
	fail_msg("the record has no answer to request %u", type_of(step));
	return NULL;
}

/* --- Recording --- */

/* Forwards packets between one client and the broker. */
struct proxy {
	struct record record;
	int listen_fd, client_fd, broker_fd;
	const struct rbk_sq_area *sq;
	const struct rbk_cq_area *cq;
};

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static void note_fds(struct step *step, const int *fds)
{
	struct stat status;

	for (unsigned int i = 0; i < step->n_fds; i++) {
		step->fds[i].seals = fcntl(fds[i], F_GET_SEALS);
		assert_int_equal(fstat(fds[i], &status), 0);
		step->fds[i].bytes = step->fds[i].seals < 0 ? -1 : status.st_size;
		if (step->fds[i].seals < 0)
			step->fds[i].seals = 0;
	}
}

static void note_entries(struct proxy *proxy)
{
	for (unsigned int i = 0; i < 2 * N_TASKS; i++) {
		struct step *step = &proxy->record.steps[proxy->record.n++];

		step->kind = i < N_TASKS ? 's' : 'c';
		step->n_bytes = i < N_TASKS ? sizeof(struct rbk_sqe) : sizeof(struct rbk_cqe);
		memcpy(step->bytes,
		       i < N_TASKS ? (const void *)&proxy->sq->sqes[i]
				   : (const void *)&proxy->cq->cqes[i - N_TASKS],
		       step->n_bytes);
	}
}

/* Return: false at the end. */
static bool forward(struct proxy *proxy, int from, int to, char kind)
{
	struct step step = {.kind = kind};
	int fds[RBK_WIRE_MAX_FDS];
	ssize_t n;

	step.n_fds = RBK_WIRE_MAX_FDS;
	n = raw_receive(from, step.bytes, sizeof(step.bytes), fds, &step.n_fds, 20000);
	if (n <= 0)
		return false;
	step.n_bytes = (size_t)n;
	note_fds(&step, fds);
	if (kind == '>' && type_of(&step) == RBK_WIRE_RING_REMOVE)
		note_entries(proxy);
	if (kind == '<' && type_of(&step) == RBK_WIRE_RING_ADD) {
		proxy->sq = mmap(NULL, (size_t)step.fds[0].bytes, PROT_READ, MAP_SHARED, fds[0], 0);
		proxy->cq = mmap(NULL, (size_t)step.fds[1].bytes, PROT_READ, MAP_SHARED, fds[1], 0);
	}
	assert_true(proxy->record.n < MAX_STEPS);
	proxy->record.steps[proxy->record.n++] = step;
	raw_send(to, step.bytes, step.n_bytes, fds, step.n_fds);
	for (unsigned int i = 0; i < step.n_fds; i++)
		close(fds[i]);
	return true;
}

static void *proxy_run(void *data)
{
	struct proxy *proxy = data;
	struct pollfd poll_fds[2];

	proxy->client_fd = accept4(proxy->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	poll_fds[0] = (struct pollfd){.fd = proxy->client_fd, .events = POLLIN};
	poll_fds[1] = (struct pollfd){.fd = proxy->broker_fd, .events = POLLIN};
	while (poll(poll_fds, 2, -1) > 0)
		if ((poll_fds[0].revents &&
		     !forward(proxy, proxy->client_fd, proxy->broker_fd, '>')) ||
		    (poll_fds[1].revents &&
		     !forward(proxy, proxy->broker_fd, proxy->client_fd, '<')))
			break;
	return NULL;
}

TEST(test_wire__record)
{
	const char *path = getenv("RBK_WIRE_WRITE");
	struct proxy *proxy;
	pthread_t thread;
	char at[128];

	if (!path)
		return;
	BROKER(broker, &(const struct broker_options){.is_undisturbed = true});
	proxy = calloc(1, sizeof(*proxy));
	assert_non_null(proxy);
	snprintf(at, sizeof(at), "%s/proxy", broker.dir);
	proxy->broker_fd = raw_connect(&broker);
	proxy->listen_fd = listen_at(at);
	assert_int_equal(pthread_create(&thread, NULL, proxy_run, proxy), 0);
	session_run(at);
	pthread_join(thread, NULL);
	record_write(&proxy->record, path);
	unlink(at);
	close(proxy->listen_fd);
	close(proxy->client_fd);
	close(proxy->broker_fd);
	free(proxy);
}

/* --- The client of the record, and today's broker --- */

/* Make descriptors like those of @step. */
static void make_fds(const struct step *step, int fds[RBK_WIRE_MAX_FDS])
{
	for (unsigned int i = 0; i < step->n_fds; i++) {
		assert_true(step->fds[i].bytes > 0);
		fds[i] = raw_memfd((size_t)step->fds[i].bytes, false,
				   (unsigned int)step->fds[i].seals);
	}
}

/* Check an answer, which may have additions. */
static void compare_answers(const struct step *step, const void *got, size_t n, unsigned int n_fds)
{
	const struct rbk_wire_reply *reply = got, *old = (const void *)step->bytes;

	assert_int_equal(n, step->n_bytes);
	assert_int_equal(n_fds, step->n_fds);
	assert_int_equal(reply->type, old->type);
	assert_int_equal(reply->cookie, old->cookie);
	assert_int_equal(reply->res, old->res);
	if (old->type == RBK_WIRE_HELLO) {
		const struct rbk_wire_welcome *welcome = got, *was = (const void *)step->bytes;

		assert_int_equal(welcome->abi_major, was->abi_major);
		assert_true(welcome->abi_minor >= was->abi_minor);
		assert_int_equal(was->features & ~welcome->features, 0);
		assert_true(welcome->max_ring_entries >= was->max_ring_entries);
		assert_true(welcome->max_rings >= was->max_rings);
		assert_true(welcome->max_arenas >= was->max_arenas);
		assert_true(welcome->max_plans >= was->max_plans);
	} else if (old->type == RBK_WIRE_ARENA_ADD) {
		assert_int_equal(((const struct rbk_wire_id_reply *)got)->id,
				 ((const struct rbk_wire_id_reply *)step->bytes)->id);
	} else if (old->type == RBK_WIRE_PLAN_ADD) {
		const struct rbk_wire_plan *plan = got, *was = (const void *)step->bytes;

		assert_int_equal(plan->id, was->id);
		assert_true(plan->devices & 1u << RBK_DEVICE_CPU);
		assert_int_equal(plan->constant_bytes, was->constant_bytes);
		assert_int_equal(plan->bytes_fixed, was->bytes_fixed);
		assert_int_equal(plan->bytes_row, was->bytes_row);
	} else if (old->type == RBK_WIRE_RING_ADD) {
		const struct rbk_wire_ring *ring = got, *was = (const void *)step->bytes;

		assert_int_equal(ring->id, was->id);
		assert_int_equal(ring->n_entries, was->n_entries);
		assert_true(ring->sq_bytes >= was->sq_bytes && ring->cq_bytes >= was->cq_bytes);
	}
}

static void take_ring(const struct rbk_wire_ring *wire, const int *fds, struct raw_ring *ret)
{
	*ret = (struct raw_ring){
		.id = wire->id,
		.n_entries = wire->n_entries,
		.sq_fd = fds[0],
		.cq_fd = fds[1],
		.bell = fds[2],
		.sq_bytes = wire->sq_bytes,
		.cq_bytes = wire->cq_bytes,
	};
	ret->sq = mmap(NULL, ret->sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	ret->cq = mmap(NULL, ret->cq_bytes, PROT_READ, MAP_SHARED, fds[1], 0);
	assert_true(ret->sq != MAP_FAILED && ret->cq != MAP_FAILED);
}

/* Submit the recorded entries, and compare the completions, in any order. */
static void replay_entries(const struct record *record, struct raw_ring *ring)
{
	struct rbk_cqe cqe;
	unsigned int n = 0;

	for (unsigned int i = 0; i < record->n; i++) {
		if (record->steps[i].kind != 's')
			continue;
		memcpy(raw_ring_next(ring), record->steps[i].bytes, sizeof(struct rbk_sqe));
		n++;
	}
	assert_true(n > 0);
	raw_ring_publish(ring);
	for (unsigned int taken = 0; taken < n; taken++) {
		bool is_known = false;

		assert_true(raw_ring_take(ring, &cqe));
		for (unsigned int i = 0; i < record->n; i++) {
			const struct rbk_cqe *was = (const void *)record->steps[i].bytes;

			if (record->steps[i].kind != 'c' || was->user_data != cqe.user_data)
				continue;
			is_known = true;
			assert_int_equal(cqe.res, was->res);
		}
		assert_true(is_known);
	}
}

static void replay_client(const struct record *record, const struct broker *broker)
{
	int fd = raw_connect(broker), fds[RBK_WIRE_MAX_FDS];
	_Alignas(8) unsigned char answer[MAX_BYTES];
	struct raw_ring ring = {.sq = NULL};
	unsigned int n_fds;
	ssize_t n;

	for (unsigned int i = 0; i < record->n; i++) {
		const struct step *step = &record->steps[i];

		if (step->kind != '>')
			continue;
		if (type_of(step) == RBK_WIRE_RING_REMOVE) {
			replay_entries(record, &ring);
			raw_ring_close(&ring);
		}
		make_fds(step, fds);
		assert_int_equal(raw_send(fd, step->bytes, step->n_bytes, fds, step->n_fds),
				 step->n_bytes);
		for (unsigned int k = 0; k < step->n_fds; k++)
			close(fds[k]);
		n_fds = RBK_WIRE_MAX_FDS;
		n = raw_receive(fd, answer, sizeof(answer), fds, &n_fds, 20000);
		assert_true(n > 0);
		compare_answers(answer_to(record, step), answer, (size_t)n, n_fds);
		if (type_of(step) == RBK_WIRE_RING_ADD)
			take_ring((const struct rbk_wire_ring *)answer, fds, &ring);
		else
			for (unsigned int k = 0; k < n_fds; k++)
				close(fds[k]);
	}
	assert_non_null(ring.sq);
	close(fd);
}

TEST(test_wire__old_client_at_this_broker)
{
	struct record *record = record_read(RECORD_PATH);

	BROKER(broker, &(const struct broker_options){.is_undisturbed = true});
	replay_client(record, &broker);
	assert_false(broker_log_has(&broker, "closed: "));
	free(record);
}

/* --- The broker of the record, and today's library --- */

/* Answers one client as recorded. */
struct answering {
	const struct record *record;
	int listen_fd;
	bool is_next; /* it is of the next minor version, and adds what wire.h permits */
	struct rbk_sq_area *sq;
	struct rbk_cq_area *cq;
	int bell;
	uint32_t n_done;
	char failure[160];
};

/* Add what a later version may add to an answer. */
static void add_to(struct step *answer)
{
	struct rbk_wire_reply *reply = (void *)answer->bytes;

	reply->reserved = 0xaaaaaaaa;
	if (reply->type == RBK_WIRE_HELLO) {
		struct rbk_wire_welcome *welcome = (void *)answer->bytes;

		welcome->abi_minor = RBK_ABI_MINOR + 1;
		welcome->features |= 1ull << 63;
		welcome->flags |= 1u << 31;
		welcome->reserved = 1;
	} else if (reply->type == RBK_WIRE_ARENA_ADD) {
		((struct rbk_wire_id_reply *)answer->bytes)->reserved = 1;
	}
}

static void make_ring(struct answering *answering, const struct step *answer, int fds[3])
{
	int bells[2];

	for (unsigned int i = 0; i < 2; i++)
		fds[i] =
			raw_memfd((size_t)answer->fds[i].bytes, false, F_SEAL_SHRINK | F_SEAL_GROW);
	answering->sq = mmap(NULL, (size_t)answer->fds[0].bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			     fds[0], 0);
	answering->cq = mmap(NULL, (size_t)answer->fds[1].bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			     fds[1], 0);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, bells) < 0)
		abort();
	answering->bell = bells[0];
	fds[2] = bells[1];
}

static void answer(struct answering *answering, int fd, const struct rbk_wire_request *request,
		   size_t n)
{
	int fds[RBK_WIRE_MAX_FDS];
	struct step copy;

	for (unsigned int i = 0; i < answering->record->n; i++) {
		const struct step *step = &answering->record->steps[i];

		if (step->kind != '>' || type_of(step) != request->type)
			continue;
		if (step->n_bytes != n) {
			snprintf(answering->failure, sizeof(answering->failure),
				 "request %u has %zu bytes, and had %zu", request->type, n,
				 step->n_bytes);
			return;
		}
		copy = *answer_to(answering->record, step);
		((struct rbk_wire_reply *)copy.bytes)->cookie = request->cookie;
		if (answering->is_next)
			add_to(&copy);
		if (request->type == RBK_WIRE_RING_ADD)
			make_ring(answering, &copy, fds);
		/* The second arena has the second id, and so on. */
		((struct step *)step)->kind = 'x';
		raw_send(fd, copy.bytes, copy.n_bytes, fds, copy.n_fds);
		for (unsigned int k = 0; k < copy.n_fds; k++)
			close(fds[k]);
		return;
	}
	snprintf(answering->failure, sizeof(answering->failure), "request %u is not recorded",
		 request->type);
}

/* Complete entries as recorded, by their place in the ring. */
static void complete(struct answering *answering)
{
	const uint32_t tail = rbk_ring_observe(&answering->sq->sq_tail);
	unsigned int n = 0;

	if (tail == answering->n_done)
		return;
	for (unsigned int i = 0; i < answering->record->n && n < tail; i++)
		if (answering->record->steps[i].kind == 'c')
			memcpy(&answering->cq->cqes[n++], answering->record->steps[i].bytes,
			       sizeof(struct rbk_cqe));
	answering->n_done = n;
	answering->cq->commit = rbk_commit_word(n, n, 0);
	rbk_ring_publish(&answering->cq->sq_head, n);
	rbk_ring_publish(&answering->cq->cq_tail, n);
	send(answering->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void *answering_run(void *data)
{
	struct answering *answering = data;
	int fd = accept4(answering->listen_fd, NULL, NULL, SOCK_CLOEXEC), fds[RBK_WIRE_MAX_FDS];
	_Alignas(8) unsigned char request[MAX_BYTES];
	unsigned int n_fds;
	ssize_t n;

	while (!answering->failure[0]) {
		n_fds = RBK_WIRE_MAX_FDS;
		n = raw_receive(fd, request, sizeof(request), fds, &n_fds, 1);
		if (n == 0)
			break;
		for (unsigned int i = 0; n > 0 && i < n_fds; i++)
			close(fds[i]);
		if (n > 0)
			answer(answering, fd, (const struct rbk_wire_request *)request, (size_t)n);
		if (answering->sq)
			complete(answering);
	}
	close(fd);
	return NULL;
}

static void meet_recorded_broker(bool is_next)
{
	char folder[] = "/tmp/rbk-wire-XXXXXX", path[64];
	struct record *record = record_read(RECORD_PATH);
	struct answering answering = {.record = record, .is_next = is_next, .bell = -1};
	pthread_t thread;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/sock", folder);
	answering.listen_fd = listen_at(path);
	assert_int_equal(pthread_create(&thread, NULL, answering_run, &answering), 0);
	session_run(path);
	pthread_join(thread, NULL);
	if (answering.failure[0])
		fail_msg("%s", answering.failure);
	assert_int_equal(answering.n_done, N_TASKS);
	close(answering.listen_fd);
	close(answering.bell);
	unlink(path);
	rmdir(folder);
	free(record);
}

TEST(test_wire__this_library_at_old_broker)
{
	meet_recorded_broker(false);
}

TEST(test_wire__this_library_at_next_broker)
{
	meet_recorded_broker(true);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(60))
