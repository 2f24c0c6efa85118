/* SPDX-License-Identifier: MIT */
/*
 * Contention and learned times
 *
 * Contention is one factor for a device, measured over all its workers in about the last 20 ms. A
 * task's own factor is unknown. A task of 50 us that waits for one turn of another program takes 80
 * times as long, a task of 50 ms twice as long, and a task that runs on the reactor waits for no
 * worker. The factor is set some milliseconds after contention began, and is held for a while
 * after contention ended. To divide each observed time by the factor would therefore spoil learned
 * times: each wrongly divided task makes a device look many times faster than it is.
 *
 * So a time that was observed under contention is an interval: undisturbed, the task would have
 * taken at most that time, and at least the time divided by the most contention that it may have
 * met. A learned time in that interval stays as it is. A learned time outside moves to the nearer
 * end, by the usual rules for observations.
 *
 * The share of the contention that tasks feel is learned separately, for each plan, device and
 * bucket of count:
 *
 *	predicted = learned x (1 + (contention - 1) x share)
 *
 * Three observations decide together, so one that was disturbed by chance does not count. The share
 * returns to 1 while there is no contention. The device has the same share over all its tasks,
 * which prolongs its backlog.
 *
 * Until contention is known, tasks are observed with longer times and no factor. If they began an
 * estimate anew, it is restored as soon as contention is known.
 */
#include <math.h>

#include "place/placer-private.h"

/* Tasks feel at most twice the contention. A larger factor is seen by the device's next look. */
#define MAX_FELT 2.0f
/* Widening of an interval, relative, by the estimate's usual deviation: at least, and at most */
#define LEAST_MARGIN 0.1f
#define MOST_MARGIN  0.5f
/* The device's share looks back on about so many tasks, and begins with so many that felt all. */
#define DEVICE_TASKS 32
#define DEVICE_PRIOR 4

void place_device_update(struct place_device *device)
{
	double share = 1;

	if (device->told_ns > 0)
		share = device->felt_ns / device->told_ns;
	device->slowdown = 1 + (device->contention - 1) * place_clamp((float)share, 0, MAX_FELT);
}

float place_most_contention(struct place_device *device, uint64_t began_ns, uint64_t now_ns)
{
	if (device->most_contention <= device->contention)
		return device->contention;
	/* Another clock */
	if (device->fell_ns > now_ns)
		device->fell_ns = now_ns;
	if (device->fell_ns && began_ns >= device->fell_ns) {
		device->most_contention = device->fallen_to;
		device->fell_ns = 0;
		if (device->most_contention <= device->contention)
			return device->most_contention = device->contention;
	}
	if (!device->fell_ns) {
		device->fell_ns = now_ns ? now_ns : 1;
		device->fallen_to = device->contention;
	}
	return device->most_contention;
}

bool place_narrow(const struct place_estimate *estimate, float known, float contention,
		  float *ratio)
{
	const float least = *ratio / contention;
	float margin = 0;

	if (contention <= PLACE_MILD_CONTENTION) {
		*ratio = least;
		return true;
	}
	if (estimate->n >= PLACE_TRUST)
		margin = place_clamp(2 * estimate->deviation, LEAST_MARGIN, MOST_MARGIN);
	if (known * (1 + margin) < least) {
		*ratio = least;
		return true;
	}
	if (known > *ratio * (1 + margin))
		return true;
	*ratio = known;
	return false;
}

static float middle(float a, float b, float c)
{
	const float least = a < b ? a : b, most = a < b ? b : a;

	return c < least ? least : c > most ? most : c;
}

/* The share of the contention that the device's tasks feel together */
static void feel_on_device(struct place_device *device, float alone_ns, float took_ns)
{
	const double told_ns = (double)((device->contention - 1) * alone_ns);
	const double felt_ns =
		(double)place_clamp(took_ns - alone_ns, 0, (float)told_ns * MAX_FELT);

	if (device->told_ns <= 0)
		device->told_ns = device->felt_ns = told_ns * DEVICE_PRIOR;
	device->told_ns += told_ns - device->told_ns / DEVICE_TASKS;
	device->felt_ns += felt_ns - device->felt_ns / DEVICE_TASKS;
	place_device_update(device);
}

void place_feel(struct place_device *device, struct place_estimate *estimate, float alone_ns,
		float took_ns)
{
	float share;

	if (device->contention <= PLACE_MILD_CONTENTION) {
		if (estimate->felt == 0 && estimate->felt_before[0] == 0 &&
		    estimate->felt_before[1] == 0 && device->told_ns <= 0)
			return;
		/* Small shares become 0, which is quick everywhere. */
		estimate->felt = fabsf(estimate->felt) < 1e-3f ? 0 : estimate->felt * 0.875f;
		estimate->felt_before[0] = estimate->felt_before[1] = estimate->felt;
		if (device->told_ns > 0) {
			device->told_ns = device->felt_ns = 0;
			place_device_update(device);
		}
		return;
	}
	share = place_clamp((took_ns / alone_ns - 1) / (device->contention - 1), 0, MAX_FELT) - 1;
	estimate->felt += (middle(estimate->felt_before[0], estimate->felt_before[1], share) -
			   estimate->felt) *
			  0.75f;
	estimate->felt_before[0] = estimate->felt_before[1];
	estimate->felt_before[1] = share;
	feel_on_device(device, alone_ns, took_ns);
}

uint8_t place_felt_byte(const struct place_estimate *estimate)
{
	if (estimate->felt == 0)
		return PLACE_FELT_ONE;
	return (uint8_t)(sqrtf(place_clamp(1 + estimate->felt, 0, MAX_FELT)) * PLACE_FELT_ONE +
			 0.5f);
}

/* --- Changes before contention was known --- */

void place_estimate_slowed(struct placer *placer, struct place_history *history, uint32_t bucket,
			   uint8_t device, float ratio)
{
	placer->slowed[placer->n_slowed++ % PLACE_SLOWED] = (struct place_slowed){
		.history = history,
		.at_ns = placer->learned_ns,
		.bucket = bucket,
		.ratio = ratio,
		.device = device,
	};
}

void place_estimate_forget(struct placer *placer, const struct place_history *history)
{
	for (uint32_t i = 0; i < PLACE_SLOWED; i++)
		if (!history || placer->slowed[i].history == history)
			placer->slowed[i].history = NULL;
}
