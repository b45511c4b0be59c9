//! Linked lists of queued items, all in one allocation.

use lastmeter_base::Bytes;

/// No item, and an empty list.
pub(super) const NONE: u32 = u32::MAX;

/// A list is identified by its last item, whose next is its first.
#[derive(Debug)]
pub(super) struct Items<T> {
    slots: Vec<Item<T>>,
    /// The first unused slot.
    unused: u32,
}

#[derive(Debug)]
struct Item<T> {
    item: Option<T>,
    len: Bytes,
    next: u32,
}

impl<T> Default for Items<T> {
    fn default() -> Items<T> {
        Items { slots: Vec::new(), unused: NONE }
    }
}

impl<T> Items<T> {
    /// Appends an item to a list; returns the new last item.
    pub(super) fn put(&mut self, tail: u32, len: Bytes, item: T) -> u32 {
        let place = match self.slots.get_mut(self.unused as usize) {
            Some(slot) => {
                let place = std::mem::replace(&mut self.unused, slot.next);
                *slot = Item { item: Some(item), len, next: place };
                place
            }
            None => {
                let place = self.slots.len() as u32;
                self.slots.push(Item { item: Some(item), len, next: place });
                place
            }
        };
        if let Some(last) = self.slots.get_mut(tail as usize) {
            let first = std::mem::replace(&mut last.next, place);
            self.slots[place as usize].next = first;
        }
        place
    }

    /// Takes the first item of the list whose last item is `tail`; returns the last item, [`NONE`] if the list is
    /// now empty.
    pub(super) fn take(&mut self, tail: u32) -> (Bytes, T, u32) {
        let first = self.slots[tail as usize].next;
        let slot = &mut self.slots[first as usize];
        let item = slot.item.take().expect("a slot in a list has an item");
        let (len, next) = (slot.len, std::mem::replace(&mut slot.next, self.unused));
        self.unused = first;
        if first == tail {
            return (len, item, NONE);
        }
        self.slots[tail as usize].next = next;
        (len, item, tail)
    }
}
