#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Reading a plan description
 *
 * From hostile bytes to checked views of them: sections are where the header says and fill the
 * description exactly; every count, index, offset, flag, reserved byte and name is as
 * shm/plan-wire.h says. What the graph means is not looked at; see plan.c. Private to broker/plan.
 */
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"
#include "shm/plan-wire.h"

/* Pointers into the description; valid as long as it is. */
struct plan_parsed {
	const struct rbk_plan_header *header;
	const struct rbk_plan_tensor *tensors;
	const struct rbk_plan_node *nodes;
	const struct rbk_plan_attr *attrs;
	const uint16_t *edges; /* tensor indices, or RBK_PLAN_NO_TENSOR */
	const uint8_t *blob;
};

/*
 * @desc is aligned to 8 bytes. Allocates temporarily.
 * Return: 0; PLAN_E_INVALID with a sentence in @message; negative errno.
 */
int plan_parse(const void *desc, size_t desc_bytes, char message[PLAN_MESSAGE_BYTES],
	       struct plan_parsed *ret);

/* Writes a sentence into @message. Return: PLAN_E_INVALID. */
int plan_refuse(char message[PLAN_MESSAGE_BYTES], const char *format, ...)
	__attribute__((format(printf, 2, 3)));
