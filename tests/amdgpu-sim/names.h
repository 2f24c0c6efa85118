#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Names of ioctls, INFO queries, sensors and errors, as the headers have them without their prefix:
 * GEM_CREATE, INFO, INFO_MEMORY, SENSOR_GPU_TEMP, ENOMEM.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What a failure matches; see struct sim_failure. */
struct sim_call {
	uint32_t nr;
	uint32_t query;
	uint32_t sensor;
};

/* Return: false if there is no such name. */
bool sim_call_parse(const char *name, struct sim_call *ret);
/* Return: the errno, or 0. */
int sim_errno_parse(const char *name);

/* Return: static, "?" where there is none. */
const char *sim_call_name(uint32_t nr, uint32_t query, uint32_t sensor);
const char *sim_errno_name(int error);

/* All names that sim_call_parse() takes, wrapped. */
void sim_call_list(FILE *file);
