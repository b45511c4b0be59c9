//! Commands that wait for their data.

use super::{QUEUE, Work};
use lastmeter_wire::iscsi::{Answer, NO_TAG};
use std::collections::{BTreeMap, VecDeque};

/// A command that waits.
struct Task {
    work: Work,
    data: Vec<u8>,
    /// Bytes that it needs.
    total: u32,
    /// Bytes that it may come to hold.
    held: u64,
    /// The offset at which the present sequence ends.
    until: u32,
    /// The tag of the present sequence: none if it is unsolicited.
    transfer: u32,
    /// The number of the next PDU of the sequence.
    number: u32,
    /// Sequences that were asked for.
    asked: u32,
    /// Whether a sequence is under way.
    open: bool,
}

/// What data lead to.
pub(super) enum Arrived {
    /// More are needed.
    Waits,
    /// The command has all that it needs.
    Complete(Work),
    /// They do not fit what was asked for; the command ends.
    Wrong(Work),
    /// There is no room for the command.
    Full(Work),
}

/// All of them.
#[derive(Default)]
pub(super) struct Tasks {
    all: BTreeMap<u32, Task>,
    /// Tags of those that are to be asked, in order.
    waiting: VecDeque<u32>,
    /// Bytes that they hold, or will.
    held: u64,
    /// Bytes that they may hold.
    pub(super) share: u64,
    last_transfer: u32,
}

/// Sequences that are asked for at once.
const ASKED_MAX: usize = 4;

impl Tasks {
    pub(super) fn len(&self) -> u32 {
        self.all.len() as u32
    }
    pub(super) fn knows(&self, tag: u32) -> bool {
        self.all.contains_key(&tag)
    }
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.waiting.clear();
        self.held = 0;
    }
    fn remove(&mut self, tag: u32) -> Option<Task> {
        let task = self.all.remove(&tag)?;
        self.held -= task.held;
        self.waiting.retain(|other| *other != tag);
        Some(task)
    }
    /// Ends a command, if it is here.
    pub(super) fn abort(&mut self, tag: u32) -> bool {
        self.remove(tag).is_some()
    }
    /// A command with the first of its data; with `more`, others follow unasked, up to the first burst.
    pub(super) fn begin(
        &mut self,
        work: Work,
        total: u32,
        more: bool,
        data: &[u8],
        first_burst: u32,
    ) -> Arrived {
        // Data beyond what the command needs are of no use, but belong to their sequence.
        let until = if more { first_burst.min(work.expected) } else { data.len() as u32 };
        let held = total.max(until).into();
        let fits = self.all.is_empty() || self.held + held <= self.share;
        if !fits || self.len() >= QUEUE {
            return Arrived::Full(work);
        }
        self.held += held;
        let tag = work.task;
        let task = Task {
            work,
            data: data.to_vec(),
            total,
            held,
            until,
            transfer: NO_TAG,
            number: 0,
            asked: 0,
            open: more,
        };
        self.all.insert(tag, task);
        if !more {
            self.waiting.push_back(tag);
        }
        Arrived::Waits
    }
    /// Data of a command. Those of commands that are not here any more are ignored.
    pub(super) fn data(
        &mut self,
        tag: u32,
        transfer: u32,
        (number, offset): (u32, u32),
        last: bool,
        data: &[u8],
    ) -> Arrived {
        let Some(task) = self.all.get_mut(&tag) else { return Arrived::Waits };
        let end = u64::from(offset) + data.len() as u64;
        let fits = task.open
            && transfer == task.transfer
            && number == task.number
            && offset as usize == task.data.len()
            && end <= u64::from(task.until)
            // A sequence that was asked for ends where it should.
            && !(last && transfer != NO_TAG && end < u64::from(task.until))
            && (last || end != u64::from(task.until));
        if !fits {
            let task = self.remove(tag).expect("it is here");
            return Arrived::Wrong(task.work);
        }
        task.data.extend_from_slice(data);
        task.number += 1;
        if last {
            task.open = false;
        }
        if !last {
            return Arrived::Waits;
        }
        if task.data.len() >= task.total as usize {
            let Task { work, data, .. } = self.remove(tag).expect("it is here");
            return Arrived::Complete(Work { data: Some(data), ..work });
        }
        self.waiting.push_back(tag);
        Arrived::Waits
    }
    /// The next request for data: of which command, its logical unit, and the request.
    pub(super) fn next(&mut self, burst: u32) -> Option<(u32, u64, Answer)> {
        let asked = self.all.values().filter(|task| task.open && task.transfer != NO_TAG).count();
        if asked >= ASKED_MAX {
            return None;
        }
        let tag = self.waiting.pop_front()?;
        self.last_transfer = self.last_transfer.wrapping_add(1) % NO_TAG;
        let task = self.all.get_mut(&tag)?;
        let offset = task.data.len() as u32;
        let length = burst.min(task.total - offset);
        task.until = offset + length;
        (task.transfer, task.number, task.open) = (self.last_transfer, 0, true);
        let number = task.asked;
        task.asked += 1;
        let ready = Answer::Ready { transfer: task.transfer, number, offset, length };
        Some((tag, task.work.lun, ready))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(task: u32) -> Work {
        let (lun, cdb, data, reads, writes) = (0, [0; 16], None, false, true);
        Work { task, lun, cdb, data, expected: 1 << 20, reads, writes, takes: 512 }
    }

    #[test]
    fn data_that_no_command_needs_count_as_held() {
        const FIRST_BURST: u32 = 1 << 18;
        let mut tasks = Tasks { share: 3 << 18, ..Tasks::default() };
        let begin = |tasks: &mut Tasks, tag: u32| {
            // Of 512 bytes each, to which a whole first burst may come.
            matches!(tasks.begin(work(tag), 512, true, &[], FIRST_BURST), Arrived::Waits)
        };
        assert_eq!([1, 2, 3, 4].map(|tag| begin(&mut tasks, tag)), [true, true, true, false]);
        let data = vec![1; FIRST_BURST as usize];
        let Arrived::Complete(done) = tasks.data(1, NO_TAG, (0, 0), true, &data) else {
            panic!("it has what it needs")
        };
        assert_eq!(done.data, Some(data));
        assert!(begin(&mut tasks, 5) && !begin(&mut tasks, 6) && tasks.abort(5));
        assert!(begin(&mut tasks, 7));
    }
}
