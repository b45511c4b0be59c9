/* update-rate: at most so many updates of the screen a second; all else passes.
 * Configuration: updates per second */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAMEBUFFER, 0)

enum { RATE_MAX = 1000 };
static struct lm_pace pace = { 100000000, 0 };

static int configure(const char *text, const char *end) {
    return lm_read_pace(text, end, RATE_MAX, &pace);
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    int passes = request->operation != LM_UPDATE || lm_due(&pace, request->arrival);
    request->verdict = passes ? LM_ALLOW : LM_DENY;
    request->code = 1;
}

LM_EACH(decide)
