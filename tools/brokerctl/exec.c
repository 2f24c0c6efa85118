/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: obtains a lease and runs a program under it
 *
 * The lease is opened before the program begins, so that the program finds the promised memory when
 * it looks. The program's processes join the lease by the number in their environment. brokerctl
 * stays a member while the program runs, so that the lease outlives each of these processes. It
 * also moves the lease to a new broker after a restart. Processes that have joined keep the lease
 * without brokerctl.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker/lease.h>

#include "broker/util/clock.h"
#include "broker/util/size.h"
#include "command.h"
#include "exec.h"
#include "gate.h"
#include "output.h"
#include "records.h"

static const uint64_t one_second_ns = 1000000000;
/* Longest wait that brokers permit. */
static const uint64_t max_wait_ns = 3600000000000;
/* The layer's own limits of --max-part. */
static const uint64_t min_part_ns = 1000, max_part_ns = 2000000000;
/* A request that takes longer is waiting for memory; other answers arrive much sooner. */
static const uint64_t soon_ns = 200000000;

/* Time for the program's last reports to arrive. */
static const uint64_t settle_ns = 200000000;

struct execution {
	struct control *control;
	struct rbk_lease *lease;
	uint64_t wish_bytes;
	uint64_t max_part_ns; /* of --max-part; 0: not given */
	struct lease_sharing sharing;
	char tenant[RBK_STATS_NAME_BYTES];
	char socket_path[PATH_MAX];
	const char *program; /* program name without folders */
	struct exec_cgroup cgroup;
	char gate[PATH_MAX]; /* cgroup whose gate covers this process; "": none */
	/* the kernel's name of the device's memory; "": not known */
	char memory[RBK_LEASE_REGION_BYTES];
	struct exec_dmem dmem;
	char dmem_text[EXEC_TEXT_BYTES]; /* which dmem limits are in force */
	bool is_verbose, is_quiet, is_lost, was_refused;
	/* over all brokers that the lease has been with */
	uint64_t granted_bytes, peak_bytes, peak_credited_bytes, n_refused;
	uint64_t slice_ns, slice_wait_ns;
};

/* --- What is wanted --- */

/* No device grants less; a smaller size suggests a forgotten unit. */
enum { MIN_BYTES = 4096 };

/* Return: EXIT_OK or EXIT_USAGE; *@ret_bytes is unchanged if the option is absent. */
static int read_size(const struct arguments *arguments, enum option_id option, const char *name,
		     uint64_t *ret_bytes)
{
	const char *text = arguments->values[option];

	if (text && (!size_parse(text, ret_bytes) || *ret_bytes == 0))
		return control_misuse(arguments, "--%s takes a size such as 4GiB, not %s", name,
				      text_name(text));
	if (text && *ret_bytes < MIN_BYTES)
		return control_misuse(
			arguments,
			"--%s takes a size such as 4GiB; %s is %llu bytes, less than a "
			"page of memory",
			name, text_name(text), (unsigned long long)*ret_bytes);
	return EXIT_OK;
}

/* Parse "30s", "5min" or "1.5". */
static bool read_duration(const char *text, uint64_t *ret_ns)
{
	static const struct {
		const char *name;
		double seconds;
	} units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"min", 60}, {"h", 3600}};
	size_t length = strspn(text, "0123456789.");
	char number[32];
	double value;

	if (length >= sizeof(number))
		return false;
	snprintf(number, sizeof(number), "%.*s", (int)length, text);
	if (!control_seconds(number, 1e6, &value))
		return false;
	for (unsigned int i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(text + length, units[i].name) != 0)
			continue;
		*ret_ns = (uint64_t)(value * units[i].seconds * 1e9);
		return true;
	}
	return false;
}

/* A program that joins a lease does not set the lease's share, so this process does. */
static int read_share_variable(const struct arguments *arguments, uint32_t *share)
{
	const char *text = getenv("RINGBROKER_LEASE_SHARE");
	uint64_t number;

	if (*share > 0 || !text || !text[0] || arguments->values[OPT_NO_LAYER])
		return EXIT_OK;
	if (!pages_number(text, RBK_LEASE_MAX_SHARE, &number) || number == 0)
		return control_misuse(arguments,
				      "RINGBROKER_LEASE_SHARE is a number from 1 to %d, not %s",
				      RBK_LEASE_MAX_SHARE, text_name(text));
	*share = (uint32_t)number;
	return EXIT_OK;
}

/* Read how the program shares its device's time. */
static int read_sharing(const struct arguments *arguments, struct execution *execution)
{
	const char *text = arguments->values[OPT_MAX_PART];
	bool has_priority = arguments->values[OPT_PRIORITY] != NULL;
	bool has_share = arguments->values[OPT_SHARE] != NULL;

	if ((has_priority || has_share || text) && arguments->values[OPT_NO_LAYER])
		return control_misuse(arguments, "--%s has no effect with --no-layer: the layer %s",
				      has_priority ? "priority"
				      : has_share  ? "share"
						   : "max-part",
				      has_priority || has_share ? "holds the program's work back"
								: "divides command buffers");
	if (arguments->values[OPT_SLEEP] && arguments->values[OPT_NO_LAYER])
		return control_misuse(arguments, "--sleep has no effect with --no-layer: the layer "
						 "moves the program's memory");
	if (text && (!read_duration(text, &execution->max_part_ns) ||
		     execution->max_part_ns < min_part_ns || execution->max_part_ns > max_part_ns))
		return control_misuse(
			arguments, "--max-part takes a time from 1us to 2s, such as 500us, not %s",
			text[0] ? text_name(text) : "empty");
	return lease_sharing(arguments, &execution->sharing) ||
	       read_share_variable(arguments, &execution->sharing.share);
}

static int read_options(const struct arguments *arguments, struct rbk_lease_options *ret)
{
	const char *wait = arguments->values[OPT_ROOM_WAIT],
		   *device = arguments->values[OPT_DEVICE];
	int status;

	ret->device = RBK_DEVICE_NONE;
	if (!arguments->values[OPT_VRAM])
		return control_misuse(
			arguments,
			"--vram is missing: give the size of the lease, such as --vram=4GiB");
	status = read_size(arguments, OPT_VRAM, "vram", &ret->wish_bytes);
	ret->min_bytes = ret->max_bytes = ret->wish_bytes;
	if (!status)
		status = read_size(arguments, OPT_MIN, "min", &ret->min_bytes);
	if (!status)
		status = read_size(arguments, OPT_MAX, "max", &ret->max_bytes);
	if (status)
		return status;
	if (ret->min_bytes > ret->wish_bytes)
		return control_misuse(arguments, "--min is more than --vram");
	if (ret->max_bytes < ret->wish_bytes)
		return control_misuse(arguments, "--max is less than --vram");
	if (wait && !read_duration(wait, &ret->wait_ns))
		return control_misuse(arguments, "--wait takes a time such as 30s, not %s",
				      text_name(wait));
	if (ret->wait_ns > max_wait_ns)
		return control_misuse(arguments, "--wait is an hour at most");
	if (device && !device_number(device, &ret->device))
		return control_misuse(arguments, "there is no device %s; see brokerctl devices",
				      text_name(device));
	return EXIT_OK;
}

/* --- The lease --- */

static int check_layer(const struct arguments *arguments)
{
	char text[EXEC_TEXT_BYTES];
	const char *mend;

	if (arguments->values[OPT_NO_LAYER])
		return EXIT_OK;
	if (exec_layer_find(text, &mend) != EXEC_LAYER_WORKS)
		return control_fail(EXEC_FAILED,
				    "%s: nothing would limit the program to its lease; --no-layer "
				    "runs it without that limit",
				    text);
	if (arguments->values[OPT_VERBOSE])
		control_fail(0, "the layer is that of %s", text);
	return EXIT_OK;
}

/*
 * Store the tenant that the broker assigns to this process, and check that it is @wanted, unless
 * NULL.
 */
static int check_tenant(struct execution *execution, const char *wanted)
{
	struct rbk_tenant tenant;
	int r = rbk_tenant(execution->control->rbk, &tenant);

	if (r)
		return control_refused(execution->control, r, &(struct rbk_error){""});
	snprintf(execution->tenant, sizeof(execution->tenant), "%s", tenant.name);
	if (!wanted || strcmp(wanted, tenant.name) == 0)
		return EXIT_OK;
	return control_fail(EXEC_FAILED,
			    "this user is tenant %s here, not %s: the broker assigns tenants by "
			    "user, group, cgroup and executable, see brokerd.conf(5)",
			    text_name(tenant.name), text_name(wanted));
}

/* A thread that tells the user, while the answer is pending, that brokerctl waits for memory. */
struct waiting {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool is_over;
	bool is_told; /* a thread was started */
	uint64_t min_bytes, wait_ns;
};

static void *tell_wait(void *data)
{
	struct waiting *waiting = data;
	struct timespec end;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += (long)soon_ns;
	end.tv_sec += end.tv_nsec / (long)one_second_ns;
	end.tv_nsec %= (long)one_second_ns;
	pthread_mutex_lock(&waiting->lock);
	while (!waiting->is_over && r == 0)
		r = pthread_cond_timedwait(&waiting->changed, &waiting->lock, &end);
	if (!waiting->is_over)
		control_fail(0,
			     "there is no room for a lease of %s yet: brokerctl waits for it, at "
			     "most %s (see brokerctl leases)",
			     text_bytes(waiting->min_bytes), text_ns((double)waiting->wait_ns));
	pthread_mutex_unlock(&waiting->lock);
	return NULL;
}

static void waiting_begin(struct waiting *waiting, const struct execution *execution,
			  const struct rbk_lease_options *options)
{
	pthread_condattr_t attributes;

	*waiting = (struct waiting){
		.min_bytes = options->min_bytes,
		.wait_ns = options->wait_ns,
	};
	if (options->wait_ns == 0 || execution->is_quiet ||
	    (!execution->is_verbose && !isatty(STDERR_FILENO)))
		return;
	pthread_mutex_init(&waiting->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&waiting->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	/* Without the thread the wait goes unannounced. */
	waiting->is_told = pthread_create(&waiting->thread, NULL, tell_wait, waiting) == 0;
}

/* End the thread: no thread may remain when the program is started. */
static void waiting_end(struct waiting *waiting)
{
	if (!waiting->is_told)
		return;
	pthread_mutex_lock(&waiting->lock);
	waiting->is_over = true;
	pthread_cond_signal(&waiting->changed);
	pthread_mutex_unlock(&waiting->lock);
	pthread_join(waiting->thread, NULL);
}

/* Set the lease's share. The programs' own priorities come with their environment. */
static int set_share(const struct execution *execution)
{
	struct control *control = execution->control;
	struct rbk_error error = {""};
	int r;

	if (execution->sharing.share == 0)
		return EXIT_OK;
	r = rbk_lease_share(control->rbk, rbk_lease_number(execution->lease), NULL,
			    execution->sharing.share, &error);
	return r ? control_refused(control, r, &error) : EXIT_OK;
}

static int open_lease(struct execution *execution, const struct arguments *arguments,
		      struct rbk_lease_options *options)
{
	struct control *control = execution->control;
	struct rbk_error error = {""};
	struct waiting waiting;
	int status, r;

	status = control_connect_as_tenant(control);
	if (!status)
		status = check_tenant(execution, arguments->values[OPT_IF_TENANT]);
	if (status)
		return status;
	options->program = execution->program;
	waiting_begin(&waiting, execution, options);
	r = rbk_lease_open(control->rbk, options, &execution->lease, &error);
	waiting_end(&waiting);
	if (r)
		return control_refused(control, r, &error);
	execution->wish_bytes = options->wish_bytes;
	return set_share(execution);
}

static uint64_t load(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static void raise_to(uint64_t *to, uint64_t value)
{
	if (value > *to)
		*to = value;
}

static void note_use(struct execution *execution)
{
	const struct rbk_lease_page *page = rbk_lease_page(execution->lease);

	raise_to(&execution->granted_bytes, load(&page->granted_bytes));
	raise_to(&execution->peak_bytes, load(&page->peak_bytes));
	raise_to(&execution->peak_credited_bytes, load(&page->peak_credited_bytes));
	/* The lease may have grown in between; all credited bytes were granted. */
	raise_to(&execution->granted_bytes, execution->peak_credited_bytes);
	raise_to(&execution->n_refused, load(&page->n_refused));
	/* A new broker counts from 0. */
	raise_to(&execution->slice_ns, load(&page->slice_ns));
	raise_to(&execution->slice_wait_ns, load(&page->slice_wait_ns));
}

/*
 * Wait for the use that the program posted as it ended. The broker may not have read it yet, and
 * credit is returned only afterwards. Remaining processes of the program may keep credit for hours,
 * so wait at most settle_ns.
 */
static void settle_use(struct execution *execution)
{
	const struct rbk_lease_page *page = rbk_lease_page(execution->lease);
	const struct timespec pause = {.tv_nsec = 2000000};
	const uint64_t begin_ns = clock_now_ns();
	bool is_there = !execution->is_lost;

	/* Giving zero bytes is a query: a broker that answers has read everything posted before. */
	while (is_there && (is_there = rbk_lease_give(execution->lease, 0, NULL) == 0) &&
	       load(&page->credited_bytes) > 0 && clock_now_ns() - begin_ns < settle_ns)
		nanosleep(&pause, NULL);
	/* rbk_lease_give() also succeeds if no answer arrived in time. */
	if (!is_there || clock_now_ns() - begin_ns >= execution->control->timeout_ns)
		control_fail(0,
			     "the broker %s: the report on lease %u holds its last known figures",
			     is_there ? "does not answer" : "is gone",
			     rbk_lease_number(execution->lease));
	note_use(execution);
}

/* Report what the program lacks without a cgroup of its own that belongs to the lease. */
static void say_lacking(const struct execution *execution, const char *what, const char *why)
{
	if (execution->gate[0])
		control_fail(0,
			     "the gate of %s keeps GPUs closed to the program, since %s: %s; see "
			     "ringbroker-leases(7)",
			     text_name(execution->gate), what, why);
	else if (execution->is_verbose)
		control_fail(0, "%s: %s", what, why);
}

/*
 * Tell the broker that the cgroup belongs to the lease, so that processes in it count towards the
 * lease with or without the layer.
 * Return: EXIT_OK, or EXIT_FAILED after a message, if one applies.
 */
static int tell_cgroup(struct execution *execution)
{
	struct rbk_error error = {""};

	if (execution->cgroup.fd < 0)
		return EXIT_FAILED;
	if (rbk_lease_set_cgroup(execution->lease, execution->cgroup.fd, execution->memory,
				 &error) == 0)
		return EXIT_OK;
	say_lacking(execution, "the broker does not take that cgroup for the lease's",
		    text_name(error.text));
	return EXIT_FAILED;
}

static int fd_of(void *data)
{
	const struct execution *execution = data;

	return execution->is_lost ? -1 : rbk_fd(execution->control->rbk);
}

static void mend(void *data)
{
	struct execution *execution = data;
	struct control *control = execution->control;
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = execution->socket_path,
		.name = "brokerctl",
		.timeout_ns = one_second_ns,
		.flags = RBK_CONNECT_NO_REATTACH,
	};
	struct rbk_error error = {""};
	struct rbk *rbk;
	int r;

	/* Give the broker a second to return. */
	if (!execution->is_lost) {
		if (execution->is_verbose)
			control_fail(0, "the broker is gone: lease %u waits for the next one",
				     rbk_lease_number(execution->lease));
		execution->is_lost = true;
		return;
	}
	if (rbk_connect(&options, &rbk, &error))
		return;
	note_use(execution);
	r = rbk_lease_restore(execution->lease, rbk, 0, &error);
	if (r) {
		rbk_disconnect(rbk);
		if (!execution->was_refused)
			control_fail(0,
				     "the broker came back, but not the lease, which is tried "
				     "again: %s",
				     error.text[0] ? text_name(error.text) : strerror(-r));
		execution->was_refused = true;
		return;
	}
	rbk_disconnect(control->rbk);
	control->rbk = rbk;
	tell_cgroup(execution);
	execution->is_lost = execution->was_refused = false;
	if (execution->is_verbose)
		control_fail(0, "the broker came back: it is lease %u now",
			     rbk_lease_number(execution->lease));
}

/* --- What is around the program --- */

static void say_hint(const char *name, const char *value)
{
	control_fail(0, "%s=%s", name, value);
}

/* Make the socket's path absolute, since the program may change its folder. */
static void find_socket(struct execution *execution)
{
	char path[PATH_MAX];

	control_socket_path(execution->control, path, sizeof(path));
	if (!realpath(path, execution->socket_path))
		snprintf(execution->socket_path, sizeof(execution->socket_path), "%s", path);
}

static int set_environment(const struct execution *execution, const struct arguments *arguments,
			   uint64_t wait_ns)
{
	const char *priority = arguments->values[OPT_PRIORITY];
	char number[16], wait[32], part[32], share[16];

	if (arguments->values[OPT_NO_LAYER])
		return EXIT_OK;
	snprintf(part, sizeof(part), "%lluus", (unsigned long long)execution->max_part_ns / 1000);
	if (execution->max_part_ns > 0 && setenv("RINGBROKER_LEASE_MAX_PART", part, 1))
		return control_fail(EXEC_FAILED, "out of memory");
	snprintf(wait, sizeof(wait), "%llums", (unsigned long long)wait_ns / 1000000);
	if (wait_ns > 0 && setenv("RINGBROKER_LEASE_WAIT", wait, 0))
		return control_fail(EXEC_FAILED, "out of memory");
	snprintf(number, sizeof(number), "%u", rbk_lease_number(execution->lease));
	snprintf(share, sizeof(share), "%u", execution->sharing.share);
	if (execution->sharing.share > 0 && setenv("RINGBROKER_LEASE_SHARE", share, 1))
		return control_fail(EXEC_FAILED, "out of memory");
	if (arguments->values[OPT_SLEEP] && setenv("RINGBROKER_LEASE_SLEEP", "1", 1))
		return control_fail(EXEC_FAILED, "out of memory");
	if (priority && setenv("RINGBROKER_LEASE_PRIORITY", priority, 1))
		return control_fail(EXEC_FAILED, "out of memory");
	if (setenv("RINGBROKER_VULKAN_LEASE", "1", 1) || setenv("RINGBROKER_LEASE", number, 1) ||
	    setenv("RINGBROKER_SOCKET", execution->socket_path, 1) ||
	    exec_hints_set(execution->wish_bytes, arguments->values[OPT_SLEEP],
			   execution->is_verbose ? say_hint : NULL))
		return control_fail(EXEC_FAILED, "out of memory");
	return EXIT_OK;
}

/*
 * Return true if the broker assigns this process's present cgroup to the lease's tenant; another
 * tenant may not join the lease.
 */
static bool is_same_tenant(const struct execution *execution)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = execution->socket_path,
		.name = "brokerctl",
		.timeout_ns = one_second_ns,
		.flags = RBK_CONNECT_NO_REATTACH,
	};
	struct rbk_tenant tenant;
	struct rbk *rbk;
	bool is_same;

	if (rbk_connect(&options, &rbk, NULL))
		return false;
	is_same = rbk_tenant(rbk, &tenant) == 0 && strcmp(tenant.name, execution->tenant) == 0;
	rbk_disconnect(rbk);
	return is_same;
}

/*
 * Enter and leave the cgroup to test it.
 * Return: NULL, or the reason why the program cannot run in the cgroup.
 */
static const char *try_cgroup(const struct execution *execution)
{
	bool is_same;

	if (!exec_cgroup_enter(&execution->cgroup))
		return strerror(errno);
	is_same = is_same_tenant(execution);
	if (!exec_cgroup_leave(&execution->cgroup))
		return strerror(errno);
	return is_same ? NULL : "in that cgroup it would belong to another tenant, or to none";
}

static void make_cgroup(struct execution *execution)
{
	char text[EXEC_TEXT_BYTES];
	const char *why = text;

	if (exec_cgroup_make(&execution->cgroup, text)) {
		why = try_cgroup(execution);
		if (why)
			exec_cgroup_remove(&execution->cgroup);
	}
	if (why) {
		execution->cgroup.path[0] = '\0';
		snprintf(execution->dmem_text, sizeof(execution->dmem_text),
			 "the program has no cgroup of its own");
	}
	if (why)
		say_lacking(execution, "the program has no cgroup of its own", why);
	else if (execution->is_verbose)
		control_fail(0, "the program's cgroup is %s", execution->cgroup.path);
}

static bool may_stay(void *data)
{
	return is_same_tenant(data);
}

static uint64_t lease_limit(const struct execution *execution)
{
	return load(&rbk_lease_page(execution->lease)->wish_bytes);
}

/* Tell the broker of the cgroup, and the kernel of the lease's limits. */
static void begin_limits(struct execution *execution, uint64_t min_bytes)
{
	struct exec_cgroup *cgroup = &execution->cgroup;
	bool is_held = false;

	if (cgroup->path[0]) {
		bool has_dmem =
			exec_cgroup_enable(cgroup, may_stay, execution, execution->dmem_text);

		if (tell_cgroup(execution) == EXIT_OK && has_dmem)
			is_held = exec_dmem_begin(&execution->dmem, cgroup->fd, execution->memory,
						  lease_limit(execution), min_bytes,
						  execution->dmem_text);
	}
	if (execution->is_verbose || (execution->dmem.has_region && !is_held))
		control_fail(0, "the kernel %s the program to its lease: %s",
			     is_held ? "holds" : "does not hold", execution->dmem_text);
}

/* Apply the lease's present limit to the cgroup, once a second. */
static void follow_lease(void *data)
{
	struct execution *execution = data;

	if (!exec_dmem_follow(&execution->dmem, lease_limit(execution), execution->dmem_text))
		return;
	if (execution->is_verbose || (!execution->is_quiet && !execution->dmem.is_held))
		control_fail(0, "the kernel %s the program to its lease: %s",
			     execution->dmem.is_held ? "holds" : "does not hold",
			     execution->dmem_text);
}

/* Enter the cgroup, in the new process. */
static void prepare(void *data)
{
	const struct execution *execution = data;

	if (execution->cgroup.path[0] && !exec_cgroup_enter(&execution->cgroup))
		say_lacking(execution, "the program is not in its cgroup", strerror(errno));
}

/* --- The end --- */

static void say_use(const struct execution *execution, bool is_held)
{
	uint32_t number = rbk_lease_number(execution->lease);
	char refused[64] = "", kernel[64] = "";

	if (execution->n_refused)
		snprintf(refused, sizeof(refused), ", %llu allocation%s refused",
			 (unsigned long long)execution->n_refused,
			 execution->n_refused == 1 ? "" : "s");
	if (execution->dmem.has_region)
		snprintf(kernel, sizeof(kernel), ", %s by the kernel's count",
			 text_bytes(execution->dmem.peak_bytes));
	if (!is_held)
		control_fail(0, "lease %u: %s were set aside%s", number,
			     text_bytes(execution->granted_bytes), kernel);
	else if (execution->peak_credited_bytes == 0)
		control_fail(0, "lease %u: none of %s was used%s%s", number,
			     text_bytes(execution->granted_bytes), kernel, refused);
	else
		control_fail(0, "lease %u: at most %s in use (%s drawn) of %s%s%s", number,
			     text_bytes(execution->peak_bytes),
			     text_bytes(execution->peak_credited_bytes),
			     text_bytes(execution->granted_bytes), kernel, refused);
}

static void say_sharing(const struct execution *execution)
{
	if (execution->slice_ns + execution->slice_wait_ns == 0)
		return;
	control_fail(0, "lease %u: it shared the device, had it for %s, and waited for it for %s",
		     rbk_lease_number(execution->lease), text_ns((double)execution->slice_ns),
		     text_ns((double)execution->slice_wait_ns));
}

/*
 * Write the report as JSON.
 * Return: @status, or EXIT_FAILED.
 */
static int write_report(const struct execution *execution, FILE *report, int status)
{
	fflush(stdout);
	if (dup2(fileno(report), STDOUT_FILENO) < 0)
		return control_fail(EXIT_FAILED, "cannot write the report: %s", strerror(errno));
	json_begin();
	json_string("type", "exec");
	json_unsigned("lease", rbk_lease_number(execution->lease));
	json_unsigned("device", rbk_lease_device(execution->lease));
	json_string("tenant", execution->tenant);
	json_string("program", execution->program);
	json_unsigned("granted_bytes", execution->granted_bytes);
	json_unsigned("peak_bytes", execution->peak_bytes);
	json_unsigned("peak_credited_bytes", execution->peak_credited_bytes);
	json_unsigned("refused", execution->n_refused);
	json_boolean("capped", execution->dmem.is_held);
	json_string("cap", execution->dmem_text);
	json_optional("kernel_peak_bytes",
		      execution->dmem.has_region ? execution->dmem.peak_bytes : RBK_STATS_ABSENT);
	json_unsigned("slice_ns", execution->slice_ns);
	json_unsigned("slice_wait_ns", execution->slice_wait_ns);
	json_signed("status", status);
	json_end();
	return status;
}

static int run_in_lease(struct execution *execution, const struct arguments *arguments,
			const struct rbk_lease_options *options, FILE *report)
{
	struct exec_program program = {
		.argv = arguments->operands,
		.prepare = prepare,
		.fd = fd_of,
		.mend = mend,
		.data = execution,
		.sigpipe = execution->control->sigpipe,
	};
	int status = set_environment(execution, arguments, options->wait_ns);
	bool was_run;

	if (status)
		return status;
	note_use(execution);
	if (execution->is_verbose)
		control_fail(0, "lease %u of tenant %s: %s on %s",
			     rbk_lease_number(execution->lease), text_name(execution->tenant),
			     text_bytes(execution->granted_bytes),
			     device_label(rbk_lease_device(execution->lease)));
	if (!gate_is_over_self(execution->control, execution->gate))
		execution->gate[0] = '\0';
	make_cgroup(execution);
	begin_limits(execution, options->min_bytes);
	if (execution->dmem.has_region)
		program.tick = follow_lease;
	status = exec_program_run(&program, &was_run);
	exec_dmem_note_use(&execution->dmem);
	exec_cgroup_remove(&execution->cgroup);
	if (!was_run)
		return status;
	if (report || !arguments->values[OPT_QUIET])
		settle_use(execution);
	if (!arguments->values[OPT_QUIET]) {
		say_use(execution, !arguments->values[OPT_NO_LAYER]);
		say_sharing(execution);
	}
	return report ? write_report(execution, report, status) : status;
}

int run_exec(struct control *control, const struct arguments *arguments)
{
	struct execution execution = {
		.control = control,
		.cgroup = {.fd = -1},
		.is_verbose = arguments->values[OPT_VERBOSE],
		.is_quiet = arguments->values[OPT_QUIET],
	};
	const char *report_path = arguments->values[OPT_REPORT];
	struct rbk_lease_options options = {.device = RBK_DEVICE_NONE};
	const char *slash = strrchr(arguments->operands[0], '/');
	FILE *report = NULL;
	int status;

	execution.program = slash && slash[1] ? slash + 1 : arguments->operands[0];
	if (read_options(arguments, &options) || read_sharing(arguments, &execution) ||
	    check_layer(arguments))
		return EXEC_FAILED;
	if (report_path) {
		report = fopen(report_path, "we");
		if (!report)
			return control_fail(EXEC_FAILED, "cannot write %s: %s",
					    text_name(report_path), strerror(errno));
	}
	find_socket(&execution);
	status = EXEC_FAILED;
	if (open_lease(&execution, arguments, &options) == EXIT_OK)
		status = run_in_lease(&execution, arguments, &options, report);
	rbk_lease_close(execution.lease);
	if (report)
		fclose(report);
	return status;
}
