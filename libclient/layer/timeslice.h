#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Timeslices: submissions that wait until the lease may use its device
 *
 * With RINGBROKER_LEASE_PRIORITY, or a priority on the lease's page, which an administrator may set
 * and take back at any time, the process shares its device's time with other leases. While another
 * lease shares the device, submissions wait until the lease has the timeslice (enum rbk_timeslice),
 * and only little work is under way at a time, so that the timeslice can end soon. Parts of command
 * buffers (cut.h) are submissions of their own, whose time is predicted.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <vulkan/vulkan_core.h>

#include "libclient/layer/duration.h"

struct device;
struct gpu;

enum { TIMESLICE_MAX_SUBMISSIONS = DURATION_MAX_SERIES };

/* Counts of a device, which the broker is told. */
enum timeslice_count {
	TIMESLICE_SUBMISSIONS, /* of command buffers to the driver, in parts or whole */
	TIMESLICE_PARTS,       /* parts behind the first one of a command buffer, as recorded */
	TIMESLICE_SLICES,
	TIMESLICE_WHOLE,    /* command buffers that stayed whole from a command on */
	TIMESLICE_UNSLICED, /* dispatches that take longer than a part, and stay whole */
	TIMESLICE_COUNTS,
};

/* A device of the process; zeroed at first. Not inherited by children. */
struct timeslice {
	uint32_t is_sharing;       /* atomic: it has begun to share */
	uint32_t joined;           /* atomic: 1 + enum rbk_priority that counts; 0: it has left */
	bool is_refused;           /* the broker did not let it share, and that was said */
	uint64_t refused_until_ns; /* atomic: the broker is not asked again before */
	bool has_max_part;         /* command buffers are always divided */
	uint64_t max_part_ns;
	bool is_served; /* the rest is initialised, and the thread runs */
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a submission has ended or begun, or the page has changed */
	uint32_t n_under_way;   /* submissions of all VkDevices */
	uint64_t under_way_ns;  /* predicted time of these */
	uint64_t ends_ns;    /* when they will have ended, as predicted; valid if there are some */
	uint32_t n_vague;    /* of these, those whose end is not known in advance */
	uint32_t n_waiting;  /* threads that wait */
	uint32_t n_on_word;  /* of these, those that sleep until the word on the page changes */
	bool has_asked;      /* WANT was answered since the last DONE, and nothing has begun */
	bool is_using;       /* the process has used the timeslice: it owes the broker a DONE */
	bool is_telling;     /* DONE is being sent: WANT must not pass it */
	bool has_ended;      /* something has ended since the timeslice began */
	uint64_t n_told;     /* number of DONE, LEAVE and moves to another broker so far */
	uint64_t ask_at_ns;  /* when WANT is sent again */
	uint64_t typical_ns; /* time that a submission takes: the longest lately */
	uint64_t idle_ns;    /* pause after which a timeslice that others wait for ends */
	uint64_t lead_ns;    /* time before the predicted end of a part to submit the next one */
	uint64_t end_ns;     /* the last end of a submission, or begin of the first one */
	uint64_t changed_ns; /* the last begin or end */
	bool is_blurred; /* atomic: something was submitted without a fence since the last fence */
	uint64_t open_until_ns; /* atomic: the broker did not answer, nothing waits until then */

	/* Reports to the broker; under the lock unless they are atomic. */
	uint64_t counts[TIMESLICE_COUNTS]; /* atomic: so far */
	uint64_t base[TIMESLICE_COUNTS];   /* counts when the process joined at this broker */
	uint64_t told[TIMESLICE_COUNTS];   /* counts that were reported to it */
	uint64_t longest_ns;               /* the longest part since the last report */
	uint64_t report_at_ns;             /* atomic: the next report */
};

/* A submission that is under way. */
struct under_way {
	VkFence fence;
	VkQueue queue;
	uint64_t begin_ns;
	uint64_t predicted_ns;
	uint32_t series; /* index in cutter.series */
	bool is_vague;   /* its end is not known in advance */
	bool is_behind;  /* the device may have had nothing to do before it */
};

/* Submissions of a VkDevice; zeroed at first. All under the lock of its struct timeslice. */
struct submissions {
	pthread_t thread;
	bool is_watched; /* the thread runs */
	bool must_end;
	uint32_t n;
	struct under_way under_way[TIMESLICE_MAX_SUBMISSIONS];
	uint64_t used_series; /* bits: series of these */
	uint32_t n_free;
	VkFence free[TIMESLICE_MAX_SUBMISSIONS]; /* fences that are not signalled */
	/* of the thread, without the lock: fences of submissions that have ended */
	uint32_t n_signalled;
	VkFence signalled[TIMESLICE_MAX_SUBMISSIONS];
};

/*
 * Begin to share the device's time, if the environment or the lease's page asks for it, and the
 * broker offers it. Under process.lock.
 */
void timeslice_share(struct gpu *gpu);
/* Do so at a new broker. Under process.lock and process.using, write-locked. */
void timeslice_restore(struct gpu *gpu);
/* Let everything pass for a while, since the broker has ended. */
void timeslice_cut(struct gpu *gpu);

/* A submission with commands. */
struct submission {
	VkQueue queue;
	uint64_t part_ns; /* predicted time of parts of command buffers; 0: it is whole */
	bool is_guess;    /* they contain what was not measured yet */
	const struct series *series; /* what its time says something about; NULL: nothing */
	/* set by timeslice_begin() */
	VkFence fence;  /* must be signalled at its end; VK_NULL_HANDLE: it is not restrained */
	bool is_late;   /* it has waited in vain for earlier ones, which may wait for later ones */
	bool is_timed;  /* it has waited until shortly before the predicted end of earlier ones */
	bool is_behind; /* these had ended before */
	uint64_t predicted_ns;
};

/* Return true if the device's time is shared. */
bool timeslice_is_shared(const struct device *device);
/* Add @n to a count of a device that has a cutter, for the log and for the broker. Any thread. */
void timeslice_count(const struct device *device, enum timeslice_count what, uint64_t n);
/* Return true if command buffers should be divided now, and parts submitted one by one. */
bool timeslice_divides(const struct device *device);

/*
 * Wait until a submission with commands may begin. Any thread. If it is given a fence, pass it to
 * timeslice_submitted() afterwards.
 */
void timeslice_begin(struct device *device, struct submission *submission);
/* Note the result of a submission that has a fence, or of the submission of its fence behind it. */
void timeslice_submitted(struct device *device, const struct submission *submission,
			 VkResult result);
/*
 * End the device's thread, destroy its fences, and report to the broker, before the device is
 * destroyed.
 */
void timeslice_forget(struct device *device);
