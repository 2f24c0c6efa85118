#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * libringbroker for administrators
 *
 * brokerd has a second socket, for those who look after it: the members of a group may read
 * everybody's statistics pages there, root, the user that brokerd runs as, and the users that its
 * configuration names (admin-users) may also change something. A connection to it is a struct rbk
 * like any other, but belongs to no tenant, and has no arenas, plans or rings (-EPERM).
 * rbk_features() tells what this user may: RBK_FEAT_ADMIN, RBK_FEAT_ADMIN_CHANGE.
 *
 * rbk_devices(), rbk_stats(), and rbk_stats_map() with every enum rbk_stats_whose but
 * RBK_STATS_OWN, need RBK_FEAT_ADMIN; rbk_catalogue() needs neither; everything else here,
 * rbk_stats_reset() and rbk_force_cpu() need RBK_FEAT_ADMIN_CHANGE. Without it they return -EPERM.
 * Any thread may call all of these; errors beside those listed are those of a broken connection, as
 * of rbk_stats().
 */
#include <ringbroker.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Connects to the administrators' socket. As rbk_connect(), but for options->socket_path, whose
 * default is what rbk_admin_socket_path() says without one.
 * Return: as rbk_connect(); -EACCES: this user is not in the group that may.
 */
int rbk_admin_connect(const struct rbk_options *options, struct rbk **ret, struct rbk_error *error);

/*
 * Where the administrators' socket of the broker is whose other socket is at @socket_path: beside
 * it, called admin.sock if that is called brokerd.sock, x.admin.sock for x.sock, and x.admin for x.
 * A broker may have been told another one (--admin-socket). Without a @socket_path:
 * $RINGBROKER_ADMIN_SOCKET, else beside the socket that rbk_connect() would use.
 * Return: 0; -ENAMETOOLONG: it does not fit into @bytes; -EINVAL.
 */
int rbk_admin_socket_path(const char *socket_path, char *ret, size_t bytes);

/*
 * Gives the tenant of number @tenant another limit: @key and @value as in its section of
 * brokerd.conf(5) ("vram-max", "2GiB"); the value "default" goes back to what the file says. It
 * stays until the broker ends, or the file is read again and has changed there.
 * Return: 0;
 *   -EPERM   not for this user
 *   -ENOENT  no such tenant
 *   -EINVAL  no such key or value, or the reserves of all would not fit; the sentence says which
 */
int rbk_admin_set(struct rbk *rbk, uint32_t tenant, const char *key, const char *value,
		  struct rbk_error *error);

/* What is to be evicted. Zero-initialised but for device: every tenant's plans. */
struct rbk_admin_evict {
	uint32_t tenant;  /* its number; 0: every one */
	uint32_t session; /* with plan_id, as statistics pages have them; 0: all of the tenant's */
	uint32_t plan_id;
	uint32_t device; /* RBK_DEVICE_*; RBK_DEVICE_NONE: every one */
};

/*
 * Takes plans' device memory: tasks that use it end first, so this has only begun when it returns;
 * what is wanted again returns in its turn. *ret_n_plans leave and give back *ret_bytes; both may
 * be NULL.
 * Return: 0; -EPERM; -ENOENT: no such tenant or plan; -EINVAL: no such device.
 */
int rbk_admin_evict(struct rbk *rbk, const struct rbk_admin_evict *what, uint64_t *ret_n_plans,
		    uint64_t *ret_bytes, struct rbk_error *error);

enum rbk_drain {
	RBK_DRAIN_ASK = 0,
	RBK_DRAIN_BEGIN = 1,
	RBK_DRAIN_END = 2,
};

/* How far draining is. */
struct rbk_admin_drained {
	uint64_t n_tasks;      /* that have still to end */
	uint64_t device_bytes; /* that have still to be given back */
	uint32_t is_drained;   /* draining is on */
	uint32_t reserved;
};

/*
 * Lets a tenant (its number) or a device (RBK_DEVICE_*) run dry, or asks how far that is, which
 * everybody with such a connection may. A drained
 * device gets no tasks and gives its memory back; a drained tenant's rings are not read any
 * further, and its new sessions may look, and get no rings, arenas or plans (-EBUSY). Nothing is
 * lost: what was admitted completes, what was not is when draining ends. *ret may be NULL.
 * Return: 0; -EPERM; -ENOENT: no such tenant or device; -EINVAL: the CPU cannot be drained.
 */
int rbk_admin_drain_tenant(struct rbk *rbk, uint32_t tenant, enum rbk_drain action,
			   struct rbk_admin_drained *ret, struct rbk_error *error);
int rbk_admin_drain_device(struct rbk *rbk, uint32_t device, enum rbk_drain action,
			   struct rbk_admin_drained *ret, struct rbk_error *error);

/*
 * What the broker logs: up to @level (3 error, 4 warning, 6 info, 7 debug), until it ends; RBK_ASK
 * only asks, which everybody with such a connection may. What it is now goes to *ret_level, which
 * may be NULL.
 * Return: 0; -EPERM; -EINVAL: no such level.
 */
int rbk_admin_log_level(struct rbk *rbk, int level, int *ret_level, struct rbk_error *error);

/* An operator, and what it runs on. */
struct rbk_operator {
	char name[32];  /* ONNX's, NUL-terminated */
	uint32_t opset; /* since which it is as it is here */
	uint32_t reserved;
	uint32_t types[RBK_MAX_DEVICES]; /* by RBK_DEVICE_*: bit RBK_DTYPE_*; 0: not there */
};

/*
 * Fills at most @max operators into @operators; how many there are goes to *ret_n (may be more).
 * On connections of both kinds, any user's.
 * Return: 0; -EOPNOTSUPP: the broker does not offer RBK_FEAT_CATALOGUE.
 */
int rbk_catalogue(struct rbk *rbk, struct rbk_operator *operators, unsigned int max,
		  unsigned int *ret_n);

#ifdef __cplusplus
}
#endif
