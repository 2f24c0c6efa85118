/* SPDX-License-Identifier: MIT */
/*
 * The leases of this process, one for each device that it uses
 *
 * All leases share one connection, made when the program first queries a device's memory: heaps and
 * budgets must be those of the lease, and a reported budget must already be granted, or two
 * programs would size themselves for the same room. The connection is kept until the process ends,
 * which releases the leases. The library stays loaded (-z nodelete), or unloading it with the last
 * instance would lose the connection.
 *
 * Giving back never waits: the broker is told, and its answer is read by the next request. A
 * request for credit waits up to the timeout for the answer. After a timeout no request waits until
 * the broker has sent an answer.
 *
 * When the broker ends, all threads go on within their credit. A thread that needs more reconnects,
 * at most once a second, and reports to the new broker what this process holds: leases, then
 * objects. Most programs need no more memory once they are running, and the new broker would grant
 * their memory to others. A thread therefore sleeps until the connection ends, and then reconnects.
 * If that thread cannot be created, the rest still works.
 *
 * All state lives in pages that fork() wipes: a child finds no process, no devices, and free locks.
 * Inherited memory is not freed.
 *
 * Locks, from the outermost to the innermost:
 * - process.lock: setting up, and moving leases
 * - process.using: read-locked for each request, write-locked while the leases move to another
 * connection
 * - objects_lock of a device; moving waits for it, so its holder only tries process.using
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <ringbroker.h>
#include <ringbroker/lease.h>

#include "libclient/layer/ends.h"
#include "libclient/layer/environment.h"
#include "libclient/layer/gpu.h"
#include "libclient/layer/layer.h"
#include "libclient/layer/objects.h"
#include "libclient/layer/process.h"
#include "libclient/layer/say.h"
#include "libclient/private.h"

#define RETRY_MS           1000
#define RETRY_NS           (RETRY_MS * UINT64_C(1000000))
#define REPORT_MS          1000
#define REQUEST_TIMEOUT_NS UINT64_C(2000000000)

/* ---- The connection ---- */

/* Connect to a broker that has leases. Under process.lock. */
static int connect_now(struct rbk **ret, struct rbk_error *error)
{
	struct rbk_options options = {
		.size = sizeof(options),
		.timeout_ns = REQUEST_TIMEOUT_NS,
		.flags = RBK_CONNECT_NO_REATTACH,
	};
	int r = rbk_connect(&options, ret, error);

	if (r)
		return r;
	if (rbk_features(*ret) & RBK_FEAT_LEASES)
		return 0;
	snprintf(error->text, sizeof(error->text), "the broker (%s) does not support leases",
		 rbk_broker_name(*ret));
	*ret = rbk_disconnect(*ret);
	return -EOPNOTSUPP;
}

static bool is_lost(int r)
{
	return r == -ECONNRESET || r == -EPIPE || r == -EPROTO;
}

/* Report a lease to a new broker. Under process.lock and process.using, write-locked. */
static void restore(struct gpu *gpu)
{
	struct account *account = &gpu->account;
	struct rbk_error error = {""};
	uint64_t credit_bytes;
	int r;

	pthread_mutex_lock(&gpu->objects_lock);
	credit_bytes = __atomic_load_n(&account->credit_bytes, __ATOMIC_RELAXED);
	r = rbk_lease_restore(gpu->lease, layer_process->rbk, credit_bytes, &error);
	if (!r) {
		account_set_page(account, rbk_lease_page(gpu->lease));
		gpu->connection = layer_process->connection;
		/* The broker knows the bytes held, but not yet the use. */
		__atomic_store_n(&gpu->told_bytes, UINT64_MAX, __ATOMIC_RELAXED);
		objects_restore(gpu);
		timeslice_restore(gpu);
		__atomic_store_n(&gpu->told_movable_bytes, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&gpu->told_moved_bytes, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&gpu->is_cut, 0, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&gpu->objects_lock);
	if (r)
		say("the new broker does not take over a lease with %llu bytes in addition to "
		    "exported objects: %s",
		    (unsigned long long)credit_bytes, error.text);
	else
		say("lease %u: restored, with %llu bytes in addition to exported objects",
		    rbk_lease_number(gpu->lease), (unsigned long long)credit_bytes);
}

/*
 * Move the leases to the current connection, and make a new one first if @is_lost_too. Under
 * process.lock.
 */
static void move(bool is_lost_too)
{
	struct rbk_error error = {""};
	struct rbk *rbk = NULL;

	if (layer_now_ns() < layer_process->retry_at_ns)
		return;
	layer_process->retry_at_ns = layer_now_ns() + RETRY_NS;
	if (is_lost_too && connect_now(&rbk, &error)) {
		say("cannot connect to a new broker yet: %s", error.text);
		return;
	}
	pthread_rwlock_wrlock(&layer_process->using);
	if (rbk) {
		rbk_disconnect(layer_process->rbk);
		layer_process->rbk = rbk;
		layer_process->connection++;
	}
	for (struct gpu *gpu = layer_process->gpus; gpu; gpu = gpu->next)
		if (gpu_state(gpu) == GPU_LEASED && gpu->connection != layer_process->connection)
			restore(gpu);
	pthread_rwlock_unlock(&layer_process->using);
}

/*
 * Reconnect after a request on connection @connection was lost. Return true if the request should
 * be repeated.
 */
static bool reconnect(struct gpu *gpu, uint64_t connection)
{
	bool is_moved;

	pthread_mutex_lock(&layer_process->lock);
	if (gpu->connection == connection)
		move(connection == layer_process->connection);
	is_moved = gpu->connection != connection;
	pthread_mutex_unlock(&layer_process->lock);
	return is_moved;
}

/* ---- Credit ---- */

static int source_take(void *context, uint64_t want_bytes, uint64_t least_bytes, uint64_t wait_ns,
		       uint64_t *ret_bytes)
{
	struct gpu *gpu = context;
	struct rbk_lease_use use;
	struct rbk_error error = {""};
	uint64_t connection;
	int r;

	do {
		gpu_describe_use(gpu, &use);
		pthread_rwlock_rdlock(&layer_process->using);
		connection = gpu->connection;
		r = rbk_lease_take(gpu->lease, want_bytes, least_bytes, wait_ns, &use, ret_bytes,
				   &error);
		if (!r) {
			__atomic_fetch_add(&gpu->account.credit_bytes, *ret_bytes,
					   __ATOMIC_RELAXED);
			gpu_note_told(gpu, &use);
		}
		pthread_rwlock_unlock(&layer_process->using);
	} while (is_lost(r) && reconnect(gpu, connection));
	if (r)
		say_rarely("refused: %s", error.text);
	return r;
}

static int source_give(void *context, uint64_t bytes)
{
	struct gpu *gpu = context;
	struct rbk_lease_use use;
	int r;

	/* vkFreeMemory() does not wait while leases move. */
	if (pthread_rwlock_tryrdlock(&layer_process->using))
		return -EBUSY;
	gpu_describe_use(gpu, &use);
	r = client_lease_give(gpu->lease, bytes, &use);
	if (!r) {
		__atomic_fetch_sub(&gpu->account.credit_bytes, bytes, __ATOMIC_RELAXED);
		gpu_note_told(gpu, &use);
	}
	pthread_rwlock_unlock(&layer_process->using);
	return r;
}

void gpu_report(struct gpu *gpu)
{
	source_give(gpu, 0);
}

void gpu_report_moved(struct gpu *gpu)
{
	uint64_t movable_bytes, moved_bytes;

	/* One at a time, so that the last report is the latest. */
	pthread_mutex_lock(&gpu->moved_lock);
	movable_bytes = __atomic_load_n(&gpu->movable_bytes, __ATOMIC_RELAXED);
	moved_bytes = __atomic_load_n(&gpu->moved_bytes, __ATOMIC_RELAXED);
	if ((movable_bytes != __atomic_load_n(&gpu->told_movable_bytes, __ATOMIC_RELAXED) ||
	     moved_bytes != __atomic_load_n(&gpu->told_moved_bytes, __ATOMIC_RELAXED)) &&
	    !pthread_rwlock_tryrdlock(&layer_process->using)) {
		if (!rbk_lease_report_moved(gpu->lease, movable_bytes, moved_bytes)) {
			__atomic_store_n(&gpu->told_movable_bytes, movable_bytes, __ATOMIC_RELAXED);
			__atomic_store_n(&gpu->told_moved_bytes, moved_bytes, __ATOMIC_RELAXED);
		}
		pthread_rwlock_unlock(&layer_process->using);
	}
	pthread_mutex_unlock(&gpu->moved_lock);
}

static const struct account_source source = {.take = source_take, .give = source_give};

/* ---- Unsolicited reports ---- */

static void report_changes(void)
{
	struct gpu *gpu = __atomic_load_n(&layer_process->gpus, __ATOMIC_ACQUIRE);

	for (; gpu; gpu = gpu->next) {
		if (gpu_state(gpu) != GPU_LEASED)
			continue;
		objects_sweep(gpu);
		/* Give back credit that could not be given back when it was freed. */
		account_trim(&gpu->account);
		if (!gpu_is_told(gpu))
			gpu_report(gpu);
		gpu_report_moved(gpu);
	}
}

/* Report at exit: many programs end without destroying their devices. */
__attribute__((__destructor__)) static void report_at_exit(void)
{
	if (!layer_process)
		return;
	ends_exit();
	report_changes();
}

/* ---- The connection's end ---- */

/* Return true if a lease is not on the current connection. Under process.lock. */
static bool is_behind(void)
{
	for (struct gpu *gpu = layer_process->gpus; gpu; gpu = gpu->next)
		if (gpu_state(gpu) == GPU_LEASED && gpu->connection != layer_process->connection)
			return true;
	return false;
}

/* Have no submission wait for the broker that has ended. */
static void cut_timeslices(void)
{
	struct gpu *gpu = __atomic_load_n(&layer_process->gpus, __ATOMIC_ACQUIRE);

	for (; gpu; gpu = gpu->next)
		timeslice_cut(gpu);
}

/* Note which leases' broker has ended. Under process.lock. */
static void note_cut(void)
{
	for (struct gpu *gpu = layer_process->gpus; gpu; gpu = gpu->next)
		if (gpu->connection == layer_process->connection)
			__atomic_store_n(&gpu->is_cut, 1, __ATOMIC_RELAXED);
}

/*
 * Watch the connection, and reconnect when it ends. The thread holds its own reference while it
 * sleeps: otherwise the connection's socket could be closed meanwhile, and its number reused for
 * another file. Between sleeps the thread reports changed use to the broker, because allocations
 * within the credit send no requests.
 */
static void *watch(void *unused)
{
	for (;;) {
		struct pollfd end = {0};
		uint64_t connection;
		struct rbk *rbk;
		bool is_retry;

		pthread_mutex_lock(&layer_process->lock);
		connection = layer_process->connection;
		is_retry = is_behind();
		rbk = client_ref(layer_process->rbk);
		pthread_mutex_unlock(&layer_process->lock);
		end.fd = rbk_fd(rbk);
		poll(&end, 1, is_retry ? RETRY_MS : REPORT_MS);
		client_unref(rbk);
		if (!end.revents)
			report_changes();
		else
			cut_timeslices();

		pthread_mutex_lock(&layer_process->lock);
		if (end.revents && connection == layer_process->connection)
			note_cut();
		if (end.revents ? connection == layer_process->connection : is_behind())
			move(end.revents);
		is_retry = end.revents && connection == layer_process->connection;
		pthread_mutex_unlock(&layer_process->lock);
		if (is_retry)
			poll(NULL, 0, RETRY_MS);
	}
	return NULL;
}

/* Start watch(). Under process.lock. */
static void begin_to_watch(void)
{
	int r;

	if (layer_process->is_watched)
		return;
	r = process_thread(NULL, "rbk-lease", watch, NULL);
	layer_process->is_watched = !r;
	if (r)
		say("cannot start the thread that waits for the broker to end: %s", strerror(r));
}

/* ---- Opening ---- */

/*
 * Find the broker's index of the device called @name. Return: 0; -ENODEV; errors of the connection.
 */
static int find_index(const char *name, uint32_t *ret_device, struct rbk_error *error)
{
	struct rbk_device devices[RBK_MAX_DEVICES];
	unsigned int n = 0;
	int r = rbk_devices(layer_process->rbk, devices, RBK_MAX_DEVICES, &n);

	if (r) {
		snprintf(error->text, sizeof(error->text), "the broker did not list its devices");
		return r;
	}
	for (unsigned int i = 0; i < n && i < RBK_MAX_DEVICES; i++)
		/* The broker truncates names. */
		if (devices[i].kind != RBK_DEVICE_KIND_CPU &&
		    strncmp(devices[i].name, name, sizeof(devices[i].name) - 1) == 0) {
			*ret_device = devices[i].index;
			return 0;
		}
	snprintf(error->text, sizeof(error->text), "the broker has no device with the name %s",
		 name);
	return -ENODEV;
}

/* Request the lease on the current connection. Under process.lock. */
static int ask_for_lease(struct gpu *gpu, struct rbk_lease_options *options,
			 struct rbk_error *error)
{
	uint32_t device;
	int r;

	if (gpu->identity.has_uuid)
		return rbk_lease_open(layer_process->rbk, options, &gpu->lease, error);
	r = find_index(gpu->identity.name, &device, error);
	if (r)
		return r;
	options->device = device;
	r = rbk_lease_open(layer_process->rbk, options, &gpu->lease, error);
	if (r || rbk_lease_device(gpu->lease) == device)
		return r;
	snprintf(error->text, sizeof(error->text), "the lease is of device %u, not of device %u",
		 rbk_lease_device(gpu->lease), device);
	rbk_lease_close(gpu->lease);
	gpu->lease = NULL;
	return -ENODEV;
}

/* Open the device's lease, connecting first if necessary. Under process.lock. */
static int open_lease(struct gpu *gpu, struct rbk_error *error)
{
	const struct environment *environment = &layer_process->environment;
	struct rbk_lease_options options = {
		.device = RBK_DEVICE_NONE,
		.join = environment->lease,
		.uuid = gpu->identity.has_uuid ? gpu->identity.uuid : NULL,
		.min_bytes = environment->min_bytes,
		.wish_bytes = environment->wish_bytes,
		.max_bytes = environment->max_bytes,
		.wait_ns = gpu->has_waited ? 0 : environment->wait_ns,
	};
	struct rbk *before;
	int r;

	if (environment->error[0]) {
		snprintf(error->text, sizeof(error->text), "%s", environment->error);
		return -EINVAL;
	}
	if (!layer_process->rbk) {
		r = connect_now(&layer_process->rbk, error);
		if (r)
			return r;
		layer_process->connection++;
	}
	do {
		before = layer_process->rbk;
		r = ask_for_lease(gpu, &options, error);
		/* The broker ended since the last request. */
		if (is_lost(r))
			move(true);
	} while (is_lost(r) && layer_process->rbk != before);
	return r;
}

/*
 * Close the connection after a timeout, unless it has leases. The broker may still grant the lease
 * that timed out; ending the connection releases it. Under process.lock.
 */
static void forget_connection(void)
{
	for (struct gpu *gpu = layer_process->gpus; gpu; gpu = gpu->next)
		if (gpu_state(gpu) == GPU_LEASED)
			return;
	layer_process->rbk = rbk_disconnect(layer_process->rbk);
}

/*
 * Return true if the device needs no lease. A CPU renderer needs none beside a card, because it
 * uses none of the card's memory. But if the broker has no card, or has such a renderer itself,
 * under any name, the device may be the one to be leased. Under process.lock, connected.
 */
static bool is_foreign(const struct gpu *gpu)
{
	struct rbk_device devices[RBK_MAX_DEVICES];
	bool has_card = false, has_renderer = false;
	unsigned int n = 0;

	if (!gpu->identity.is_cpu || rbk_devices(layer_process->rbk, devices, RBK_MAX_DEVICES, &n))
		return false;
	for (unsigned int i = 0; i < n && i < RBK_MAX_DEVICES; i++) {
		has_card |= devices[i].kind == RBK_DEVICE_KIND_GPU;
		has_renderer |= devices[i].kind == RBK_DEVICE_KIND_SOFTWARE_GPU;
	}
	return has_card && !has_renderer;
}

/* Set the share of a lease of this process's own, as the environment asks. Under process.lock. */
static void set_share(struct gpu *gpu)
{
	const struct environment *environment = &layer_process->environment;
	struct rbk_error error = {""};

	if (environment->share > 0 && environment->lease == 0 &&
	    rbk_lease_share(layer_process->rbk, rbk_lease_number(gpu->lease), NULL,
			    environment->share, &error))
		say_error("lease %u does not have share %u of its tenant's time: %s",
			  rbk_lease_number(gpu->lease), environment->share, error.text);
}

/* Try to open the device's lease, and set its state. Under process.lock. */
static void try_open(struct gpu *gpu)
{
	struct rbk_error error = {""};
	int r;

	r = open_lease(gpu, &error);
	gpu->retry_at_ns = layer_now_ns() + RETRY_NS;
	gpu->is_unanswered = r == -ETIME;
	gpu->has_waited |= r == -ETIMEDOUT;
	if (r == -ETIME)
		forget_connection();
	if (r == -ENODEV && layer_process->rbk && is_foreign(gpu)) {
		say("%s is a software device, which needs no lease: the broker's leases are of "
		    "GPUs",
		    gpu->identity.name);
		__atomic_store_n(&gpu->state, GPU_FOREIGN, __ATOMIC_RELEASE);
		return;
	}
	if (r) {
		snprintf(gpu->error, sizeof(gpu->error), "%s", error.text);
		say("no lease: %s", error.text);
		return;
	}
	gpu->connection = layer_process->connection;
	account_init(&gpu->account, &source, gpu, rbk_lease_page(gpu->lease));
	say("lease %u of device %u: %llu of %llu bytes", rbk_lease_number(gpu->lease),
	    rbk_lease_device(gpu->lease),
	    (unsigned long long)rbk_lease_page(gpu->lease)->granted_bytes,
	    (unsigned long long)rbk_lease_page(gpu->lease)->max_bytes);
	__atomic_store_n(&gpu->state, GPU_LEASED, __ATOMIC_RELEASE);
	begin_to_watch();
	set_share(gpu);
	timeslice_share(gpu);
}

static bool is_same(const struct gpu_identity *a, const struct gpu_identity *b)
{
	if (a->has_uuid && b->has_uuid)
		return memcmp(a->uuid, b->uuid, GPU_UUID_BYTES) == 0;
	return strcmp(a->name, b->name) == 0;
}

/* Find a device. Needs no lock: the list only grows. */
static struct gpu *find(const struct gpu_identity *identity)
{
	struct gpu *gpu = __atomic_load_n(&layer_process->gpus, __ATOMIC_ACQUIRE);

	while (gpu && !is_same(&gpu->identity, identity))
		gpu = gpu->next;
	return gpu;
}

static struct gpu *add(const struct gpu_identity *identity)
{
	struct gpu *gpu = process_pages(sizeof(*gpu));

	if (!gpu)
		return NULL;
	gpu->is_ours = 1;
	gpu->identity = *identity;
	pthread_mutex_init(&gpu->objects_lock, NULL);
	pthread_mutex_init(&gpu->moved_lock, NULL);
	gpu->next = layer_process->gpus;
	__atomic_store_n(&layer_process->gpus, gpu, __ATOMIC_RELEASE);
	return gpu;
}

struct gpu *gpu_get(const struct gpu_identity *identity, bool insist)
{
	struct gpu *gpu = find(identity);

	if (gpu && gpu_state(gpu) != GPU_WITHOUT)
		return gpu;
	pthread_mutex_lock(&layer_process->lock);
	process_set_up();
	gpu = find(identity);
	if (!gpu)
		gpu = add(identity);
	if (gpu && gpu_state(gpu) == GPU_WITHOUT &&
	    ((insist && !gpu->is_unanswered) || layer_now_ns() >= gpu->retry_at_ns))
		try_open(gpu);
	pthread_mutex_unlock(&layer_process->lock);
	return gpu;
}
