/* frame-rate: at most so many frames a second.
 * Configuration: frames per second */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAME, 0)

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
    int is_due = request->arrival >= next;
    request->verdict = is_due ? LM_ALLOW : LM_DENY;
    request->code = 1;
    if (is_due) /* In step while frames come; anew after a pause. */
        next = request->arrival - next < interval ? next + interval : request->arrival + interval;
}

LM_EACH(decide)
