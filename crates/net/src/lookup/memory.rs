//! The memory of a table: words that readers load while one writer changes them.
//!
//! ```text
//! half words     4p-4 .. 4p-1            | pair p                            | 4p+4  4p+5 ...
//! a node at p    ... hop 2  hop 1  hop 0 | internal bitmap, external bitmap  | slot 0  slot 1 ...
//! ```
//!
//! A word is a 64-bit atomic, which costs no more to load than an ordinary one on today's processors,
//! and lets a table be shared without locks or unsafe code. The writer never changes a block
//! that readers can reach, except for half words, each in one store: it writes a new block, publishes it
//! with one store of a pointer, and frees the old one after a grace period.
//!
//! Blocks have an even number of pairs, and those that fit into a cache line are within one: nine of ten half
//! words that a search of a full table fetches are in the same line as the bitmaps that selected them.
//!
//! **Grace periods.** A reader records the epoch in which it entered (a store and a fence for each batch). A block
//! unlinked in epoch e is reused once every active reader has entered after e. Readers never
//! wait; a reader that stays active only delays the reuse of freed blocks.
//!
//! **Growth.** When the words are used up, the writer copies them to a larger array and leaves a pointer to
//! it in the old one; a reader follows that when it next enters. A reader that never enters again keeps alive
//! the array that it last saw.

use super::message::Write;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Words before the initial array: the empty node for pointer 0, and a pair after it.
pub(super) const RESERVED: u32 = 4;
/// Words in a cache line.
pub(super) const LINE: usize = 8;
/// The longest block in pairs of words: 63 next hops, two bitmaps, 64 slots, four to a pair.
const BLOCK_LEN_MAX: usize = 16 + 1 + 16;
/// Blocks that are unlinked before the writer checks which readers are active.
const RETIRED_MAX: usize = 128;

/// The words, and the array that replaced them.
#[derive(Debug)]
pub(super) struct Words {
    all: Box<[AtomicU64]>,
    /// Index of the first word at the start of a cache line.
    first: usize,
    next: OnceLock<Arc<Words>>,
}

impl Words {
    fn new(len: usize, from: &[AtomicU64]) -> Arc<Words> {
        let mut all: Box<[AtomicU64]> =
            std::iter::repeat_with(AtomicU64::default).take(len + LINE - 1).collect();
        // Alignment to lines matters only for speed, so any start is correct.
        let first = all.as_ptr().align_offset(LINE * size_of::<AtomicU64>()).min(LINE - 1);
        for (word, old) in all[first..].iter_mut().zip(from) {
            *word.get_mut() = old.load(Ordering::Relaxed);
        }
        Arc::new(Words { all, first, next: OnceLock::new() })
    }
    fn len(&self) -> usize {
        self.all.len() + 1 - LINE
    }
    #[inline(always)]
    fn get(&self) -> &[AtomicU64] {
        &self.all[self.first..]
    }
}

/// The words of an array, and those left free after it.
pub(super) const fn whole(len: u32) -> u32 {
    len.next_multiple_of(4)
}

/// The bitmaps of the node at pair `at`, the internal first: one cache line, one check of bounds.
#[inline(always)]
pub(super) fn bitmaps(words: &[AtomicU64], at: u32) -> (u64, u64) {
    let pair = words.as_chunks::<2>().0.get(at as usize);
    pair.map_or((0, 0), |[internal, external]| {
        (internal.load(Ordering::Relaxed), external.load(Ordering::Relaxed))
    })
}
/// The word at `at`; zero beyond the end, so that no message makes a lookup panic.
#[inline(always)]
pub(super) fn word(words: &[AtomicU64], at: u32) -> u64 {
    words.get(at as usize).map_or(0, |word| word.load(Ordering::Acquire))
}
/// The half word at `at`, counted in half words, the low half first.
#[inline(always)]
pub(super) fn half(words: &[AtomicU64], at: u32) -> u32 {
    (word(words, at >> 1) >> ((at & 1) * 32)) as u32
}

/// The epoch in which a reader entered, alone in its cache line; [`OUTSIDE`] when it is not active.
#[derive(Debug)]
#[repr(align(64))]
struct Pin(AtomicU64);
const OUTSIDE: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Epochs {
    now: AtomicU64,
    readers: Mutex<Vec<Weak<Pin>>>,
}

impl Epochs {
    /// The oldest epoch of an active reader.
    fn oldest(&self) -> u64 {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| reader.strong_count() > 0);
        let inside = readers.iter().filter_map(Weak::upgrade);
        inside.map(|pin| pin.0.load(Ordering::SeqCst)).min().unwrap_or(OUTSIDE)
    }
}

/// A reader's access to the words.
#[derive(Debug)]
pub(super) struct Door {
    words: Arc<Words>,
    epochs: Arc<Epochs>,
    pin: Arc<Pin>,
}

impl Door {
    fn new(words: Arc<Words>, epochs: Arc<Epochs>) -> Door {
        let pin = Arc::new(Pin(AtomicU64::new(OUTSIDE)));
        let mut readers = epochs.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.push(Arc::downgrade(&pin));
        drop(readers);
        Door { words, epochs, pin }
    }
    pub(super) fn another(&self) -> Door {
        Door::new(Arc::clone(&self.words), Arc::clone(&self.epochs))
    }
    /// The result of `work` on the words, none of which is reused meanwhile.
    #[inline]
    pub(super) fn inside<R>(&mut self, work: impl FnOnce(&[AtomicU64]) -> R) -> R {
        self.pin.0.store(self.epochs.now.load(Ordering::SeqCst), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while let Some(next) = self.words.next.get() {
            self.words = Arc::clone(next);
        }
        let result = work(self.words.get());
        self.pin.0.store(OUTSIDE, Ordering::Release);
        result
    }
}

/// The writer's side.
#[derive(Debug)]
pub(super) struct Memory {
    words: Arc<Words>,
    epochs: Arc<Epochs>,
    /// Words that were ever used.
    used: u32,
    /// Free blocks by length, in pairs.
    free: Vec<Vec<u32>>,
    free_words: u64,
    /// Blocks that the next publication unlinks.
    doomed: Vec<(u32, u32)>,
    /// Blocks that readers may still see, with the epoch in which they were unlinked.
    retired: VecDeque<(u64, u32, u32)>,
    retired_words: u64,
    /// The stores, in order, if recorded.
    pub(super) journal: Option<Vec<Write>>,
}

impl Memory {
    pub(super) fn new(root_len: u32) -> Memory {
        let used = RESERVED + whole(root_len);
        Memory {
            words: Words::new(used as usize, &[]),
            epochs: Arc::default(),
            used,
            free: vec![Vec::new(); BLOCK_LEN_MAX + 1],
            free_words: 0,
            doomed: Vec::new(),
            retired: VecDeque::new(),
            retired_words: 0,
            journal: None,
        }
    }
    pub(super) fn words(&self) -> &[AtomicU64] {
        self.words.get()
    }
    pub(super) fn door(&self) -> Door {
        Door::new(Arc::clone(&self.words), Arc::clone(&self.epochs))
    }
    pub(super) fn used(&self) -> u32 {
        self.used
    }
    /// Words of blocks that may be reused, some of them after a grace period.
    pub(super) fn free_words(&self) -> u64 {
        self.free_words + self.retired_words
    }
    /// Whether a block of `len` pairs can be allocated without more words.
    pub(super) fn is_free(&self, len: u32) -> bool {
        self.free.get(len.next_multiple_of(2) as usize).is_some_and(|blocks| !blocks.is_empty())
    }
    /// Bytes of the lists of free and of unlinked blocks.
    pub(super) fn list_bytes(&self) -> u64 {
        let free: usize = self.free.iter().map(|list| list.capacity() * size_of::<u32>()).sum();
        (free + self.retired.capacity() * size_of::<(u64, u32, u32)>()) as u64
    }
    pub(super) fn half(&self, at: u32) -> u32 {
        half(self.words(), at)
    }
    fn word(&self, at: u32) -> u64 {
        word(self.words(), at)
    }

    /// A block of `len` pairs that no reader can see, within one cache line if it fits.
    pub(super) fn allocate(&mut self, len: u32) -> u32 {
        let len = len.next_multiple_of(2);
        if let Some(at) = self.free.get_mut(len as usize).and_then(Vec::pop) {
            self.free_words -= 2 * u64::from(len);
            return at;
        }
        if len > 2 && !self.used.is_multiple_of(LINE as u32) {
            let gap = self.used / 2;
            self.used += 4;
            self.release(gap, 2);
        }
        let at = self.used / 2;
        self.used += 2 * len;
        if self.used as usize > self.words.len() {
            self.grow();
        }
        at
    }
    fn grow(&mut self) {
        // An eighth more: the words are copied rarely, and few stay unused.
        let len = self.used as usize + self.used as usize / 8 + 2 * BLOCK_LEN_MAX;
        let words = Words::new(len, self.words.get());
        self.words.next.set(Arc::clone(&words)).expect("words are replaced once");
        self.words = words;
    }
    /// Stores a pair of a block that no reader can see.
    pub(super) fn put(&mut self, at: u32, [first, second]: [u64; 2]) {
        self.store(2 * at, first, Ordering::Relaxed);
        self.store(2 * at + 1, second, Ordering::Relaxed);
    }
    fn store(&mut self, at: u32, value: u64, ordering: Ordering) {
        self.words.get()[at as usize].store(value, ordering);
        if let Some(journal) = &mut self.journal {
            journal.push(Write { address: at, word: value });
        }
    }
    /// Stores a half word that readers can see, which unlinks the doomed blocks.
    pub(super) fn publish(&mut self, at: u32, value: u32) {
        let shift = (at & 1) * 32;
        let others = self.word(at >> 1) & !(u64::from(u32::MAX) << shift);
        self.store(at >> 1, others | u64::from(value) << shift, Ordering::Release);
        self.retire_doomed();
    }
    fn retire_doomed(&mut self) {
        while let Some((block, len)) = self.doomed.pop() {
            self.retire(block, len);
        }
    }
    /// Stores a word that readers can see, which unlinks the doomed blocks.
    pub(super) fn publish_word(&mut self, at: u32, value: u64) {
        self.store(at, value, Ordering::Release);
        self.retire_doomed();
    }
    /// Has the next publication unlink this block.
    pub(super) fn doom(&mut self, at: u32, len: u32) {
        self.doomed.push((at, len.next_multiple_of(2)));
    }
    fn retire(&mut self, at: u32, len: u32) {
        // Only readers share the epochs with the writer.
        if Arc::strong_count(&self.epochs) == 1 && self.retired.is_empty() {
            return self.release(at, len);
        }
        self.retired.push_back((self.epochs.now.load(Ordering::Relaxed), at, len));
        self.retired_words += 2 * u64::from(len);
        if self.retired.len().is_multiple_of(RETIRED_MAX) {
            self.reclaim();
        }
    }
    fn reclaim(&mut self) {
        self.epochs.now.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let oldest = self.epochs.oldest();
        while let Some((_, at, len)) = self.retired.pop_front_if(|(epoch, ..)| *epoch < oldest) {
            self.retired_words -= 2 * u64::from(len);
            self.release(at, len);
        }
    }
    fn release(&mut self, at: u32, len: u32) {
        self.free_words += 2 * u64::from(len);
        // Large arrays are rarely created or removed.
        if self.free.len() <= len as usize {
            self.free.resize_with(len as usize + 1, Vec::new);
        }
        self.free[len as usize].push(at);
    }
}
