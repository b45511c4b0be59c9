//! The places of connections: nobody can hold all of them, neither in silence nor by being slow.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Connections at once.
pub(super) const CONNECTIONS_MAX: usize = 128;

/// Who is connected.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    /// Counts connections and answers: the smaller, the longer ago.
    last: u64,
    places: BTreeMap<u64, Place>,
}

#[derive(Debug)]
struct Place {
    /// Answers being computed or sent.
    answers: usize,
    /// When it was last heard of.
    since: u64,
    task: Option<AbortHandle>,
}

/// A connection's place, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    places: Arc<Places>,
    number: u64,
}

/// While this exists, the connection is not silent: an answer is on its way.
#[derive(Debug)]
pub(super) struct Busy(Arc<Seat>);

impl Places {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place. If there is none, the connection goes that has been silent for longest; if none is
    /// silent, the one whose answer began first.
    pub(super) fn enter(self: &Arc<Self>) -> Seat {
        let mut taken = self.taken();
        if taken.places.len() >= CONNECTIONS_MAX {
            let order = |place: &Place| (place.answers > 0, place.since);
            let goes = taken.places.iter().min_by_key(|(_, place)| order(place));
            if let Some(number) = goes.map(|(&number, _)| number)
                && let Some(Place { task: Some(task), .. }) = taken.places.remove(&number)
            {
                task.abort();
            }
        }
        taken.last += 1;
        let number = taken.last;
        taken.places.insert(number, Place { answers: 0, since: number, task: None });
        Seat { places: self.clone(), number }
    }

    /// The task that serves this connection; it is aborted when it must leave.
    pub(super) fn served_by(&self, number: u64, task: AbortHandle) {
        match self.taken().places.get_mut(&number) {
            Some(place) => place.task = Some(task),
            None => task.abort(),
        }
    }
}

impl Seat {
    /// The number of its connection.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Says that it is being answered.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.change(|answers| answers + 1);
        Busy(self.clone())
    }

    fn change(&self, answers: impl FnOnce(usize) -> usize) {
        let mut taken = self.places.taken();
        taken.last += 1;
        let now = taken.last;
        if let Some(place) = taken.places.get_mut(&self.number) {
            place.answers = answers(place.answers);
            place.since = now;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.places.taken().places.remove(&self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|answers| answers - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silent_connection_goes_before_any_that_is_answered() {
        let places = Arc::new(Places::default());
        let seats: Vec<_> = (0..CONNECTIONS_MAX).map(|_| Arc::new(places.enter())).collect();
        let first = seats[0].busy();
        let is_there = |seat: &Arc<Seat>| places.taken().places.contains_key(&seat.number);
        let one = Arc::new(places.enter());
        assert!(is_there(&seats[0]) && !is_there(&seats[1]) && is_there(&seats[2]));
        // It was heard of last.
        drop(first);
        let two = Arc::new(places.enter());
        assert!(is_there(&seats[0]) && !is_there(&seats[2]));
        assert_eq!(places.taken().places.len(), CONNECTIONS_MAX);
        // All are answered: the one goes whose answer began first.
        let others = [one, two];
        let _busy: Vec<_> = seats.iter().rev().chain(&others).map(Seat::busy).collect();
        let _three = places.enter();
        assert!(!is_there(&seats[CONNECTIONS_MAX - 1]) && is_there(&seats[0]));
    }
}
