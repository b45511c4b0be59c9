//! What an instance may use: the functions that it imports from its host, and their limits.

use crate::abi::INTERFACE;
use crate::store::Store;
use lastmeter_base::{Bytes, Rate, Stream, Time};
use std::collections::VecDeque;
use wasmtime::{Caller, Linker, Memory, ResourceLimiter};

/// The longest line of a plugin's log; what is longer is cut.
pub const LINE_LEN_MAX: usize = 256;
/// The most lines that are kept until the host takes them.
pub const LINES_MAX: usize = 64;
/// The most lines of one call; the rest is only counted.
pub const LINES_PER_CALL_MAX: u32 = 16;
/// The most queues that a plugin can ask about.
pub const QUEUES_MAX: usize = 256;
/// Bytes that `lm_queue` writes: length in bytes, share granted in parts of a million, rate in bit/s.
const QUEUE_LEN: usize = 24;

/// The function by which a plugin asks about a queue.
pub(crate) const QUEUE: &str = "lm_queue";

/// The state of a queue, for `lm_queue`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// What waits.
    pub len: Bytes,
    /// The share of the line that it was granted, in parts of a million.
    pub share: u64,
    /// The rate of the line.
    pub rate: Rate,
}

/// What belongs to an instance and outlives a reload, besides what the engine needs of it.
pub(crate) struct State {
    pub(crate) now: Time,
    pub(crate) memory: Option<Memory>,
    pub(crate) memory_max: usize,
    pub(crate) elements_max: usize,
    /// The plugin asked for more memory than it may have.
    pub(crate) refused_memory: bool,
    pub(crate) store: Store,
    pub(crate) random: Stream,
    pub(crate) log: VecDeque<String>,
    pub(crate) log_lost: u64,
    pub(crate) lines_left: u32,
    pub(crate) queues: Vec<Option<Queue>>,
}

impl State {
    pub(crate) fn new(memory_max: usize, elements_max: usize, seed: u64, name: &str) -> State {
        State {
            now: Time::from_ps(0),
            memory: None,
            memory_max,
            elements_max,
            refused_memory: false,
            store: Store::default(),
            random: Stream::new(seed, name),
            log: VecDeque::new(),
            log_lost: 0,
            lines_left: LINES_PER_CALL_MAX,
            queues: Vec::new(),
        }
    }
    /// Before each call.
    pub(crate) fn begin(&mut self, now: Time) {
        self.now = now;
        self.lines_left = LINES_PER_CALL_MAX;
        self.refused_memory = false;
    }
    fn log(&mut self, line: &[u8]) {
        if self.lines_left == 0 {
            self.log_lost += 1;
            return;
        }
        self.lines_left -= 1;
        if self.log.len() >= LINES_MAX {
            self.log.pop_front();
            self.log_lost += 1;
        }
        let line = &line[..line.len().min(LINE_LEN_MAX)];
        // A terminal must not obey a plugin.
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        self.log.push_back(String::from_utf8_lossy(line).chars().map(shown).collect());
    }
}

impl ResourceLimiter for State {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired > self.memory_max {
            self.refused_memory = true;
            let most = self.memory_max;
            return Err(wasmtime::Error::msg(format!("{desired} bytes of memory; at most {most}")));
        }
        Ok(true)
    }
    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if desired > self.elements_max {
            self.refused_memory = true;
            let most = self.elements_max;
            return Err(wasmtime::Error::msg(format!(
                "a table of {desired} entries; at most {most}"
            )));
        }
        Ok(true)
    }
}

/// A plugin's memory and the rest of its state, both at once.
fn parts<'a>(caller: &'a mut Caller<'_, State>) -> wasmtime::Result<(&'a mut [u8], &'a mut State)> {
    let memory = caller.data().memory;
    let memory = memory.ok_or_else(|| wasmtime::Error::msg("called before it was ready"))?;
    Ok(memory.data_and_store_mut(caller))
}

fn range(at: u32, len: u32) -> std::ops::Range<usize> {
    // On 64 bits, the sum of two `u32` fits.
    at as usize..at as usize + len as usize
}

fn slice(memory: &[u8], at: u32, len: u32) -> wasmtime::Result<&[u8]> {
    let outside =
        || wasmtime::Error::msg(format!("{len} bytes at {at:#x} are outside of the memory"));
    memory.get(range(at, len)).ok_or_else(outside)
}

fn write(memory: &mut [u8], at: u32, bytes: &[u8]) -> wasmtime::Result<()> {
    let len = bytes.len();
    let outside =
        || wasmtime::Error::msg(format!("{len} bytes at {at:#x} are outside of the memory"));
    memory.get_mut(range(at, len as u32)).ok_or_else(outside)?.copy_from_slice(bytes);
    Ok(())
}

/// Defines the functions of [`crate::abi::IMPORTS`].
pub(crate) fn define(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(INTERFACE, "lm_now", |caller: Caller<'_, State>| -> i64 {
        crate::request::nanoseconds(caller.data().now).cast_signed()
    })?;
    linker.func_wrap(INTERFACE, "lm_random", |mut caller: Caller<'_, State>| -> i64 {
        caller.data_mut().random.bits().cast_signed()
    })?;
    linker.func_wrap(
        INTERFACE,
        "lm_log",
        |mut caller: Caller<'_, State>, at: u32, len: u32| -> wasmtime::Result<()> {
            let (memory, state) = parts(&mut caller)?;
            state.log(slice(memory, at, len)?);
            Ok(())
        },
    )?;
    linker.func_wrap(
        INTERFACE,
        QUEUE,
        |mut caller: Caller<'_, State>, id: u32, at: u32| -> wasmtime::Result<i32> {
            let (memory, state) = parts(&mut caller)?;
            let known = state.queues.get(id as usize).copied().flatten();
            let Some(queue) = known else { return Ok(-1) };
            let mut bytes = [0; QUEUE_LEN];
            bytes[..8].copy_from_slice(&queue.len.0.to_le_bytes());
            bytes[8..16].copy_from_slice(&queue.share.to_le_bytes());
            bytes[16..].copy_from_slice(&queue.rate.as_bits().to_le_bytes());
            write(memory, at, &bytes)?;
            Ok(0)
        },
    )?;
    linker.func_wrap(
        INTERFACE,
        "lm_store_get",
        |mut caller: Caller<'_, State>,
         key: u32,
         key_len: u32,
         value: u32,
         value_len: u32|
         -> wasmtime::Result<i32> {
            let (memory, state) = parts(&mut caller)?;
            let Some(found) = state.store.get(slice(memory, key, key_len)?) else { return Ok(-1) };
            let fits = found.len().min(value_len as usize);
            write(memory, value, &found[..fits])?;
            Ok(found.len() as i32)
        },
    )?;
    linker.func_wrap(
        INTERFACE,
        "lm_store_put",
        |mut caller: Caller<'_, State>,
         key: u32,
         key_len: u32,
         value: u32,
         value_len: u32|
         -> wasmtime::Result<i32> {
            let (memory, state) = parts(&mut caller)?;
            let (key, value) = (slice(memory, key, key_len)?, slice(memory, value, value_len)?);
            Ok(if state.store.put(key, value) { 0 } else { -1 })
        },
    )?;
    Ok(())
}
