/* SPDX-License-Identifier: MIT */
/*
 * Engines: submissions that take time; see engine.h
 *
 * A simulation of events. An engine is idle or has a job, which ends at a known time. An idle
 * engine begins the next job at the time at which it became idle, or at which the job became ready
 * if that was later. Events are taken in the order of their times, because the end of a job on one
 * engine can make a job of another one ready.
 *
 * A context's jobs run in the order of their submission (drivers/gpu/drm/scheduler,
 * drm_sched_entity). Between contexts the policy decides, as in drm_sched_rq_select_entity():
 * "fifo", the job that was submitted first among those of the highest priority; "fair", the
 * context that has used least time, divided by a weight of its priority.
 */
#include "engine.h"
#include "sys.h"
#include <sys/prctl.h>
#include <errno.h>
#include <string.h>

/* Waits are bounded, or they would not notice that the card was unplugged. */
static const int64_t longest_nap_ns = 50000000;

/* Shift of a context's time by its priority under "fair": the highest counts least. */
static const unsigned int fair_shifts[SIM_N_PRIORITIES] = {7, 4, 2};

uint64_t sim_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct sim_job *end_of(struct sim_card *card)
{
	return card->jobs + card->n_jobs;
}

static const struct sim_job *find(const struct sim_card *card, uint64_t number)
{
	for (const struct sim_job *job = card->jobs; job < card->jobs + card->n_jobs; job++)
		if (job->number == number)
			return job;
	return NULL;
}

bool sim_job_is_done(const struct sim_card *card, uint64_t number)
{
	return !number || !find(card, number);
}

int sim_job_wait_for(struct sim_job *job, uint64_t number)
{
	if (!number)
		return 0;
	if (job->n_waits == SIM_MAX_WAITS)
		return -ENOMEM;
	job->waits[job->n_waits++] = number;
	return 0;
}

uint64_t sim_job_of_seq(const struct sim_card *card, uint32_t slot, uint64_t seq)
{
	for (uint32_t i = 0; i < card->n_jobs; i++)
		if (card->jobs[i].owner == slot + 1 && card->jobs[i].seq == seq)
			return card->jobs[i].number;
	return 0;
}

/* Return true if @job is to signal the syncobj at a point up to @point. */
static bool signals(const struct sim_job *job, uint32_t syncobj, uint64_t point)
{
	for (uint32_t i = 0; i < job->n_signals; i++)
		if (job->signals[i].syncobj == syncobj && job->signals[i].point > 0 &&
		    job->signals[i].point <= point)
			return true;
	return false;
}

/* A point has signalled when it and all points before it have: dma_fence_chain. */
bool sim_point_is_done(const struct sim_card *card, uint32_t syncobj, uint64_t point)
{
	if (!point)
		return sim_job_is_done(card, card->syncobjs[syncobj].job);
	for (uint32_t i = 0; i < card->n_jobs; i++)
		if (signals(&card->jobs[i], syncobj, point))
			return false;
	return true;
}

int sim_point_wait_for(const struct sim_card *card, uint32_t syncobj, uint64_t point,
		       struct sim_job *job)
{
	int r = 0;

	if (!point)
		return sim_job_is_done(card, card->syncobjs[syncobj].job)
			       ? 0
			       : sim_job_wait_for(job, card->syncobjs[syncobj].job);
	for (uint32_t i = 0; i < card->n_jobs && !r; i++)
		if (signals(&card->jobs[i], syncobj, point))
			r = sim_job_wait_for(job, card->jobs[i].number);
	return r;
}

void sim_engine_announce(struct sim_card *card)
{
	__atomic_add_fetch(&card->sync_clock, 1, __ATOMIC_RELEASE);
	sys_futex_wake(&card->sync_clock);
}

/* amdgpu_ring.h: write the fence's number to the submitter's address. */
static void write_user_fence(const struct sim_card *card, const struct sim_job *job)
{
	char name[64];
	int fd;

	sim_object_file_name(card, job->fence_object, name);
	fd = sim_open_file(name, O_RDWR);
	if (fd < 0)
		return;
	/* The client may have freed the buffer meanwhile. */
	if (pwrite(fd, &job->seq, sizeof(job->seq), job->fence_offset) < 0)
		errno = 0;
	close(fd);
}

/*
 * Note that a point of a timeline has signalled by itself. The timeline's value is the last point
 * that has signalled with all points before it.
 */
static void pass(struct sim_card *card, uint32_t index, uint64_t point)
{
	struct sim_syncobj *syncobj = &card->syncobjs[index];
	uint64_t pending = UINT64_MAX;

	if (point > syncobj->passed)
		syncobj->passed = point;
	for (const struct sim_job *job = card->jobs; job < end_of(card); job++)
		for (uint32_t i = 0; i < job->n_signals; i++)
			if (job->signals[i].syncobj == index && job->signals[i].point > 0 &&
			    job->signals[i].point < pending)
				pending = job->signals[i].point;
	if (syncobj->passed < pending)
		syncobj->value = syncobj->passed;
}

void sim_point_signal(struct sim_card *card, uint32_t syncobj, uint64_t point)
{
	struct sim_syncobj *at = &card->syncobjs[syncobj];

	at->has_fence = true;
	at->job = 0;
	if (point > at->point)
		at->point = point;
	pass(card, syncobj, point);
	sim_engine_announce(card);
}

/* Give a syncobj the fence of a submission. */
static void attach(struct sim_card *card, uint64_t number, const struct sim_signal *signal)
{
	struct sim_syncobj *syncobj = &card->syncobjs[signal->syncobj];

	syncobj->has_fence = true;
	syncobj->job = number;
	if (signal->point > syncobj->point)
		syncobj->point = signal->point;
}

int sim_point_copy(struct sim_card *card, uint32_t from, uint64_t from_point, uint32_t to,
		   uint64_t to_point)
{
	struct sim_job gathered = {.n_waits = 0};
	struct sim_job *job = NULL;
	int r = sim_point_wait_for(card, from, from_point, &gathered);

	if (r)
		return r;
	if (gathered.n_waits == 0) {
		sim_point_signal(card, to, to_point);
		return 0;
	}
	/* The last of several submissions: it is about the last to end. */
	job = (struct sim_job *)find(card, gathered.waits[0]);
	for (uint32_t i = 1; i < gathered.n_waits; i++)
		if (gathered.waits[i] > job->number)
			job = (struct sim_job *)find(card, gathered.waits[i]);
	if (job->n_signals == SIM_MAX_SIGNALS)
		return -ENOMEM;
	job->signals[job->n_signals++] = (struct sim_signal){to, to_point};
	attach(card, job->number, &job->signals[job->n_signals - 1]);
	return 0;
}

/* Remove a job; its fence has signalled at @at_ns. */
static void retire(struct sim_card *card, struct sim_job *job, uint64_t at_ns)
{
	const struct sim_job done = *job;

	*job = end_of(card)[-1];
	card->n_jobs--;
	if (done.fence_object)
		write_user_fence(card, &done);
	for (uint32_t i = 0; i < done.n_signals; i++)
		pass(card, done.signals[i].syncobj, done.signals[i].point);
	for (job = card->jobs; job < end_of(card); job++)
		for (uint32_t i = 0; i < job->n_waits; i++)
			if (job->waits[i] == done.number && job->ready_ns < at_ns)
				job->ready_ns = at_ns;
	sim_engine_announce(card);
}

void sim_engine_drop_all(struct sim_card *card)
{
	const uint64_t now_ns = sim_now_ns();

	while (card->n_jobs > 0)
		retire(card, &card->jobs[card->n_jobs - 1], now_ns);
	for (uint32_t i = 0; i < SIM_N_ENGINES; i++)
		card->free_ns[i] = now_ns;
}

/* drm_sched_entity_kill(): what the hardware has runs to its end. */
void sim_engine_forget(struct sim_card *card, uint32_t slot)
{
	for (uint32_t i = card->n_jobs; i--;) {
		struct sim_job *job = &card->jobs[i];

		if (job->owner != slot + 1)
			continue;
		job->owner = 0;
		job->n_signals = 0;
		job->fence_object = 0;
		if (!job->is_running)
			retire(card, job, sim_now_ns());
	}
}

void sim_point_forget(struct sim_card *card, uint32_t syncobj)
{
	for (struct sim_job *job = card->jobs; job < end_of(card); job++)
		for (uint32_t i = job->n_signals; i--;)
			if (job->signals[i].syncobj == syncobj)
				job->signals[i] = job->signals[--job->n_signals];
}

static bool is_startable(const struct sim_card *card, const struct sim_job *job)
{
	for (uint32_t i = 0; i < job->n_waits; i++)
		if (find(card, job->waits[i]))
			return false;
	for (const struct sim_job *other = card->jobs; other < card->jobs + card->n_jobs; other++)
		if (other->context == job->context && other->engine == job->engine &&
		    other->number < job->number)
			return false;
	return true;
}

static struct sim_job *running_on(struct sim_card *card, unsigned int engine)
{
	for (struct sim_job *job = card->jobs; job < end_of(card); job++)
		if (job->engine == engine && job->is_running)
			return job;
	return NULL;
}

/* Return the time at which an idle engine can begin a job; UINT64_MAX: there is none. */
static uint64_t begin_ns(const struct sim_card *card, unsigned int engine)
{
	uint64_t least_ns = UINT64_MAX;

	for (uint32_t i = 0; i < card->n_jobs; i++) {
		const struct sim_job *job = &card->jobs[i];

		if (job->engine == engine && job->ready_ns < least_ns && is_startable(card, job))
			least_ns = job->ready_ns;
	}
	return least_ns < card->free_ns[engine] ? card->free_ns[engine] : least_ns;
}

static bool is_before(const struct sim_card *card, const struct sim_job *a, const struct sim_job *b)
{
	const struct sim_context *x = &card->contexts[a->context], *y = &card->contexts[b->context];

	if (card->is_fair && x->used_ns != y->used_ns)
		return x->used_ns < y->used_ns;
	if (!card->is_fair && x->priority != y->priority)
		return x->priority > y->priority;
	return a->number < b->number;
}

static void begin(struct sim_card *card, unsigned int engine, uint64_t at_ns)
{
	struct sim_job *best = NULL;

	for (struct sim_job *job = card->jobs; job < end_of(card); job++)
		if (job->engine == engine && job->ready_ns <= at_ns && is_startable(card, job) &&
		    (!best || is_before(card, job, best)))
			best = job;
	best->is_running = true;
	best->began_ns = at_ns;
	best->ends_ns = at_ns + best->work_ns;
	if (card->timeout_ns > 0 && best->work_ns > card->timeout_ns)
		best->ends_ns = at_ns + card->timeout_ns;
	card->fair_ns = card->contexts[best->context].used_ns;
}

/*
 * amdgpu_job_timedout(), amdgpu_device_gpu_recover(). Of the ways in which kernels recover, there
 * are two: as 6.1, the whole card is reset, which loses VRAM: all submissions are lost, and all
 * contexts are told; as 6.14, the queue alone. Nothing is recovered softly.
 */
static void time_out(struct sim_card *card, struct sim_job *job, uint64_t at_ns)
{
	struct sim_context *context = &card->contexts[job->context];
	const uint32_t owner = job->owner, index = job->context;

	card->reset_counter++;
	if (owner && context->owner == owner)
		context->is_guilty = true;
	if (card->kernel == SIM_KERNEL_6_1) {
		card->vram_lost_counter++;
		sim_engine_drop_all(card);
		return;
	}
	for (uint32_t i = card->n_jobs; i--;)
		if (card->jobs[i].context == index)
			retire(card, &card->jobs[i], at_ns);
}

static void end(struct sim_card *card, struct sim_job *job)
{
	const uint64_t took_ns = job->ends_ns - job->began_ns, at_ns = job->ends_ns;
	struct sim_context *context = &card->contexts[job->context];

	card->free_ns[job->engine] = at_ns;
	context->used_ns += took_ns << fair_shifts[context->priority];
	if (job->owner)
		card->clients[job->owner - 1].engine_ns[job->engine] += took_ns;
	if (took_ns < job->work_ns)
		time_out(card, job, at_ns);
	else
		retire(card, job, at_ns);
}

/* Return the engine of the next event, and its time; UINT64_MAX: there is none. */
static unsigned int next_event(struct sim_card *card, uint64_t *ret_ns)
{
	unsigned int next = 0;

	*ret_ns = UINT64_MAX;
	for (unsigned int engine = 0; engine < SIM_N_ENGINES; engine++) {
		const struct sim_job *job = running_on(card, engine);
		const uint64_t at_ns = job ? job->ends_ns : begin_ns(card, engine);

		if (at_ns >= *ret_ns)
			continue;
		*ret_ns = at_ns;
		next = engine;
	}
	return next;
}

void sim_engine_advance(struct sim_card *card)
{
	while (card->n_jobs > 0) {
		uint64_t at_ns;
		const unsigned int engine = next_event(card, &at_ns);
		struct sim_job *job = running_on(card, engine);

		if (at_ns > sim_now_ns())
			return;
		if (job)
			end(card, job);
		else
			begin(card, engine, at_ns);
	}
}

uint64_t sim_engine_time(const struct sim_card *card, uint32_t slot, unsigned int engine)
{
	const struct sim_job *job = running_on((struct sim_card *)card, engine);
	const uint64_t past_ns = card->clients[slot].engine_ns[engine];

	return job && job->owner == slot + 1 ? past_ns + sim_now_ns() - job->began_ns : past_ns;
}

int sim_engine_wait(const struct sim_fd *client, int64_t deadline_ns)
{
	struct sim_card *card = client->card;
	const uint32_t seen = __atomic_load_n(&card->sync_clock, __ATOMIC_ACQUIRE);
	const int64_t now_ns = (int64_t)sim_now_ns();
	int64_t nap_ns = longest_nap_ns;
	uint64_t event_ns;
	struct timespec nap;

	if (deadline_ns <= now_ns)
		return -ETIME;
	next_event(card, &event_ns);
	if (deadline_ns - now_ns < nap_ns)
		nap_ns = deadline_ns - now_ns;
	if (event_ns < (uint64_t)(now_ns + nap_ns))
		nap_ns = event_ns > (uint64_t)now_ns ? (int64_t)event_ns - now_ns : 0;
	nap = (struct timespec){.tv_nsec = nap_ns};
	sim_unlock();
	if (nap_ns > 0) {
		prctl(PR_SET_TIMERSLACK, 1);
		sys_futex_wait(&card->sync_clock, seen, &nap);
	}
	sim_lock();
	if (!card->is_plugged || card->clients[client->slot].generation != card->generation)
		return -ENODEV;
	/* Processes may have died meanwhile. */
	sim_client_reap(card);
	sim_engine_advance(card);
	return 0;
}

int sim_engine_await_room(const struct sim_fd *client)
{
	int r = 0;

	while (!r && client->card->n_jobs == SIM_MAX_JOBS)
		r = sim_engine_wait(client, INT64_MAX);
	return r;
}

void sim_engine_submit(const struct sim_fd *client, struct sim_job *job)
{
	struct sim_card *card = client->card;
	struct sim_context *context = &card->contexts[job->context];
	bool is_idle = true;

	job->number = ++card->last_job;
	job->ready_ns = sim_now_ns();
	for (const struct sim_job *other = card->jobs; other < end_of(card); other++)
		is_idle &= other->context != job->context;
	/* A context that was idle has saved up nothing. */
	if (is_idle && context->used_ns < card->fair_ns)
		context->used_ns = card->fair_ns;
	card->jobs[card->n_jobs++] = *job;
	for (uint32_t i = 0; i < job->n_signals; i++)
		attach(card, job->number, &job->signals[i]);
	if (card->is_timed) {
		sim_engine_announce(card);
		sim_engine_advance(card);
		return;
	}
	card->clients[client->slot].engine_ns[job->engine] += job->work_ns;
	retire(card, &card->jobs[card->n_jobs - 1], job->ready_ns);
}
