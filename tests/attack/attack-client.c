/* SPDX-License-Identifier: MIT */
/* Code shared by the attackers; see attack.h. */
#include "attack/attack.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <fcntl.h>
#include <unistd.h>

#include "support/describe.h"

enum { ANSWER_MS = 180000 };

static unsigned int bucket_of(uint64_t ns)
{
	unsigned int octave;

	if (ns < 16)
		return (unsigned int)ns;
	octave = 63 - (unsigned int)__builtin_clzll(ns);
	return (octave - 3) * 16 + (unsigned int)(ns >> (octave - 4) & 15);
}

/* Return the largest time in a bucket. */
static uint64_t bucket_ns(unsigned int bucket)
{
	if (bucket < 16)
		return bucket;
	return ((uint64_t)(bucket % 16 + 17) << (bucket / 16 - 1)) - 1;
}

void attack_times_add(struct attack_times *times, uint64_t ns)
{
	uint64_t longest_ns = atomic_load(&times->longest_ns);

	atomic_fetch_add(&times->buckets[bucket_of(ns)], 1);
	atomic_fetch_add(&times->n, 1);
	while (ns > longest_ns &&
	       !atomic_compare_exchange_weak(&times->longest_ns, &longest_ns, ns))
		;
}

uint64_t attack_times_percentile(const struct attack_times *times, unsigned int percent)
{
	uint64_t n = atomic_load(&times->n), longest_ns = atomic_load(&times->longest_ns);
	uint64_t below = 0;

	for (unsigned int i = 0; i < ATTACK_N_BUCKETS; i++) {
		below += atomic_load(&times->buckets[i]);
		if (n > 0 && below * 100 >= n * percent)
			return bucket_ns(i) < longest_ns ? bucket_ns(i) : longest_ns;
	}
	return 0;
}

void attack_fail(struct attack *attack, const char *format, ...)
{
	va_list arguments;

	if (!atomic_exchange(&attack->has_failed, true)) {
		va_start(arguments, format);
		vsnprintf(attack->failure, sizeof(attack->failure), format, arguments);
		va_end(arguments);
	}
	_exit(1);
}

bool attack_goes_on(struct attack *attack)
{
	static _Thread_local bool has_begun;

	if (!has_begun) {
		has_begun = true;
		atomic_fetch_add(&attack->n_begun, 1);
	}
	return !atomic_load_explicit(&attack->stop, memory_order_relaxed);
}

unsigned int attack_share(const struct attack *attack, unsigned int thread, unsigned int *ret_first)
{
	unsigned int first = attack->n_sessions * thread / attack->n_threads;

	if (ret_first)
		*ret_first = first;
	return attack->n_sessions * (thread + 1) / attack->n_threads - first;
}

void attack_count(struct attack *attack, int res)
{
	atomic_fetch_add(res == 0 ? &attack->n_done : &attack->n_refused, 1);
}

void attack_note_longest(struct attack *attack, uint64_t ns)
{
	uint64_t longest_ns = atomic_load(&attack->longest_ns);

	while (ns > longest_ns &&
	       !atomic_compare_exchange_weak(&attack->longest_ns, &longest_ns, ns))
		;
}

static int connect_only(const struct attack *attack)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), r = 0;

	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", attack->socket_path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		r = -errno;
	if (r == 0)
		return fd;
	close(fd);
	return r;
}

/* Return: the descriptor of a session, or -1 if the broker refused it. */
static int try_connect(const struct attack *attack, uint64_t features)
{
	const struct rbk_wire_hello hello = {
		.request = {.type = RBK_WIRE_HELLO, .cookie = 1},
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = RBK_ABI_MINOR,
		.features = features,
		.name = "attack",
	};
	struct rbk_wire_welcome welcome = {{0}};
	int fd = connect_only(attack);

	if (fd < 0)
		return -1;
	if (raw_send(fd, &hello, sizeof(hello), NULL, 0) == (ssize_t)sizeof(hello) &&
	    raw_receive(fd, &welcome, sizeof(welcome), NULL, NULL, ANSWER_MS) > 0 &&
	    welcome.reply.res == 0)
		return fd;
	close(fd);
	return -1;
}

int attack_connect_with(struct attack *attack, uint64_t features)
{
	int fd = try_connect(attack, features);

	if (fd < 0)
		attack_fail(attack, "the attacker cannot connect: %s", strerror(errno));
	return fd;
}

int attack_connect(struct attack *attack)
{
	return attack_connect_with(attack, RBK_FEAT_RESIDENCY | RBK_FEAT_LEASES);
}

void attack_send(struct attack *attack, int fd, const void *request, size_t bytes, const int *fds,
		 unsigned int n_fds)
{
	ssize_t n = raw_send(fd, request, bytes, fds, n_fds);

	if (n != (ssize_t)bytes)
		attack_fail(attack, "the attacker cannot send: %zd", n);
}

int attack_receive(struct attack *attack, int fd, void *reply, size_t bytes)
{
	static _Thread_local struct rbk_wire_devices largest;
	struct rbk_wire_reply head;
	ssize_t n = raw_receive(fd, &largest, sizeof(largest), NULL, NULL, ANSWER_MS);

	if (n < (ssize_t)sizeof(head))
		attack_fail(attack, "the attacker has no answer: %zd", n);
	if (reply)
		memcpy(reply, &largest, (size_t)n < bytes ? (size_t)n : bytes);
	memcpy(&head, &largest, sizeof(head));
	return head.res;
}

int attack_plan_fd(struct describe *describe)
{
	size_t bytes;
	void *desc = describe_finish(describe, &bytes);
	int fd = memfd_create("plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || write(fd, desc, bytes) != (ssize_t)bytes ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		abort();
	free(desc);
	return fd;
}

void attack_send_plan(struct attack *attack, int fd, int plan_fd)
{
	const struct rbk_wire_plan_add add = {
		.request = {.type = RBK_WIRE_PLAN_ADD, .cookie = 4},
		.desc_bytes = (uint32_t)lseek(plan_fd, 0, SEEK_END),
		.flags = RBK_WIRE_PLAN_FD,
	};

	attack_send(attack, fd, &add, sizeof(add), &plan_fd, 1);
}

int attack_plan_add(struct attack *attack, int fd, struct describe *describe, uint32_t *ret_id)
{
	struct rbk_wire_plan plan = {{0}};
	int plan_fd = attack_plan_fd(describe), r;

	attack_send_plan(attack, fd, plan_fd);
	close(plan_fd);
	r = attack_receive(attack, fd, &plan, sizeof(plan));
	*ret_id = plan.id;
	return r;
}

struct describe *attack_describe_add(void)
{
	struct describe *d = describe_new("add", 1);

	describe_input(d, "x", DESCRIBE_DIMS(16));
	describe_input(d, "y", DESCRIBE_DIMS(16));
	describe_output(d, "z", DESCRIBE_DIMS(16));
	describe_node(d, "Add", "", "x,y", "z");
	return d;
}

struct describe *attack_describe_products(uint32_t side, unsigned int n)
{
	struct describe *d = describe_new("products", 1);
	char from[RBK_NAME_BYTES + 2] = "x", to[RBK_NAME_BYTES], in[2 * RBK_NAME_BYTES];

	describe_input(d, "x", DESCRIBE_DIMS(side, side));
	describe_input(d, "w", DESCRIBE_DIMS(side, side));
	describe_output(d, "y", DESCRIBE_DIMS(side, side));
	for (unsigned int i = 0; i + 1 < n; i++) {
		snprintf(to, sizeof(to), "s%u", i);
		describe_scratch(d, to);
		snprintf(in, sizeof(in), "%s,w", from);
		describe_node(d, "MatMul", "", in, to);
		snprintf(from, sizeof(from), "%s", to);
	}
	snprintf(in, sizeof(in), "%s,w", from);
	describe_node(d, "MatMul", "", in, "y");
	return d;
}
