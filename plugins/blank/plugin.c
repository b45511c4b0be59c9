/* blank: a part of the screen that nobody sees. What would show it is clipped to the largest part beside it; a copy from it is denied.
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

static int meets(u32 left, u32 upper, u32 w, u32 h) {
    return left < x + width && x < left + w && upper < y + height && y < upper + h;
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
    u32 parts[4][4] = {
        {left, upper, x > left ? x - left : 0, h},
        {left, upper, w, y > upper ? y - upper : 0},
        {x + width, upper, right > x + width ? right - x - width : 0, h},
        {left, y + height, w, lower > y + height ? lower - y - height : 0},
    };
    u32 best = 0;
    for (u32 i = 1; i < 4; i++)
        if (parts[i][2] * parts[i][3] > parts[best][2] * parts[best][3])
            best = i;
    if (parts[best][2] == 0 || parts[best][3] == 0) {
        request->verdict = LM_DENY;
        return;
    }
    request->verdict = LM_CLIP;
    request->framebuffer.x = (u16)parts[best][0];
    request->framebuffer.y = (u16)parts[best][1];
    request->framebuffer.width = (u16)parts[best][2];
    request->framebuffer.height = (u16)parts[best][3];
}

LM_EACH(decide)
