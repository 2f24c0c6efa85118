#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * libringbroker for administrators
 *
 * brokerd has a second socket, for administrators. Members of a group may read every tenant's
 * statistics pages on it. Root, the user that brokerd runs as, and the users that its configuration
 * names (admin-users) may also make changes. A connection to this socket is a struct rbk like any
 * other, but belongs to no tenant, and has no arenas, plans or rings (-EPERM). rbk_features()
 * returns this user's rights: RBK_FEAT_ADMIN, RBK_FEAT_ADMIN_CHANGE.
 *
 * rbk_devices(), rbk_stats(), and rbk_stats_map() with every enum rbk_stats_whose but
 * RBK_STATS_OWN, need RBK_FEAT_ADMIN. So does asking for the progress of draining or for the log
 * level. rbk_catalogue() needs no right. Every function that makes a change, rbk_stats_reset() and
 * rbk_force_cpu() need RBK_FEAT_ADMIN_CHANGE. Without the right they return -EPERM. Any thread may
 * call all of these functions. Beside the errors listed, functions return those of a lost
 * connection, as rbk_stats() does.
 */
#include <ringbroker.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Connect to the administrators' socket. As rbk_connect(), but the default of options->socket_path
 * is the path that rbk_admin_socket_path() returns for NULL.
 * Return: as rbk_connect(); -EACCES: this user is not in the administrators' group.
 */
int rbk_admin_connect(const struct rbk_options *options, struct rbk **ret, struct rbk_error *error);

/*
 * Derive the path of the administrators' socket from @socket_path, the broker's other socket. The
 * name is admin.sock for brokerd.sock, x.admin.sock for x.sock, and x.admin for x. Both sockets lie
 * in the same folder, unless that is called ringbroker: the administrators' socket then lies in the
 * folder ringbroker-admin beside it, so that a container with the other folder does not get it. If
 * nothing is there, but a socket of that name lies in the same folder, as earlier brokers made it,
 * return that one's path. A broker may use another path (--admin-socket). With @socket_path NULL,
 * return $RINGBROKER_ADMIN_SOCKET, else the path derived from the socket that rbk_connect() would
 * use.
 * Return: 0; -ENAMETOOLONG: the path does not fit into @bytes; -EINVAL.
 */
int rbk_admin_socket_path(const char *socket_path, char *ret, size_t bytes);

/*
 * Override a limit of the tenant of number @tenant. @key and @value are as in its section of
 * brokerd.conf(5) ("vram-max", "2GiB"); the value "default" restores the value of the file. The
 * override holds until the broker ends, or until the file is read again with a changed value for
 * this key. Statistics pages show the new limit when the call returns.
 * Return: 0: error->text is empty, or says that the machine has less than the value;
 *   -EPERM   this user may not make changes
 *   -ENOENT  no such tenant
 *   -EINVAL  no such key or value, or the reserves of all tenants would not fit; the sentence says
 *            which
 */
int rbk_admin_set(struct rbk *rbk, uint32_t tenant, const char *key, const char *value,
		  struct rbk_error *error);

/* A key of a tenant's section, with its values written as in brokerd.conf(5), NUL-terminated. */
struct rbk_admin_limit {
	char key[32];
	char value[96];        /* in force */
	char policy_value[96]; /* of the file, or its default */
	uint32_t n_limits;     /* number of keys */
	uint32_t is_changed;   /* 1: rbk_admin_set() has given the value in force */
};

/*
 * Ask for the limit number @index, from 0 to n_limits - 1, of the tenant of number @tenant. Every
 * user of this socket may ask.
 * Return: 0;
 *   -EPERM       this is not the administrators' socket
 *   -ENOENT      no such tenant, or no such limit
 *   -EOPNOTSUPP  the broker does not offer RBK_FEAT_ADMIN_LIMITS
 */
int rbk_admin_limit(struct rbk *rbk, uint32_t tenant, uint32_t index, struct rbk_admin_limit *ret,
		    struct rbk_error *error);

/*
 * Selection of plans to evict. Zero-initialised except for device, it selects every tenant's plans.
 */
struct rbk_admin_evict {
	uint32_t tenant;  /* the tenant's number; 0: all tenants */
	uint32_t session; /* with plan_id, as in statistics pages; 0: all of the tenant's plans */
	uint32_t plan_id;
	uint32_t device; /* RBK_DEVICE_*; RBK_DEVICE_NONE: all devices */
};

/*
 * Evict plans. Tasks that use the plans complete first, so eviction has only begun when the call
 * returns. A plan that is requested again is loaded again in its turn. The number of plans to be
 * evicted is stored in *ret_n_plans, and the bytes that they release in *ret_bytes; both may be
 * NULL.
 * Return: 0; -EPERM; -ENOENT: no such tenant or plan; -EINVAL: no such device.
 */
int rbk_admin_evict(struct rbk *rbk, const struct rbk_admin_evict *what, uint64_t *ret_n_plans,
		    uint64_t *ret_bytes, struct rbk_error *error);

enum rbk_drain {
	RBK_DRAIN_ASK = 0,
	RBK_DRAIN_BEGIN = 1,
	RBK_DRAIN_END = 2,
};

/* Progress of draining. */
struct rbk_admin_drained {
	uint64_t n_tasks;      /* tasks that have not completed */
	uint64_t device_bytes; /* device memory not yet released */
	uint32_t is_drained;   /* 1: draining is on */
	/*
	 * 1: the tasks have completed and the plans have left, and only clients can release the
	 * remaining device_bytes; 0 from older brokers.
	 */
	uint32_t is_held;
};

/*
 * Drain a tenant (by number) or a device (RBK_DEVICE_*), end draining, or ask for its progress;
 * every user of this socket may ask. A drained device gets no tasks and its plans are evicted. A
 * drained tenant's rings are not read any more; its new sessions may read statistics, but get no
 * rings, arenas or plans (-EBUSY). When its tasks have completed, its plans are evicted from all
 * devices. Nothing is lost: admitted tasks complete, other tasks are admitted when draining ends.
 * Clients keep their leases and exported arenas. *ret may be NULL. With ret->is_held, error->text
 * says who holds the remaining memory.
 * Return: 0; -EPERM; -ENOENT: no such tenant or device; -EINVAL: the CPU cannot be drained.
 */
int rbk_admin_drain_tenant(struct rbk *rbk, uint32_t tenant, enum rbk_drain action,
			   struct rbk_admin_drained *ret, struct rbk_error *error);
int rbk_admin_drain_device(struct rbk *rbk, uint32_t device, enum rbk_drain action,
			   struct rbk_admin_drained *ret, struct rbk_error *error);

enum rbk_restart {
	RBK_RESTART_ASK = 0,
	RBK_RESTART_BEGIN = 1,
};

/* A restart, and the broker that answers. Times are of CLOCK_MONOTONIC; 0: not yet. */
struct rbk_admin_restart {
	uint64_t ready_ns;    /* when this broker began to serve clients */
	uint64_t restored_ns; /* when it last took over a ring of an earlier broker */
	uint32_t n_sessions;  /* sessions with rings, which re-attach to the next broker */
	uint32_t n_restored;  /* sessions that re-attached, with rings, to this broker */
	uint64_t held_ns;     /* when the broker ceased to admit entries, for RBK_RESTART_BEGIN */
	uint64_t drain_ns;    /* how long it waited for tasks, in ns, for RBK_RESTART_BEGIN */
	uint64_t n_drained;   /* tasks that completed meanwhile, for RBK_RESTART_BEGIN */
	uint64_t n_left;      /* tasks that the next broker runs, for RBK_RESTART_BEGIN */
};

/*
 * Restart the broker, from the program that is now at its path (RBK_RESTART_BEGIN), or ask about
 * earlier restarts (RBK_RESTART_ASK; every user of this socket may ask, with @drain_ms 0). The
 * broker first checks that the program exists and accepts its options and its configuration. Then
 * it admits no entries, and waits up to @drain_ms, which must be shorter than the connection's
 * timeout, until tasks in flight have completed. The call returns when the next broker is about to
 * take over; this connection is lost then. ready_ns tells the next broker from this one. Clients
 * re-attach by themselves, see rbk_connect(). @ret may be NULL.
 * Return: 0: if the broker could not be replaced and goes on, a later RBK_RESTART_ASK stores the
 * cause in error->text;
 *   -EPERM       this user may not make changes
 *   -EBUSY       the broker is restarting, or stopping
 *   -EINVAL      the next broker could not start: the sentence says why, and nothing has changed;
 *                or an impossible action or time
 *   -EOPNOTSUPP  the broker does not offer RBK_FEAT_RESTART
 */
int rbk_admin_restart(struct rbk *rbk, enum rbk_restart action, uint32_t drain_ms,
		      struct rbk_admin_restart *ret, struct rbk_error *error);

/*
 * Set the level up to which the broker logs (3 error, 4 warning, 6 info, 7 debug), until the broker
 * ends. RBK_ASK only asks, which every user of this socket may do. The current level is stored in
 * *ret_level, which may be NULL.
 * Return: 0; -EPERM; -EINVAL: no such level.
 */
int rbk_admin_log_level(struct rbk *rbk, int level, int *ret_level, struct rbk_error *error);

/* An operator, and its element types by device. */
struct rbk_operator {
	char name[32];  /* ONNX's name, NUL-terminated */
	uint32_t opset; /* opset that defined the operator in this form */
	uint32_t reserved;
	/* indexed by RBK_DEVICE_*: bit RBK_DTYPE_*; 0: unsupported there */
	uint32_t types[RBK_MAX_DEVICES];
};

/*
 * Store at most @max operators in @operators, and the total number, which may be larger, in *ret_n.
 * Allowed on both sockets, for every user.
 * Return: 0; -EOPNOTSUPP: the broker does not offer RBK_FEAT_CATALOGUE.
 */
int rbk_catalogue(struct rbk *rbk, struct rbk_operator *operators, unsigned int max,
		  unsigned int *ret_n);

#ifdef __cplusplus
}
#endif
