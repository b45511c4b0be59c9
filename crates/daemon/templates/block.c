/* NAME: a disk of 4096 blocks that cannot be written. */
#include "lastmeter.h"

LM_PLUGIN(LM_BLOCK, 0)

static void decide(struct lm_request *request) {
    int is_inside = request->block.lba <= 4096 && request->block.blocks <= 4096 - request->block.lba;
    request->verdict = is_inside ? LM_READ_ONLY : LM_DENY;
    request->code = 0x052100; /* illegal request: LBA out of range */
}

LM_EACH(decide)
