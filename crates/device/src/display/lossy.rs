//! What a viewer has been sent as JPEG, tile by tile, and since when: what does not change any more is sent again,
//! exactly.
//!
//! A viewer that copies such pixels has them at both places. Of a tile that is partly outside of what the viewer asks
//! for only the part inside is sent again; the rest is, once it asks for that.

use super::damage::{Copy, TILE, moved};
use lastmeter_plugin::request::Rect;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tile {
    Exact,
    /// In what the viewer asks for; elsewhere not.
    Inside,
    /// Sent as JPEG, at this time in milliseconds.
    Lossy(u32),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lossy {
    /// The viewer's part of the screen.
    seen: Rect,
    /// What the viewer asks for.
    asked: Rect,
    columns: usize,
    /// None, until there is something to remember.
    tiles: Vec<Tile>,
}

impl Lossy {
    pub(super) fn new(seen: Rect) -> Lossy {
        let columns = usize::from((seen.x + seen.w).div_ceil(TILE));
        Lossy { seen, asked: seen, columns, tiles: Vec::new() }
    }
    /// The viewer asks for this part of the screen; whether it is another one than before.
    pub(super) fn ask(&mut self, part: Rect, now: u32) -> bool {
        let other = std::mem::replace(&mut self.asked, part) != part;
        if other {
            let inside = self.tiles.iter_mut().filter(|tile| **tile == Tile::Inside);
            inside.for_each(|tile| *tile = Tile::Lossy(now));
        }
        other
    }
    /// Columns and rows of the tiles that a rectangle touches.
    fn touched(&self, rect: Rect) -> (Range<usize>, Range<usize>) {
        let rect = rect.meet(self.seen);
        if rect.is_empty() {
            return (0..0, 0..0);
        }
        let along = |at: u16, len: u16| {
            usize::from(at / TILE)..(usize::from(at) + usize::from(len)).div_ceil(TILE.into())
        };
        (along(rect.x, rect.w), along(rect.y, rect.h))
    }
    fn each(&self, rect: Rect) -> impl Iterator<Item = (usize, Rect)> + use<> {
        let ((columns, rows), wide, seen) = (self.touched(rect), self.columns, self.seen);
        rows.flat_map(move |row| columns.clone().map(move |column| (column, row))).map(
            move |(column, row)| {
                let along = |tile: usize| tile as u16 * TILE;
                let place = Rect { x: along(column), y: along(row), w: TILE, h: TILE };
                (row * wide + column, place.meet(seen))
            },
        )
    }
    /// What the viewer was sent: a copy, then rectangles, and what of them was JPEG.
    pub(super) fn sent(&mut self, copy: Option<Copy>, rects: &[Rect], jpeg: &[Rect], now: u32) {
        if self.tiles.is_empty() {
            if jpeg.is_empty() {
                return;
            }
            let rows = usize::from((self.seen.y + self.seen.h).div_ceil(TILE));
            self.tiles = vec![Tile::Exact; self.columns * rows];
        }
        if let Some(Copy { area, by }) = copy {
            let source = moved(area, (-by.0, -by.1));
            let from = self.each(source).filter(|(at, _)| self.tiles[*at] != Tile::Exact);
            let to: Vec<Rect> = from.map(|(_, place)| moved(place.meet(source), by)).collect();
            for (at, place) in self.each(area) {
                if place.within(area) {
                    self.tiles[at] = Tile::Exact;
                }
            }
            to.into_iter().for_each(|rect| self.mark(rect, now));
        }
        for rect in rects {
            for (at, place) in self.each(*rect) {
                let tile = &mut self.tiles[at];
                match *tile {
                    Tile::Exact => {}
                    _ if place.within(*rect) => *tile = Tile::Exact,
                    // What is sent of a tile is all of it that the viewer asked for.
                    _ => *tile = Tile::Inside,
                }
            }
        }
        jpeg.iter().for_each(|rect| self.mark(*rect, now));
    }
    fn mark(&mut self, rect: Rect, now: u32) {
        for (at, _) in self.each(rect) {
            self.tiles[at] = Tile::Lossy(now);
        }
    }
    /// Tiles of this part that were sent as JPEG at least `still` milliseconds ago, about as many pixels as may be sent
    /// at once; and in how many milliseconds there are more.
    pub(super) fn due(
        &self,
        part: Rect,
        now: u32,
        still: u32,
        pixels: usize,
    ) -> (Vec<Rect>, Option<u32>) {
        /// More tiles next to each other, so that their number fits an update's.
        const RUNS_MAX: usize = super::damage::RECTANGLES_MAX;
        let (mut runs, mut left, mut next) = (Vec::<Rect>::new(), pixels, None);
        if self.tiles.is_empty() {
            return (runs, next);
        }
        for (at, place) in self.each(part) {
            let Tile::Lossy(since) = self.tiles[at] else { continue };
            let wait = still.saturating_sub(now.wrapping_sub(since));
            let full = left == 0 || runs.len() == RUNS_MAX;
            if wait > 0 || full {
                next = Some(next.map_or(wait, |next: u32| next.min(wait)));
                continue;
            }
            left = left.saturating_sub(usize::from(place.w) * usize::from(place.h));
            match runs.last_mut() {
                Some(run) if (run.x + run.w, run.y) == (place.x, place.y) => run.w += place.w,
                _ => runs.push(place),
            }
        }
        (runs, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::damage::Damage;
    use crate::display::damage::tests::{SIDE, Step, WHOLE, any_rect, any_step, at, copy, each};
    use proptest::prelude::*;

    /// A pixel as JPEG leaves it: another one.
    const JPEG: u32 = 1 << 31;

    proptest! {
        /// Whatever is drawn, copied and sent, of whatever part: what is due makes all of it exact, and then nothing is due.
        #[test]
        fn what_is_still_becomes_exact(
            steps in proptest::collection::vec((any_step(), any_rect()), 1..40),
            seen in any_rect(),
            part in any_rect(),
            pixels in 1usize..2000,
        ) {
            let mut screen = vec![0u32; usize::from(SIDE) * usize::from(SIDE)];
            let mut viewer = screen.clone();
            let (mut damage, mut lossy) = (Damage::all(seen), Lossy::new(seen));
            let mut see = |damage: &mut Damage, lossy: &mut Lossy, screen: &[u32], part, jpeg: Rect, now| {
                lossy.ask(part, now);
                let (copied, rects) = damage.take(part, true);
                if let Some(done) = copied {
                    copy(&mut viewer, done.area, done.by);
                }
                for rect in &rects {
                    each(*rect).for_each(|(x, y)| viewer[at(x, y)] = screen[at(x, y)]);
                    each(rect.meet(jpeg)).for_each(|(x, y)| viewer[at(x, y)] |= JPEG);
                }
                let jpeg: Vec<Rect> = rects.iter().map(|rect| rect.meet(jpeg)).collect();
                lossy.sent(copied, &rects, &jpeg, now);
                viewer.clone()
            };
            let parts = [part.meet(seen), seen];
            let count = steps.len() as u32;
            for (number, (step, jpeg)) in steps.into_iter().enumerate() {
                match step {
                    Step::Draw(rect) => {
                        each(rect).for_each(|(x, y)| screen[at(x, y)] = number as u32);
                        damage.change(rect);
                    }
                    Step::Copy(to, x, y) => {
                        let by = (i32::from(to.x) - i32::from(x), i32::from(to.y) - i32::from(y));
                        copy(&mut screen, to, by);
                        damage.copied(to, by);
                    }
                    Step::See(all) => {
                        let part = parts[usize::from(all)];
                        see(&mut damage, &mut lossy, &screen, part, jpeg, number as u32);
                    }
                }
            }
            let nothing = Rect { w: 0, h: 0, ..WHOLE };
            for (round, part) in parts.into_iter().enumerate() {
                let now = count + 100 * (1 + round as u32);
                see(&mut damage, &mut lossy, &screen, part, nothing, now);
                lossy.ask(part, now);
                for _ in 0..100 {
                    let (due, next) = lossy.due(part, now + 50, 50, pixels);
                    if due.is_empty() {
                        prop_assert_eq!(next, None);
                        break;
                    }
                    due.iter().for_each(|rect| damage.change(*rect));
                    see(&mut damage, &mut lossy, &screen, part, nothing, now + 50);
                }
                prop_assert_eq!(lossy.due(part, now + 50, 50, pixels), (Vec::new(), None));
                let viewer = see(&mut damage, &mut lossy, &screen, part, nothing, now + 50);
                for (x, y) in each(part) {
                    prop_assert_eq!(viewer[at(x, y)], screen[at(x, y)], "{} {}", x, y);
                }
            }
        }
    }

    #[test]
    fn only_what_is_still_is_due() {
        let mut lossy = Lossy::new(WHOLE);
        assert_eq!(lossy.due(WHOLE, 0, 500, usize::MAX), (Vec::new(), None));
        let (left, right) = (Rect { w: 32, h: 16, ..WHOLE }, Rect { x: 48, w: 16, h: 16, ..WHOLE });
        lossy.sent(None, &[WHOLE], &[left, right], u32::MAX - 100);
        assert_eq!(lossy.due(WHOLE, u32::MAX, 500, usize::MAX), (Vec::new(), Some(400)));
        // The right one changes once more.
        lossy.sent(None, &[right], &[right], 199);
        assert_eq!(lossy.due(WHOLE, 399, 500, usize::MAX), (vec![left], Some(300)));
        // A tile at a time, where the link has room for no more.
        let first = Rect { w: 16, ..left };
        assert_eq!(lossy.due(WHOLE, 399, 500, 1), (vec![first], Some(0)));
        lossy.sent(None, &[left], &[], 399);
        assert_eq!(lossy.due(WHOLE, 699, 500, usize::MAX), (vec![right], None));
    }
}
