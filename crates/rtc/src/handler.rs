//! The handler of a channel: a thread that makes packets of messages, when it is its turn (E-79, E-80).

use crate::HANDLER_ROOM;
use crate::PACKETS_BETWEEN;
use crate::host::Shared;
use lastmeter_base::{Bytes, Time};
use lastmeter_transport::channel::node::Grant;
use lastmeter_transport::channel::turns::Turn;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

/// Starts one for packets of this length; messages are given to it in the order of their grants.
pub(crate) fn start(
    shared: &Arc<Shared>,
    packet_max: Bytes,
) -> (SyncSender<(Grant, Vec<u8>)>, JoinHandle<()>) {
    let (give, take) = sync_channel::<(Grant, Vec<u8>)>(HANDLER_ROOM);
    let shared = Arc::clone(shared);
    let most = usize::try_from(packet_max.0).unwrap_or(usize::MAX);
    let handler = std::thread::spawn(move || {
        for (grant, bytes) in take {
            handle(&shared, &grant, &bytes, most);
        }
    });
    (give, handler)
}

/// Makes the packets of a message, a few at a time; a more urgent handler may go first in between.
fn handle(shared: &Shared, grant: &Grant, bytes: &[u8], most: usize) {
    // It inherits the deadline of its message.
    let turn = ask(shared, Some(grant.leaves));
    let packets: Vec<&[u8]> = bytes.chunks(most).take(grant.packets as usize).collect();
    for (group, some) in packets.chunks(PACKETS_BETWEEN).enumerate() {
        if group > 0 {
            give_way(shared, turn);
        }
        let made: Vec<Vec<u8>> = some.iter().map(|packet| packet.to_vec()).collect();
        let (mut state, now) = shared.now();
        for (index, content) in (group * PACKETS_BETWEEN..).zip(made) {
            state.station.node.put(grant, index as u32, content);
        }
        shared.done(state, now);
    }
    let (turns, changed) = &shared.turns;
    turns.lock().unwrap_or_else(PoisonError::into_inner).end(turn);
    changed.notify_all();
}

/// Waits for the processor.
fn ask(shared: &Shared, deadline: Option<Time>) -> Turn {
    let (turns, changed) = &shared.turns;
    let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
    let turn = turns.ask(deadline);
    while !turns.has(turn) {
        turns = changed.wait(turns).unwrap_or_else(PoisonError::into_inner);
    }
    turn
}

/// Lets a more urgent handler go first.
fn give_way(shared: &Shared, turn: Turn) {
    let (turns, changed) = &shared.turns;
    let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
    if turns.gives_way(turn) {
        changed.notify_all();
        while !turns.has(turn) {
            turns = changed.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
