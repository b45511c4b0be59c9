//! The VuNet's own boards, simulated alone: the VupBoard by its registers, the VudBoard by its arbiter,
//! its FIFOs and its pacing counter.

use super::super::{Computed, Setting, Value, row, together};
use super::{bus, wrong};
use crate::Error;
use crate::machines::vudboard::{CELL_ON_BUS, FIFO, Options, VudBoard, saturated};
use crate::machines::vupboard::{VupBoard, receive, send};
use lastmeter_base::{Duration, Time};

const NAME: &str = "aurora-host-interfaces";

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    together(setting, &[registers, arbiter])
}

/// A driver that uses nothing but addresses.
fn registers(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let mut board = VupBoard::new(setting.constants.get::<u64>("port")? as usize);
    let cell = std::array::from_fn(|at| at as u32);
    let wrong = |error| wrong(NAME, format!("a register that the board does not have: {error:?}"));
    board.arrive(&cell);
    let came = receive(&mut board).map_err(wrong)?;
    send(&mut board, &cell).map_err(wrong)?;
    let counts = board.counts();
    let accesses = |count: u64, unit| Value::Number(count as f64, unit);
    Ok(vec![
        row("A-34/reads-address", accesses(counts.words_read, "reads")),
        row("A-34/words-written", accesses(counts.words_written, "writes")),
        row("A-34/control-signals", accesses(counts.controls, "writes")),
        row(
            "A-34/cells-come",
            came == Some(cell) && board.leave() == Some(cell) && board.leave().is_none(),
        ),
    ])
}

fn arbiter(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let bus = bus(constants)?;
    let options = Options {
        port: constants.get("port")?,
        word: constants.get("board_word")?,
        bus,
        wait: constants.get("board_wait")?,
        burst: 1,
        pace: Duration::ZERO,
    };
    let mbit = |cells: f64| Value::Number(cells * (CELL_ON_BUS.0 * 8) as f64 / 1e6, "Mbit/s");
    let (received, _) = saturated(options, true, false);
    let (_, sent) = saturated(options, false, true);
    let (first, second) = saturated(options, true, true);
    let pace: Duration = constants.get("pace")?;
    let (_, paced) = saturated(Options { pace, ..options }, false, true);
    let (longer, _) = saturated(Options { burst: 4, ..options }, true, false);
    // Cells arrive at half of the receive capacity while it sends all it can.
    let mut shared = VudBoard::new(options);
    shared.queue(Time::START, 1_000_000);
    let gap = Duration::from_secs_f64(2.0 / received);
    (0..5000).for_each(|cell| {
        shared.arrive(Time::START + gap * cell);
    });
    let counts = shared.counts();
    Ok(vec![
        row("A-36/bytes-fifo", (FIFO as f64, "B")),
        row("A-36/most-bytes", (counts.fifo_most as f64, "B")),
        row("A-36/memory-cell", mbit(received)),
        row("A-36/memory-cell-time", mbit(sent)),
        row("A-36/reception", first > 0.99 * received && second < 0.01 * sent),
        row("A-36/transmission", counts.lost == 0 && counts.sent > counts.received / 2),
        row("A-36/bursts-several", longer > 1.5 * received),
        row("A-37", (paced * pace.as_secs_f64(), "cells")),
    ])
}
