/* view-only: the screen can be seen, and nothing else. */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAMEBUFFER, 0)

static void decide(struct lm_request *request) {
    request->verdict = request->operation == LM_UPDATE ? LM_ALLOW : LM_DENY;
}

LM_EACH(decide)
