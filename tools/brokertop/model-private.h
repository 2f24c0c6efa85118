#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Parts of the model
 *
 * model.c copies records; model-rates.c compares them with earlier ones; model-history.c keeps the
 * last five minutes; model-derived.c has the functions that derive a value from a record.
 */
#include "model.h"

/* The value of a rate or a fraction that is not known. */
enum { MODEL_UNKNOWN = -1 };

/*
 * Forget what a record is compared with, and its rates. The next rates_update() takes its counts as
 * the beginning of an interval.
 */
void rates_forget_tenant(struct model_tenant *tenant);
void rates_forget_session(struct model_session *session);
void rates_forget_lease(struct model_lease *lease);
void rates_forget_plan(struct model_plan *plan);
void rates_forget_device(struct model_device *device);

/*
 * Compare all records with those of the interval's beginning if the interval is long enough, and
 * begin intervals of new records. @view: page whose histograms belong to the tenants.
 */
void rates_update(struct model *model, const struct rbk_stats_view *view);

/* Add the model's present values to the histories. */
void history_sample(struct model *model);
/* Clear the histories of the broker and its devices. */
void history_clear(struct model *model);
/* Free a tenant's history. */
void history_forget(struct model *model, struct model_tenant *tenant);
