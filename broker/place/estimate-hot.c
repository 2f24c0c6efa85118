/* SPDX-License-Identifier: MIT */
/*
 * Estimates: how long a plan takes, as a function of count
 *
 * Counts are divided into buckets, two to an octave. In each, an estimate is the profile's
 * prediction times a learned ratio: so a plan that never ran has the profile's shape, and one that
 * ran has its own. Buckets without observations take the ratio of their neighbours.
 *
 * The ratio is a running mean of the observations, clipped (Huber's estimator of location, with the
 * mean deviation as its scale): a task that lost its processor for 20 ms moves it as little as one
 * that was slow by chance. A real change deviates to one side again and again: at the
 * PLACE_CHANGE-th time in a row the estimate begins anew from the least of those deviations. If
 * they were at different counts, so do the plan's other counts on that device. With chance
 * deviations of 1.6 standard deviations counted, that happens without reason once in 50,000 tasks,
 * and is soon corrected.
 *
 * Work (the time of all servers together) and the number of servers that share it are learned
 * separately, because the second depends on other tasks: it is believed if the task was alone.
 *
 * felt-hot.c explains what is learned under contention.
 *
 * An estimate is trusted after PLACE_TRUST observations, unless the predictions for the plan on the
 * device were wrong by more than MOST_ERROR on average.
 *
 * All ratios are between 2^-40 and 2^40 and all times between PLACE_MIN_NS and PLACE_MAX_NS, so
 * that nothing can become infinite or not a number. Times longer than a clock can measure correctly
 * are not learned from.
 */
#include "place/placer-private.h"
#include "util/number.h"

#define MIN_RATIO     (1.0f / 1099511627776.0f)
#define MAX_RATIO     1099511627776.0f
#define MIN_DEVIATION 0.005f
#define NEW_DEVIATION 0.1f
/* Smaller deviations do not show a change. */
#define LEAST_CHANGE 0.1f
/* |standard deviation / mean deviation| of a normal distribution: sqrt(pi / 2). */
#define STANDARD 1.2533f
/* Spread of estimates without observations */
#define PRIOR_SPREAD 0.3f
#define GUESS_SPREAD 1.0f
/* Contention is known so long after it has begun, at most. */
#define UNDO_NS 100000000ull
/* Mean error of the predictions above which no estimate of a plan and device is trusted */
#define MOST_ERROR 0.5
/* Below 1: a task may take longer than servers work on it. */
#define MIN_SERVERS (1.0f / 16)
/* 100 days: no execution takes longer, but clocks jump by more. */
#define MAX_EXEC_NS 8640000000000000ull

/*
 * Convert a ratio to a deviation, longer (above 0) or shorter (below 0), in the same measure: 3
 * times is 2 or -2.
 */
static float deviation_of(float ratio)
{
	return ratio >= 1 ? ratio - 1 : 1 - 1 / ratio;
}

static float ratio_of(float deviation)
{
	return deviation >= 0 ? 1 + deviation : 1 / (1 - deviation);
}

/* --- Writing entries --- */

static void write_entry(struct place_plan *place_plan, uint32_t bucket, uint8_t device, float ratio,
			float servers, float spread, const struct place_estimate *felt_by,
			uint8_t flags)
{
	uint32_t i = bucket * place_plan->n_devices + device;
	const struct place_history *history = place_plan->rest->history;
	const struct place_estimate *estimate = &history->estimates[i];
	float factor, low_ns, high_ns;

	if (history->records[device].is_wrong)
		flags &= (uint8_t)~PLACE_ENTRY_TRUSTED;
	servers = place_clamp(servers, MIN_SERVERS, PLACE_MAX_SERVERS);
	factor = ratio * estimate->prior_servers / servers;
	low_ns = place_clamp_ns(estimate->prior_base_ns * factor);
	high_ns = place_clamp_ns((estimate->prior_base_ns + estimate->prior_slope_ns) * factor);
	place_plan->rest->entries[i] = (struct place_entry){
		.base_ns = low_ns,
		.slope_ns = high_ns - low_ns,
		.servers = servers,
		.spread = (uint16_t)place_clamp(spread * 1024, 0, UINT16_MAX),
		.flags = flags,
		.felt = place_felt_byte(felt_by),
	};
	/* The copy is outdated. */
	if (bucket == place_plan->near_bucket)
		place_plan->near_bucket = UINT16_MAX;
}

/*
 * Write the entries between two buckets that have observations; -1 and n_buckets: that side has
 * none.
 */
static void show_between(struct place_plan *place_plan, int64_t low, int64_t high, uint8_t device,
			 uint8_t known)
{
	const struct place_estimate *estimates = place_plan->rest->history->estimates, *near;
	const uint32_t n = place_plan->n_devices;
	const struct place_estimate *left = low >= 0 ? &estimates[low * n + device] : NULL;
	const struct place_estimate *right =
		high < place_plan->n_buckets ? &estimates[high * n + device] : NULL;

	for (int64_t i = low + 1; i < high; i++) {
		const struct place_estimate *estimate = &estimates[i * n + device];
		int64_t distance;
		float share, ratio, servers, spread;
		bool is_trusted;

		if (!left && !right) {
			write_entry(place_plan, (uint32_t)i, device, 1, estimate->prior_servers,
				    known ? PRIOR_SPREAD : GUESS_SPREAD, estimate, known);
			continue;
		}
		near = !right || (left && i - low <= high - i) ? left : right;
		distance = near == left ? i - low : high - i;
		ratio = near->ratio;
		if (left && right) {
			share = (float)(i - low) / (float)(high - low);
			ratio = left->ratio + (right->ratio - left->ratio) * share;
		}
		servers = estimate->prior_servers * near->servers / near->prior_servers;
		spread = near->deviation * STANDARD + NEW_DEVIATION / 2 * (float)distance;
		/*
		 * Trusted: an octave from a trusted bucket; four octaves between two trusted ones.
		 */
		is_trusted = near->n >= PLACE_TRUST && distance <= 1 << PLACE_BUCKET_BITS;
		if (left && right && left->n >= PLACE_TRUST && right->n >= PLACE_TRUST)
			is_trusted |= high - low <= 4 << PLACE_BUCKET_BITS;
		write_entry(place_plan, (uint32_t)i, device, ratio, servers, spread, near,
			    PLACE_ENTRY_KNOWN | (is_trusted ? PLACE_ENTRY_TRUSTED : 0));
	}
}

static void show_own(struct place_plan *place_plan, uint32_t bucket, uint8_t device)
{
	const struct place_estimate *estimate =
		&place_plan->rest->history->estimates[bucket * place_plan->n_devices + device];

	write_entry(place_plan, bucket, device, estimate->ratio, estimate->servers,
		    estimate->deviation * STANDARD, estimate,
		    PLACE_ENTRY_KNOWN | (estimate->n >= PLACE_TRUST ? PLACE_ENTRY_TRUSTED : 0));
}

void place_estimate_show(struct place_plan *place_plan, uint32_t bucket, uint8_t device,
			 bool is_known)
{
	const uint32_t n = place_plan->n_devices;
	struct place_estimate *estimates = place_plan->rest->history->estimates;
	struct place_estimate *estimate = &estimates[bucket * n + device];
	const struct place_entry *entry = place_entry(place_plan, bucket, device);
	int64_t low = bucket, high = bucket;
	const int felt = entry->felt;

	show_own(place_plan, bucket, device);
	if (estimate->n > PLACE_TRUST && estimate->ratio < estimate->shown * 1.02f &&
	    estimate->ratio > estimate->shown * 0.98f && entry->felt == felt)
		return;
	estimate->shown = estimate->ratio;
	do
		low--;
	while (low >= 0 && !estimates[low * n + device].n);
	do
		high++;
	while (high < place_plan->n_buckets && !estimates[high * n + device].n);
	show_between(place_plan, low, bucket, device, is_known ? PLACE_ENTRY_KNOWN : 0);
	show_between(place_plan, bucket, high, device, is_known ? PLACE_ENTRY_KNOWN : 0);
}

void place_estimate_show_all(struct place_plan *place_plan, uint8_t device, bool is_known)
{
	const uint32_t n = place_plan->n_devices;
	struct place_estimate *estimates = place_plan->rest->history->estimates;
	int64_t last = -1;

	for (uint32_t i = 0; i < place_plan->n_buckets; i++) {
		struct place_estimate *estimate = &estimates[i * n + device];

		if (!estimate->n)
			continue;
		estimate->shown = estimate->ratio;
		show_own(place_plan, i, device);
		show_between(place_plan, last, i, device, is_known ? PLACE_ENTRY_KNOWN : 0);
		last = i;
	}
	show_between(place_plan, last, place_plan->n_buckets, device,
		     is_known ? PLACE_ENTRY_KNOWN : 0);
}

/* --- Changes before contention was known --- */

void place_estimate_undo(struct placer *placer, uint8_t device, uint64_t now_ns)
{
	const uint32_t n = placer->n_slowed < PLACE_SLOWED ? placer->n_slowed : PLACE_SLOWED;

	/* From the latest back, since an estimate may have begun anew twice. */
	for (uint32_t i = 1; i <= n; i++) {
		struct place_slowed *slowed =
			&placer->slowed[(placer->n_slowed - i) % PLACE_SLOWED];
		struct place_history *history = slowed->history;
		struct place_estimate *estimate;

		if (!history || slowed->device != device)
			continue;
		slowed->history = NULL;
		/* An execution may end after the time at which contention was looked at. */
		if (now_ns > slowed->at_ns && now_ns - slowed->at_ns > UNDO_NS)
			continue;
		estimate = &history->estimates[slowed->bucket * history->n_devices + device];
		if (estimate->ratio <= slowed->ratio)
			continue;
		estimate->ratio = slowed->ratio;
		estimate->run = 0;
		if (history->place_plan)
			place_estimate_show_all(history->place_plan, device,
						placer->devices[device].is_known);
	}
}

/* --- Observations --- */

static float median(const float values[static PLACE_TRUST])
{
	float a = values[0], b = values[1], c = values[2];

	_Static_assert(PLACE_TRUST == 3, "of three");
	if (a > b) {
		float other = a;

		a = b;
		b = other;
	}
	return c < a ? a : c > b ? b : c;
}

/*
 * Add one of the first few observations. None may be an outlier that stays: disturbances make tasks
 * slower, not faster.
 */
static void observe_first(struct place_estimate *estimate, float ratio)
{
	float *first = estimate->first, least, most;

	first[estimate->n++] = ratio;
	least = most = first[0];
	for (uint32_t i = 1; i < estimate->n; i++) {
		least = first[i] < least ? first[i] : least;
		most = first[i] > most ? first[i] : most;
	}
	if (estimate->n == PLACE_TRUST)
		estimate->ratio = median(first);
	else
		estimate->ratio = most > least * 1.5f ? least : least + (most - least) / 2;
	estimate->deviation = place_clamp((most - least) / (2 * estimate->ratio), NEW_DEVIATION / 2,
					  5 * NEW_DEVIATION);
	if (estimate->n == 1)
		estimate->deviation = PRIOR_SPREAD;
	estimate->run = 0;
}

static bool is_large(const struct place_estimate *estimate, float deviation)
{
	float large = 2 * estimate->deviation;

	if (large < LEAST_CHANGE)
		large = LEAST_CHANGE;
	return deviation > large || deviation < -large;
}

/* Count deviations to one side in a row; *closest is the least of them. */
static void count_run(int32_t *run, float *closest, float deviation)
{
	int side = deviation > 0 ? 1 : -1;

	if (*run * side > 0) {
		if (*run * side < PLACE_CHANGE)
			*run += side;
		if (deviation * (float)side < *closest * (float)side)
			*closest = deviation;
	} else {
		*run = side;
		*closest = deviation;
	}
}

static void begin_anew(struct place_estimate *estimate, float factor, uint64_t n_done)
{
	estimate->ratio = place_clamp(estimate->ratio * factor, MIN_RATIO, MAX_RATIO);
	if (estimate->n < PLACE_TRUST) {
		for (uint32_t i = 0; i < estimate->n; i++)
			estimate->first[i] =
				place_clamp(estimate->first[i] * factor, MIN_RATIO, MAX_RATIO);
	} else {
		estimate->n = PLACE_TRUST;
	}
	if (estimate->deviation < NEW_DEVIATION)
		estimate->deviation = NEW_DEVIATION;
	estimate->run = 0;
	estimate->began = n_done;
}

/*
 * Add an observation.
 * Return: its deviation from the estimate; 0: none that could show a change.
 */
static float observe(struct place_estimate *estimate, float ratio, uint32_t window, uint64_t n_done)
{
	float deviation, clipped, size, gain, scale = estimate->deviation;
	bool is_change;

	if (estimate->n < PLACE_TRUST) {
		observe_first(estimate, ratio);
		return 0;
	}
	deviation = deviation_of(ratio / estimate->ratio);
	is_change = is_large(estimate, deviation);
	if (is_change)
		count_run(&estimate->run, &estimate->closest, deviation);
	else
		estimate->run = 0;
	if (estimate->run >= PLACE_CHANGE || estimate->run <= -PLACE_CHANGE) {
		begin_anew(estimate, ratio_of(estimate->closest), n_done);
		return deviation;
	}

	gain = 2.0f / (float)(window + 1);
	if (gain * (float)(estimate->n + 1) < 1)
		gain = 1.0f / (float)(estimate->n + 1);
	clipped = place_clamp(deviation, -2.5f * scale, 2.5f * scale);
	estimate->ratio =
		place_clamp(estimate->ratio * ratio_of(gain * clipped), MIN_RATIO, MAX_RATIO);
	size = deviation < 0 ? -deviation : deviation;
	scale += gain * (place_clamp(size, 0, 4 * scale) - scale);
	estimate->deviation = place_clamp(scale, MIN_DEVIATION, 1);
	if (estimate->n < window)
		estimate->n++;
	return is_change ? deviation : 0;
}

/* Adapt the counts not observed since: a device that has changed has changed at all counts. */
static void follow(struct placer *placer, struct place_plan *place_plan,
		   struct place_record *record, uint8_t device, bool is_known)
{
	struct place_history *history = place_plan->rest->history;
	float factor = ratio_of(record->closest);

	for (uint32_t i = 0; i < history->n_buckets; i++) {
		struct place_estimate *estimate =
			&history->estimates[i * history->n_devices + device];

		if (!estimate->n || estimate->began >= record->run_began)
			continue;
		if (factor > 1)
			place_estimate_slowed(placer, history, i, device, estimate->ratio);
		begin_anew(estimate, factor, history->n_done);
	}
	record->run = 0;
	place_estimate_show_all(place_plan, device, is_known);
}

/* Watch for deviations of the plan in a row at any count. */
static void watch(struct placer *placer, struct place_plan *place_plan, struct place_record *record,
		  uint32_t bucket, uint8_t device, float deviation, bool is_known)
{
	int32_t before = record->run;

	if (deviation == 0) {
		record->run = 0;
		return;
	}
	count_run(&record->run, &record->closest, deviation);
	if (before == 0 || (before > 0) != (record->run > 0)) {
		record->run_began = place_plan->rest->history->n_done;
		record->run_bucket = bucket;
		record->has_run_buckets = false;
	} else if (bucket != record->run_bucket) {
		record->has_run_buckets = true;
	}
	if (record->has_run_buckets &&
	    (record->run >= PLACE_CHANGE || record->run <= -PLACE_CHANGE))
		follow(placer, place_plan, record, device, is_known);
}

/* Update a mean over the window, in which there are *@n values so far. */
static void keep_mean(double *mean, uint32_t *n, double value, uint32_t window)
{
	if (*n < window)
		++*n;
	*mean += (value - *mean) * (*n >= window && window > 1 ? 2.0 / (window + 1.0) : 1.0 / *n);
}

/* Update the mean error by a prediction's; @ratio: predicted / observed. */
static void keep_error(struct place_plan *place_plan, uint8_t device, double ratio, uint32_t window,
		       bool is_known)
{
	struct place_record *record = &place_plan->rest->history->records[device];
	const double error = ratio < 1 ? 1 - ratio : ratio - 1;
	bool is_wrong;

	keep_mean(&record->mean_error, &record->n_errors, error < 1 ? error : 1, window);
	is_wrong = record->mean_error > MOST_ERROR;
	if (is_wrong == record->is_wrong)
		return;
	record->is_wrong = is_wrong;
	place_estimate_show_all(place_plan, device, is_known);
}

/*
 * Learn how many servers share a task. A task that was not alone had fewer servers than it can use,
 * so it can only raise the estimate.
 */
static void observe_servers(const struct place_device *device, struct place_estimate *estimate,
			    float servers, bool was_alone)
{
	servers = place_clamp(servers, MIN_SERVERS, (float)device->n_servers);
	if (was_alone || servers > estimate->servers)
		estimate->servers += (servers - estimate->servers) / 4;
}

/*
 * Learn the work of a task, @ratio times the prior's, that met up to @contention.
 * Return: as observe().
 */
static float learn_work(struct placer *placer, struct place_plan *place_plan, uint8_t device,
			uint32_t bucket, float known, float contention, float ratio)
{
	struct place_history *history = place_plan->rest->history;
	struct place_estimate *estimate = &history->estimates[bucket * history->n_devices + device];
	const float before = estimate->ratio;
	const uint32_t n = estimate->n;
	float deviation;

	if (!place_narrow(estimate, n ? before : known, contention, &ratio) && n >= PLACE_TRUST) {
		estimate->run = 0;
		return 0;
	}
	deviation = observe(estimate, place_clamp(ratio, MIN_RATIO, MAX_RATIO),
			    placer->config.window, history->n_done);
	if (deviation > 0 && n >= PLACE_TRUST && estimate->run == 0)
		place_estimate_slowed(placer, history, bucket, device, before);
	return deviation;
}

static void learn_time(struct placer *placer, struct place_plan *place_plan, uint8_t index,
		       struct place_spot spot, float exec_ns, float busy_ns, uint64_t now_ns,
		       bool was_alone, bool is_part)
{
	struct place_device *device = &placer->devices[index];
	struct place_history *history = place_plan->rest->history;
	struct place_record *record = &history->records[index];
	struct place_estimate *estimate =
		&history->estimates[spot.bucket * history->n_devices + index];
	const struct place_entry *entry = place_entry(place_plan, spot.bucket, index);
	bool is_counted = device->n_servers > 1 && busy_ns > 0;
	float contention, prior_ns, alone_ns, known, work_ns, deviation;

	/* If busy time was not measured, assume as many servers as estimated. */
	work_ns = is_counted ? busy_ns : exec_ns * entry->servers;
	alone_ns = place_entry_alone_ns(entry, spot.into) * entry->servers;
	if (!is_part)
		keep_mean(&record->mean_ns, &record->n_mean, (double)exec_ns,
			  placer->config.window);
	if (!is_part && estimate->n >= PLACE_TRUST)
		keep_error(place_plan, index,
			   (double)(alone_ns * place_felt(entry, device->contention) / work_ns),
			   placer->config.window, device->is_known);
	if (estimate->n == 0)
		estimate->servers = entry->servers;
	prior_ns = place_clamp_ns((estimate->prior_base_ns + estimate->prior_slope_ns * spot.into) *
				  estimate->prior_servers);
	/* A device without a profile is only guessed at. */
	known = entry->flags & PLACE_ENTRY_KNOWN ? alone_ns / prior_ns : 0;
	contention =
		place_most_contention(device, saturating_sub(now_ns, (uint64_t)exec_ns), now_ns);
	deviation = learn_work(placer, place_plan, index, spot.bucket, known, contention,
			       work_ns / prior_ns);
	place_feel(device, estimate, prior_ns * estimate->ratio, work_ns);
	if (is_counted)
		/* A task with a limited number of servers does not show how many it can use. */
		observe_servers(device, estimate, busy_ns / exec_ns,
				was_alone && device->n_in_use == 0);
	estimate->seen = history->n_done;
	place_estimate_show(place_plan, spot.bucket, index, device->is_known);
	watch(placer, place_plan, record, spot.bucket, index, deviation, device->is_known);
}

/* --- Results --- */

/* Replace the budget set aside for exploring by the actual loss. */
static void settle(struct placer *placer, struct place_history *history,
		   struct place_record *record, uint8_t device, double exec_ns)
{
	double lost_ns = exec_ns - (double)record->best_ns;

	record->is_exploring = false;
	if (lost_ns < 0)
		lost_ns = 0;
	record->n_explored++;
	history->budget_ns += (double)record->set_aside_ns - lost_ns;
	placer->devices[device].explored_ns += lost_ns;
}

/* Report a result to the breakers: the device's, and the plan's own there. */
static void judge(struct placer *placer, struct place_plan *place_plan, uint8_t index,
		  bool is_failure, uint64_t exec_ns, uint64_t now_ns)
{
	struct place_device *device = &placer->devices[index];
	struct place_results *results = &device->results;
	struct place_breaker_state *own = &place_plan->rest->history->records[index].breaker;
	float success_rate = placer->config.success_rate;
	bool was_closed = own->state == PLACE_CLOSED, is_bad;

	place_breaker_result(own, is_failure, false, exec_ns, success_rate, now_ns);
	if (was_closed != (own->state == PLACE_CLOSED))
		place_plan_set_broken(place_plan, place_plan->rest->broken ^ 1u << index);

	/* Failures known to be the plan's fault do not count for the device. */
	place_results_remember(results, place_plan, is_failure);
	if (is_failure && device->breaker.state == PLACE_CLOSED &&
	    (!was_closed || place_results_blame(results, place_plan)))
		return;
	place_results_count(results, placer->config.window, is_failure);
	is_bad = results->n_failed >= PLACE_BREAKER_FAILURES &&
		 place_results_rate(results) < (double)success_rate;
	if (!place_breaker_result(&device->breaker, is_failure, is_bad, exec_ns, success_rate,
				  now_ns))
		return;
	/* Results from before the breaker closed do not count. */
	if (device->breaker.state == PLACE_CLOSED)
		results->n = results->n_failed = 0;
	placer_update(placer);
}

/*
 * Learn from an execution of @count rows, at its end.
 * Return: its time, at least 1 ns.
 */
static uint64_t learn_done(struct placer *placer, struct place_plan *place_plan, uint8_t device,
			   uint32_t count, uint64_t exec_ns, uint64_t busy_ns, uint64_t now_ns,
			   bool is_part)
{
	struct place_device *on = &placer->devices[device];
	bool was_alone;

	if (exec_ns == 0)
		exec_ns = 1;
	if (busy_ns > MAX_EXEC_NS)
		busy_ns = 0;
	was_alone = on->queue.n_released == 0 && now_ns >= exec_ns &&
		    on->last_end_ns <= now_ns - exec_ns;
	on->last_end_ns = now_ns;
	placer->learned_ns = now_ns;
	learn_time(placer, place_plan, device, place_spot(place_plan, count), (float)exec_ns,
		   (float)busy_ns, now_ns, was_alone, is_part);
	return exec_ns;
}

void place_learn(struct placer *placer, struct place_plan *place_plan, uint8_t device,
		 uint32_t count, enum place_result result, uint64_t exec_ns, uint64_t busy_ns,
		 uint64_t now_ns)
{
	struct place_history *history = place_plan->rest->history;
	struct place_record *record;

	if (device >= history->n_devices)
		return;
	record = &history->records[device];
	if (result == PLACE_SKIPPED) {
		if (record->is_exploring)
			history->budget_ns += (double)record->set_aside_ns;
		record->is_exploring = false;
		return;
	}
	if (exec_ns > MAX_EXEC_NS)
		exec_ns = MAX_EXEC_NS;
	if (device != RBK_DEVICE_CPU)
		judge(placer, place_plan, device, result == PLACE_FAILED, exec_ns, now_ns);
	history->n_done++;
	if (result == PLACE_FAILED) {
		record->n_failed++;
		/* All of the time was lost. */
		record->best_ns = 0;
		if (record->is_exploring)
			settle(placer, history, record, device, (double)exec_ns);
		return;
	}
	record->n_done++;
	if (exec_ns == MAX_EXEC_NS)
		return;
	exec_ns = learn_done(placer, place_plan, device, count, exec_ns, busy_ns, now_ns, false);
	placer->devices[device].executed_ns += (double)exec_ns;
	history->budget_ns += (double)placer->config.exploration * (double)exec_ns;
	if (record->is_exploring)
		settle(placer, history, record, device, (double)exec_ns);
	place_wish(placer, place_plan, place_spot(place_plan, count).bucket, device);
}

void place_learn_part(struct placer *placer, struct place_plan *place_plan, uint8_t device,
		      uint32_t count, uint64_t exec_ns, uint64_t busy_ns, uint64_t now_ns)
{
	if (device < place_plan->n_devices && exec_ns < MAX_EXEC_NS)
		learn_done(placer, place_plan, device, count, exec_ns, busy_ns, now_ns, true);
}

/* --- Predictions --- */

float place_predict_ns(const struct placer *placer, const struct place_plan *place_plan,
		       uint8_t device, uint32_t count)
{
	struct place_spot spot = place_spot(place_plan, count);

	if (device >= placer->n_devices)
		return PLACE_MAX_NS;
	return place_entry_alone_ns(place_entry(place_plan, spot.bucket, device), spot.into);
}

float place_predict_now_ns(const struct placer *placer, const struct place_plan *place_plan,
			   uint8_t device, uint32_t count, float contention)
{
	struct place_spot spot = place_spot(place_plan, count);
	const struct place_entry *entry;

	if (device >= placer->n_devices)
		return PLACE_MAX_NS;
	entry = place_entry(place_plan, spot.bucket, device);
	return place_entry_alone_ns(entry, spot.into) * place_felt(entry, contention);
}

float place_work_ns(const struct placer *placer, const struct place_plan *place_plan,
		    uint8_t device, uint32_t count)
{
	struct place_spot spot = place_spot(place_plan, count);
	const struct place_entry *entry;

	if (device >= placer->n_devices)
		return PLACE_MAX_NS;
	entry = place_entry(place_plan, spot.bucket, device);
	return place_entry_alone_ns(entry, spot.into) * entry->servers;
}

float place_share_ns(const struct placer *placer, const struct place_plan *place_plan,
		     uint8_t device, uint32_t count)
{
	if (device >= placer->n_devices)
		return PLACE_MAX_NS;
	return place_work_ns(placer, place_plan, device, count) *
	       placer->devices[device].queue.inverse_servers;
}

float place_spread(const struct placer *placer, const struct place_plan *place_plan, uint8_t device,
		   uint32_t count)
{
	struct place_spot spot = place_spot(place_plan, count);

	return (float)place_entry(place_plan, spot.bucket, device)->spread * (1.0f / 1024);
}
