//! Maps that eBPF programs share with us.

use crate::port::memory::{bpf_change, bpf_new};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const MAP_NEXT_KEY: i32 = 4;
const MAP_UPDATE_BATCH: i32 = 26;

/// What a map is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Hash = 1,
    Array = 2,
    /// As `Hash`; when it is full, an entry that has not been used for long makes room.
    Recent = 9,
    Devices = 14,
    Sockets = 17,
}

/// A map from `K` bytes to `V` bytes.
#[derive(Debug)]
pub(crate) struct Map<const K: usize, const V: usize>(OwnedFd);

impl<const K: usize, const V: usize> Map<K, V> {
    /// Empty, for at most so many entries.
    pub(crate) fn new(kind: Kind, entries: u32) -> io::Result<Self> {
        let sizes = (V as u64) | u64::from(entries) << 32;
        let map = bpf_new(MAP_CREATE, &mut [kind as u64 | (K as u64) << 32, sizes])?;
        Ok(Map(map))
    }
    /// For programs.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
    fn change(&self, command: i32, key: &[u8; K], value: u64) -> io::Result<()> {
        let map = self.0.as_raw_fd() as u64;
        bpf_change(command, &mut [map, key.as_ptr() as u64, value, 0])
    }
    /// Adds or replaces.
    pub(crate) fn insert(&self, key: &[u8; K], value: &[u8; V]) -> io::Result<()> {
        self.change(MAP_UPDATE, key, value.as_ptr() as u64)
    }
    /// Adds or replaces all of these: in one call, which takes a third of the time, where the kernel has it (5.6).
    pub(crate) fn insert_all(&self, keys: &[[u8; K]], values: &[[u8; V]]) -> io::Result<()> {
        assert_eq!(keys.len(), values.len(), "a value for each key");
        if keys.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(keys.len()).map_err(io::Error::other)?;
        let places = u64::from(count) | (self.0.as_raw_fd() as u64) << 32;
        let all = &mut [0, 0, keys.as_ptr() as u64, values.as_ptr() as u64, places, 0, 0];
        if bpf_change(MAP_UPDATE_BATCH, all).is_ok() {
            return Ok(());
        }
        keys.iter().zip(values).try_for_each(|(key, value)| self.insert(key, value))
    }
    /// Removes; whether it was there.
    pub(crate) fn remove(&self, key: &[u8; K]) -> bool {
        self.change(MAP_DELETE, key, 0).is_ok()
    }
    /// The value of a key.
    pub(crate) fn get(&self, key: &[u8; K]) -> Option<[u8; V]> {
        let mut value = [0; V];
        self.change(MAP_LOOKUP, key, value.as_mut_ptr() as u64).ok()?;
        Some(value)
    }
    /// All keys.
    pub(crate) fn keys(&self) -> Vec<[u8; K]> {
        let mut keys: Vec<[u8; K]> = Vec::new();
        let (mut last, mut next) = (None::<[u8; K]>, [0; K]);
        loop {
            let before = last.as_ref().map_or(0, |key| key.as_ptr() as u64);
            let map = self.0.as_raw_fd() as u64;
            let there = bpf_change(MAP_NEXT_KEY, &mut [map, before, next.as_mut_ptr() as u64, 0]);
            if there.is_err() {
                return keys;
            }
            keys.push(next);
            last = Some(next);
        }
    }
}
