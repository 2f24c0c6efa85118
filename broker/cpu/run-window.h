#pragma once
/* SPDX-License-Identifier: MIT */
/* Steps of convolutions and pooling: arguments, run functions. Private to broker/cpu. */
#include "cpu/run.h"

struct cpu_step_window {
	struct cpu_window args;
	struct cpu_extent batch;
	bool weights_are_packed;
	bool is_last; /* channels-last layout: Conv, MaxPool, AveragePool */
	union {
		void (*pool)(const struct cpu_window *args, size_t begin, size_t end);
		void (*pool_f64)(const struct cpu_window_f64 *args, size_t begin, size_t end);
	};
	enum cpu_type type;   /* MaxPool of any type */
	bool is_column_major; /* MaxPool of any type: column-major indices */
};
CPU_STEP_HOLDS(struct cpu_step_window);

cpu_run_fn cpu_run_conv, cpu_run_conv_transpose, cpu_run_pool, cpu_run_pool_any;
cpu_units_fn cpu_units_conv, cpu_units_conv_transpose, cpu_units_pool;
cpu_rounds_fn cpu_rounds_conv;
/* run-double-hot.c; the units functions of float32 serve where none is declared here */
cpu_run_fn cpu_run_conv_f64, cpu_run_conv_transpose_f64, cpu_run_pool_f64;
cpu_units_fn cpu_units_conv_transpose_f64;
