/* SPDX-License-Identifier: MIT */
/*
 * From samples to a profile
 *
 * The time of a run consists of the overhead of the task and of its nodes, the transfer of tensors
 * on the link, and the work itself. Two chains of tiny nodes, of different length, give the
 * overheads; the rates of the link are known from elsewhere; the rest of a probe's time is work.
 *
 * Work is bound by operations or by bytes, and a probe cannot tell which, so the bound of each
 * family is fixed here. The other ceiling must not bind where nothing was measured, so it is that
 * of the family which is known to reach it: MatMul for operations, addition for bytes. A product of
 * a matrix and a vector, say, is then predicted at the speed of memory, although only products of
 * large matrices were measured.
 *
 * Ratios for families that were not measured, by kind of device, are rounded estimates: those of
 * processors and of software devices are near measurements of a Zen 4 processor and lavapipe (Mesa
 * 22.3) at 256 KiB. Those of GPUs have no measurement behind them. They hold until something is
 * measured or observed, and until then a GPU needs speedup_threshold (placer.h) on top.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "calibrate/calibrate.h"

enum { FLOPS, BYTES };

/* The bound of a family, and its rate there as a part of the reference's */
static const struct family_traits {
	uint8_t binds; /* FLOPS: MatMul is the reference; BYTES: addition is */
	float part[3]; /* by enum executor_kind */
} traits[OP_FAMILY_COUNT] = {
	[OP_FAMILY_MATMUL] = {FLOPS, {1, 1, 1}},
	[OP_FAMILY_GEMM] = {FLOPS, {0.9f, 1, 1}},
	[OP_FAMILY_CONVOLUTION] = {FLOPS, {0.5f, 0.5f, 0.3f}},
	[OP_FAMILY_ELEMENTWISE] = {BYTES, {1, 1, 1}},
	[OP_FAMILY_ACTIVATION] = {BYTES, {1, 1, 1}},
	[OP_FAMILY_POOLING] = {FLOPS, {0.05f, 0.1f, 0.05f}},
	[OP_FAMILY_REDUCTION] = {BYTES, {1, 0.7f, 0.2f}},
	[OP_FAMILY_SOFTMAX] = {FLOPS, {0.1f, 0.1f, 0.05f}},
	[OP_FAMILY_TRANSPOSE] = {BYTES, {0.5f, 0.6f, 0.4f}},
	[OP_FAMILY_SELECTION] = {FLOPS, {0.02f, 0.01f, 0.01f}},
};

/* Time to start a task if it was not measured */
static const double usual_task_ns[] = {
	[EXECUTOR_CPU] = 100, [EXECUTOR_GPU] = 20000, [EXECUTOR_SOFTWARE_GPU] = 30000};

/* Operations per byte if only one of the references was measured */
static const double balance = 8;

static const struct calibrate_sample *find_sample(const struct calibrate_samples *samples,
						  unsigned int probe)
{
	return samples->measured >> probe & 1 ? &samples->of[probe] : NULL;
}

/* ---- Predictions of probes' times ---- */

/* Return the factor by which the next size takes longer, rather too large than too small. */
static double growth(enum op_family family)
{
	switch (family) {
	case OP_FAMILY_MATMUL:
	case OP_FAMILY_GEMM:
		return 24; /* eight times the bytes are 8^1.5 times the operations */
	case OP_FAMILY_CONVOLUTION:
		return 16; /* twice the channels on top */
	default:
		return 12; /* beyond a cache */
	}
}

double calibrate_expected_ns(const struct calibrate_samples *samples, unsigned int probe)
{
	struct calibrate_probe wanted = calibrate_probe(probe);
	enum op_family reference =
		traits[wanted.family].binds == FLOPS ? OP_FAMILY_MATMUL : OP_FAMILY_ELEMENTWISE;
	const enum op_family families[] = {wanted.family, reference};
	double factor = 1;

	if (calibrate_probe_is_chain(probe))
		return 0;
	for (unsigned int i = 0; i < 2; i++) {
		factor = 1;
		for (int k = wanted.size_class; k >= 0; k--) {
			unsigned int index = calibrate_probe_index(families[i], (unsigned int)k);
			const struct calibrate_sample *sample = find_sample(samples, index);

			if (sample)
				return (double)sample->exec_ns * factor;
			factor *= growth(families[i]);
		}
	}
	return 0;
}

/* ---- Runs ---- */

enum {
	RUNS_LEAST = 3,
	RUNS_MOST = 20,
	RUNS_ENOUGH_NS = 200000, /* total of counted runs that makes the best one reliable */
};

bool calibrate_runs_add(struct calibrate_runs *runs, uint64_t exec_ns, uint64_t busy_ns)
{
	float exec = exec_ns > 0 ? (float)exec_ns : 1;
	float busy = busy_ns > 0 ? (float)busy_ns : exec;

	if (runs->n++ == 0)
		return true;
	if (runs->n == 2 || exec < runs->best.exec_ns) {
		runs->best.exec_ns = exec;
		runs->best.busy_ns = busy;
	}
	runs->total_ns += (double)exec;
	if (runs->n > RUNS_MOST)
		return false;
	return runs->n <= RUNS_LEAST || runs->total_ns < RUNS_ENOUGH_NS;
}

/* ---- Fitting ---- */

struct fit {
	const struct calibrate_device *device;
	const struct calibrate_samples *samples;
	double task_ns, node_ns;
	/* By family and class; 0: not measured. */
	double flops_rate[OP_FAMILY_COUNT][PLACE_SIZE_CLASSES];
	double bytes_rate[OP_FAMILY_COUNT][PLACE_SIZE_CLASSES];
	double reference[2][PLACE_SIZE_CLASSES]; /* FLOPS, BYTES */
};

static void fit_overheads(struct fit *fit)
{
	const struct calibrate_sample *one = find_sample(fit->samples, CALIBRATE_CHAIN_SHORT);
	const struct calibrate_sample *many = find_sample(fit->samples, CALIBRATE_CHAIN_LONG);

	if (!one) {
		fit->task_ns = usual_task_ns[fit->device->kind];
		return;
	}
	if (many)
		fit->node_ns = ((double)many->exec_ns - (double)one->exec_ns) /
			       (CALIBRATE_CHAIN_NODES - 1);
	fit->node_ns = fmax(fit->node_ns, 0);
	/* A node that seems to take longer than a task shows that both were disturbed. */
	fit->node_ns = fmin(fit->node_ns, (double)one->exec_ns);
	fit->task_ns = (double)one->exec_ns - fit->node_ns;
}

/*
 * Return the time of the work alone; at least a small part of a time that hardly exceeds the
 * overhead.
 */
static double work_ns(const struct fit *fit, const struct calibrate_sample *sample)
{
	const struct calibrate_device *device = fit->device;
	double ns = (double)sample->busy_ns - fit->task_ns - fit->node_ns * sample->work.n_nodes;

	if (device->up_bytes_per_ns > 0 && device->down_bytes_per_ns > 0)
		ns -= sample->work.up_bytes / (double)device->up_bytes_per_ns +
		      sample->work.down_bytes / (double)device->down_bytes_per_ns;
	return fmax(ns, fmax(0.05 * (double)sample->busy_ns, 1));
}

static void fit_samples(struct fit *fit)
{
	for (unsigned int i = 0; i < CALIBRATE_PROBES; i++) {
		const struct calibrate_sample *sample = find_sample(fit->samples, i);
		struct calibrate_probe probe = calibrate_probe(i);
		double ns;

		if (!sample || calibrate_probe_is_chain(i))
			continue;
		ns = work_ns(fit, sample);
		fit->flops_rate[probe.family][probe.size_class] = sample->work.flops / ns;
		fit->bytes_rate[probe.family][probe.size_class] = sample->work.bytes / ns;
	}
}

/*
 * Fill the holes of a curve, which are 0: linearly between two values, and by the end's value
 * beyond the ends.
 * Return: false if there is no value at all.
 */
static bool fill_curve(double curve[PLACE_SIZE_CLASSES])
{
	int before = -1, after;

	for (int i = 0; i < PLACE_SIZE_CLASSES; i++) {
		if (curve[i] > 0) {
			before = i;
			continue;
		}
		for (after = i + 1; after < PLACE_SIZE_CLASSES && !(curve[after] > 0); after++)
			;
		if (before >= 0 && after < PLACE_SIZE_CLASSES)
			curve[i] = curve[before] +
				   (curve[after] - curve[before]) * (i - before) / (after - before);
		else if (before >= 0)
			curve[i] = curve[before];
		else if (after < PLACE_SIZE_CLASSES)
			curve[i] = curve[after];
		else
			return false;
		before = i;
	}
	return true;
}

static bool fit_references(struct fit *fit)
{
	bool has_flops, has_bytes;

	memcpy(fit->reference[FLOPS], fit->flops_rate[OP_FAMILY_MATMUL],
	       sizeof(fit->reference[FLOPS]));
	memcpy(fit->reference[BYTES], fit->bytes_rate[OP_FAMILY_ELEMENTWISE],
	       sizeof(fit->reference[BYTES]));
	has_flops = fill_curve(fit->reference[FLOPS]);
	has_bytes = fill_curve(fit->reference[BYTES]);
	for (unsigned int i = 0; i < PLACE_SIZE_CLASSES; i++) {
		if (!has_flops)
			fit->reference[FLOPS][i] = fit->reference[BYTES][i] * balance;
		else if (!has_bytes)
			fit->reference[BYTES][i] = fit->reference[FLOPS][i] / balance;
	}
	return has_flops || has_bytes;
}

static float clamp_rate(double rate)
{
	return (float)fmin(fmax(rate, (double)PLACE_MIN_RATE), (double)PLACE_MAX_RATE);
}

static float clamp_latency(double ns)
{
	return (float)fmin(fmax(ns, 0), (double)PLACE_MAX_LATENCY_NS);
}

static void fit_family(const struct fit *fit, enum op_family family, struct place_profile *profile)
{
	const struct family_traits *trait = &traits[family];
	const double *measured =
		trait->binds == FLOPS ? fit->flops_rate[family] : fit->bytes_rate[family];
	double parts[PLACE_SIZE_CLASSES];

	for (unsigned int i = 0; i < PLACE_SIZE_CLASSES; i++)
		parts[i] = measured[i] / fit->reference[trait->binds][i];
	if (!fill_curve(parts))
		for (unsigned int i = 0; i < PLACE_SIZE_CLASSES; i++)
			parts[i] = (double)trait->part[fit->device->kind];

	for (unsigned int i = 0; i < PLACE_SIZE_CLASSES; i++) {
		struct place_rate *rate = &profile->rates[family][i];
		double bound = parts[i] * fit->reference[trait->binds][i];

		if (trait->binds == FLOPS) {
			rate->flops_per_ns = clamp_rate(bound);
			rate->bytes_per_ns = clamp_rate(
				fmax(fit->reference[BYTES][i], fit->bytes_rate[family][i]));
		} else {
			rate->flops_per_ns = clamp_rate(
				fmax(fit->reference[FLOPS][i], fit->flops_rate[family][i]));
			rate->bytes_per_ns = clamp_rate(bound);
		}
	}
}

bool calibrate_fit(const struct calibrate_device *device, const struct calibrate_samples *samples,
		   struct place_profile *ret)
{
	struct fit fit = {.device = device, .samples = samples};
	struct place_profile profile = {
		.source = "measured",
		.is_valid = true,
		.n_servers = device->n_servers,
		.n_servers_per_task = device->shares_tasks ? device->n_servers : 1,
		.share_min_ns = device->share_min_ns,
		.memory_bytes = device->memory_bytes,
	};

	fit_overheads(&fit);
	fit_samples(&fit);
	if (!fit_references(&fit))
		return false;
	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++)
		fit_family(&fit, (enum op_family)i, &profile);
	snprintf(profile.name, sizeof(profile.name), "%s", device->name);
	profile.task_ns = clamp_latency(fit.task_ns);
	profile.node_ns = clamp_latency(fit.node_ns);
	if (device->up_bytes_per_ns > 0 && device->down_bytes_per_ns > 0) {
		profile.up_bytes_per_ns = clamp_rate((double)device->up_bytes_per_ns);
		profile.down_bytes_per_ns = clamp_rate((double)device->down_bytes_per_ns);
	}
	*ret = profile;
	return true;
}

void calibrate_describe(const struct executor *executor, float up_bytes_per_ns,
			float down_bytes_per_ns, struct calibrate_device *ret)
{
	const struct executor_info *info = &executor->info;
	bool is_card = info->kind == EXECUTOR_GPU && !info->is_integrated;

	*ret = (struct calibrate_device){
		.kind = info->kind,
		.name = info->name,
		.n_servers =
			info->kind == EXECUTOR_CPU && info->n_threads > 0 ? info->n_threads : 1,
		.memory_bytes = info->memory_bytes,
		.up_bytes_per_ns = is_card ? up_bytes_per_ns : 0,
		.down_bytes_per_ns = is_card ? down_bytes_per_ns : 0,
	};
	if (ret->n_servers > PLACE_MAX_SERVERS)
		ret->n_servers = PLACE_MAX_SERVERS;
	ret->shares_tasks = ret->n_servers > 1 && info->share_min_ns > 0;
	ret->share_min_ns = ret->shares_tasks ? info->share_min_ns : 0;
}
