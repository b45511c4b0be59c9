/* NAME: a display that can be seen, but takes no keys, pointer or text. */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAMEBUFFER, 0)

static void decide(struct lm_request *request) {
    int is_input = request->operation >= LM_KEY_DOWN && request->operation <= LM_CUT;
    request->verdict = is_input ? LM_DENY : LM_ALLOW;
}

LM_EACH(decide)
