/* crop: sends a part of each frame; none of a frame that does not have it.
 * Configuration: x, y, width, height */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAME, 0)

static struct lm_rectangle part;

static int configure(const char *text, const char *end) { return lm_read_rectangle(text, end, &part); }

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u32 from = lm_most(request->frame.x, part.x), top = lm_most(request->frame.y, part.y);
    u32 to = lm_least(request->frame.x + request->frame.width, part.x + part.width);
    u32 bottom = lm_least(request->frame.y + request->frame.height, part.y + part.height);
    if (from >= to || top >= bottom) {
        request->verdict = LM_DENY;
        request->code = 1;
        return;
    }
    request->verdict = LM_CROP;
    request->frame.x = (u16)from;
    request->frame.y = (u16)top;
    request->frame.width = (u16)(to - from);
    request->frame.height = (u16)(bottom - top);
}

LM_EACH(decide)
