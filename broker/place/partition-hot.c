/* SPDX-License-Identifier: MIT */
/*
 * Cutting tasks by rows
 *
 * Partition: rows [0, n) on a GPU and the others on the CPU, so that both are complete together,
 * each after what it has to do before. The more rows the GPU has the later it is done and the
 * sooner the CPU, so the n is found by halving. Estimates step a little from bucket to bucket; the
 * search then ends beside such a step, which costs no more than the step. Since parts are observed
 * at their own counts like any task, the ratio corrects itself.
 */
#include "place/placer-private.h"

static uint32_t grain_of(const struct plan *plan)
{
	return plan->row_grain ? plan->row_grain : 1;
}

float place_split(const struct placer *placer, const struct place_plan *place_plan,
		  const struct place_flow *flow, uint8_t gpu, uint32_t count, uint64_t now_ns,
		  uint32_t *ret_count)
{
	const struct plan *plan = place_plan->plan;
	uint32_t grain = grain_of(plan), low = 1, high, middle, best = 0;
	float gpu_wait_ns, cpu_wait_ns, gpu_ns, cpu_ns, ns, best_ns = 0;

	/* A whole grain on the GPU, a row on the CPU at least. */
	if (!plan->splits_rows || !place_plan->is_dynamic || count <= grain)
		return 0;
	gpu_wait_ns = place_wait_ns(placer, flow, gpu, now_ns);
	cpu_wait_ns = place_wait_ns(placer, flow, RBK_DEVICE_CPU, now_ns);
	high = (count - 1) / grain;
	while (low <= high) {
		middle = low + (high - low) / 2;
		gpu_ns = gpu_wait_ns +
			 place_exec_ns(placer, place_plan, flow, gpu, middle * grain, now_ns);
		cpu_ns = cpu_wait_ns + place_exec_ns(placer, place_plan, flow, RBK_DEVICE_CPU,
						     count - middle * grain, now_ns);
		ns = gpu_ns > cpu_ns ? gpu_ns : cpu_ns;
		if (!best || ns < best_ns) {
			best = middle;
			best_ns = ns;
		}
		if (gpu_ns < cpu_ns)
			low = middle + 1;
		else
			high = middle - 1;
	}
	*ret_count = best * grain;
	return best_ns;
}

/* Smaller parts among others on the CPU wait more often: for the reactor, and for a worker. */
static float alone_ns(const struct placer *placer, const struct place_plan *place_plan,
		      uint8_t device, uint32_t count)
{
	const float ns = place_predict_ns(placer, place_plan, device, count);

	return device == RBK_DEVICE_CPU ? ns : ns * placer->devices[device].contention;
}

uint32_t place_rows_per_submission(const struct placer *placer, const struct place_plan *place_plan,
				   uint8_t device, uint32_t count)
{
	const struct plan *plan = place_plan->plan;
	uint32_t grain = grain_of(plan), low = 1, high, middle, n_parts, rows;
	float max_ns = (float)placer->config.submission_max_ns, whole_ns, part_ns;
	float row_ns, fixed_ns;

	/* A state is updated as a whole. */
	if (device >= placer->n_devices || !plan->splits_rows || plan->has_state ||
	    !place_plan->is_dynamic || count <= grain ||
	    alone_ns(placer, place_plan, device, count) <= max_ns)
		return count;
	/* The most grains that are not predicted to take longer; one at least. */
	high = (count - 1) / grain;
	while (low < high) {
		middle = high - (high - low) / 2;
		if (alone_ns(placer, place_plan, device, middle * grain) <= max_ns)
			low = middle;
		else
			high = middle - 1;
	}
	/* As many parts, but about as long as each other. */
	n_parts = (count - 1) / (low * grain) + 1;
	/*
	 * What every part costs whatever its rows (weights that cross the link again) may make the
	 * whole a quarter longer, no more.
	 */
	whole_ns = alone_ns(placer, place_plan, device, count);
	part_ns = alone_ns(placer, place_plan, device, low * grain);
	row_ns = (whole_ns - part_ns) / (float)(count - low * grain);
	fixed_ns = part_ns - row_ns * (float)(low * grain);
	if ((float)(n_parts - 1) * fixed_ns > whole_ns / 4)
		n_parts = 1 + (uint32_t)(whole_ns / 4 / fixed_ns);
	rows = (count - 1) / n_parts + 1;
	rows = ((rows - 1) / grain + 1) * grain;
	return rows < count ? rows : count;
}

struct place_gate *place_gate(const struct place_plan *place_plan, uint8_t device)
{
	if (__builtin_expect(place_plan->plan->n_parts[device] <= 1, 1))
		return NULL;
	return &place_plan->rest->gates[device];
}
