/* SPDX-License-Identifier: MIT */
/*
 * brokertop beside a broker that hangs, dies and restarts
 *
 * The test stops the broker with a signal, and provides brokertop's clock. While drawing, brokertop
 * sends a request but does not wait for the reply: the next update takes it, however fast it
 * arrived.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "brokertop/source.h"
#include "integration/harness.h"
#include "support/test.h"

static const uint64_t second_ns = 1000000000;
static const uint64_t patience_ns = 60 * second_ns;
static const char *const plain[] = {"--gpu=none", NULL};

static const char *warning(const struct source *source, uint64_t now_ns)
{
	static char text[600];

	source_warning(source, now_ns, text, sizeof(text));
	return text;
}

/* Update in real time until the source is in @state. */
static void await_state(struct source *source, enum source_state state)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(patience_ns);

	for (;;) {
		source_update(source, true, harness_now_ns());
		if (source->state == state)
			return;
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(5);
	}
}

/* Update, at @now_ns by brokertop's clock, until the pending request has ended. */
static void await_answer(struct source *source, uint64_t now_ns)
{
	const uint64_t end_ns = harness_now_ns() + harness_slow_ns(patience_ns);

	while (source->asker.is_asking) {
		assert_true(harness_now_ns() < end_ns);
		harness_sleep_ms(5);
		source_update(source, false, now_ns);
	}
}

static void stop(const struct broker *broker)
{
	int status;

	assert_int_equal(kill(broker->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(broker->pid, &status, WUNTRACED), broker->pid);
	assert_true(WIFSTOPPED(status));
}

/* The source keeps the reason why its connection may not make changes. */
TEST(test_open__may_change)
{
	const char *const without[] = {"--gpu=none", "--admin-socket=none", NULL};
	const struct broker_options options[] = {{.args = plain}, {.args = without}};
	struct broker broker;
	struct source source;

	for (unsigned int i = 0; i < 2; i++) {
		broker_start(&broker, &options[i]);
		assert_int_equal(source_open(&source, broker.socket_path, NULL, true, 0), 0);
		assert_int_equal(rbk_features(source.rbk) & RBK_FEAT_ADMIN_CHANGE,
				 i == 0 ? RBK_FEAT_ADMIN_CHANGE : 0);
		if (i == 0) {
			assert_string_equal(source.why_not, "");
		} else {
			assert_non_null(strstr(source.why_not, "no administrators' socket is at"));
			assert_non_null(strstr(source.why_not, broker.admin_path));
		}
		source_close(&source);
		broker_stop(&broker);
	}
}

TEST(test_open__hung)
{
	const struct broker_options options = {.args = plain};
	struct source source;
	char wanted[128];

	BROKER(broker, &options);
	stop(&broker);
	assert_int_equal(source_open(&source, broker.socket_path, NULL, false, 0), SOURCE_E_LATER);
	assert_true(source.asker.is_asking);
	assert_string_equal(warning(&source, 0), "the broker has not answered yet");
	await_answer(&source, 0);
	assert_int_equal(source.state, SOURCE_NONE);
	/* The warning tells a silent broker from a missing one. */
	snprintf(wanted, sizeof(wanted),
		 "the broker (process %d) is running, but did not answer within 0.5 s; waiting for "
		 "it",
		 (int)broker.pid);
	assert_string_equal(warning(&source, 0), wanted);
	/* In line mode, brokertop waits for the reply, then returns -ETIME. */
	source_close(&source);
	assert_int_equal(source_open(&source, broker.socket_path, NULL, true, 0), -ETIME);
	assert_false(source.asker.is_asking);
	source_close(&source);

	assert_int_equal(source_open(&source, broker.socket_path, NULL, false, 0), SOURCE_E_LATER);
	assert_int_equal(kill(broker.pid, SIGCONT), 0);
	await_state(&source, SOURCE_LIVE);
	assert_string_equal(warning(&source, harness_now_ns()), "");
	/* Close the source while a request is pending. */
	stop(&broker);
	source_update(&source, false, harness_now_ns() + 60 * second_ns);
	source_close(&source);
	assert_int_equal(kill(broker.pid, SIGCONT), 0);
}

TEST(test_hung)
{
	struct change change = {.kind = CHANGE_BUDGET, .tenant = 1, .name = "default"};
	const struct broker_options options = {.args = plain};
	struct broker broker;
	struct source source;
	uint64_t now_ns;
	int r = 1;

	strcpy(change.value, "64MiB");
	broker_start(&broker, &options);
	assert_int_equal(source_open(&source, broker.socket_path, NULL, true, 0), 0);
	/* The page's counts may be older than the connection. */
	assert_false(source.is_settled);
	source.waits = false;
	stop(&broker);
	now_ns = harness_now_ns();
	source_update(&source, false, now_ns);
	await_answer(&source, now_ns);

	/* The source notices that figures are old, and later probes whether the broker answers. */
	now_ns += 10 * second_ns;
	source_update(&source, true, now_ns);
	assert_int_equal(source.state, SOURCE_SILENT);
	assert_non_null(strstr(warning(&source, now_ns), "does not answer"));
	now_ns += 10 * second_ns;
	source_update(&source, true, now_ns);
	assert_true(source.asker.is_asking);
	assert_int_equal(source.request.kind, SOURCE_PROBE);
	assert_non_null(source.pages.root.page);
	await_answer(&source, now_ns);
	assert_int_equal(source.state, SOURCE_SILENT);

	/* A change is requested at the next update; its result is reported once. */
	assert_true(source_change(&source, &change));
	assert_false(source_change(&source, &change));
	source_update(&source, true, now_ns);
	assert_int_equal(source.request.kind, SOURCE_CHANGE);
	assert_false(source_change(&source, &change));
	assert_null(source_said(&source, &r));
	await_answer(&source, now_ns);
	assert_non_null(source_said(&source, &r));
	assert_int_equal(r, -ETIME);
	assert_null(source_said(&source, &r));

	/* When the broker continues, the same change succeeds. */
	assert_int_equal(kill(broker.pid, SIGCONT), 0);
	await_state(&source, SOURCE_LIVE);
	assert_true(source.is_settled);
	assert_true(source_change(&source, &change));
	while (!source.has_said) {
		source_update(&source, true, harness_now_ns());
		harness_sleep_ms(5);
	}
	assert_non_null(strstr(source_said(&source, &r), "is 64MiB"));
	assert_int_equal(r, 0);

	/* The broker dies before it handles a change. */
	stop(&broker);
	assert_true(source_change(&source, &change));
	broker_kill(&broker);
	await_state(&source, SOURCE_GONE);
	while (!source.has_said) {
		source_update(&source, true, harness_now_ns());
		harness_sleep_ms(5);
	}
	assert_non_null(source_said(&source, &r));
	assert_true(r < 0);
	assert_non_null(source.pages.root.page);
	assert_false(source_change(&source, &change));
	source_close(&source);
	broker_remove(&broker);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(120))
