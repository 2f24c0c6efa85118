#pragma once
/* SPDX-License-Identifier: MIT */
/* What policy.c and policy-load.c share; nobody outside tenant/ includes it. */
#include "tenant/policy.h"

/* Kinds of match keys; a higher one is more specific. */
enum {
	POLICY_MATCH_GID = 1 << 0,
	POLICY_MATCH_UID = 1 << 1,
	POLICY_MATCH_CGROUP = 1 << 2,
	POLICY_MATCH_EXE = 1 << 3,
};

/* A section of a file. */
struct policy_section {
	struct tenant_policy tenant;
	uint32_t match_kinds;
	uid_t *uids;
	gid_t *gids;
	char **cgroups, **exes;
	uint32_t n_uids, n_gids, n_cgroups, n_exes;
	char *reserve_place; /* "FILE:LINE" of its vram-reserve; NULL: it has none */
};

struct policy {
	struct policy_section *sections; /* [0] is "default" */
	uint32_t n_sections;
	struct policy_size headroom;
};

/* Sets a section to the defaults of every key. */
void policy_section_init(struct policy_section *section, const char *name);
