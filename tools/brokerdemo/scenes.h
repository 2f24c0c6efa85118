#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The scenes of "tools/demo placement" that are a client's; tools/demo.d/placement tells the story
 *
 * Each prints its tables to standard output and counts in lab->n_wrong what is not as it has to be.
 * Return: 0; a negative errno, with a sentence in lab->error, if it could not go on.
 */
#include "lab.h"

struct scene_options {
	const char *profiles;  /* folder of the broker's profile files */
	const char *beside;    /* file of what to show beside the decision table, or NULL */
	const char *brokerctl; /* the program */
};

int scene_task(struct lab *lab, const struct scene_options *options);
int scene_profiles(struct lab *lab, const struct scene_options *options);
int scene_table(struct lab *lab, const struct scene_options *options);
int scene_batch(struct lab *lab, const struct scene_options *options);
int scene_split(struct lab *lab, const struct scene_options *options);
int scene_strategies(struct lab *lab, const struct scene_options *options);
int scene_service(struct lab *lab, const struct scene_options *options);
