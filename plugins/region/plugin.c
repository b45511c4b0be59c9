/* region: a part of the screen. What lies outside can be neither seen nor changed nor copied from, and the pointer stays inside.
 * Configuration: x, y, width, height */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAMEBUFFER, 0)

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
    u32 left = request->framebuffer.x, upper = request->framebuffer.y;
    u32 w = request->framebuffer.width, h = request->framebuffer.height;
    request->verdict = LM_ALLOW;
    if (w == 0 || h == 0)
        return;
    u32 from = most(left, x), to = least(left + w, x + width);
    u32 top = most(upper, y), bottom = least(upper + h, y + height);
    request->verdict = LM_DENY;
    if (from >= to || top >= bottom)
        return;
    if (request->operation == LM_COPY) {
        u32 source_x = request->framebuffer.from_x + (from - left);
        u32 source_y = request->framebuffer.from_y + (top - upper);
        if (source_x < x || source_x + (to - from) > x + width || source_y < y ||
            source_y + (bottom - top) > y + height)
            return;
    }
    request->verdict = LM_CLIP;
    request->framebuffer.x = (u16)from;
    request->framebuffer.y = (u16)top;
    request->framebuffer.width = (u16)(to - from);
    request->framebuffer.height = (u16)(bottom - top);
}

LM_EACH(decide)
