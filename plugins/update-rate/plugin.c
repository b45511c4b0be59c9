/* update-rate: at most so many updates of the screen a second; all else passes.
 * Configuration: updates per second */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAMEBUFFER, 0)

static u64 interval = 100000000, next;

static int configure(const char *text, const char *end) {
    u64 rate = lm_number(&text, end, 10);
    if (rate == 0 || rate > 1000)
        return 1;
    interval = 1000000000 / rate;
    return 0;
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    int is_due = request->operation != LM_UPDATE || request->arrival >= next;
    request->verdict = is_due ? LM_ALLOW : LM_DENY;
    request->code = 1;
    if (is_due && request->operation == LM_UPDATE)
        next = request->arrival + interval;
}

LM_EACH(decide)
