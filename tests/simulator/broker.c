/* SPDX-License-Identifier: MIT */
/* The broker's process: see broker.h */
#include "simulator/broker.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "dispatch/dispatch-private.h"
#include "dispatch/segment.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "memory/budget.h"
#include "memory/residency.h"
#include "session/peer.h"
#include "session/server-private.h"
#include "session/sigbus.h"
#include "shm/ring.h"
#include "simulator/holder.h"
#include "simulator/machine.h"
#include "simulator/real.h"
#include "telemetry/processes.h"
#include "telemetry/telemetry.h"
#include "tenant/tenant.h"
#include "util/crash.h"
#include "util/log.h"
#include "util/waker.h"

/* As brokerd's, made in the order of the members. */
struct broker {
	const struct sim_broker_options *options;
	char policy_path[128], socket_path[128];
	struct loop *loop;
	struct waker waker, telemetry_waker;
	struct offload *offload;
	struct executor *executors[SIM_DEVICES];
	struct telemetry *telemetry;
	struct account_book *book;
	struct tenants *tenants;
	struct residency *residency;
	struct budget *budget;
	struct dispatch *dispatch;
	struct server *server;
	/* Signals, as the kernel's signalfd gives them to brokerd */
	int signal_fd;
	struct loop_watch *signal_watch;
	bool is_stopped;
};

/* Only the director and the broker's reactor use it; the broker's death clears it. */
static struct broker *broker;

static uint64_t others_bytes __attribute__((__section__("sim_variables")));

enum { SIGNAL_STOP = 1, SIGNAL_LEASED = 1 << 10, SIGNAL_RELOAD = 1 << 20 };

static int reload(void)
{
	struct policy_errors errors = {.n = 0};
	struct policy *policy = NULL;
	int r = policy_load(broker->policy_path, true, NULL, &policy, &errors);

	if (r == 0)
		r = tenants_reload(broker->tenants, policy, &errors);
	if (r)
		policy_free(policy);
	policy_errors_deinit(&errors);
	if (r == 0) {
		residency_limits_changed(broker->residency);
		dispatch_limits_changed(broker->dispatch);
		budget_policy_changed(broker->budget);
		server_forget_tenants(broker->server);
		server_know_tenants(broker->server);
	}
	return r;
}

/* The kernel tells that leased programs of some tenants used cards for up to two seconds. */
static void charge_leased(void)
{
	for (uint32_t i = 0; i < SIM_CARDS; i++)
		dispatch_note_engine_time(broker->dispatch, (uint8_t)(RBK_DEVICE_GPU + i),
					  sim_below(2000000000), sim_below(2000000000));
	for (struct tenant *tenant = tenants_first(broker->tenants); tenant;
	     tenant = tenants_next(broker->tenants, tenant))
		if (sim_below(2))
			dispatch_charge_leased(broker->dispatch, tenant,
					       (uint8_t)(RBK_DEVICE_GPU + sim_below(SIM_CARDS)),
					       sim_below(2000000000));
}

static void on_signal(void *data, uint32_t events)
{
	eventfd_t signals;

	while (eventfd_read(broker->signal_fd, &signals) == 0) {
		if (signals >= SIGNAL_RELOAD)
			sim_trace("reload: %d", reload());
		if (signals % SIGNAL_RELOAD >= SIGNAL_LEASED)
			charge_leased();
		if (signals % SIGNAL_LEASED > 0 && !broker->is_stopped) {
			broker->is_stopped = true;
			dispatch_stop(broker->dispatch);
		}
	}
}

static bool send_signal(eventfd_t signal)
{
	if (!broker || !broker->signal_watch)
		return false;
	eventfd_write(broker->signal_fd, signal);
	sim_touched();
	return true;
}

bool sim_broker_stop(void)
{
	return send_signal(SIGNAL_STOP);
}

void sim_broker_reload(void)
{
	send_signal(SIGNAL_RELOAD);
}

void sim_broker_charge_leased(void)
{
	send_signal(SIGNAL_LEASED);
}

void sim_broker_set_contended(bool is_contended)
{
	dispatch_set_contended(broker->dispatch, is_contended);
}

void sim_broker_others(uint64_t bytes)
{
	others_bytes = bytes;
}

/* A driver's figures; called on the telemetry thread. */
static void sample_memory(void *context, struct device_reading *reading)
{
	struct executor *executor = context;
	const uint64_t own_bytes = executor->ops->memory_used(executor, EXEC_TIER_VRAM);
	const uint64_t all_bytes = executor->info.memory_bytes;
	uint64_t used_bytes = own_bytes + others_bytes + sim_holders_bytes();

	if (used_bytes > all_bytes)
		used_bytes = all_bytes;
	snprintf(reading->source, sizeof(reading->source), "simulated");
	reading->vram = (struct memory_reading){
		.total = {all_bytes, true},
		.usable = {all_bytes, true},
		.used = {used_bytes, true},
		.own = {own_bytes, true},
	};
}

static int make_telemetry(void)
{
	struct telemetry_device devices[SIM_CARDS];

	for (uint32_t i = 0; i < SIM_CARDS; i++)
		devices[i] = (struct telemetry_device){
			.index = 1 + i,
			.driver = {.sample = sample_memory, .context = broker->executors[1 + i]},
		};
	return telemetry_new(devices, SIM_CARDS, &broker->telemetry_waker, &broker->telemetry);
}

static int make_tenants(void)
{
	struct tenants_machine machine = {
		.host_bytes = 1ull << 32,
		.n_devices = SIM_DEVICES,
		.n_fds = 3000,
		.n_mappings = 24000,
	};
	struct policy_errors errors = {.n = 0};
	struct policy *policy = NULL;
	int r = policy_load(broker->policy_path, true, NULL, &policy, &errors);

	if (r == POLICY_E_INVALID)
		sim_trace("the policy is refused: %s", errors.text);
	for (uint32_t i = 0; i < SIM_DEVICES; i++) {
		machine.vram_bytes[i] = broker->executors[i]->info.memory_bytes;
		machine.gtt_bytes[i] = broker->executors[i]->info.gtt_bytes;
	}
	if (r == 0)
		r = account_book_new(&broker->book);
	if (r == 0)
		r = tenants_new(broker->book, &machine, policy, &broker->tenants, &errors);
	if (r)
		policy_free(policy);
	policy_errors_deinit(&errors);
	return r;
}

static int make_memory(void)
{
	const struct residency_options residency_options = {
		.loop = broker->loop,
		.offload = broker->offload,
		.executors = broker->executors,
		.n_executors = SIM_DEVICES,
	};
	struct budget_options budget_options = {
		.loop = broker->loop,
		.waker = &broker->telemetry_waker,
		.telemetry = broker->telemetry,
		.tenants = broker->tenants,
		.executors = broker->executors,
		.n_executors = SIM_DEVICES,
	};
	int r = residency_new(&residency_options, &broker->residency);

	budget_options.residency = broker->residency;
	return r ? r : budget_new(&budget_options, &broker->budget);
}

static void on_activity(void *context, uint32_t devices, bool has_rings)
{
	budget_set_pace(broker->budget, devices != 0, has_rings);
}

static void on_share_plans(void *context, uint8_t device, struct timeslice_plans *changed)
{
	if (broker->server)
		server_share_plans(broker->server, device, changed);
}

static int make_dispatch(void)
{
	struct dispatch_options options = {
		.loop = broker->loop,
		.waker = &broker->waker,
		.executors = broker->executors,
		.n_executors = SIM_DEVICES,
		.residency = broker->residency,
		.config = PLACE_CONFIG_DEFAULT,
		.spin_ns = broker->options->spin_ns,
		.reactor_task_ns = broker->options->reactor_task_ns,
		.n_processors = sim_n_processors(),
		.has_quota = broker->options->has_quota,
		.note_activity = on_activity,
		.activity_context = broker,
		.shared_devices = &residency_leases(broker->residency)->timeslices.shared_devices,
		.share_plans = on_share_plans,
		.share_context = broker,
	};
	int r;

	/* Tasks of the simulator are small; those with rows shall be worth a card. */
	options.config.threshold_bytes = 0;
	options.config.min_count = 2;
	options.config.partition_min_bytes = 0;
	options.config.partition_min_gain = 0;
	for (uint32_t i = 0; i < SIM_DEVICES; i++)
		options.profiles[i] = sim_device_profile(broker->executors[i]);
	r = dispatch_new(&options, &broker->dispatch);
	if (r == 0)
		crash_watch(dispatch_blame, broker->dispatch);
	return r;
}

static int make_server(void)
{
	const struct server_options options = {
		.socket_path = broker->socket_path,
		.socket_mode = 0600,
		.limits = SERVER_LIMITS_DEFAULT,
		.loop = broker->loop,
		.offload = broker->offload,
		.tenants = broker->tenants,
		.executors = broker->executors,
		.n_executors = SIM_DEVICES,
		.residency = broker->residency,
		.cut_seed = broker->options->cut_seed,
		.hooks = dispatch_hooks(broker->dispatch),
	};
	int r = server_new(&options, &broker->server);

	if (r > 0)
		sim_violation("the server cannot listen: %d", r);
	return r;
}

static int make_executors(void)
{
	int r = 0;

	for (uint8_t i = 0; i < SIM_DEVICES && r == 0; i++)
		r = sim_device_new(&broker->options->devices[i], i, &broker->waker,
				   &broker->executors[i]);
	return r;
}

static int make_all(void)
{
	int r = loop_new(&broker->loop);

	if (r == 0)
		r = sigbus_init();
	if (r == 0)
		r = waker_init(&broker->waker);
	if (r == 0)
		r = waker_init(&broker->telemetry_waker);
	if (r == 0)
		r = offload_new(broker->loop, &broker->offload);
	if (r == 0)
		r = make_executors();
	if (r == 0)
		r = make_telemetry();
	if (r == 0)
		r = make_tenants();
	if (r == 0)
		r = make_memory();
	if (r == 0)
		r = make_dispatch();
	if (r == 0)
		r = make_server();
	if (r)
		return r;
	broker->signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return broker->signal_fd < 0 ? -errno
				     : loop_watch(broker->loop, broker->signal_fd, POLLIN,
						  on_signal, NULL, &broker->signal_watch);
}

/* As parts_deinit() */
static void free_all(struct broker *own)
{
	crash_watch(NULL, NULL);
	server_free(own->server);
	dispatch_free(own->dispatch);
	offload_free(own->offload);
	budget_free(own->budget);
	residency_free(own->residency);
	telemetry_free(own->telemetry);
	for (uint32_t i = 0; i < SIM_DEVICES; i++)
		if (own->executors[i])
			own->executors[i]->ops->free(own->executors[i]);
	tenants_free(own->tenants);
	account_book_free(own->book);
	loop_unwatch(own->signal_watch);
	close_fd(own->signal_fd);
	waker_deinit(&own->waker);
	waker_deinit(&own->telemetry_waker);
	loop_free(own->loop);
}

/* A broker ends with tasks in flight only if devices hold them. */
static void check_gave_up(const struct broker *own)
{
	for (uint32_t i = 0; i < SIM_DEVICES; i++)
		if (!sim_device_is_idle(own->executors[i]))
			return;
	sim_violation("the broker waits for tasks, and no device has one");
}

static bool server_holds_nothing(const struct server *server)
{
	return server->n_sessions == 0 && server->n_rings == 0 && server->n_arenas == 0 &&
	       server->n_plans == 0;
}

void sim_broker_main(void *data)
{
	struct broker own = {.options = data,
			     .signal_fd = -1,
			     .waker = {.fd = -1},
			     .telemetry_waker = {.fd = -1}};
	int r;

	sim_check(sim_heap_bytes(SIM_BROKER) == 0);
	broker = &own;
	/* A trace must not change the round. */
	log_set_level(LOG_LEVEL_DEBUG);
	snprintf(own.policy_path, sizeof(own.policy_path), "%s/brokerd.conf", own.options->folder);
	snprintf(own.socket_path, sizeof(own.socket_path), "%s/socket", own.options->folder);
	r = make_all();
	if (r == 0)
		r = dispatch_run(own.dispatch, own.server);
	sim_trace("the broker ends: %d", r);
	/* brokerd leaves at once while devices hold tasks. */
	if (r == -ETIMEDOUT) {
		check_gave_up(&own);
		broker = NULL;
		return;
	}
	if (r == 0)
		sim_check(server_holds_nothing(own.server));
	broker = NULL;
	free_all(&own);
	if (sim_heap_bytes(SIM_BROKER) > 0 || sim_n_fds_of(SIM_BROKER) > 0 ||
	    sim_n_mappings_of(SIM_BROKER) > 0)
		sim_violation("the broker leaves %llu bytes, %u descriptors and %u mappings",
			      (unsigned long long)sim_heap_bytes(SIM_BROKER),
			      sim_n_fds_of(SIM_BROKER), sim_n_mappings_of(SIM_BROKER));
}

/* --- Identities of clients --- */

int peer_identity_init(struct peer_identity *identity, int fd, uint32_t kinds)
{
	struct sockaddr_un address;
	socklen_t bytes = sizeof(address);
	unsigned int pid, process = SIM_HOST;

	*identity = PEER_IDENTITY_INIT;
	memset(&address, 0, sizeof(address));
	if (getpeername(fd, (struct sockaddr *)&address, &bytes) < 0)
		return -errno;
	if (sscanf(address.sun_path + 1, "faultsim-%u-%u-", &pid, &process) != 2)
		return -ESRCH;
	identity->peer.pid = (pid_t)(100000 + process);
	identity->peer.uid = identity->peer.gid = SIM_UID + process;
	identity->lacks_pidfd = true;
	snprintf(identity->comm, sizeof(identity->comm), "client-%u", process);
	return 0;
}

void peer_identity_deinit(struct peer_identity *identity)
{
	*identity = PEER_IDENTITY_INIT;
}

/* --- Processes that use devices: /proc, which differs from run to run, has none --- */

int processes_new(const char *root, uint32_t n_devices, struct processes **ret)
{
	*ret = malloc(1);
	return *ret ? 0 : -ENOMEM;
}

struct processes *processes_free(struct processes *processes)
{
	free(processes);
	return NULL;
}

void processes_set_pci(struct processes *processes, uint32_t i, const char *pci)
{
}

void processes_look(struct processes *processes, uint64_t now_ns, bool is_thorough,
		    struct device_reading *const *readings)
{
}

void processes_own(struct processes *processes, bool is_new, struct process_use *ret)
{
	*ret = (struct process_use){.vram_bytes = 0};
}

bool processes_see_all(const struct processes *processes)
{
	return true;
}

/* --- Invariants --- */

/*
 * Return the longest time of process @i above the maximum. A lease keeps what its holder does not
 * give.
 */
static uint64_t above_max_ns(unsigned int i)
{
	return i >= broker->options->first_holder ? 100000000000u : broker->options->above_max_ns;
}

/*
 * Device memory of tenants at the last check, by their numbers in the policy. A tenant has more
 * than its maximum only since the maximum was lowered, and not for long: see sim_policy_write().
 */
static struct {
	unsigned int generation; /* of the broker */
	uint64_t bytes, max;
	uint64_t above_since_ns; /* 0: not above the maximum */
} held[SIM_PROCESSES] __attribute__((__section__("sim_variables")));

/* Limits of the other slots stay, and charges are compared with them. */
static void check_numbers(const struct tenant *tenant)
{
	static const enum account_slot slots[] = {ACCOUNT_SESSIONS, ACCOUNT_RINGS, ACCOUNT_ARENAS,
						  ACCOUNT_PLANS, ACCOUNT_TASKS};

	for (unsigned int i = 0; i < sizeof(slots) / sizeof(*slots); i++) {
		const uint64_t used = account_used(tenant->account, slots[i]);

		if (used > account_limit(tenant->account, slots[i]))
			sim_violation("tenant %s has %llu objects of slot %d, which are too many",
				      tenant_name(tenant), (unsigned long long)used, slots[i]);
	}
}

static void check_maximum(const struct tenant *tenant, unsigned int i)
{
	const uint64_t used = account_used(tenant->account, account_vram(1));
	const uint64_t max = account_limit(tenant->account, account_vram(1));
	const unsigned int generation = sim_process_generation(SIM_BROKER);
	const bool is_new = held[i].generation != generation;
	uint64_t most = max;

	/* Leases of the broker before are restored, whatever the limit is now. */
	if (generation > 1 && i >= broker->options->first_holder)
		return;
	if (!is_new && held[i].bytes > most)
		most = held[i].bytes;
	if (!is_new && held[i].max > most)
		most = held[i].max;
	if (used <= max || is_new)
		held[i].above_since_ns = 0;
	else if (held[i].above_since_ns == 0)
		held[i].above_since_ns = sim_now_ns();
	if (used > max && (used > most || sim_now_ns() - held[i].above_since_ns > above_max_ns(i)))
		sim_violation("tenant %s has %llu bytes of a device, and may have %llu",
			      tenant_name(tenant), (unsigned long long)used,
			      (unsigned long long)max);
	held[i].generation = generation;
	held[i].bytes = used;
	held[i].max = max;
}

/* Return true if a session's next message is read when something else has happened. */
static bool waits(const struct session *session)
{
	return session->is_ending || session->is_receiving || session->is_suspended ||
	       session->reset.is_begun || session->read_job.is_held;
}

void sim_broker_check_sleep(void)
{
	struct pollfd poll_fd = {.events = POLLIN};

	if (!broker || !broker->server)
		return;
	list_for_each (node, &broker->server->sessions) {
		const struct session *session = container_of(node, struct session, link);

		poll_fd.fd = session->fd;
		if (!waits(session) && __real_poll(&poll_fd, 1, 0) > 0)
			sim_violation("the reactor sleeps, and a message of process %d waits",
				      (int)session->pid - 100000);
	}
}

/* --- What the next broker would find, of clients that write nothing else into rings --- */

static bool is_checked(const struct session_ring *ring)
{
	const struct session *session = ring->session;

	return ring->records && ring->state == RING_READY && !ring->is_closing &&
	       !session->is_ending && session->pid < 100000 + (int)broker->options->first_hostile;
}

/* Return the record that entry @index has or had; NULL: there is none any more. */
static const struct rbk_task_record *record_at(const struct session_ring *ring, uint64_t index)
{
	for (uint32_t i = 0; i < ring->n_entries; i++)
		if ((ring->records[i].flags & RBK_TASK_TAKEN) && ring->records[i].sq_index == index)
			return &ring->records[i];
	return NULL;
}

/* Return true if a record is that of an entry whose failure is committed. */
static bool has_failed(const struct session_ring *ring, const struct rbk_task_record *record,
		       const struct rbk_commit *commit)
{
	const struct rbk_cqe *cqe = &ring->cq->cqes[record->cq_index & ring->mask];

	return !rbk_record_is_live(record, commit) &&
	       record->cq_index + ring->n_entries >= commit->cq_tail && cqe->res < 0 &&
	       cqe->user_data == record->sqe.user_data;
}

/* Failures of a ring that were seen: 1 + the entry's index, at this index modulo NOTED */
enum { NOTED_RINGS = 64, NOTED = 64 };
struct noted {
	unsigned int broker; /* its generation, in which no number is used twice */
	uint32_t session;
	uint64_t ends[NOTED];
};
static struct noted noted[SIM_PROCESSES][NOTED_RINGS] __attribute__((__section__("sim_variables")));

/* Note the failures that were committed since the last check: their records go away. */
static const struct noted *note_failures(const struct session_ring *ring, unsigned int number,
					 const struct rbk_commit *commit)
{
	const struct session *session = ring->session;
	const unsigned int generation = sim_process_generation(SIM_BROKER);
	struct noted *ret = &noted[session->pid - 100000][number];

	if (ret->broker != generation || ret->session != session->number)
		*ret = (struct noted){generation, session->number, {0}};
	for (uint32_t i = 0; i < ring->n_entries; i++) {
		const struct rbk_task_record *record = &ring->records[i];

		if ((record->flags & RBK_TASK_TAKEN) && record->sq_index < commit->sq_head &&
		    has_failed(ring, record, commit))
			ret->ends[record->sq_index % NOTED] = record->sq_index + 1;
	}
	return ret;
}

/* Check that the next broker would know of the failures of the entries that a record names. */
static void check_named(const struct session_ring *ring, const struct noted *failures,
			const struct rbk_task_record *record)
{
	for (unsigned int i = 0; i < RBK_SQE_AFTER_MAX; i++) {
		const uint64_t index = record->sq_index - record->sqe.after[i];
		const struct rbk_task_record *named;

		if (!(record->sqe.flags & RBK_SQE_AFTER) || record->sqe.after[i] == 0 ||
		    failures->ends[index % NOTED] != index + 1)
			continue;
		named = record_at(ring, index);
		if (!(record->flags & RBK_TASK_AFTER_FAILED) &&
		    !(named && (named->flags & RBK_TASK_FAILED)) &&
		    ring->failed[index & (2 * ring->n_entries - 1)] != index + 1)
			sim_violation("the next broker would run entry %llu (%llu), although entry "
				      "%llu, for which it waits, has failed",
				      (unsigned long long)record->sq_index,
				      (unsigned long long)record->sqe.user_data,
				      (unsigned long long)index);
	}
}

/* Check the records that count, after each commit. */
static void check_records(const struct session_ring *ring, unsigned int number)
{
	struct rbk_commit commit;
	const uint64_t chain = rbk_commit_load(ring->cq, &commit);
	const struct noted *failures = note_failures(ring, number, &commit);

	for (uint32_t i = 0; i < ring->n_entries; i++) {
		const struct rbk_task_record *record = &ring->records[i], *before;

		if (!rbk_record_is_live(record, &commit))
			continue;
		if (record->sq_index + 1 == commit.sq_head &&
		    !(record->sqe.flags & RBK_SQE_LINK) != !(chain & RBK_COMMIT_CHAIN_OPEN))
			sim_violation("entry %llu is the last one, and the commit has another "
				      "chain's state",
				      (unsigned long long)record->sqe.user_data);
		before = record_at(ring, record->sq_index - 1);
		if (before && (before->sqe.flags & RBK_SQE_LINK) &&
		    has_failed(ring, before, &commit) && !(record->flags & RBK_TASK_CANCELLED))
			sim_violation("the next broker would run entry %llu, whose predecessor has "
				      "failed",
				      (unsigned long long)record->sqe.user_data);
		check_named(ring, failures, record);
	}
}

void sim_broker_check_begin(const struct exec_task *exec)
{
	const struct run *run = container_of(exec, const struct run, exec);
	const struct task *task = segments_task(run->task);
	const struct session_ring *ring = task->ring->ring;
	const struct rbk_task_record *record, *before;
	struct rbk_commit commit;

	if (!broker || !is_checked(ring))
		return;
	record = &ring->records[task - task->ring->tasks];
	before = record_at(ring, record->sq_index - 1);
	rbk_commit_load(ring->cq, &commit);
	for (unsigned int i = 0; i < RBK_SQE_AFTER_MAX; i++) {
		const struct rbk_task_record *named =
			record_at(ring, record->sq_index - record->sqe.after[i]);

		if ((record->sqe.flags & RBK_SQE_AFTER) && record->sqe.after[i] > 0 && named &&
		    rbk_record_is_live(named, &commit))
			sim_violation(
				"entry %llu begins before the end of entry %llu, for which it "
				"waits, is committed",
				(unsigned long long)task->user_data,
				(unsigned long long)named->sqe.user_data);
	}
	if (before && (before->sqe.flags & RBK_SQE_LINK) && rbk_record_is_live(before, &commit))
		sim_violation("entry %llu begins before the end of its predecessor is committed",
			      (unsigned long long)task->user_data);
}

/* Commits at the last check, by process and ring */
static uint64_t checked[SIM_PROCESSES][64] __attribute__((__section__("sim_variables")));

static void check_rings(const struct session *session)
{
	for (uint32_t i = 0; i < 64; i++) {
		const struct session_ring *ring = session->rings[i];

		/* The next ring with that id is another one. */
		if (!ring || ring->state != RING_READY)
			noted[session->pid - 100000][i].broker = 0;
		if (!ring || !is_checked(ring) ||
		    ring->cq->commit == checked[session->pid - 100000][i])
			continue;
		checked[session->pid - 100000][i] = ring->cq->commit;
		check_records(ring, i);
	}
}

/* since when a timeslice is late; 0: none is */
static uint64_t late_since_ns __attribute__((__section__("sim_variables")));

/* Tasks that wait for leases come next some time, as do leases. */
static void check_plans(const struct timeslice_device *device, uint64_t now_ns)
{
	const uint64_t most_ns = 20 * TIMESLICE_PATIENCE_NS;

	list_for_each (node, &device->plans) {
		const struct timeslice_plans *plans =
			container_of(node, struct timeslice_plans, link);

		if (plans->waiting_ns > 0 && now_ns > plans->waiting_ns + most_ns)
			sim_violation(
				"tasks of class %u wait for leases of device %u since %llu ns",
				plans->class, device->number,
				(unsigned long long)(now_ns - plans->waiting_ns));
	}
}

/* At most one lease of a device has the timeslice, and what is due is done. */
static void check_timeslices(void)
{
	const struct leases *leases = residency_leases(broker->residency);
	const uint64_t now_ns = clock_now_ns(),
		       next_ns = timeslice_next_ns(&leases->timeslices, now_ns);
	uint32_t n_leases = 0;

	for (uint8_t i = 0; i < SIM_DEVICES; i++) {
		const struct timeslice_device *device = &leases->timeslices.devices[i];
		unsigned int n_holders = 0;

		list_for_each (node, &device->leases) {
			const struct lease *lease =
				container_of(node, struct lease, timeslice.link);

			n_holders +=
				RBK_TIMESLICE_STATE(lease->timeslice.word) != RBK_TIMESLICE_CLOSED;
			n_leases++;
			if (lease->page && lease->page->timeslice != lease->timeslice.word)
				sim_violation("lease %u: its page has another word", lease->number);
		}
		if (n_holders > 1)
			sim_violation("%u leases may use device %u", n_holders, i);
		if (n_holders > 0 && device->is_plans_turn)
			sim_violation("a lease may use device %u in the plans' turn", i);
		check_plans(device, now_ns);
	}
	if (n_leases != leases->timeslices.n_leases)
		sim_violation("%u leases share devices, of which %u are counted", n_leases,
			      leases->timeslices.n_leases);
	/* The reactor may be in the middle of a change: what is late stays so. */
	if (next_ns >= now_ns || now_ns - next_ns <= 200000000)
		late_since_ns = 0;
	else if (late_since_ns == 0)
		late_since_ns = now_ns;
	else if (now_ns - late_since_ns > 5000000)
		sim_violation("a timeslice should have ended %llu ns ago",
			      (unsigned long long)(now_ns - next_ns));
}

void sim_broker_check(bool is_first)
{
	if (!broker || !broker->server)
		return;
	check_timeslices();
	list_for_each (node, &broker->server->sessions)
		check_rings(container_of(node, struct session, link));
	for (struct tenant *tenant = tenants_first(broker->tenants); tenant;
	     tenant = tenants_next(broker->tenants, tenant)) {
		/* "t" and the number of a process */
		const unsigned int number = (unsigned int)(tenant_name(tenant)[1] - '0');

		if (tenant_name(tenant)[0] == 't' && number < SIM_PROCESSES) {
			check_maximum(tenant, number);
			check_numbers(tenant);
		}
	}
	for (uint8_t i = 1; i < SIM_DEVICES; i++) {
		const uint64_t charged = account_book_total(broker->book, account_vram(i));
		const uint64_t used = broker->executors[i]->ops->memory_used(broker->executors[i],
									     EXEC_TIER_VRAM);

		if (is_first &&
		    used + sim_holders_bytes() > broker->executors[i]->info.memory_bytes)
			sim_violation("plans have %llu bytes of device %u and leases %llu, which "
				      "are more than there are",
				      (unsigned long long)used, i,
				      (unsigned long long)sim_holders_bytes());
		if (used > charged)
			sim_violation("device %u holds %llu bytes, of which %llu are charged", i,
				      (unsigned long long)used, (unsigned long long)charged);
	}
}

/* --- The policy --- */

void sim_policy_write(const char *folder, unsigned int generation, unsigned int mib,
		      unsigned int first_poor)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/brokerd.conf", folder);
	file = fopen(path, "w");
	sim_check(file);
	for (unsigned int i = SIM_CLIENT; i < SIM_PROCESSES; i++) {
		fprintf(file,
			"[tenant t%u]\nmatch-uid = %u\nvram-max = %uMiB\nvram-reserve = %uMiB\n"
			"gtt-max = %uMiB\nweight = %u\n",
			i, SIM_UID + i, mib + mib * ((i + generation) % 3),
			mib / 4 * ((i + generation) % 2), mib - 2, 50 + 100 * (i % 3));
		if (i >= first_poor)
			fprintf(file, "sessions-max = 3\narenas-max = 2\nplans-max = 1\n"
				      "tasks-max = 40\n");
	}
	sim_check(fclose(file) == 0);
}
