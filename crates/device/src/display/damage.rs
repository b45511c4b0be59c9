//! The pending damage of a viewer: changed tiles, and one copy that it can do itself.
//!
//! A viewer's screen is updated first by the copy, from its current pixels, then by the tiles. So a
//! scroll costs a few bytes, and a second scroll before the viewer has seen the first is merged with it.

use lastmeter_plugin::request::Rect;

/// Width and height of a tile, in pixels.
pub const TILE: u16 = 16;

/// Limit on the rectangles of an update, so that their number fits its field however they are split; more are merged
/// into one.
pub const RECTANGLES_MAX: usize = 512;

/// A copy by the viewer: `area` comes from its position minus the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The destination.
    pub area: Rect,
    /// The offset.
    pub by: (i32, i32),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Damage {
    /// The viewer's part of the screen; nothing else is ever damaged.
    seen: Rect,
    /// Words of a row of tiles.
    words: usize,
    tiles: Vec<u64>,
    /// Tiles of which the viewer has been sent the requested part, but not the rest.
    owed: Vec<u64>,
    asked: Rect,
    copy: Option<Copy>,
}

/// Moves a rectangle, clipped to the range of coordinates.
pub fn moved(rect: Rect, by: (i32, i32)) -> Rect {
    let along = |at: u16, len: u16, by: i32| {
        let start = (i32::from(at) + by).clamp(0, i32::from(u16::MAX));
        let end = (i32::from(at) + i32::from(len) + by).clamp(start, i32::from(u16::MAX));
        (start as u16, (end - start) as u16)
    };
    let ((x, w), (y, h)) = (along(rect.x, rect.w, by.0), along(rect.y, rect.h, by.1));
    Rect { x, y, w, h }
}

/// A rectangle minus a part of it: at most four rectangles.
pub fn without(rect: Rect, part: Rect) -> Vec<Rect> {
    let part = rect.meet(part);
    if part.is_empty() {
        return if rect.is_empty() { Vec::new() } else { vec![rect] };
    }
    let (right, bottom) = (part.x + part.w, part.y + part.h);
    [
        Rect { h: part.y - rect.y, ..rect },
        Rect { y: bottom, h: rect.y + rect.h - bottom, ..rect },
        Rect { x: rect.x, y: part.y, w: part.x - rect.x, h: part.h },
        Rect { x: right, y: part.y, w: rect.x + rect.w - right, h: part.h },
    ]
    .into_iter()
    .filter(|rest| !rest.is_empty())
    .collect()
}

impl Damage {
    /// For a viewer of this part of the screen that has not had an update yet.
    pub fn all(seen: Rect) -> Damage {
        let words = usize::from((seen.x + seen.w).div_ceil(TILE)).div_ceil(64);
        let none = vec![0; words * usize::from((seen.y + seen.h).div_ceil(TILE))];
        let (tiles, owed) = (none.clone(), none);
        let mut damage = Damage { seen, words, tiles, owed, asked: seen, copy: None };
        damage.change(seen);
        damage
    }
    /// Whether this part of the viewer's screen is up to date.
    pub fn is_empty(&self, part: Rect) -> bool {
        let (columns, mut rows) = self.touched(part);
        let owed = if part == self.asked { &[][..] } else { &self.owed };
        self.copy.is_none()
            && rows.all(|row| {
                columns.clone().all(|column| {
                    let (word, bit) = (row * self.words + column / 64, column % 64);
                    let tile = self.tiles[word] | owed.get(word).unwrap_or(&0);
                    tile >> bit & 1 == 0
                })
            })
    }
    /// Columns and rows of the tiles that a rectangle touches.
    fn touched(&self, rect: Rect) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let rect = rect.meet(self.seen);
        if rect.is_empty() {
            return (0..0, 0..0);
        }
        let along = |at: u16, len: u16| {
            usize::from(at / TILE)..(usize::from(at) + usize::from(len)).div_ceil(TILE.into())
        };
        (along(rect.x, rect.w), along(rect.y, rect.h))
    }
    /// These pixels changed.
    pub fn change(&mut self, rect: Rect) {
        let (columns, rows) = self.touched(rect);
        for row in rows {
            for column in columns.clone() {
                self.tiles[row * self.words + column / 64] |= 1 << (column % 64);
            }
        }
    }
    fn is_changed(&self, column: usize, row: usize) -> bool {
        self.tiles[row * self.words + column / 64] >> (column % 64) & 1 != 0
    }
    fn is_owed(&self, column: usize, row: usize) -> bool {
        self.owed[row * self.words + column / 64] >> (column % 64) & 1 != 0
    }
    fn place(column: usize, row: usize) -> Rect {
        let along = |tile: usize| tile as u16 * TILE;
        Rect { x: along(column), y: along(row), w: TILE, h: TILE }
    }
    /// These pixels were copied from elsewhere on the screen.
    pub fn copied(&mut self, area: Rect, by: (i32, i32)) {
        let seen = self.seen;
        // The viewer cannot copy pixels that it does not have.
        let source = moved(area, (-by.0, -by.1)).meet(seen);
        let own = moved(source, by).meet(area).meet(seen);
        for rest in without(area, own) {
            self.change(rest);
        }
        if own.is_empty() {
            return;
        }
        // Damage at the source is copied to the destination.
        let source = moved(own, (-by.0, -by.1));
        let (columns, rows) = self.touched(source);
        let mut carried = Vec::new();
        for row in rows {
            for column in columns.clone() {
                if self.is_changed(column, row) || self.is_owed(column, row) {
                    carried.push(moved(Self::place(column, row).meet(source), by));
                }
            }
        }
        self.copy = match self.copy.take() {
            None => Some(Copy { area: own, by }),
            Some(before) => {
                // Pixels that were copied twice: one copy by both distances.
                let both = moved(before.area.meet(source), by);
                let sum = (before.by.0 + by.0, before.by.1 + by.1);
                if both.is_empty() || sum == (0, 0) {
                    // Two unrelated copies: the first one is kept.
                    self.change(own);
                    Some(before)
                } else {
                    for rest in without(own, both).into_iter().chain(without(before.area, own)) {
                        self.change(rest);
                    }
                    Some(Copy { area: both, by: sum })
                }
            }
        };
        carried.into_iter().for_each(|rect| self.change(rect));
    }
    /// The copy and the rectangles that update `part` of the screen. Damage outside stays pending.
    pub fn take(&mut self, part: Rect, copies: bool) -> (Option<Copy>, Vec<Rect>) {
        let part = part.meet(self.seen);
        if part != std::mem::replace(&mut self.asked, part) {
            for (tile, owed) in self.tiles.iter_mut().zip(&mut self.owed) {
                *tile |= std::mem::take(owed);
            }
        }
        let copy = match self.copy.take() {
            Some(copy) if copies && copy.area.within(part) => {
                moved(copy.area, (-copy.by.0, -copy.by.1)).within(part).then_some(copy).or_else(
                    || {
                        self.change(copy.area);
                        None
                    },
                )
            }
            Some(copy) => {
                self.change(copy.area);
                None
            }
            None => None,
        };
        let mut rects: Vec<Rect> = Vec::new();
        let (columns, rows) = self.touched(part);
        for row in rows {
            let mut column = columns.start;
            while column < columns.end {
                if !self.is_changed(column, row) {
                    column += 1;
                    continue;
                }
                let first = column;
                while column < columns.end && self.is_changed(column, row) {
                    let (word, bit) = (row * self.words + column / 64, 1 << (column % 64));
                    self.tiles[word] &= !bit;
                    if !Self::place(column, row).meet(self.seen).within(part) {
                        self.owed[word] |= bit;
                    }
                    column += 1;
                }
                let start = Self::place(first, row);
                let wide = Rect { w: ((column - first) as u16).saturating_mul(TILE), ..start };
                let run = wide.meet(part);
                // A run as wide as the one above it extends it.
                let above = rects.iter_mut().rev().find(|above| above.x == run.x);
                match above {
                    Some(above) if above.w == run.w && above.y + above.h == run.y => {
                        above.h += run.h;
                    }
                    _ => rects.push(run),
                }
            }
        }
        if rects.len() > RECTANGLES_MAX {
            let ends = |rect: &Rect| (rect.x + rect.w, rect.y + rect.h);
            let left = rects.iter().map(|rect| rect.x).min().unwrap_or(0);
            let top = rects.iter().map(|rect| rect.y).min().unwrap_or(0);
            let right = rects.iter().map(|rect| ends(rect).0).max().unwrap_or(0);
            let bottom = rects.iter().map(|rect| ends(rect).1).max().unwrap_or(0);
            rects = vec![Rect { x: left, y: top, w: right - left, h: bottom - top }];
        }
        (copy, rects)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) const SIDE: u16 = 80;
    pub(crate) const WHOLE: Rect = Rect { x: 0, y: 0, w: SIDE, h: SIDE };

    pub(crate) fn any_rect() -> impl Strategy<Value = Rect> {
        (0..SIDE, 0..SIDE, 1..SIDE, 1..SIDE).prop_map(|(x, y, w, h)| Rect {
            x,
            y,
            w: w.min(SIDE - x),
            h: h.min(SIDE - y),
        })
    }

    #[derive(Clone, Debug)]
    pub(crate) enum Step {
        Draw(Rect),
        Copy(Rect, u16, u16),
        /// All of it, or a part.
        See(bool),
    }

    pub(crate) fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any_rect().prop_map(Step::Draw),
            (any_rect(), 0..SIDE, 0..SIDE).prop_map(|(to, x, y)| Step::Copy(
                to,
                x.min(SIDE - to.w),
                y.min(SIDE - to.h)
            )),
            any::<bool>().prop_map(Step::See),
        ]
    }

    pub(crate) fn at(x: u16, y: u16) -> usize {
        usize::from(y) * usize::from(SIDE) + usize::from(x)
    }

    pub(crate) fn each(rect: Rect) -> impl Iterator<Item = (u16, u16)> {
        (rect.y..rect.y + rect.h).flat_map(move |y| (rect.x..rect.x + rect.w).map(move |x| (x, y)))
    }

    pub(crate) fn copy(pixels: &mut [u32], to: Rect, by: (i32, i32)) {
        let old = pixels.to_vec();
        for (x, y) in each(to) {
            pixels[at(x, y)] = old[at((i32::from(x) - by.0) as u16, (i32::from(y) - by.1) as u16)];
        }
    }

    proptest! {
        /// Whatever is drawn and copied between two updates, the viewer's picture equals the screen afterwards.
        #[test]
        fn the_viewer_sees_the_screen(
            steps in proptest::collection::vec(any_step(), 1..40),
            seen in any_rect(),
            part in any_rect(),
            copies: bool,
        ) {
            let mut screen = vec![0u32; usize::from(SIDE) * usize::from(SIDE)];
            let mut viewer = screen.clone();
            let mut damage = Damage::all(seen);
            for (number, step) in steps.into_iter().chain([Step::See(true)]).enumerate() {
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
                        let part = if all { seen } else { part.meet(seen) };
                        let (copied, rects) = damage.take(part, copies);
                        prop_assert!(damage.is_empty(part));
                        if let Some(done) = copied {
                            prop_assert!(done.area.within(part));
                            copy(&mut viewer, done.area, done.by);
                        }
                        for rect in rects {
                            prop_assert!(rect.within(part));
                            each(rect).for_each(|(x, y)| viewer[at(x, y)] = screen[at(x, y)]);
                        }
                        for (x, y) in each(part) {
                            prop_assert_eq!(viewer[at(x, y)], screen[at(x, y)], "{} {}", x, y);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn many_rectangles_become_one() {
        let whole = Rect { x: 0, y: 0, w: 2048, h: 2048 };
        let mut damage = Damage::all(whole);
        damage.take(whole, true);
        // A chequerboard, in which no two tiles touch.
        for tile in 0..64 * 128 {
            let (x, y) = (tile % 64 * 32 + tile / 64 % 2 * 16, tile / 64 * 16);
            damage.change(Rect { x, y, w: 1, h: 1 });
        }
        assert_eq!(damage.take(whole, true), (None, vec![whole]));
        assert!(damage.is_empty(whole));
    }

    #[test]
    fn scrolls_add_up() {
        let mut damage = Damage::all(WHOLE);
        damage.take(WHOLE, true);
        let to = Rect { x: 0, y: 0, w: SIDE, h: SIDE - 16 };
        for _ in 0..2 {
            damage.copied(to, (0, -16));
            damage.change(Rect { x: 0, y: SIDE - 16, w: SIDE, h: 16 });
        }
        let (copy, rects) = damage.take(WHOLE, true);
        let area = Rect { x: 0, y: 0, w: SIDE, h: SIDE - 32 };
        assert_eq!(copy, Some(Copy { area, by: (0, -32) }));
        assert_eq!(rects, [Rect { x: 0, y: SIDE - 32, w: SIDE, h: 32 }]);
        assert!(damage.is_empty(WHOLE));
    }
}
