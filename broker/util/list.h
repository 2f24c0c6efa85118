#pragma once
/* SPDX-License-Identifier: MIT */
/* Doubly linked lists, circular, with the links inside the objects. */
#include <stdbool.h>
#include <stddef.h>

#include "util/checked.h"

struct list_node {
	struct list_node *prev, *next;
};

static inline void list_init(struct list_node *list)
{
	list->prev = list->next = list;
}

static inline bool list_is_empty(const struct list_node *list)
{
	return list->next == list;
}

static inline void list_append(struct list_node *list, struct list_node *node)
{
	node->prev = list->prev;
	node->next = list;
	list->prev->next = node;
	list->prev = node;
}

/* Move all nodes of @from to the end of @list. */
static inline void list_splice(struct list_node *list, struct list_node *from)
{
	if (list_is_empty(from))
		return;
	from->next->prev = list->prev;
	list->prev->next = from->next;
	from->prev->next = list;
	list->prev = from->prev;
	list_init(from);
}

/* Remove a node. A node in no list is linked to itself, so removing twice is harmless. */
static inline void list_remove(struct list_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

#define list_for_each(node, list) \
	for (struct list_node *node = (list)->next; node != (list); node = node->next)

/* The body may remove @node. */
#define list_for_each_safe(node, list)                                                         \
	for (struct list_node *node = (list)->next, *node##_next = node->next; node != (list); \
	     node = node##_next, node##_next = node->next)
