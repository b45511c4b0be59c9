/* region: a part of the screen. What lies outside can be neither seen nor changed nor copied from, and the pointer stays inside.
 * Configuration: x, y, width, height */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAMEBUFFER, 0)

static struct lm_rectangle part;

static int configure(const char *text, const char *end) { return lm_read_rectangle(text, end, &part); }

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u32 left = request->framebuffer.x, upper = request->framebuffer.y;
    u32 w = request->framebuffer.width, h = request->framebuffer.height;
    request->verdict = LM_ALLOW;
    if (w == 0 || h == 0)
        return;
    u32 from = lm_most(left, part.x), to = lm_least(left + w, part.x + part.width);
    u32 top = lm_most(upper, part.y), bottom = lm_least(upper + h, part.y + part.height);
    request->verdict = LM_DENY;
    if (from >= to || top >= bottom)
        return;
    if (request->operation == LM_COPY) {
        u32 source_x = request->framebuffer.from_x + (from - left);
        u32 source_y = request->framebuffer.from_y + (top - upper);
        if (source_x < part.x || source_x + (to - from) > part.x + part.width || source_y < part.y ||
            source_y + (bottom - top) > part.y + part.height)
            return;
    }
    request->verdict = LM_CLIP;
    request->framebuffer.x = (u16)from;
    request->framebuffer.y = (u16)top;
    request->framebuffer.width = (u16)(to - from);
    request->framebuffer.height = (u16)(bottom - top);
}

LM_EACH(decide)
