/* blank: a part of the screen that nobody sees. What would show it is clipped to the largest part beside it; a copy from it is denied.
 * Configuration: x, y, width, height */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAMEBUFFER, 0)

static struct lm_rectangle part;

static int configure(const char *text, const char *end) { return lm_read_rectangle(text, end, &part); }

LM_CONFIG(configure)

static int meets(u32 left, u32 upper, u32 w, u32 h) {
    return left < part.x + part.width && part.x < left + w && upper < part.y + part.height && part.y < upper + h;
}

static void decide(struct lm_request *request) {
    u32 left = request->framebuffer.x, upper = request->framebuffer.y;
    u32 w = request->framebuffer.width, h = request->framebuffer.height;
    request->verdict = LM_ALLOW;
    if (request->operation == LM_COPY &&
        meets(request->framebuffer.from_x, request->framebuffer.from_y, w, h)) {
        request->verdict = LM_DENY;
        return;
    }
    if (request->operation != LM_UPDATE || !meets(left, upper, w, h))
        return;
    /* To the left, above, to the right, below. */
    u32 right = left + w, lower = upper + h;
    u32 beside[4][4] = {
        {left, upper, part.x > left ? part.x - left : 0, h},
        {left, upper, w, part.y > upper ? part.y - upper : 0},
        {part.x + part.width, upper, right > part.x + part.width ? right - part.x - part.width : 0, h},
        {left, part.y + part.height, w, lower > part.y + part.height ? lower - part.y - part.height : 0},
    };
    u32 best = 0;
    for (u32 i = 1; i < 4; i++)
        if (beside[i][2] * beside[i][3] > beside[best][2] * beside[best][3])
            best = i;
    if (beside[best][2] == 0 || beside[best][3] == 0) {
        request->verdict = LM_DENY;
        return;
    }
    request->verdict = LM_CLIP;
    request->framebuffer.x = (u16)beside[best][0];
    request->framebuffer.y = (u16)beside[best][1];
    request->framebuffer.width = (u16)beside[best][2];
    request->framebuffer.height = (u16)beside[best][3];
}

LM_EACH(decide)
