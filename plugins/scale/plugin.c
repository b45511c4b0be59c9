/* scale: sends no frame larger than this; larger ones are made smaller, with their shape.
 * Configuration: width, height */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAME, 0)

static u32 width, height;

static int configure(const char *text, const char *end) {
    u64 wide = lm_number(&text, end, 0), high = lm_number(&text, end, 0);
    if (wide == 0 || high == 0 || wide > 65535 || high > 65535)
        return 1;
    width = (u32)wide, height = (u32)high;
    return 0;
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u32 wide = request->frame.width, high = request->frame.height;
    if (wide <= width && high <= height) {
        request->verdict = LM_ALLOW;
        return;
    }
    /* The side that exceeds its limit by more decides. */
    if (wide * height >= high * width) {
        request->frame.height = (u16)lm_most(high * width / wide, 1);
        request->frame.width = (u16)width;
    } else {
        request->frame.width = (u16)lm_most(wide * height / high, 1);
        request->frame.height = (u16)height;
    }
    request->verdict = LM_SCALE;
}

LM_EACH(decide)
