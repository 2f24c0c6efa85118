#pragma once
/* SPDX-License-Identifier: MIT */
/* Descriptions of compiled models, without a broker */
#include <stddef.h>

#include <ringbroker/onnx.h>

/*
 * Describe a compiled model as on the wire (shm/plan-wire.h). Its constants have places in arena 1,
 * which does not exist.
 * Return: 0 and a block to free(); as rbk_onnx_plan() for what needs no broker.
 */
int model_describe(struct rbk_onnx *onnx, void **ret_desc, size_t *ret_bytes,
		   struct rbk_error *error);
