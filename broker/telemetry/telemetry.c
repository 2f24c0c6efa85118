/* SPDX-License-Identifier: MIT */
/*
 * The telemetry thread
 *
 * A round queries every device, publishes the readings, and rings the reactor if something changed
 * that the reactor acts upon. The thread owns all data except the published copies and the pace, so
 * there are no locks. telemetry_new() makes the first round itself, before the thread starts.
 *
 * The use by other processes is the device's total use minus our own, and the two are not read at
 * the same moment. A block that we allocate in between would look like the use of another process,
 * and the reactor would give way to itself. So our own use is read before and after, and the round
 * is repeated a few times until both agree.
 *
 * A device is gone when the driver answers ENODEV. It is closed at once (see amdgpu.c), and looked
 * for at its address once or twice a second. A device that comes back there has lost its contents.
 */
#include "telemetry/telemetry.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "telemetry/amdgpu.h"
#include "telemetry/processes.h"
#include "telemetry/sampling.h"
#include "util/crash.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/log.h"
#include "util/pace.h"
#include "util/seqlock.h"
#include "util/thread.h"
#include "util/waker.h"

enum {
	MAX_SENTENCES = 2 * RBK_MAX_DEVICES + 2,
	SENTENCE_BYTES = 320,
	MAX_ATTEMPTS = 3, /* attempts to read a device's use and our own consistently */
};

static const uint64_t second_ns = 1000000000u;
static const uint64_t notable_bytes = 4u << 20;

/* Size of a reading in the words that seqlock.h copies. */
enum { READING_WORDS = sizeof(struct device_reading) / sizeof(uint64_t) };
_Static_assert(sizeof(struct device_reading) % sizeof(uint64_t) == 0, "copied by words");

struct watched {
	struct telemetry_device device;
	struct amdgpu *amdgpu; /* NULL: not amdgpu, or gone */
	bool is_amdgpu;        /* the device is amdgpu, even if it is gone now */
	struct device_reading reading;
	uint64_t next_open_ns;
	uint64_t next_sensors_ns;
	uint64_t vram_lost_offset; /* added to the driver's count, which restarts with the driver */
	bool is_new;               /* opened since the last sample */
	bool was_reset;

	/* values at the last ring of the reactor */
	uint64_t rung_outside_bytes;
	uint64_t rung_losses;
	uint64_t rung_evictions;
	enum telemetry_state rung_state;

	/* The last reading, for any thread. */
	_Atomic uint32_t sequence;
	_Atomic uint64_t words[2][READING_WORDS];
};

struct telemetry {
	struct waker *waker;
	struct processes *processes;
	struct pace pace;
	pthread_t thread;
	bool has_thread;
	_Atomic bool stop;
	_Atomic uint32_t n_rounds; /* rounds completed by the thread */

	/* owned by the thread */
	struct suspend suspend;
	uint64_t last_processes_ns;
	uint64_t next_own_ns; /* time of the next search for new descriptors of our own */
	bool has_looked_at_processes;
	bool is_tight;

	char sentences[MAX_SENTENCES][SENTENCE_BYTES];
	unsigned int n_sentences;
	uint32_t n_watched;
	struct watched watched[RBK_MAX_DEVICES];
};

static void say(struct telemetry *telemetry, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct telemetry *telemetry, const char *format, ...)
{
	va_list arguments;

	if (telemetry->n_sentences == MAX_SENTENCES)
		return;
	va_start(arguments, format);
	vsnprintf(telemetry->sentences[telemetry->n_sentences++], SENTENCE_BYTES, format,
		  arguments);
	va_end(arguments);
}

static struct reading both(struct reading a, struct reading b)
{
	return (struct reading){a.value + b.value, a.is_valid && b.is_valid};
}

struct memory_reading telemetry_pool(const struct device_reading *reading)
{
	if (!reading->is_integrated)
		return reading->vram;
	return (struct memory_reading){
		.total = both(reading->vram.total, reading->gtt.total),
		.usable = both(reading->vram.usable, reading->gtt.usable),
		.used = both(reading->vram.used, reading->gtt.used),
		.own = both(reading->vram.own, reading->gtt.own),
	};
}

/* Make all sampled values absent; keep counts and known facts. */
static void forget(struct device_reading *reading)
{
	const struct device_reading old = *reading;

	memset(reading, 0, sizeof(*reading));
	reading->sampled_ns = old.sampled_ns;
	reading->n_samples = old.n_samples;
	reading->state = old.state;
	reading->is_integrated = old.is_integrated;
	memcpy(reading->source, old.source, sizeof(reading->source));
	memcpy(reading->pci, old.pci, sizeof(reading->pci));
	reading->n_vram_lost = old.n_vram_lost;
	reading->n_resets = old.n_resets;
	reading->n_suspends = old.n_suspends;
}

static void lose(struct watched *watched)
{
	log_warning_of(LOG_OF_DEVICE(watched->device.index), LOG_DEVICE_GONE,
		       "device %u (%s) is gone", watched->device.index, watched->reading.pci);
	watched->amdgpu = amdgpu_free(watched->amdgpu);
	forget(&watched->reading);
	watched->reading.state = TELEMETRY_GONE;
}

/* Return: 0; otherwise as amdgpu_open(). */
static int open_watched(struct telemetry *telemetry, struct watched *watched,
			char ret_why[static TELEMETRY_WHY_BYTES])
{
	int r;

	r = amdgpu_open(&watched->device, &watched->amdgpu, ret_why);
	if (r)
		return r;
	watched->is_amdgpu = true;
	watched->is_new = true;
	watched->next_sensors_ns = 0;
	telemetry->next_own_ns = 0;
	snprintf(watched->reading.pci, sizeof(watched->reading.pci), "%s",
		 amdgpu_pci(watched->amdgpu));
	snprintf(watched->reading.source, sizeof(watched->reading.source), "amdgpu");
	processes_set_pci(telemetry->processes, (uint32_t)(watched - telemetry->watched),
			  watched->reading.pci);
	return 0;
}

static void find_again(struct telemetry *telemetry, struct watched *watched, uint64_t now_ns)
{
	char why[TELEMETRY_WHY_BYTES];

	if (now_ns < watched->next_open_ns)
		return;
	/* Half a second: at the pace of one second, samples are not exact, and each must try. */
	watched->next_open_ns = now_ns + second_ns / 2;
	if (open_watched(telemetry, watched, why))
		return;
	watched->reading.state = TELEMETRY_PRESENT;
	log_info_of(LOG_OF_DEVICE(watched->device.index), LOG_DEVICE_BACK, "device %u (%s) is back",
		    watched->device.index, watched->reading.pci);
}

/* Sample the amdgpu values that change quickly. */
static void ask_amdgpu(struct watched *watched)
{
	struct device_reading *reading = &watched->reading;
	struct reading n_vram_lost;
	bool was_reset;

	if (amdgpu_sample(watched->amdgpu, reading, &n_vram_lost, &was_reset)) {
		lose(watched);
		return;
	}
	if (n_vram_lost.is_valid) {
		/* Count the time of absence as one loss. */
		if (watched->is_new && reading->n_vram_lost.is_valid)
			watched->vram_lost_offset =
				reading->n_vram_lost.value + 1 - n_vram_lost.value;
		reading->n_vram_lost =
			(struct reading){watched->vram_lost_offset + n_vram_lost.value, true};
	}
	watched->is_new = false;
	watched->was_reset |= was_reset;
}

/* Sample through the executor's function. */
static void ask_driver(struct watched *watched)
{
	struct device_reading *reading = &watched->reading, said = {.sampled_ns = 0};

	if (watched->device.driver.sample)
		watched->device.driver.sample(watched->device.driver.context, &said);
	reading->vram = said.vram;
	reading->visible_vram = said.visible_vram;
	reading->gtt = said.gtt;
	reading->is_integrated = said.is_integrated;
	snprintf(reading->source, sizeof(reading->source), "%s",
		 said.source[0] ? said.source : "none");
}

static void ask_all(struct telemetry *telemetry)
{
	for (uint32_t i = 0; i < telemetry->n_watched; i++) {
		struct watched *watched = &telemetry->watched[i];

		if (watched->amdgpu)
			ask_amdgpu(watched);
		else if (!watched->is_amdgpu)
			ask_driver(watched);
	}
}

/* Get what this process holds, from its own descriptors of the devices. */
static void ask_own(struct telemetry *telemetry, uint64_t now_ns,
		    struct process_use ret[static RBK_MAX_DEVICES])
{
	bool is_new = now_ns >= telemetry->next_own_ns;

	memset(ret, 0, RBK_MAX_DEVICES * sizeof(*ret));
	processes_own(telemetry->processes, is_new, ret);
	if (is_new) {
		/*
		 * Spend at most a hundredth of the time on the search, however many descriptors
		 * there are.
		 */
		uint64_t cost_ns = clock_now_ns() - now_ns;

		telemetry->next_own_ns =
			now_ns + (cost_ns * 100 > second_ns ? cost_ns * 100 : second_ns);
	}
}

static bool is_equal(const struct process_use *a, const struct process_use *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i].vram_bytes.value != b[i].vram_bytes.value ||
		    a[i].gtt_bytes.value != b[i].gtt_bytes.value)
			return false;
	return true;
}

static void set_own(struct telemetry *telemetry, const struct process_use *own)
{
	for (uint32_t i = 0; i < telemetry->n_watched; i++) {
		struct watched *watched = &telemetry->watched[i];
		struct device_reading by_driver = {.sampled_ns = 0};

		if (!watched->amdgpu)
			continue;
		watched->reading.vram.own = own[i].vram_bytes;
		watched->reading.gtt.own = own[i].gtt_bytes;
		if (own[i].vram_bytes.is_valid || !watched->device.driver.sample)
			continue;
		/* A kernel before 5.14 has no such fdinfo. */
		watched->device.driver.sample(watched->device.driver.context, &by_driver);
		watched->reading.vram.own = by_driver.vram.own;
		watched->reading.gtt.own = by_driver.gtt.own;
	}
}

static void ask_memory(struct telemetry *telemetry, uint64_t now_ns)
{
	struct process_use before[RBK_MAX_DEVICES], after[RBK_MAX_DEVICES];

	ask_own(telemetry, now_ns, before);
	for (unsigned int i = 0; i < MAX_ATTEMPTS; i++) {
		ask_all(telemetry);
		ask_own(telemetry, now_ns, after);
		if (is_equal(before, after, telemetry->n_watched))
			break;
		memcpy(before, after, sizeof(before));
	}
	set_own(telemetry, after);
}

static void ask_sensors(struct watched *watched)
{
	uint64_t before_ns = clock_now_ns(), cost_ns;

	if (!watched->amdgpu || before_ns < watched->next_sensors_ns)
		return;
	amdgpu_sample_sensors(watched->amdgpu, &watched->reading);
	/* Some firmware averages before it answers: spend at most a twentieth of the time. */
	cost_ns = clock_now_ns() - before_ns;
	watched->next_sensors_ns =
		before_ns + (cost_ns * 20 > second_ns ? cost_ns * 20 : second_ns);
}

static void ask_processes(struct telemetry *telemetry, uint64_t now_ns, bool is_thorough)
{
	struct device_reading *readings[RBK_MAX_DEVICES] = {NULL};

	for (uint32_t i = 0; i < telemetry->n_watched; i++)
		readings[i] = &telemetry->watched[i].reading;
	processes_look(telemetry->processes, now_ns, is_thorough, readings);
	telemetry->last_processes_ns = now_ns;
	telemetry->has_looked_at_processes = true;
}

static bool is_any_reset(const struct telemetry *telemetry)
{
	for (uint32_t i = 0; i < telemetry->n_watched; i++)
		if (telemetry->watched[i].was_reset)
			return true;
	return false;
}

static void count(struct reading *reading, bool is_one_more)
{
	reading->is_valid = true;
	reading->value += is_one_more;
}

/*
 * Describe who used a device before it was reset: a program that keeps the device busy beyond the
 * kernel's limit is the most common reason. The driver tells only a program itself.
 */
static void describe_users(const struct device_reading *reading, uint64_t elapsed_ns, char *ret,
			   size_t bytes)
{
	const struct process_reading *most = NULL;
	const pid_t own = getpid();
	uint64_t own_percent = 0;

	for (uint32_t i = 0; i < reading->n_processes; i++) {
		const struct process_reading *process = &reading->processes[i];

		if (!process->busy_percent.is_valid)
			continue;
		if (process->pid == own)
			own_percent = process->busy_percent.value;
		else if (!most || process->busy_percent.value > most->busy_percent.value)
			most = process;
	}
	ret[0] = '\0';
	if (most && most->busy_percent.value > 0)
		snprintf(ret, bytes,
			 "; of the processes that are left, %d (%s) of uid %u used most of it in "
			 "the %.1f s before, %llu%%, and brokerd %llu%%",
			 (int)most->pid, most->comm, (unsigned int)most->uid,
			 (double)elapsed_ns * 1e-9, (unsigned long long)most->busy_percent.value,
			 (unsigned long long)own_percent);
}

/*
 * Count resets and suspends; only devices that are sampled can report a reset. The list of
 * processes before the last one is @elapsed_ns older.
 */
static void count_losses(struct telemetry *telemetry, uint64_t elapsed_ns)
{
	bool was_suspended = suspend_look(&telemetry->suspend);
	char users[192];

	for (uint32_t i = 0; i < telemetry->n_watched; i++) {
		struct watched *watched = &telemetry->watched[i];

		count(&watched->reading.n_suspends, was_suspended);
		if (watched->is_amdgpu)
			count(&watched->reading.n_resets, watched->was_reset);
		if (watched->was_reset) {
			describe_users(&watched->reading, elapsed_ns, users, sizeof(users));
			log_warning_of(LOG_OF_DEVICE(watched->device.index), LOG_DEVICE_RESET,
				       "device %u (%s) was reset%s", watched->device.index,
				       watched->reading.pci, users);
		}
		watched->was_reset = false;
	}
}

/* Return: true if something has changed that the reactor acts upon. */
static bool is_notable(struct watched *watched)
{
	const struct device_reading *reading = &watched->reading;
	const struct memory_reading pool = telemetry_pool(reading);
	uint64_t losses =
		reading->n_resets.value + reading->n_vram_lost.value + reading->n_suspends.value;
	uint64_t outside, change;

	outside = pool.used.is_valid && pool.used.value > pool.own.value
			  ? pool.used.value - pool.own.value
			  : 0;
	change = outside > watched->rung_outside_bytes ? outside - watched->rung_outside_bytes
						       : watched->rung_outside_bytes - outside;
	if (change < notable_bytes && losses == watched->rung_losses &&
	    reading->n_evictions.value == watched->rung_evictions &&
	    reading->state == watched->rung_state)
		return false;
	watched->rung_outside_bytes = outside;
	watched->rung_losses = losses;
	watched->rung_evictions = reading->n_evictions.value;
	watched->rung_state = reading->state;
	return true;
}

static void publish_all(struct telemetry *telemetry)
{
	bool rings = false;

	telemetry->is_tight = false;
	for (uint32_t i = 0; i < telemetry->n_watched; i++) {
		struct watched *watched = &telemetry->watched[i];
		struct memory_reading pool;

		watched->reading.sampled_ns = clock_now_ns();
		rings |= is_notable(watched);
		pool = telemetry_pool(&watched->reading);
		telemetry->is_tight |= sampling_is_tight(&pool);
		watched->reading.n_samples =
			atomic_load_explicit(&watched->sequence, memory_order_relaxed) + 1;
		seqlock_write(&watched->sequence, watched->words[0], READING_WORDS,
			      &watched->reading);
	}
	if (rings)
		waker_ring(telemetry->waker);
}

/* Return true if all devices are asleep. */
static bool are_asleep(const struct telemetry *telemetry)
{
	for (uint32_t i = 0; i < telemetry->n_watched; i++)
		if (!telemetry->watched[i].amdgpu ||
		    !amdgpu_is_asleep(telemetry->watched[i].amdgpu))
			return false;
	return true;
}

/* Take one sample of everything. @is_full: include what takes time. */
static void sample(struct telemetry *telemetry, bool is_full)
{
	enum telemetry_pace pace = pace_get(&telemetry->pace);
	uint64_t now_ns = clock_now_ns();
	bool is_first = !telemetry->has_looked_at_processes;
	uint64_t before_ns;

	if (is_full && !is_first && pace == TELEMETRY_IDLE && are_asleep(telemetry))
		return;
	for (uint32_t i = 0; i < telemetry->n_watched; i++)
		if (telemetry->watched[i].is_amdgpu && !telemetry->watched[i].amdgpu)
			find_again(telemetry, &telemetry->watched[i], now_ns);
	ask_memory(telemetry, now_ns);
	/* Find out who used the device until now. */
	before_ns = telemetry->last_processes_ns;
	if (is_any_reset(telemetry))
		ask_processes(telemetry, now_ns, true);
	count_losses(telemetry, now_ns - before_ns);
	if (is_full) {
		for (uint32_t i = 0; i < telemetry->n_watched; i++)
			ask_sensors(&telemetry->watched[i]);
		if (is_first || now_ns - telemetry->last_processes_ns >=
					sampling_list_period_ns(pace, telemetry->is_tight))
			ask_processes(telemetry, now_ns, is_first);
	}
	publish_all(telemetry);
}

/* Sleep until the next sample is due by the pace, which may change meanwhile. */
static void sleep_until_due(struct telemetry *telemetry, uint64_t last_ns)
{
	enum telemetry_pace pace;
	uint64_t due_ns, now_ns;

	while (!atomic_load_explicit(&telemetry->stop, memory_order_relaxed)) {
		pace = pace_get(&telemetry->pace);
		due_ns = last_ns + sampling_period_ns(pace, telemetry->is_tight);
		now_ns = clock_now_ns();
		if (now_ns >= due_ns)
			return;
		pace_sleep(&telemetry->pace, pace, due_ns - now_ns);
	}
}

static void *telemetry_thread(void *data)
{
	struct telemetry *telemetry = data;
	uint64_t last_ns;

	crash_thread.is_own = true;
	while (!atomic_load_explicit(&telemetry->stop, memory_order_relaxed)) {
		last_ns = clock_now_ns();
		sample(telemetry, true);
		/* Pairs with the load in telemetry_wait(). */
		atomic_fetch_add_explicit(&telemetry->n_rounds, 1, memory_order_release);
		sleep_until_due(telemetry, last_ns);
	}
	return NULL;
}

static int start(struct telemetry *telemetry)
{
	int r = thread_start(&telemetry->thread, "rb-telemetry", telemetry_thread, telemetry);

	if (r)
		return error_fold(r);
	telemetry->has_thread = true;
	return 0;
}

/* Return: 0, *ret_is_watched is true if the device can be sampled; negative errno. */
static int watch(struct telemetry *telemetry, const struct telemetry_device *device,
		 bool *ret_is_watched)
{
	struct watched *watched = &telemetry->watched[telemetry->n_watched];
	char why[TELEMETRY_WHY_BYTES];
	int r;

	watched->device = *device;
	r = open_watched(telemetry, watched, why);
	if (r < 0)
		return error_fold(r);
	if (r == AMDGPU_E_UNUSABLE)
		say(telemetry,
		    "device %u is an amdgpu device that cannot be read (%s): its load, temperature "
		    "and losses are unknown%s.",
		    device->index, why,
		    device->driver.sample ? "" : ", as is the memory that other programs use");
	else if (r && !device->driver.sample)
		say(telemetry,
		    "device %u is not watched: it is not amdgpu%s, and its driver reports no "
		    "memory budget: the broker does not see memory that other programs use.",
		    device->index,
		    amdgpu_is_built() ? ""
				      : " (this build does not include "
					"amdgpu)");
	if (r && !device->driver.sample) {
		*ret_is_watched = false;
		return 0;
	}
	if (r && device->has_pci) {
		/* Descriptors of other drivers have the same keys. */
		snprintf(watched->reading.pci, sizeof(watched->reading.pci), "%04x:%02x:%02x.%x",
			 device->pci_domain, device->pci_bus, device->pci_device,
			 device->pci_function & 7u);
		processes_set_pci(telemetry->processes, telemetry->n_watched, watched->reading.pci);
	}
	*ret_is_watched = true;
	return 0;
}

/* Report amdgpu devices of the kernel that are not among ours. */
static void say_what_is_unused(struct telemetry *telemetry)
{
	struct telemetry_device found[RBK_MAX_DEVICES];
	unsigned int n = amdgpu_list(found, RBK_MAX_DEVICES);

	for (unsigned int i = 0; i < n; i++) {
		const struct telemetry_device *device = &found[i];
		char pci[TELEMETRY_PCI_BYTES];
		bool is_ours = false;

		snprintf(pci, sizeof(pci), "%04x:%02x:%02x.%x", device->pci_domain, device->pci_bus,
			 device->pci_device, device->pci_function & 7u);
		for (uint32_t j = 0; j < telemetry->n_watched; j++)
			is_ours |= strcmp(telemetry->watched[j].reading.pci, pci) == 0;
		if (!is_ours)
			say(telemetry,
			    "the amdgpu device at %s is not used: brokerd has not opened it.", pci);
	}
}

static void say_what_is_hidden(struct telemetry *telemetry)
{
	for (uint32_t i = 0; i < telemetry->n_watched; i++)
		if (telemetry->watched[i].reading.pci[0] &&
		    !processes_see_all(telemetry->processes)) {
			say(telemetry,
			    "other users' processes are hidden without CAP_SYS_PTRACE: their total "
			    "memory is known, but not each process.");
			return;
		}
}

int telemetry_new(const struct telemetry_device *devices, uint32_t n_devices, struct waker *waker,
		  struct telemetry **ret)
{
	_cleanup_(telemetry_freep) struct telemetry *telemetry = NULL;
	bool is_watched = false;
	int r;

	telemetry = calloc(1, sizeof(*telemetry));
	if (!telemetry)
		return error_origin(-ENOMEM);
	telemetry->waker = waker;
	telemetry->pace.fd = -1;
	r = pace_init(&telemetry->pace, TELEMETRY_BUSY);
	if (r)
		return error_fold(r);
	r = processes_new("/proc", RBK_MAX_DEVICES, &telemetry->processes);
	if (r)
		return error_fold(r);

	for (uint32_t i = 0; i < n_devices && telemetry->n_watched < RBK_MAX_DEVICES; i++) {
		r = watch(telemetry, &devices[i], &is_watched);
		if (r)
			return error_fold(r);
		telemetry->n_watched += is_watched;
	}
	say_what_is_unused(telemetry);
	say_what_is_hidden(telemetry);
	if (telemetry->n_watched > 0) {
		sample(telemetry, false);
		r = start(telemetry);
		if (r)
			return error_fold(r);
	}
	*ret = steal_ptr(telemetry);
	return 0;
}

struct telemetry *telemetry_free(struct telemetry *telemetry)
{
	if (!telemetry)
		return NULL;
	if (telemetry->has_thread) {
		atomic_store_explicit(&telemetry->stop, true, memory_order_relaxed);
		pace_interrupt(&telemetry->pace);
		pthread_join(telemetry->thread, NULL);
	}
	for (uint32_t i = 0; i < telemetry->n_watched; i++)
		amdgpu_free(telemetry->watched[i].amdgpu);
	processes_free(telemetry->processes);
	pace_deinit(&telemetry->pace);
	free(telemetry);
	return NULL;
}

const char *telemetry_sentence(const struct telemetry *telemetry, unsigned int i)
{
	return telemetry && i < telemetry->n_sentences ? telemetry->sentences[i] : NULL;
}

bool telemetry_wait(const struct telemetry *telemetry, uint64_t timeout_ns)
{
	const struct timespec moment = {0, 1000000};
	uint64_t start_ns = clock_now_ns();

	while (telemetry && telemetry->n_watched > 0 &&
	       atomic_load_explicit(&telemetry->n_rounds, memory_order_acquire) == 0) {
		if (clock_now_ns() - start_ns > timeout_ns)
			return false;
		nanosleep(&moment, NULL);
	}
	return true;
}

static const struct watched *find(const struct telemetry *telemetry, uint32_t device)
{
	for (uint32_t i = 0; telemetry && i < telemetry->n_watched; i++)
		if (telemetry->watched[i].device.index == device)
			return &telemetry->watched[i];
	return NULL;
}

bool telemetry_read(const struct telemetry *telemetry, uint32_t device, struct device_reading *ret)
{
	const struct watched *watched = find(telemetry, device);

	return watched && seqlock_read(&watched->sequence, watched->words[0], READING_WORDS, ret);
}

uint32_t telemetry_n_samples(const struct telemetry *telemetry, uint32_t device)
{
	const struct watched *watched = find(telemetry, device);

	return watched ? atomic_load_explicit(&watched->sequence, memory_order_acquire) : 0;
}

void telemetry_set_pace(struct telemetry *telemetry, enum telemetry_pace pace)
{
	if (telemetry)
		pace_set(&telemetry->pace, pace);
}
