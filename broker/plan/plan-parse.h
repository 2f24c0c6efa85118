#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Parsing of plan descriptions
 *
 * The parser turns hostile bytes into checked views of them. Sections are where the header says and
 * fill the description exactly; every count, index, offset, flag, reserved byte and name is as
 * shm/plan-wire.h requires. The meaning of the graph is not checked here: see plan.c, which calls
 * these functions a bounded number of times in a row. Private to broker/plan.
 */
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"
#include "shm/plan-wire.h"

/* Pointers into the description, and valid as long as the description. */
struct plan_parsed {
	const struct rbk_plan_header *header;
	const struct rbk_plan_tensor *tensors;
	const struct rbk_plan_node *nodes;
	const struct rbk_plan_attr *attrs;
	const uint16_t *edges; /* tensor indices, or RBK_PLAN_NO_TENSOR */
	const uint8_t *blob;
};

/*
 * Check the header and the sizes of all sections of @desc, which is aligned to 8 bytes. The
 * functions after this one check what is in the sections, in this order.
 * Return: 0; PLAN_E_INVALID with a sentence in @message.
 */
int plan_parse_header(const void *desc, size_t desc_bytes, char message[PLAN_MESSAGE_BYTES],
		      struct plan_parsed *ret);
int plan_parse_tensor(const struct plan_parsed *parsed, unsigned int index,
		      char message[PLAN_MESSAGE_BYTES]);
/* Check that names of tensors differ. Allocates temporarily. Return: as the others; -ENOMEM. */
int plan_parse_names(const struct plan_parsed *parsed, char message[PLAN_MESSAGE_BYTES]);
int plan_parse_node(const struct plan_parsed *parsed, unsigned int index,
		    char message[PLAN_MESSAGE_BYTES]);
int plan_parse_attr(const struct plan_parsed *parsed, unsigned int index,
		    char message[PLAN_MESSAGE_BYTES]);
/* Check @n edges from @first, which must exist; with the last edge, check the padding, too. */
int plan_parse_edges(const struct plan_parsed *parsed, uint32_t first, uint32_t n,
		     char message[PLAN_MESSAGE_BYTES]);

/* Return the bytes of an element of an attribute of enum rbk_plan_attr_type @type; 0: unknown. */
unsigned int plan_attr_element_bytes(uint32_t type);

/* Write a sentence into @message. Return: PLAN_E_INVALID. */
int plan_refuse(char message[PLAN_MESSAGE_BYTES], const char *format, ...)
	__attribute__((format(printf, 2, 3)));
