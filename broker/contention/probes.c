/* SPDX-License-Identifier: MIT */
/*
 * Loading the scheduler probes, and setting the tasks to watch
 *
 * The maps that hold figures are mapped here, writable, because figures of a reused slot are set to
 * 0 from this side. Before that the slot's generation grows, and programs ignore data of earlier
 * generations. So no task has to be found and unmarked at that moment, and stale marks do no harm.
 *
 * Three small hash maps say which slot tasks count for, by numbers as this process sees them; the
 * walk, and fork, read these maps. Their sizes are fixed, so they do not grow with the number of
 * tasks.
 *
 * libbpf's errors are negative errno (its 1.0 mode is the only one in 1.0 and later).
 */
#include "contention/probes.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <run-queue.skel.h>

#include "contention/probes-why.h"
#include "shm/number.h"
#include "util/error.h"
#include "util/log.h"

/* Missing in util-linux's and older headers. */
#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#endif
#ifndef CAP_BPF
#define CAP_BPF 39
#endif

struct mapping {
	void *at;
	size_t n_bytes;
};

struct probes {
	struct run_queue_bpf *skeleton;
	uint32_t n_processors;
	struct mapping threads, tenants, processors;
	pid_t tids[RUN_QUEUE_MAX_THREADS];
	uint32_t n_threads, n_tenants; /* slots ever used */
	bool need_privilege;
};

/* --- Messages of libbpf --- */

/* The verifier rejected the probes of the loading thread. */
static _Thread_local bool is_refused;

/* The last lines of a verifier's log give the reason; so many lines are logged. */
enum { MAX_LINES = 60 };

static int say(enum libbpf_print_level level, const char *format, va_list args)
{
	const char *from;
	char *text = NULL, *line, *rest;
	int n_lines = 0;

	if (strstr(format, "BPF program load failed"))
		is_refused = true;
	if (log_get_level() < LOG_LEVEL_DEBUG || level == LIBBPF_DEBUG)
		return 0;
	if (vasprintf(&text, format, args) < 0)
		return 0;
	for (from = text + strlen(text); from > text; from--)
		if (*from == '\n' && ++n_lines > MAX_LINES)
			break;
	for (rest = text + (from - text); (line = strsep(&rest, "\n"));)
		if (*line)
			log_debug(LOG_DETAIL, "%s", line);
	free(text);
	return 0;
}

/* --- Features of this machine --- */

static int get_capabilities(struct __user_cap_data_struct ret[2])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capget, &header, ret) < 0 ? -errno : 0;
}

static int set_capabilities(const struct __user_cap_data_struct data[2])
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static bool has_capability(const struct __user_cap_data_struct data[2], int capability)
{
	return data[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability);
}

static bool has_privilege(void)
{
	struct __user_cap_data_struct data[2];

	if (get_capabilities(data))
		return true; /* loading will tell */
	return has_capability(data, CAP_SYS_ADMIN) ||
	       (has_capability(data, CAP_BPF) && has_capability(data, CAP_PERFMON));
}

/* Return true in the only lockdown mode in which programs may not read kernel memory. */
static bool is_locked_down(void)
{
	char text[128] = "";
	FILE *file = fopen("/sys/kernel/security/lockdown", "re");

	if (!file)
		return false;
	if (!fgets(text, sizeof(text), file))
		text[0] = 0;
	fclose(file);
	return strstr(text, "[confidentiality]");
}

static bool may_make_map(void)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "rb_try", 4, 4, 1, NULL);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/*
 * Return true if fewer descriptors are available than the probes need; libbpf then fails in various
 * ways.
 */
static bool lacks_files(void)
{
	int fds[48], n = 0;
	bool lacks;

	while (n < (int)(sizeof(fds) / sizeof(fds[0])) &&
	       (fds[n] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0)
		n++;
	lacks = n < (int)(sizeof(fds) / sizeof(fds[0])) && errno == EMFILE;
	while (n > 0)
		close(fds[--n]);
	return lacks;
}

static bool has_locked_limit(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/*
 * Return the parameters of a trace point without the first, which is the probe's own; NULL: it has
 * none.
 */
static const struct btf_param *parameters_of(const struct btf *btf, const char *name, int *ret_n)
{
	char full_name[64];
	const struct btf_type *type;
	int32_t id;

	snprintf(full_name, sizeof(full_name), "btf_trace_%s", name);
	id = btf__find_by_name_kind(btf, full_name, BTF_KIND_TYPEDEF);
	if (id < 0)
		return NULL;
	type = btf__type_by_id(btf, btf__type_by_id(btf, (uint32_t)id)->type);
	if (!type || !btf_is_ptr(type))
		return NULL;
	type = btf__type_by_id(btf, type->type);
	if (!type || !btf_is_func_proto(type) || btf_vlen(type) < 1)
		return NULL;
	*ret_n = btf_vlen(type) - 1;
	return btf_params(type) + 1;
}

static bool is_pointer(const struct btf *btf, const struct btf_param *parameter)
{
	const struct btf_type *type = btf__type_by_id(btf, parameter->type);

	return type && btf_is_ptr(type);
}

/*
 * Choose programs by the kernel's trace points.
 * Return: NULL; or the missing trace point.
 */
static const char *choose(struct run_queue_bpf *skeleton, const struct btf *btf)
{
	const struct btf_param *parameters;
	bool is_told;
	int n;

	/* preempt, prev, next; from 5.18 on prev_state. */
	parameters = parameters_of(btf, "sched_switch", &n);
	if (!parameters || n < 3 || !is_pointer(btf, &parameters[1]) ||
	    !is_pointer(btf, &parameters[2]) || (n > 3 && is_pointer(btf, &parameters[3])))
		return "sched_switch";
	is_told = n > 3;
	bpf_program__set_autoload(skeleton->progs.on_switch, is_told);
	bpf_program__set_autoload(skeleton->progs.on_switch_untold, !is_told);

	if (!parameters_of(btf, "sched_wakeup", &n))
		return "sched_wakeup";
	if (!parameters_of(btf, "sched_wakeup_new", &n))
		return "sched_wakeup_new";
	if (!parameters_of(btf, "task_newtask", &n))
		return "task_newtask";
	/* Without it the next walk notices a task that was moved. */
	if (!parameters_of(btf, "cgroup_attach_task", &n))
		bpf_program__set_autoload(skeleton->progs.on_cgroup_attach, false);
	return NULL;
}

/* --- Loading --- */

enum { TRIES = 5 };

static int map(struct bpf_map *map, size_t value_bytes, struct mapping *ret)
{
	const size_t n_bytes = round_up(bpf_map__max_entries(map) * round_up(value_bytes, 8),
					(size_t)sysconf(_SC_PAGESIZE));
	void *at;

	at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
	if (at == MAP_FAILED)
		return -errno;
	*ret = (struct mapping){.at = at, .n_bytes = n_bytes};
	return 0;
}

static void unmap(struct mapping *mapping)
{
	if (mapping->at)
		munmap(mapping->at, mapping->n_bytes);
}

/* Test whether a walk needs the privilege, by dropping it for this thread during the test. */
static bool does_need_privilege(struct probes *probes)
{
	struct __user_cap_data_struct data[2], less[2];
	bool need = true;
	int fd;

	if (get_capabilities(data))
		return true;
	memcpy(less, data, sizeof(less));
	less[CAP_TO_INDEX(CAP_BPF)].effective &= ~CAP_TO_MASK(CAP_BPF);
	less[CAP_TO_INDEX(CAP_PERFMON)].effective &= ~CAP_TO_MASK(CAP_PERFMON);
	less[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective &= ~CAP_TO_MASK(CAP_SYS_ADMIN);
	if (set_capabilities(less))
		return true;
	fd = bpf_iter_create(bpf_link__fd(probes->skeleton->links.walk));
	if (fd >= 0) {
		close(fd);
		need = false;
	}
	if (set_capabilities(data))
		log_debug(LOG_DETAIL, "cannot restore the capabilities");
	return need;
}

/* Return: 0; or negative errno, with the known reasons in @facts. */
static int load(struct probes *probes, struct probes_facts *facts)
{
	int n_processors = libbpf_num_possible_cpus(), r;
	struct run_queue_bpf *skeleton;
	struct btf *btf;

	if (n_processors < 0)
		return n_processors;
	probes->n_processors = (uint32_t)n_processors;
	btf = btf__load_vmlinux_btf();
	if (!btf) {
		facts->has_btf = false;
		return -errno;
	}
	probes->skeleton = skeleton = run_queue_bpf__open();
	if (!skeleton) {
		r = -errno;
		btf__free(btf);
		return r;
	}
	facts->missing = choose(skeleton, btf);
	btf__free(btf);
	if (facts->missing)
		return -ENOENT;

	skeleton->rodata->n_processors = probes->n_processors;
	r = bpf_map__set_max_entries(skeleton->maps.tenants,
				     RUN_QUEUE_MAX_TENANTS * probes->n_processors);
	if (!r)
		r = bpf_map__set_max_entries(skeleton->maps.processors, probes->n_processors);
	if (!r)
		r = bpf_map__set_max_entries(skeleton->maps.stints_of, probes->n_processors);
	if (!r)
		r = run_queue_bpf__load(skeleton);
	if (r)
		return r;

	facts->is_loaded = true;
	r = map(skeleton->maps.threads, sizeof(struct run_queue_record), &probes->threads);
	if (!r)
		r = map(skeleton->maps.tenants, sizeof(struct run_queue_record), &probes->tenants);
	if (!r)
		r = map(skeleton->maps.processors, sizeof(struct run_queue_processor),
			&probes->processors);
	if (!r)
		r = run_queue_bpf__attach(skeleton);
	return r;
}

static void unload(struct probes *probes)
{
	unmap(&probes->threads);
	unmap(&probes->tenants);
	unmap(&probes->processors);
	run_queue_bpf__destroy(probes->skeleton);
	*probes = (struct probes){.skeleton = NULL};
}

/*
 * Load with signals blocked. The verifier returns EAGAIN when this thread has a pending signal, and
 * libbpf tries five times. If signals are more frequent than the verifier's run time, from a
 * profiler for example, that is never enough. Unblockable interruptions (a tracer's, a freezer's)
 * end by themselves.
 */
static int load_patiently(struct probes *probes, struct probes_facts *facts)
{
	const struct probes_facts before = *facts;
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned int i = 0; i < TRIES; i++) {
		unload(probes);
		*facts = before;
		is_refused = false;
		r = load(probes, facts);
		if (r != -EAGAIN)
			break;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

int probes_new(char ret_why[RUN_QUEUE_WHY_BYTES], struct probes **ret)
{
	_cleanup_(probes_freep) struct probes *probes = NULL;
	struct probes_facts facts = {.has_btf = access("/sys/kernel/btf/vmlinux", R_OK) == 0,
				     .has_privilege = has_privilege()};

	libbpf_set_print(say);
	if (facts.has_btf && facts.has_privilege) {
		probes = calloc(1, sizeof(*probes));
		if (!probes)
			return error_origin(-ENOMEM);
		facts.error = load_patiently(probes, &facts);
		if (!facts.error) {
			probes->need_privilege = does_need_privilege(probes);
			*ret = steal_ptr(probes);
			return 0;
		}
		facts.is_refused = is_refused;
		facts.lacks_files = lacks_files();
		facts.is_locked_down = is_locked_down();
		facts.may_make_map = may_make_map();
		facts.has_locked_limit = has_locked_limit();
		facts.has_storage = libbpf_probe_bpf_map_type(BPF_MAP_TYPE_TASK_STORAGE, NULL) != 0;
	}
	probes_why(&facts, ret_why, RUN_QUEUE_WHY_BYTES);
	return PROBES_E_UNAVAILABLE;
}

struct probes *probes_free(struct probes *probes)
{
	if (!probes)
		return NULL;
	unload(probes);
	free(probes);
	return NULL;
}

/* --- Reading --- */

uint32_t probes_n_processors(const struct probes *probes)
{
	return probes->n_processors;
}

static struct run_queue_record *thread_record(const struct probes *probes, uint32_t slot)
{
	return (struct run_queue_record *)probes->threads.at + slot;
}

static struct run_queue_record *tenant_record(const struct probes *probes, uint16_t slot,
					      uint32_t processor)
{
	return (struct run_queue_record *)probes->tenants.at + (size_t)slot * probes->n_processors +
	       processor;
}

const struct run_queue_record *probes_thread(const struct probes *probes, uint32_t slot)
{
	return thread_record(probes, slot);
}

const struct run_queue_record *probes_tenant(const struct probes *probes, uint16_t slot,
					     uint32_t processor)
{
	return tenant_record(probes, slot, processor);
}

const struct run_queue_processor *probes_processor(const struct probes *probes, uint32_t processor)
{
	return (const struct run_queue_processor *)probes->processors.at + processor;
}

/* --- Tasks to watch --- */

/* Update in two steps, to tell new entries from changed ones. */
static int put(struct probes *probes, struct bpf_map *map, const void *key, const void *value,
	       bool is_counted)
{
	int fd = bpf_map__fd(map), r;

	r = bpf_map_update_elem(fd, key, value, BPF_NOEXIST);
	if (!r && is_counted)
		probes->skeleton->bss->n_watched++;
	if (r == -EEXIST)
		r = bpf_map_update_elem(fd, key, value, BPF_EXIST);
	return r == -E2BIG ? -ENOSPC : r;
}

static int take(struct probes *probes, struct bpf_map *map, const void *key, bool is_counted)
{
	int r = bpf_map_delete_elem(bpf_map__fd(map), key);

	if (!r && is_counted)
		probes->skeleton->bss->n_watched--;
	return r == -ENOENT ? 0 : r;
}

static unsigned long long tenant_owner(struct probes *probes, uint16_t tenant)
{
	return RUN_QUEUE_OWNER(RUN_QUEUE_TENANT << RUN_QUEUE_KIND_SHIFT | tenant,
			       probes->skeleton->bss->generations.tenants[tenant]);
}

static void use_tenant(struct probes *probes, uint16_t tenant)
{
	if (tenant >= probes->n_tenants)
		probes->n_tenants = tenant + 1u;
}

int probes_set_thread(struct probes *probes, uint32_t slot, pid_t tid)
{
	struct bpf_map *map = probes->skeleton->maps.thread_slots;
	volatile unsigned int *generation;
	unsigned long long owner;
	int r;

	if (slot >= RUN_QUEUE_MAX_THREADS)
		return -ENOSPC;
	if (slot >= probes->n_threads)
		probes->n_threads = slot + 1;
	if (probes->tids[slot]) {
		r = take(probes, map, &probes->tids[slot], false);
		if (r)
			return error_origin(r);
		probes->tids[slot] = 0;
	}
	generation = &probes->skeleton->bss->generations.threads[slot];
	*generation += 1;
	memset(thread_record(probes, slot), 0, sizeof(struct run_queue_record));
	if (!tid)
		return 0;
	owner = RUN_QUEUE_OWNER(RUN_QUEUE_THREAD << RUN_QUEUE_KIND_SHIFT | slot, *generation);
	r = put(probes, map, &tid, &owner, false);
	if (r)
		return error_origin(r);
	probes->tids[slot] = tid;
	return 0;
}

int probes_set_process(struct probes *probes, pid_t pid, uint16_t tenant)
{
	struct run_queue_process process;

	if (tenant >= RUN_QUEUE_MAX_TENANTS)
		return -ENOSPC;
	use_tenant(probes, tenant);
	process = (struct run_queue_process){.owner = tenant_owner(probes, tenant)};
	return put(probes, probes->skeleton->maps.processes, &pid, &process, true);
}

int probes_unset_process(struct probes *probes, pid_t pid)
{
	return take(probes, probes->skeleton->maps.processes, &pid, true);
}

int probes_set_cgroup(struct probes *probes, uint64_t cgroup, uint16_t tenant)
{
	unsigned long long owner;

	if (tenant >= RUN_QUEUE_MAX_TENANTS)
		return -ENOSPC;
	use_tenant(probes, tenant);
	owner = tenant_owner(probes, tenant);
	return put(probes, probes->skeleton->maps.cgroups, &cgroup, &owner, true);
}

int probes_unset_cgroup(struct probes *probes, uint64_t cgroup)
{
	return take(probes, probes->skeleton->maps.cgroups, &cgroup, true);
}

/* Clear a slot's owner from the causers, so that its next owner is not blamed. */
static void forget_causer(struct run_queue_record *record, unsigned int who)
{
	uint32_t i;

	for (i = 0; i < RUN_QUEUE_CAUSERS; i++)
		if (record->causers[i].who == who)
			record->causers[i].who = 0;
}

void probes_clear_tenant(struct probes *probes, uint16_t tenant)
{
	volatile unsigned int *generation;
	unsigned int who = RUN_QUEUE_TENANT << RUN_QUEUE_KIND_SHIFT | tenant;
	uint32_t i, j;

	if (tenant >= RUN_QUEUE_MAX_TENANTS)
		return;
	generation = &probes->skeleton->bss->generations.tenants[tenant];
	*generation += 1;
	for (j = 0; j < probes->n_processors; j++)
		memset(tenant_record(probes, tenant, j), 0, sizeof(struct run_queue_record));
	for (i = 0; i < probes->n_threads; i++)
		forget_causer(thread_record(probes, i), who);
	for (i = 0; i < probes->n_tenants; i++)
		for (j = 0; j < probes->n_processors; j++)
			forget_causer(tenant_record(probes, (uint16_t)i, j), who);
}

int probes_walk(struct probes *probes)
{
	char buffer[64];
	ssize_t n;
	int fd, r = 0;

	fd = bpf_iter_create(bpf_link__fd(probes->skeleton->links.walk));
	if (fd < 0)
		return error_origin(fd);
	probes->skeleton->bss->n_tasks = 0;
	do {
		n = read(fd, buffer, sizeof(buffer));
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			r = error_origin(-errno);
	} while (n > 0 || (n < 0 && !r));
	close(fd);
	return r;
}

uint32_t probes_n_tasks(const struct probes *probes)
{
	return probes->skeleton->bss->n_tasks;
}

void probes_cost(struct probes *probes, struct run_queue_cost *ret)
{
	struct bpf_program *program;

	*ret = (struct run_queue_cost){0};
	bpf_object__for_each_program (program, probes->skeleton->obj) {
		struct bpf_prog_info info = {0};
		uint32_t n_bytes = sizeof(info);
		int fd = bpf_program__fd(program);

		if (fd < 0 || program == probes->skeleton->progs.walk ||
		    bpf_obj_get_info_by_fd(fd, &info, &n_bytes))
			continue;
		ret->n_events += info.run_cnt;
		ret->event_ns += info.run_time_ns;
	}
}

bool probes_need_privilege(const struct probes *probes)
{
	return probes->need_privilege;
}
