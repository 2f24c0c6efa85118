/* SPDX-License-Identifier: MIT */
/* Stubs for builds without libmicrohttpd: there are no metrics. */
#include "control/metrics.h"

int metrics_new(const struct metrics_options *options, struct metrics **ret)
{
	return METRICS_E_NO_LIBRARY;
}

bool metrics_has_group(const struct metrics *metrics)
{
	return true;
}

struct metrics *metrics_free(struct metrics *metrics)
{
	return NULL;
}
