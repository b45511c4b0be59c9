/* crop: sends a part of each frame; none of a frame that does not have it.
 * Configuration: x, y, width, height */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAME, 0)

static u32 x, y, width, height;

static int configure(const char *text, const char *end) {
    u64 side[4];
    for (int i = 0; i < 4; i++)
        side[i] = lm_number(&text, end, 0);
    if (side[2] == 0 || side[3] == 0 || side[0] + side[2] > 65535 || side[1] + side[3] > 65535)
        return 1;
    x = (u32)side[0], y = (u32)side[1], width = (u32)side[2], height = (u32)side[3];
    return 0;
}

LM_CONFIG(configure)

static u32 least(u32 a, u32 b) { return a < b ? a : b; }
static u32 most(u32 a, u32 b) { return a > b ? a : b; }

static void decide(struct lm_request *request) {
    u32 from = most(request->frame.x, x), top = most(request->frame.y, y);
    u32 to = least(request->frame.x + request->frame.width, x + width);
    u32 bottom = least(request->frame.y + request->frame.height, y + height);
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
