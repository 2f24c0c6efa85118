/* SPDX-License-Identifier: MIT */
/*
 * Cutting tasks by rows
 *
 * Partition: rows [0, n) on a GPU and the others on the CPU, so that both complete together, each
 * after its earlier tasks. More rows make the GPU later and the CPU earlier, so n is found by
 * halving. Estimates have small steps from bucket to bucket; the search may end beside such a step,
 * which costs no more than the step. Since parts are observed at their own counts like any task,
 * the ratio corrects itself.
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

	/* At least a whole grain on the GPU, and a row on the CPU. */
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

/*
 * Return the prediction for a part; on the CPU without contention, because smaller parts wait more
 * often there, for the reactor and for a worker.
 */
static float alone_ns(const struct placer *placer, const struct place_plan *place_plan,
		      uint8_t device, uint32_t count)
{
	const float contention = device == RBK_DEVICE_CPU ? 1 : placer->devices[device].contention;

	return place_predict_now_ns(placer, place_plan, device, count, contention);
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
	/* Find the most grains, at least one, that are not predicted to take longer. */
	high = (count - 1) / grain;
	while (low < high) {
		middle = high - (high - low) / 2;
		if (alone_ns(placer, place_plan, device, middle * grain) <= max_ns)
			low = middle;
		else
			high = middle - 1;
	}
	/* Keep the number of parts, but make them about equally long. */
	n_parts = (count - 1) / (low * grain) + 1;
	/*
	 * The fixed cost of each part (weights that cross the link again) may make the whole at
	 * most a quarter longer.
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
