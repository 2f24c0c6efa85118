/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: see timeslice.h.
 *
 * Each restrained submission is followed by a fence of the layer's own, by whose end it is counted
 * down (ends.h). A thread of each leased device ("rbk-slice") watches the word on the lease's page,
 * wakes the threads that wait for a change, tells the broker when nothing is under way any more,
 * and reports about once a second how work is divided. Submissions before the device was restrained
 * have no fence; the first one with a fence on their queue ends after them.
 *
 * The thread "rbk-slice" also follows the priority, which may change: the process joins anew with
 * another one, or leaves, and is not restrained until it joins again.
 *
 * Nothing waits for ever. A submission may wait for a semaphore that a later submission of the
 * program signals, so the later one is let through after a while, and the broker is told DONE if
 * nothing ends while another thread waits. If the broker does not answer, submissions are not
 * restrained.
 *
 * While the device is shared, the next part is submitted shortly before the predicted end of the
 * part under way, so an urgent program waits for the rest of one part. The lead adapts to the
 * delays of timers, threads and predictions: it grows when a part comes too late. The broker is
 * told that the timeslice ends before the last part has ended (RBK_WIRE_TIMESLICE_ENDING), since
 * the way to the next program takes longer than the rest of a part.
 *
 * The lock is never held during requests to the broker, or while Vulkan is called to wait.
 */
#include "libclient/layer/timeslice.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker/lease.h>

#include "libclient/layer/cut.h"
#include "libclient/layer/dispatch.h"
#include "libclient/layer/ends.h"
#include "libclient/layer/gpu.h"
#include "libclient/layer/layer.h"
#include "libclient/layer/process.h"
#include "libclient/layer/say.h"
#include "libclient/private.h"

/* Submissions under way: as many as take this time together, or at least one or two. */
static const uint64_t depth_ns = 1000000;
/*
 * A timeslice that others wait for ends when the program has submitted nothing for so long: for a
 * moment if its pauses are longer anyway.
 */
static const uint64_t longest_idle_ns = 200000, least_idle_ns = 50000;
/*
 * Longest wait for a submission's end; it may itself wait for what the program submits next. Less
 * than the broker's TIMESLICE_GRACE_NS: a lease that gives up in time is no overdue one.
 */
static const uint64_t patience_ns = 40000000;
/* Time after which a request is repeated, or the broker is asked again. */
static const uint64_t retry_ns = 1000000000;
static const uint64_t failed_ns = 100000000;
/* Longest sleep of a thread that waits; the other thread wakes it earlier. */
static const uint64_t doze_ns = 10000000;
/* Bounds of timeslice.lead_ns. A part that comes too late raises it by a quarter and more. */
static const uint64_t least_lead_ns = 20000, first_lead_ns = 60000;
/* A part in time lowers the lead by one in so many. */
enum { LEAD_DECAY = 256 };
/* Slack of the timer that ends a wait for room, in ns. */
enum { TIMER_SLACK_NS = 1000 };

static const uint32_t *word_of(const struct gpu *gpu)
{
	return &rbk_lease_page(gpu->lease)->timeslice;
}

static uint32_t load_word(const struct gpu *gpu)
{
	/* Pairs with lease_publish() of the broker. */
	return __atomic_load_n(word_of(gpu), __ATOMIC_ACQUIRE);
}

/* Return the priority with which the process shares the device, 1 + enum rbk_priority; 0: none. */
static uint32_t priority_of(const struct gpu *gpu)
{
	const struct environment *environment = &layer_process->environment;
	const struct rbk_lease_page *page = rbk_lease_page(gpu->lease);
	const uint32_t set = __atomic_load_n(&page->set, __ATOMIC_RELAXED);
	const uint32_t priority = __atomic_load_n(&page->priority, __ATOMIC_RELAXED);

	if (set & RBK_LEASE_SET_PRIORITY)
		return priority;
	if (environment->has_priority)
		return 1 + environment->priority;
	/* A share or a length of parts does not outrank the priority of the tenant's section. */
	return priority == 0 && environment->is_sharing ? 1 + RBK_PRIORITY_NORMAL : priority;
}

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

/* Return the leased device whose time the submissions of @device use; NULL: none that is shared. */
static struct gpu *shared_gpu(const struct device *device)
{
	struct gpu *gpu = device && device->n_gpus == 1 ? device->gpus[0] : NULL;

	/* In a fork()ed child the memory is zero. */
	return gpu && __atomic_load_n(&gpu->timeslice.is_sharing, __ATOMIC_ACQUIRE) ? gpu : NULL;
}

/* Return true if nothing waits now, since the broker does not answer. */
static bool is_let_pass(const struct gpu *gpu)
{
	return layer_now_ns() < __atomic_load_n(&gpu->timeslice.open_until_ns, __ATOMIC_RELAXED);
}

/*
 * Wait until the word is no longer @word, or at most @most_ns; only shortly while the page may be
 * replaced by that of the next broker.
 */
static void await_word(const struct gpu *gpu, uint32_t word, uint64_t most_ns)
{
	const struct timespec most =
		time_of(is_let_pass(gpu) && most_ns > doze_ns ? doze_ns : most_ns);

	syscall(SYS_futex, word_of(gpu), FUTEX_WAIT, word, &most, NULL, 0);
}

/* Wait for a change at most until @end_ns. Under the lock. */
static void await_change(struct timeslice *slice, uint64_t end_ns)
{
	const struct timespec end = time_of(end_ns);

	pthread_cond_timedwait(&slice->changed, &slice->lock, &end);
}

/* @rest_us: of RBK_WIRE_TIMESLICE_ENDING. */
static int tell(struct gpu *gpu, uint32_t action, uint32_t rest_us, uint32_t word)
{
	int r;

	pthread_rwlock_rdlock(&layer_process->using);
	r = client_lease_timeslice(gpu->lease, action, rest_us, word);
	pthread_rwlock_unlock(&layer_process->using);
	return r;
}

static uint32_t load_joined(const struct gpu *gpu)
{
	return __atomic_load_n(&gpu->timeslice.joined, __ATOMIC_RELAXED);
}

/* Join with @priority, 1 + an enum rbk_priority, or leave with 0. Under process.lock or .using. */
static int join(struct gpu *gpu, uint32_t priority)
{
	const uint32_t action = priority > 0 ? RBK_WIRE_TIMESLICE_JOIN : RBK_WIRE_TIMESLICE_LEAVE;
	int r = client_lease_timeslice(gpu->lease, action, priority > 0 ? priority - 1 : 0, 0);

	if (!r)
		__atomic_store_n(&gpu->timeslice.joined, priority, __ATOMIC_RELAXED);
	return r;
}

static void say_unshared(const struct gpu *gpu, int r)
{
	const char *why = r == -EOPNOTSUPP ? "the broker does not offer it"
			  : r == -EBUSY    ? "16 leases of the tenant do, or 64 processes of it"
			  : r < 0          ? strerror(-r)
					   : "the broker is gone";

	say_error("lease %u does not share its device's time, so the program's work is not held "
		  "back: %s",
		  rbk_lease_number(gpu->lease), why);
}

/* ---- Reports ---- */

void timeslice_count(const struct device *device, enum timeslice_count what, uint64_t n)
{
	struct gpu *gpu = shared_gpu(device);

	__atomic_fetch_add(&layer_process->counts[what], n, __ATOMIC_RELAXED);
	if (gpu)
		__atomic_fetch_add(&gpu->timeslice.counts[what], n, __ATOMIC_RELAXED);
}

/* Load the counts. Under the lock. Return: false: the broker knows them, and nothing is new. */
static bool describe_parts(const struct timeslice *slice, uint64_t counts[TIMESLICE_COUNTS])
{
	bool is_new = slice->longest_ns > 0;

	for (unsigned int i = 0; i < TIMESLICE_COUNTS; i++) {
		counts[i] = __atomic_load_n(&slice->counts[i], __ATOMIC_RELAXED);
		is_new |= counts[i] != slice->told[i];
	}
	return is_new;
}

/* Send a report. Return: 0, or a negative errno. */
static int tell_parts(struct gpu *gpu, const uint64_t counts[TIMESLICE_COUNTS], uint64_t longest_ns)
{
	const uint64_t *base = gpu->timeslice.base;
	uint64_t since[TIMESLICE_COUNTS];
	struct client_parts parts;
	int r = 0;

	/* Write-locked while the lease moves to another broker, which counts from there on. */
	pthread_rwlock_rdlock(&layer_process->using);
	for (unsigned int i = 0; i < TIMESLICE_COUNTS; i++) {
		if (counts[i] < base[i])
			r = -EBUSY;
		since[i] = counts[i] - base[i];
	}
	parts = (struct client_parts){
		.n_submissions = since[TIMESLICE_SUBMISSIONS],
		.n_parts = since[TIMESLICE_PARTS],
		.n_slices = since[TIMESLICE_SLICES],
		.n_whole = since[TIMESLICE_WHOLE],
		.n_unsliced = since[TIMESLICE_UNSLICED],
		.longest_ns = longest_ns,
	};
	if (!r)
		r = client_lease_parts(gpu->lease, &parts);
	pthread_rwlock_unlock(&layer_process->using);
	return r;
}

/* Report to the broker if something has changed; at most once in retry_ns unless it @must. */
static void report(struct gpu *gpu, bool must)
{
	struct timeslice *slice = &gpu->timeslice;
	const uint64_t now_ns = layer_now_ns();
	uint64_t counts[TIMESLICE_COUNTS], longest_ns;
	bool is_new;
	int r;

	if (!must && now_ns < __atomic_load_n(&slice->report_at_ns, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&slice->report_at_ns, now_ns + retry_ns, __ATOMIC_RELAXED);
	pthread_mutex_lock(&slice->lock);
	is_new = describe_parts(slice, counts);
	longest_ns = slice->longest_ns;
	slice->longest_ns = 0;
	pthread_mutex_unlock(&slice->lock);
	if (!is_new)
		return;
	r = tell_parts(gpu, counts, longest_ns);
	pthread_mutex_lock(&slice->lock);
	if (!r)
		memcpy(slice->told, counts, sizeof(counts));
	else if (slice->longest_ns < longest_ns)
		slice->longest_ns = longest_ns;
	pthread_mutex_unlock(&slice->lock);
}

/* ---- The thread that watches the page ---- */

/*
 * Return the action of the broker's wire by which the lease's timeslice, as of @word, should end
 * now; otherwise wait for a change, or for a moment, and return 0. Under the lock.
 */
static uint32_t should_end(struct timeslice *slice, uint32_t word, uint64_t since_ns)
{
	const uint64_t now_ns = layer_now_ns(), predicted_ns = slice->ends_ns;
	uint64_t end_ns;

	if (RBK_TIMESLICE_STATE(word) == RBK_TIMESLICE_CLOSED) {
		if (slice->n_under_way == 0)
			return RBK_WIRE_TIMESLICE_DONE;
		end_ns =
			(since_ns > slice->changed_ns ? since_ns : slice->changed_ns) + patience_ns;
		if (now_ns >= end_ns) {
			if (slice->n_waiting > 0)
				return RBK_WIRE_TIMESLICE_GIVE_UP;
			end_ns = now_ns + patience_ns;
		}
		/* Before the first end, all of it may be behind another program's work that hangs.
		 */
		if (slice->has_ended && slice->n_vague == 0 &&
		    now_ns < predicted_ns + ENDS_DOUBT_NS) {
			if (predicted_ns <= now_ns + depth_ns)
				return RBK_WIRE_TIMESLICE_ENDING;
			end_ns = predicted_ns - depth_ns;
		}
	} else {
		end_ns = slice->changed_ns + slice->idle_ns;
		if (slice->n_under_way == 0 && slice->n_waiting == 0 && now_ns >= end_ns)
			return RBK_WIRE_TIMESLICE_DONE;
		if (now_ns >= end_ns)
			end_ns = now_ns + depth_ns;
	}
	await_change(slice, end_ns);
	return 0;
}

/* Tell DONE when the timeslice, as of @word, should end, unless the word changes before. */
static void end_slice(struct gpu *gpu, uint32_t word)
{
	struct timeslice *slice = &gpu->timeslice;
	const uint64_t since_ns = layer_now_ns();
	uint32_t action = 0, rest_us = 0;
	int r;

	pthread_mutex_lock(&slice->lock);
	while (!action && load_word(gpu) == word)
		action = should_end(slice, word, since_ns);
	if (action) {
		const uint64_t now_ns = layer_now_ns();

		if (action == RBK_WIRE_TIMESLICE_ENDING && slice->ends_ns > now_ns)
			rest_us = (uint32_t)((slice->ends_ns - now_ns) / 1000);
		/* Threads that wait have to ask again: their WANT may be for this timeslice. */
		slice->is_using = slice->has_asked = false;
		slice->ask_at_ns = 0;
		slice->is_telling = true;
		slice->n_told++;
	}
	pthread_mutex_unlock(&slice->lock);
	if (!action)
		return;
	r = tell(gpu, action, rest_us, word);
	pthread_mutex_lock(&slice->lock);
	slice->is_telling = false;
	pthread_cond_broadcast(&slice->changed);
	/* Threads that sleep on the word have to ask again, too. */
	if (slice->n_on_word > 0)
		syscall(SYS_futex, word_of(gpu), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	pthread_mutex_unlock(&slice->lock);
	/* On failure the broker is gone, or has too much to answer. */
	await_word(gpu, word, r ? failed_ns : retry_ns);
}

/* Leave after having joined with @joined. Under process.using. */
static int leave(struct gpu *gpu, uint32_t joined)
{
	struct timeslice *slice = &gpu->timeslice;
	int r;

	/* Nothing waits from now on: a thread's WANT must not come behind LEAVE. */
	pthread_mutex_lock(&slice->lock);
	__atomic_store_n(&slice->joined, 0, __ATOMIC_RELAXED);
	slice->is_using = slice->has_asked = false;
	slice->ask_at_ns = 0;
	slice->n_told++;
	pthread_cond_broadcast(&slice->changed);
	pthread_mutex_unlock(&slice->lock);
	r = join(gpu, 0);
	if (r)
		__atomic_store_n(&slice->joined, joined, __ATOMIC_RELAXED);
	else
		say("the process does not share the time of lease %u's device any more",
		    rbk_lease_number(gpu->lease));
	return r;
}

/* Join anew, or leave, as the environment and the page say, which may have changed. */
static void follow_priority(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;
	uint32_t priority, joined;
	int r = 0;

	if (!__atomic_load_n(&slice->is_sharing, __ATOMIC_ACQUIRE) ||
	    priority_of(gpu) == load_joined(gpu) ||
	    layer_now_ns() < __atomic_load_n(&slice->refused_until_ns, __ATOMIC_RELAXED))
		return;
	/* Write-locked while the lease moves to another broker, where the process joins anew. */
	pthread_rwlock_rdlock(&layer_process->using);
	priority = priority_of(gpu);
	joined = load_joined(gpu);
	if (priority > 0 && priority != joined)
		r = join(gpu, priority);
	else if (joined > 0 && priority == 0 && rbk_features(layer_process->rbk) & RBK_FEAT_UNSHARE)
		r = leave(gpu, joined);
	if (r)
		__atomic_store_n(&slice->refused_until_ns, layer_now_ns() + retry_ns,
				 __ATOMIC_RELAXED);
	if (r && joined == 0 && !slice->is_refused)
		say_unshared(gpu, r);
	slice->is_refused = r && joined == 0;
	pthread_rwlock_unlock(&layer_process->using);
}

static void *watch_word(void *data)
{
	struct gpu *gpu = data;
	struct timeslice *slice = &gpu->timeslice;
	uint32_t word, before = 0;

	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
	for (;; before = word) {
		word = load_word(gpu);
		if (word != before) {
			pthread_mutex_lock(&slice->lock);
			pthread_cond_broadcast(&slice->changed);
			pthread_mutex_unlock(&slice->lock);
		}
		report(gpu, false);
		follow_priority(gpu);
		if (RBK_TIMESLICE_STATE(word) == RBK_TIMESLICE_OPEN ||
		    RBK_TIMESLICE_STATE(word) == RBK_TIMESLICE_HELD || load_joined(gpu) == 0)
			await_word(gpu, word, retry_ns);
		else
			end_slice(gpu, word);
	}
	return NULL;
}

/* ---- Sharing ---- */

static int serve(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;
	pthread_condattr_t attributes;
	int r;

	if (slice->is_served)
		return 0;
	pthread_mutex_init(&slice->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&slice->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	slice->typical_ns = depth_ns;
	slice->idle_ns = longest_idle_ns;
	slice->lead_ns = first_lead_ns;
	r = process_thread(NULL, "rbk-slice", watch_word, gpu);
	slice->is_served = r == 0;
	return r;
}

static void read_max_part(struct gpu *gpu)
{
	const struct environment *environment = &layer_process->environment;
	const struct rbk_lease_page *page = rbk_lease_page(gpu->lease);
	const uint64_t max_part_ns =
		__atomic_load_n(&page->max_part_us, __ATOMIC_RELAXED) * UINT64_C(1000);

	gpu->timeslice.has_max_part = environment->has_max_part || max_part_ns > 0;
	gpu->timeslice.max_part_ns = environment->has_max_part || max_part_ns == 0
					     ? environment->max_part_ns
					     : max_part_ns;
}

void timeslice_share(struct gpu *gpu)
{
	const uint32_t priority = priority_of(gpu);
	struct timeslice *slice = &gpu->timeslice;
	int r;

	if (priority == 0 || slice->is_sharing)
		return;
	read_max_part(gpu);
	r = serve(gpu);
	if (!r)
		r = join(gpu, priority);
	__atomic_store_n(&slice->refused_until_ns, layer_now_ns() + retry_ns, __ATOMIC_RELAXED);
	if (r && !slice->is_refused)
		say_unshared(gpu, r);
	if (!r && slice->is_refused)
		say_error("lease %u shares its device's time now, but submissions stay whole on "
			  "the devices that the program has opened before",
			  rbk_lease_number(gpu->lease));
	slice->is_refused = r != 0;
	if (!r)
		__atomic_store_n(&slice->is_sharing, 1, __ATOMIC_RELEASE);
}

/* Begin to share the device if an administrator has asked for it since the lease was opened. */
static void share_late(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;
	int state;

	if (__atomic_load_n(&slice->is_sharing, __ATOMIC_RELAXED) || gpu_state(gpu) != GPU_LEASED ||
	    priority_of(gpu) == 0 ||
	    layer_now_ns() < __atomic_load_n(&slice->refused_until_ns, __ATOMIC_RELAXED))
		return;
	/* A thread that waits for the broker may hold the lock; a later submission tries again. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	if (pthread_mutex_trylock(&layer_process->lock) == 0) {
		timeslice_share(gpu);
		pthread_mutex_unlock(&layer_process->lock);
	}
	pthread_setcancelstate(state, &state);
}

void timeslice_restore(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;
	uint32_t priority, joined;
	int r;

	if (!slice->is_sharing)
		return;
	pthread_mutex_lock(&slice->lock);
	slice->has_asked = slice->is_using = false;
	slice->ask_at_ns = 0;
	slice->n_told++;
	describe_parts(slice, slice->base);
	memcpy(slice->told, slice->base, sizeof(slice->told));
	__atomic_store_n(&slice->open_until_ns, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&slice->lock);
	priority = priority_of(gpu);
	joined = load_joined(gpu);
	__atomic_store_n(&slice->joined, 0, __ATOMIC_RELAXED);
	if (priority == 0 && joined == 0)
		return;
	/* The lease's opener may set a priority only later. */
	r = join(gpu, priority > 0 ? priority : joined);
	slice->is_refused = r != 0;
	if (r)
		say_unshared(gpu, r);
}

void timeslice_cut(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;

	if (!__atomic_load_n(&slice->is_sharing, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&slice->open_until_ns, layer_now_ns() + retry_ns, __ATOMIC_RELAXED);
	pthread_mutex_lock(&slice->lock);
	pthread_cond_broadcast(&slice->changed);
	pthread_mutex_unlock(&slice->lock);
	/* The next broker's page will be another futex at the same address. */
	syscall(SYS_futex, word_of(gpu), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- Submissions ---- */

/*
 * Return true if a part may be under way, too; otherwise set *ret_at_ns to the time at which it may
 * if nothing changes before. Under the lock.
 */
static bool has_room_for_part(const struct timeslice *slice, const struct submission *submission,
			      uint64_t *ret_at_ns)
{
	const uint32_t n = slice->n_under_way;
	const uint64_t now_ns = layer_now_ns();

	*ret_at_ns = now_ns + doze_ns;
	if (n >= 2 && (n >= TIMESLICE_MAX_SUBMISSIONS ||
		       slice->under_way_ns + submission->part_ns > 2 * slice->max_part_ns))
		return false;
	/* As one part ends, the next one is there already. */
	if (slice->n_vague > 0 || slice->ends_ns <= now_ns + slice->lead_ns)
		return true;
	*ret_at_ns = slice->ends_ns - slice->lead_ns;
	return false;
}

/* Return true if @submission may be under way, too. @ret_at_ns as above. Under the lock. */
static bool has_room(const struct gpu *gpu, const struct submission *submission,
		     uint64_t *ret_at_ns)
{
	const struct timeslice *slice = &gpu->timeslice;
	uint32_t n = slice->n_under_way;

	*ret_at_ns = layer_now_ns() + doze_ns;
	if (n == 0)
		return true;
	if (submission->part_ns > 0)
		return has_room_for_part(slice, submission, ret_at_ns);
	if (priority_of(gpu) != 1 + RBK_PRIORITY_LOW && n < 2)
		return true;
	/* The first one may take longer than those before it. */
	return n < TIMESLICE_MAX_SUBMISSIONS && (n + 1) * slice->typical_ns <= depth_ns &&
	       layer_now_ns() - slice->end_ns < depth_ns;
}

/* Return true if the process may use the timeslice, which its lease has. Under the lock. */
static bool is_held(const struct gpu *gpu)
{
	enum rbk_timeslice state = RBK_TIMESLICE_STATE(load_word(gpu));

	return (state == RBK_TIMESLICE_HELD || state == RBK_TIMESLICE_WANTED) &&
	       (gpu->timeslice.is_using || gpu->timeslice.has_asked);
}

static bool is_open(const struct gpu *gpu)
{
	return RBK_TIMESLICE_STATE(load_word(gpu)) == RBK_TIMESLICE_OPEN || is_let_pass(gpu) ||
	       load_joined(gpu) == 0;
}

/* Wait until the submission may be under way, at most until @end_ns. Under the lock. */
static void await_room(struct gpu *gpu, struct submission *submission, uint64_t end_ns)
{
	uint64_t at_ns = 0;
	int slack_ns = -1;

	submission->is_timed = false;
	/* The layer follows so many, even if they are not restrained. */
	while (is_open(gpu) ? gpu->timeslice.n_under_way >= TIMESLICE_MAX_SUBMISSIONS &&
				      submission->part_ns > 0
			    : !has_room(gpu, submission, &at_ns)) {
		const uint64_t now_ns = layer_now_ns();

		submission->is_late = now_ns >= end_ns;
		if (submission->is_late)
			break;
		if (is_open(gpu))
			at_ns = now_ns + doze_ns;
		if (slack_ns < 0) {
			slack_ns = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
			prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
		}
		submission->is_timed = true;
		await_change(&gpu->timeslice, at_ns);
	}
	if (slack_ns > 0)
		prctl(PR_SET_TIMERSLACK, slack_ns, 0, 0, 0);
}

/* Ask for the timeslice. Under the lock, which is released meanwhile. */
static void ask(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;
	const uint64_t n_told = slice->n_told;
	int r;

	slice->ask_at_ns = layer_now_ns() + retry_ns;
	pthread_mutex_unlock(&slice->lock);
	r = tell(gpu, RBK_WIRE_TIMESLICE_WANT, 0, 0);
	pthread_mutex_lock(&slice->lock);
	/*
	 * An answer from before the last DONE does not count, nor one from before the process left,
	 * or moved to another broker: the broker takes it for done.
	 */
	if (slice->n_told != n_told)
		return;
	slice->has_asked |= r == 0;
	if (!r || load_joined(gpu) == 0)
		return;
	__atomic_store_n(&slice->open_until_ns, layer_now_ns() + retry_ns, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&slice->lock);
	say_rarely("the broker does not give timeslices (%s): the program goes on without",
		   strerror(r < 0 ? -r : ECONNRESET));
	pthread_mutex_lock(&slice->lock);
}

/*
 * Wait for the timeslice, for which the broker was asked: without the way through the thread that
 * watches the page. Under the lock, which is released meanwhile.
 */
static void sleep_on_word(struct gpu *gpu, uint32_t word)
{
	struct timeslice *slice = &gpu->timeslice;

	slice->n_on_word++;
	pthread_mutex_unlock(&slice->lock);
	await_word(gpu, word, doze_ns);
	pthread_mutex_lock(&slice->lock);
	slice->n_on_word--;
}

/* Wait until the process may use the timeslice, or is not restrained. Under the lock. */
static void await_slice(struct gpu *gpu)
{
	struct timeslice *slice = &gpu->timeslice;

	while (!is_open(gpu) && !is_held(gpu)) {
		const uint32_t word = load_word(gpu);

		if (!slice->is_telling && layer_now_ns() >= slice->ask_at_ns)
			ask(gpu);
		else if (slice->has_asked && RBK_TIMESLICE_STATE(word) == RBK_TIMESLICE_CLOSED)
			sleep_on_word(gpu, word);
		else
			await_change(slice, layer_now_ns() + doze_ns);
	}
	slice->has_ended &= slice->is_using;
	slice->is_using = !is_open(gpu);
	slice->has_asked = false;
	slice->ask_at_ns = 0;
}

/* Wait until the submission may begin. Under the lock. */
static void await_turn(struct gpu *gpu, struct submission *submission)
{
	struct timeslice *slice = &gpu->timeslice;
	uint64_t end_ns = 0;

	slice->n_waiting++;
	do {
		await_slice(gpu);
		/* The timeslice may end while it waits for room: it does not wait anew. */
		if (end_ns == 0)
			end_ns = layer_now_ns() + patience_ns;
		await_room(gpu, submission, end_ns);
	} while (!is_open(gpu) && !is_held(gpu));
	slice->n_waiting--;
}

/*
 * Note whether the device waits for a part that has waited for the predicted end of those before
 * it, and adapt the lead. Under the lock.
 */
static void adapt_lead(struct device *device, struct timeslice *slice,
		       struct submission *submission)
{
	const struct submissions *all = &device->submissions;
	const uint64_t now_ns = layer_now_ns();

	if (!submission->is_timed || submission->part_ns == 0 || submission->is_late)
		return;
	submission->is_behind =
		slice->n_under_way == 0 ||
		(all->n == slice->n_under_way &&
		 device->fence_status(device->handle, all->under_way[all->n - 1].fence) !=
			 VK_NOT_READY);
	if (submission->is_behind) {
		/* On a busy machine threads wait for a processor, for longer than any part takes.
		 */
		const uint64_t late_ns = now_ns > slice->ends_ns ? now_ns - slice->ends_ns : 0;
		const uint64_t most_ns =
			late_ns < slice->max_part_ns ? late_ns : slice->max_part_ns;

		slice->lead_ns += slice->lead_ns / 4 + most_ns / 8;
	} else {
		slice->lead_ns -= slice->lead_ns / LEAD_DECAY;
	}
	if (slice->lead_ns > slice->max_part_ns)
		slice->lead_ns = slice->max_part_ns;
	if (slice->lead_ns < least_lead_ns)
		slice->lead_ns = least_lead_ns;
}

/* Note that the program submits something after a pause, until changed_ns. Under the lock. */
static void note_pause(struct timeslice *slice)
{
	if (slice->changed_ns - slice->end_ns <= longest_idle_ns)
		slice->idle_ns = longest_idle_ns;
	else
		slice->idle_ns -= slice->idle_ns / 4;
	if (slice->idle_ns < least_idle_ns)
		slice->idle_ns = least_idle_ns;
}

/* Count the submission, and give it a fence. Under the lock. */
static void count(struct device *device, struct timeslice *slice, struct submission *submission)
{
	if (slice->n_under_way < TIMESLICE_MAX_SUBMISSIONS)
		submission->fence = ends_take_fence(device);
	if (!submission->fence) {
		__atomic_store_n(&slice->is_blurred, true, __ATOMIC_RELAXED);
		return;
	}
	submission->predicted_ns =
		submission->part_ns > 0 ? submission->part_ns : slice->typical_ns;
	slice->under_way_ns += submission->predicted_ns;
	slice->n_vague++;
	slice->changed_ns = layer_now_ns();
	if (slice->n_under_way++ == 0) {
		note_pause(slice);
		slice->end_ns = slice->ends_ns = slice->changed_ns;
	}
	slice->ends_ns += submission->predicted_ns;
}

bool timeslice_is_shared(const struct device *device)
{
	return shared_gpu(device) != NULL;
}

bool timeslice_divides(const struct device *device)
{
	const struct gpu *gpu = shared_gpu(device);

	return gpu && (gpu->timeslice.has_max_part || !is_open(gpu));
}

void timeslice_begin(struct device *device, struct submission *submission)
{
	struct gpu *gpu;
	int state;

	if (device && device->n_gpus == 1 && device->gpus[0])
		share_late(device->gpus[0]);
	gpu = shared_gpu(device);
	submission->fence = VK_NULL_HANDLE;
	submission->is_late = submission->is_timed = submission->is_behind = false;
	if (!gpu)
		return;
	__atomic_fetch_add(&gpu->timeslice.counts[TIMESLICE_SUBMISSIONS], 1, __ATOMIC_RELAXED);
	/* The time of a part is learned even if the lease is alone. */
	if (is_open(gpu) && submission->part_ns == 0) {
		__atomic_store_n(&gpu->timeslice.is_blurred, true, __ATOMIC_RELAXED);
		return;
	}
	/* vkQueueSubmit() is no cancellation point. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&gpu->timeslice.lock);
	await_turn(gpu, submission);
	if (!is_open(gpu))
		adapt_lead(device, &gpu->timeslice, submission);
	if (!is_open(gpu) || submission->part_ns > 0)
		count(device, &gpu->timeslice, submission);
	pthread_mutex_unlock(&gpu->timeslice.lock);
	pthread_setcancelstate(state, &state);
}

void timeslice_submitted(struct device *device, const struct submission *submission,
			 VkResult result)
{
	struct submissions *all = &device->submissions;
	struct timeslice *slice = &device->gpus[0]->timeslice;

	pthread_mutex_lock(&slice->lock);
	if (result == VK_SUCCESS) {
		const uint32_t series = (uint32_t)__builtin_ctzll(~all->used_series);
		const bool is_vague = !submission->series || submission->is_guess;

		slice->n_vague -= !is_vague;
		all->under_way[all->n++] = (struct under_way){
			.fence = submission->fence,
			.queue = submission->queue,
			.begin_ns = layer_now_ns(),
			.predicted_ns = submission->predicted_ns,
			.series = series,
			.is_vague = is_vague,
			.is_behind = submission->is_behind,
		};
		all->used_series |= 1ull << series;
		if (device->cutter)
			device->cutter->series[series].n = 0;
		if (submission->series && !__atomic_load_n(&slice->is_blurred, __ATOMIC_RELAXED))
			device->cutter->series[series] = *submission->series;
		__atomic_store_n(&slice->is_blurred, false, __ATOMIC_RELAXED);
	} else {
		slice->n_under_way--;
		slice->n_vague--;
		slice->under_way_ns -= submission->predicted_ns;
		/* A lost device may have signalled it. */
		device->destroy_fence(device->handle, submission->fence, NULL);
	}
	pthread_cond_broadcast(&slice->changed);
	pthread_mutex_unlock(&slice->lock);
}

void timeslice_forget(struct device *device)
{
	struct gpu *gpu = shared_gpu(device);

	if (!gpu)
		return;
	if (device->submissions.is_watched)
		ends_forget(device);
	report(gpu, true);
}
