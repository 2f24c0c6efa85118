#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The client's scenes of "tools/demo placement"; tools/demo.d/placement narrates them
 *
 * Each scene prints its tables to standard output and counts violated conditions in lab->n_wrong.
 * Return: 0; a negative errno, with a sentence in lab->error, if the scene could not continue.
 */
#include "lab.h"

struct scene_options {
	const char *profiles;  /* folder of the broker's profile files */
	const char *beside;    /* file of texts beside the decision table, or NULL */
	const char *brokerctl; /* the brokerctl program */
};

int scene_task(struct lab *lab, const struct scene_options *options);
int scene_profiles(struct lab *lab, const struct scene_options *options);
int scene_table(struct lab *lab, const struct scene_options *options);
int scene_batch(struct lab *lab, const struct scene_options *options);
int scene_split(struct lab *lab, const struct scene_options *options);
int scene_strategies(struct lab *lab, const struct scene_options *options);
int scene_service(struct lab *lab, const struct scene_options *options);
