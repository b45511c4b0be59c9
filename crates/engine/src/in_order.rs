//! Work on several threads whose results are wanted one after the other.

use crate::Parallel;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Works on each item, on any thread, and passes on the results in the order of the items, each as soon as all before
/// it are there.
///
/// ```
/// use lastmeter_engine::{Serial, in_order};
/// let mut squares = Vec::new();
/// in_order(&Serial, vec![1, 2, 3], |number| number * number, |square| squares.push(square));
/// assert_eq!(squares, [1, 4, 9]);
/// ```
pub fn in_order<T: Send, R: Send>(
    parallel: &dyn Parallel,
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
    done: impl FnMut(R) + Send,
) {
    let waiting: VecDeque<Option<R>> = items.iter().map(|_| None).collect();
    // The results that wait for others, how many have been passed on, and to whom.
    let state = Mutex::new((waiting, 0, done));
    let one = |place: usize, item: T| {
        let result = work(item);
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (waiting, passed, done) = &mut *state;
        waiting[place - *passed] = Some(result);
        while let Some(result) = waiting.pop_front_if(|first| first.is_some()).flatten() {
            *passed += 1;
            done(result);
        }
    };
    let one = &one;
    let mut tasks: Vec<_> = items
        .into_iter()
        .enumerate()
        .map(|(place, item)| {
            let mut item = Some(item);
            move || item.take().into_iter().for_each(|item| one(place, item))
        })
        .collect();
    let mut tasks: Vec<&mut (dyn FnMut() + Send)> =
        tasks.iter_mut().map(|task| task as &mut (dyn FnMut() + Send)).collect();
    parallel.run(&mut tasks);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the last task first.
    struct Backwards;

    impl Parallel for Backwards {
        fn run(&self, tasks: &mut [&mut (dyn FnMut() + Send)]) {
            tasks.iter_mut().rev().for_each(|task| task());
        }
    }

    #[test]
    fn results_come_in_order_whatever_is_done_first() {
        let began = Mutex::new(Vec::new());
        let mut passed = Vec::new();
        let work = |item: u32| {
            began.lock().unwrap().push(item);
            item + 1
        };
        in_order(&Backwards, vec![10, 20, 30], work, |result| passed.push(result));
        assert_eq!((began.into_inner().unwrap(), passed), (vec![30, 20, 10], vec![11, 21, 31]));
    }
}
