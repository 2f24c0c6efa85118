#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Names of ioctls, INFO queries, sensors and errors, as in the headers without their prefix:
 * GEM_CREATE, INFO, INFO_MEMORY, SENSOR_GPU_TEMP, ENOMEM.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The calls that a failure matches; see struct sim_failure. */
struct sim_call {
	uint32_t nr;
	uint32_t query;
	uint32_t sensor;
};

/*
 * Parse the name of a call.
 * Return: false if there is no such name.
 */
bool sim_call_parse(const char *name, struct sim_call *ret);
/* Return the errno, or 0. */
int sim_errno_parse(const char *name);

/* Return a static name, "?" if there is none. */
const char *sim_call_name(uint32_t nr, uint32_t query, uint32_t sensor);
const char *sim_errno_name(int error);

/* Print all names that sim_call_parse() takes, wrapped. */
void sim_call_list(FILE *file);
