/* NAME: sends every second frame, at half its quality. */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAME, 0)

static void decide(struct lm_request *request) {
    u32 quality = request->code;
    request->verdict = request->frame.number % 2 ? LM_DENY : LM_QUALITY;
    request->code = quality < 2 ? 1 : quality / 2;
}

LM_EACH(decide)
