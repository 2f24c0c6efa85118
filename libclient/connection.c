/* SPDX-License-Identifier: MIT */
/*
 * Connections
 *
 * A connection is reference-counted: arenas, plans and rings hold references, so they can be freed
 * in any order and after rbk_disconnect(), which ends the session but keeps the memory. A page that
 * fork() wipes distinguishes a child from the process that connected, without a system call. A
 * child releases what it has inherited and sends nothing to the broker, because the session is
 * still its parent's. The child's copies of the sockets are closed before fork() returns. The
 * session therefore ends with the process that connected, however that process ends and whatever
 * children it leaves. Programs started by exec() have no copies, because sockets are close-on-exec.
 * Children made by clone() alone are not handled.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <ringbroker/admin.h>

#include "libclient/private.h"
#include "shm/admin-path.h"
#include "shm/stats-names.h"

#define CONNECT_TIMEOUT_NS 30000000000u
#define REATTACH_NS        30000000000u
#define SYSTEM_SOCKET_PATH "/run/ringbroker/brokerd.sock"
#define KNOWN_FEATURES                                                                       \
	(RBK_FEAT_RESIDENCY | RBK_FEAT_PARTITION | RBK_FEAT_PRIORITY | RBK_FEAT_STATE_ROWS | \
	 RBK_FEAT_TENANTS | RBK_FEAT_STRATEGIES | RBK_FEAT_STATS | RBK_FEAT_CATALOGUE |      \
	 RBK_FEAT_ADMIN | RBK_FEAT_ADMIN_CHANGE | RBK_FEAT_LEASES | RBK_FEAT_FIXED_ARENAS |  \
	 RBK_FEAT_ADMIN_LIMITS | RBK_FEAT_RESTORE | RBK_FEAT_RESTART | RBK_FEAT_AFTER |      \
	 RBK_FEAT_TIMESLICE | RBK_FEAT_SHARES | RBK_FEAT_PARTS | RBK_FEAT_UNSHARE |          \
	 RBK_FEAT_ENDING | RBK_FEAT_LOST | RBK_FEAT_SLEEP)

/* Connections with a socket, which after_fork_in_child() closes. */
static pthread_mutex_t connections_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rbk *connections;

static void before_fork(void)
{
	pthread_mutex_lock(&connections_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&connections_lock);
}

static void after_fork_in_child(void)
{
	for (struct rbk *rbk = connections; rbk; rbk = rbk->next)
		client_close(&rbk->fd);
	connections = NULL;
	pthread_mutex_unlock(&connections_lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* Remove @rbk from the list, if it is in the list, and close its socket. Not in a child. */
static void close_socket(struct rbk *rbk)
{
	struct rbk **link = &connections;

	pthread_mutex_lock(&connections_lock);
	while (*link && *link != rbk)
		link = &(*link)->next;
	if (*link)
		*link = rbk->next;
	client_close(&rbk->fd);
	pthread_mutex_unlock(&connections_lock);
}

struct rbk *client_ref(struct rbk *rbk)
{
	__atomic_fetch_add(&rbk->refs, 1, __ATOMIC_RELAXED);
	return rbk;
}

struct rbk *client_unref(struct rbk *rbk)
{
	if (!rbk || __atomic_sub_fetch(&rbk->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	if (rbk->alive && !client_is_child(rbk))
		close_socket(rbk);
	/* A thread that was connecting to the next broker does not exist in a child. */
	if (rbk->reattach.fresh)
		client_unref(rbk->reattach.fresh);
	client_close(&rbk->reattach.news_fd);
	client_requests_free(rbk);
	/* In a child a thread that does not exist there may hold the lock for ever. */
	if (rbk->alive && !client_is_child(rbk)) {
		pthread_cond_destroy(&rbk->changed);
		pthread_mutex_destroy(&rbk->lock);
		pthread_mutex_destroy(&rbk->reattach.objects);
	}
	while (rbk->names) {
		struct client_name *name = rbk->names;

		rbk->names = name->next;
		free(name);
	}
	if (rbk->alive)
		munmap((void *)rbk->alive, client_page_bytes());
	free(rbk);
	return NULL;
}

static void client_unrefp(struct rbk **rbk)
{
	client_unref(*rbk);
}

/* Make a connection without a socket. */
static int connection_new(struct rbk **ret, struct rbk_error *error)
{
	client_cleanup(client_unrefp) struct rbk *rbk = NULL;
	pthread_condattr_t attr;
	uint32_t *alive;

	rbk = calloc(1, sizeof(*rbk));
	if (!rbk)
		return client_error(error, -ENOMEM, "out of memory");
	rbk->refs = 1;
	rbk->fd = -1;
	rbk->reattach.news_fd = -1;
	alive = mmap(NULL, client_page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	if (alive == MAP_FAILED)
		return client_error(error, -ENOMEM, "out of memory");
	rbk->alive = alive;
	*alive = 1;
	pthread_mutex_init(&rbk->lock, NULL);
	pthread_mutex_init(&rbk->reattach.objects, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&rbk->changed, &attr);
	pthread_condattr_destroy(&attr);
	if (madvise(alive, client_page_bytes(), MADV_WIPEONFORK))
		return client_error(error, -errno,
				    "cannot set up the detection of fork()ed children: %m");
	*ret = rbk;
	rbk = NULL;
	return 0;
}

/* Return: 0; -ENAMETOOLONG. */
static int default_path(struct sockaddr_un *address)
{
	const char *path = secure_getenv("RINGBROKER_SOCKET");
	const char *directory = secure_getenv("XDG_RUNTIME_DIR");
	int n;

	if (path && path[0]) {
		n = snprintf(address->sun_path, sizeof(address->sun_path), "%s", path);
		return (size_t)n < sizeof(address->sun_path) ? 0 : -ENAMETOOLONG;
	}
	if (directory && directory[0]) {
		n = snprintf(address->sun_path, sizeof(address->sun_path),
			     "%s/ringbroker/brokerd.sock", directory);
		if ((size_t)n < sizeof(address->sun_path) && !access(address->sun_path, F_OK))
			return 0;
	}
	strcpy(address->sun_path, SYSTEM_SOCKET_PATH);
	return 0;
}

RBK_EXPORT int rbk_admin_socket_path(const char *socket_path, char *ret, size_t bytes)
{
	const char *path = secure_getenv("RINGBROKER_ADMIN_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int r;

	if (!ret || bytes == 0)
		return -EINVAL;
	if (!socket_path && path && path[0])
		return (size_t)snprintf(ret, bytes, "%s", path) < bytes ? 0 : -ENAMETOOLONG;
	r = socket_path ? 0 : default_path(&address);
	return r ? r
		 : rbk_admin_path_find(socket_path ? socket_path : address.sun_path, ret, bytes);
}

/* Find the path of the socket. Return: 0; -ENAMETOOLONG with a sentence. */
static int find_path(const char *path, bool is_admin, struct sockaddr_un *ret,
		     struct rbk_error *error)
{
	int r = 0;

	ret->sun_family = AF_UNIX;
	if (!path)
		r = is_admin ? rbk_admin_socket_path(NULL, ret->sun_path, sizeof(ret->sun_path))
			     : default_path(ret);
	else if (strlen(path) >= sizeof(ret->sun_path))
		r = -ENAMETOOLONG;
	else
		strcpy(ret->sun_path, path);
	if (r)
		return client_error(error, r, "the socket path is longer than %zu bytes",
				    sizeof(ret->sun_path) - 1);
	return 0;
}

/* Bound sending by the connection's timeout, and connecting to a broker that does not accept. */
static int bound_sending(const struct rbk *rbk, struct rbk_error *error)
{
	struct timeval timeout = {(time_t)(rbk->timeout_ns / 1000000000u),
				  (suseconds_t)(rbk->timeout_ns % 1000000000u / 1000u)};

	/* 0 would mean no timeout. */
	if (timeout.tv_sec == 0 && timeout.tv_usec == 0)
		timeout.tv_usec = 1;
	if (setsockopt(rbk->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)))
		return client_error(error, -errno, "cannot set the time-out of the socket: %m");
	return 0;
}

/* Connect the socket. @type_flags: SOCK_NONBLOCK, not to wait for a broker that does not accept. */
static int open_socket(struct rbk *rbk, const struct sockaddr_un *address, int type_flags,
		       struct rbk_error *error)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int r = 0;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&connections_lock);
	rbk->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | type_flags, 0);
	r = rbk->fd < 0 ? -errno : 0;
	rbk->next = connections;
	connections = rbk;
	pthread_mutex_unlock(&connections_lock);
	if (r)
		return client_error(error, r, "cannot make a socket: %m");
	r = bound_sending(rbk, error);
	if (r)
		return r;
	do
		r = connect(rbk->fd, (const struct sockaddr *)address, sizeof(*address));
	while (r && errno == EINTR);
	if (r && errno == EAGAIN)
		return client_error(error, -ETIME,
				    "the broker at %s did not accept the connection within %.3g s",
				    address->sun_path, (double)rbk->timeout_ns / 1e9);
	if (r)
		return client_error(error, -errno, "cannot connect to a broker at %s: %m%s",
				    address->sun_path,
				    errno == ENOENT || errno == ECONNREFUSED
					    ? "; is brokerd running, and does it listen at this "
					      "path?"
					    : "");
	if (type_flags && fcntl(rbk->fd, F_SETFL, 0))
		return client_error(error, -errno, "cannot set up the socket: %m");
	return 0;
}

int client_set_name(struct rbk *rbk, const char *text)
{
	struct client_name *name = rbk->names;

	while (name && strcmp(name->text, text) != 0)
		name = name->next;
	if (!name) {
		name = calloc(1, sizeof(*name));
		if (!name)
			return -ENOMEM;
		snprintf(name->text, sizeof(name->text), "%s", text);
		name->next = rbk->names;
		rbk->names = name;
	}
	/* Earlier names stay, because rbk_broker_name() has returned them. */
	__atomic_store_n(&rbk->broker, name->text, __ATOMIC_RELEASE);
	return 0;
}

static int say_hello(struct rbk *rbk, const char *name, uint64_t features, struct rbk_error *error)
{
	struct rbk_wire_hello hello = {
		.request.type = RBK_WIRE_HELLO,
		.magic = RBK_WIRE_MAGIC,
		.abi_major = RBK_ABI_MAJOR,
		.abi_minor = CLIENT_ABI_MINOR,
		.features = features,
	};
	struct client_message message = {&hello.request, sizeof(hello), NULL, 0, -1};
	struct client_answer answer;
	int r;

	snprintf(hello.name, sizeof(hello.name), "%s", name);
	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	rbk->features = answer.reply.welcome.features & features;
	rbk->max_ring_entries = answer.reply.welcome.max_ring_entries;
	rbk->segment_bytes = answer.reply.welcome.arena_segment_bytes;
	rbk->exports = answer.reply.welcome.flags & RBK_WIRE_WELCOME_EXPORTS;
	if (client_set_name(rbk, answer.reply.welcome.broker))
		return client_error(error, -ENOMEM, "out of memory");
	return 0;
}

/* Copy the options that the caller knows. Return: 0; -EINVAL with a sentence. */
static int read_options(const struct rbk_options *options, struct rbk_options *ret,
			struct rbk_error *error)
{
	*ret = (struct rbk_options){.size = sizeof(*ret), .name = program_invocation_short_name};
	if (!options)
		return 0;
	/* The first version of the struct ended before flags. */
	if (options->size < offsetof(struct rbk_options, flags))
		return client_error(error, -EINVAL, "rbk_options.size is not set");
	memcpy(ret, options, options->size < sizeof(*ret) ? options->size : sizeof(*ret));
	if (ret->flags & ~RBK_CONNECT_NO_REATTACH)
		return client_error(error, -EINVAL, "unknown flags 0x%x of a connection",
				    ret->flags);
	if (ret->name && strlen(ret->name) >= RBK_WIRE_NAME_BYTES)
		return client_error(error, -EINVAL, "the client's name is longer than %u bytes",
				    RBK_WIRE_NAME_BYTES - 1);
	if (!ret->name)
		ret->name = program_invocation_short_name;
	return 0;
}

/* Keep the path of the socket, for the time after the program has changed its working directory. */
static void keep_path(struct client_reattach *reattach, const struct sockaddr_un *address)
{
	char path[PATH_MAX + sizeof(address->sun_path) + 1];
	size_t bytes;

	_Static_assert(sizeof(reattach->path) == sizeof(address->sun_path), "the same path");
	memcpy(reattach->path, address->sun_path, sizeof(reattach->path));
	/* The working directory may be unreachable, or too long for an address. */
	if (address->sun_path[0] == '/' || !getcwd(path, PATH_MAX) || path[0] != '/')
		return;
	bytes = strlen(path);
	bytes += (size_t)sprintf(path + bytes, "/%s", address->sun_path);
	if (bytes < sizeof(reattach->path))
		memcpy(reattach->path, path, bytes + 1);
}

/* Keep what a re-attachment needs, if the broker offers it. */
static int prepare_reattach(struct rbk *rbk, const struct rbk_options *options,
			    const struct sockaddr_un *address, void *(*main)(void *rbk),
			    struct rbk_error *error)
{
	struct client_reattach *reattach = &rbk->reattach;

	if (!(rbk->features & RBK_FEAT_REATTACH))
		return 0;
	reattach->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (reattach->news_fd < 0)
		return client_error(error, -errno, "cannot make an eventfd: %m");
	reattach->wait_ns = options->reattach_ns ? options->reattach_ns : REATTACH_NS;
	reattach->main = main;
	reattach->on_reattach = options->on_reattach;
	reattach->on_reattach_data = options->on_reattach_data;
	keep_path(reattach, address);
	snprintf(reattach->name, sizeof(reattach->name), "%s", options->name);
	reattach->is_possible = true;
	return 0;
}

int client_connect(const struct rbk_options *options, void *(*main)(void *rbk), bool is_admin,
		   struct rbk **ret, struct rbk_error *error)
{
	client_cleanup(client_unrefp) struct rbk *rbk = NULL;
	struct sockaddr_un address = {0};
	struct rbk_options own;
	uint64_t features = KNOWN_FEATURES;
	int r;

	if (!ret)
		return client_error(error, -EINVAL, "there is no place for the connection");
	r = read_options(options, &own, error);
	if (r)
		return r;
	if (main && !(own.flags & RBK_CONNECT_NO_REATTACH))
		features |= RBK_FEAT_REATTACH | RBK_FEAT_UNDO;
	r = connection_new(&rbk, error);
	if (r)
		return r;
	rbk->timeout_ns = own.timeout_ns ? own.timeout_ns : CONNECT_TIMEOUT_NS;
	rbk->reattach.lacks_userfaultfd =
		(features & RBK_FEAT_REATTACH) && !client_may_hold_up_writers();
	r = find_path(own.socket_path, is_admin, &address, error);
	if (!r)
		r = open_socket(rbk, &address, 0, error);
	if (!r)
		r = say_hello(rbk, own.name, features, error);
	if (!r)
		r = prepare_reattach(rbk, &own, &address, main, error);
	if (r)
		return r;
	*ret = rbk;
	rbk = NULL;
	return 0;
}

int client_connect_fresh(struct rbk *rbk, uint64_t timeout_ns, struct rbk_error *error)
{
	client_cleanup(client_unrefp) struct rbk *fresh = NULL;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int r;

	r = connection_new(&fresh, error);
	if (r)
		return r;
	fresh->timeout_ns = timeout_ns;
	memcpy(address.sun_path, rbk->reattach.path, sizeof(address.sun_path));
	r = open_socket(fresh, &address, SOCK_NONBLOCK, error);
	if (r)
		return r;
	pthread_mutex_lock(&rbk->lock);
	r = client_check(rbk, error);
	if (!r) {
		rbk->reattach.fresh = fresh;
		fresh = NULL;
	}
	pthread_mutex_unlock(&rbk->lock);
	if (r)
		return r;
	r = say_hello(rbk->reattach.fresh, rbk->reattach.name, rbk->features, error);
	if (!r) {
		/* The socket may become the connection's. */
		rbk->reattach.fresh->timeout_ns = rbk->timeout_ns;
		r = bound_sending(rbk->reattach.fresh, error);
	}
	if (r)
		client_disconnect_fresh(rbk);
	return r;
}

void client_disconnect_fresh(struct rbk *rbk)
{
	struct rbk *fresh;

	pthread_mutex_lock(&rbk->lock);
	fresh = rbk->reattach.fresh;
	rbk->reattach.fresh = NULL;
	pthread_mutex_unlock(&rbk->lock);
	client_unref(fresh);
}

RBK_EXPORT struct rbk *rbk_disconnect(struct rbk *rbk)
{
	bool is_unjoined;

	if (rbk && !client_is_child(rbk)) {
		client_lose(rbk, -ECONNRESET);
		/*
		 * The thread uses the connection, the caller's on_reattach, and this library, which
		 * the caller may unload. After the loss, no thread is started.
		 */
		pthread_mutex_lock(&rbk->lock);
		is_unjoined = rbk->reattach.is_unjoined;
		rbk->reattach.is_unjoined = false;
		pthread_mutex_unlock(&rbk->lock);
		if (is_unjoined)
			pthread_join(rbk->reattach.thread, NULL);
	}
	return client_unref(rbk);
}

RBK_EXPORT uint64_t rbk_features(const struct rbk *rbk)
{
	return rbk->features;
}

RBK_EXPORT const char *rbk_broker_name(const struct rbk *rbk)
{
	return __atomic_load_n(&rbk->broker, __ATOMIC_ACQUIRE);
}

RBK_EXPORT unsigned int rbk_n_reattached(const struct rbk *rbk)
{
	return __atomic_load_n(&rbk->reattach.n_done, __ATOMIC_ACQUIRE);
}

RBK_EXPORT int rbk_fd(const struct rbk *rbk)
{
	return client_is_child(rbk) ? -ECHILD : rbk->fd;
}

_Static_assert(sizeof(struct rbk_device) == sizeof(struct rbk_wire_device), "mirrored");
_Static_assert(offsetof(struct rbk_device, kind) == offsetof(struct rbk_wire_device, kind), "");
_Static_assert(offsetof(struct rbk_device, memory_bytes) ==
		       offsetof(struct rbk_wire_device, memory_bytes),
	       "mirrored");
_Static_assert(offsetof(struct rbk_device, paths) == offsetof(struct rbk_wire_device, paths), "");
_Static_assert((int)RBK_DEVICE_KIND_CPU == (int)RBK_WIRE_DEVICE_CPU, "mirrored");
_Static_assert((int)RBK_DEVICE_KIND_GPU == (int)RBK_WIRE_DEVICE_GPU, "mirrored");
_Static_assert((int)RBK_DEVICE_KIND_SOFTWARE_GPU == (int)RBK_WIRE_DEVICE_SOFTWARE_GPU, "mirrored");

RBK_EXPORT int rbk_devices(struct rbk *rbk, struct rbk_device *devices, unsigned int max_devices,
			   unsigned int *ret_n_devices)
{
	return rbk_get_devices(rbk, devices, max_devices, ret_n_devices, NULL);
}

RBK_EXPORT int rbk_get_devices(struct rbk *rbk, struct rbk_device *devices,
			       unsigned int max_devices, unsigned int *ret_n_devices,
			       struct rbk_error *error)
{
	struct rbk_wire_request request = {.type = RBK_WIRE_DEVICES};
	struct client_message message = {&request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	unsigned int n;
	int r;

	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	n = answer.reply.devices.n_devices;
	if (max_devices > 0)
		memcpy(devices, answer.reply.devices.devices,
		       (n < max_devices ? n : max_devices) * sizeof(*devices));
	*ret_n_devices = n;
	return 0;
}

#define STATS_OFFSET sizeof(struct rbk_wire_reply)
_Static_assert(sizeof(struct rbk_stats) == sizeof(struct rbk_wire_stats) - STATS_OFFSET, "");
_Static_assert(offsetof(struct rbk_stats, session_reasons) ==
		       offsetof(struct rbk_wire_stats, session_reasons) - STATS_OFFSET,
	       "mirrored");
_Static_assert(offsetof(struct rbk_stats, host_bytes) ==
		       offsetof(struct rbk_wire_stats, host_bytes) - STATS_OFFSET,
	       "mirrored");
_Static_assert(offsetof(struct rbk_stats, sessions_ended_hostile) ==
		       offsetof(struct rbk_wire_stats, sessions_ended_hostile) - STATS_OFFSET,
	       "mirrored");

RBK_EXPORT int rbk_stats(struct rbk *rbk, struct rbk_stats *ret)
{
	return rbk_get_stats(rbk, ret, NULL);
}

RBK_EXPORT int rbk_get_stats(struct rbk *rbk, struct rbk_stats *ret, struct rbk_error *error)
{
	struct rbk_wire_request request = {.type = RBK_WIRE_STATS};
	struct client_message message = {&request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	memcpy(ret, (const char *)&answer.reply.stats + STATS_OFFSET, sizeof(*ret));
	return 0;
}

#define TENANT_OFFSET sizeof(struct rbk_wire_reply)
_Static_assert(sizeof(struct rbk_tenant) == sizeof(struct rbk_wire_tenant) - TENANT_OFFSET, "");
_Static_assert(sizeof(struct rbk_tenant_device) == sizeof(struct rbk_wire_tenant_device), "");
_Static_assert(offsetof(struct rbk_tenant_device, gtt) ==
		       offsetof(struct rbk_wire_tenant_device, gtt),
	       "mirrored");
_Static_assert(offsetof(struct rbk_tenant, sessions) ==
		       offsetof(struct rbk_wire_tenant, sessions) - TENANT_OFFSET,
	       "mirrored");
_Static_assert(offsetof(struct rbk_tenant, n_refused) ==
		       offsetof(struct rbk_wire_tenant, n_refused) - TENANT_OFFSET,
	       "mirrored");
_Static_assert(offsetof(struct rbk_tenant, devices) ==
		       offsetof(struct rbk_wire_tenant, devices) - TENANT_OFFSET,
	       "mirrored");

RBK_EXPORT int rbk_tenant(struct rbk *rbk, struct rbk_tenant *ret)
{
	return rbk_get_tenant(rbk, ret, NULL);
}

RBK_EXPORT int rbk_get_tenant(struct rbk *rbk, struct rbk_tenant *ret, struct rbk_error *error)
{
	struct rbk_wire_request request = {.type = RBK_WIRE_TENANT};
	struct client_message message = {&request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = client_check(rbk, error);
	if (r)
		return r;
	if (!(rbk->features & RBK_FEAT_TENANTS))
		return client_error(error, -EOPNOTSUPP,
				    "%s does not report limits: it does not offer "
				    "RBK_FEAT_TENANTS",
				    rbk_broker_name(rbk));
	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	memcpy(ret, (const char *)&answer.reply.tenant + TENANT_OFFSET, sizeof(*ret));
	return 0;
}

RBK_EXPORT const char *rbk_reason_name(unsigned int reason)
{
	static const char *const names[RBK_REASON_COUNT] = {
#define NAME(id, name) [RBK_REASON_##id] = name,
		STATS_REASON_NAMES(NAME)
#undef NAME
	};

	return reason < RBK_REASON_COUNT ? names[reason] : "unknown";
}
