//! An X screen that is shown elsewhere: what was drawn on it, its pixels, its cursor, its size.

use crate::Complaint;
use lastmeter_device::display::screen::CURSOR_MAX;
use lastmeter_plugin::request::Rect;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;
use x11rb::connection::{Connection as _, RequestConnection as _};
use x11rb::errors::ReplyError;
use x11rb::protocol::Event;
use x11rb::protocol::damage::{ConnectionExt as _, ReportLevel};
use x11rb::protocol::shm::{self, ConnectionExt as _};
use x11rb::protocol::xfixes::{ConnectionExt as _, CursorNotifyMask, Region};
use x11rb::protocol::xproto::{
    ChangeWindowAttributesAux, ConnectionExt as _, EventMask, ImageFormat, ImageOrder, Rectangle,
    Window,
};
use x11rb::rust_connection::RustConnection;

/// Rectangles that are fetched by themselves; more are fetched as one.
const RECTANGLES_MAX: usize = 8;

/// Memory into which the X server writes pixels.
struct Shared {
    segment: shm::Seg,
    memory: File,
}

/// What has happened on the screen.
#[derive(Clone, Copy, Default)]
pub(super) struct News {
    pub(super) drawn: bool,
    pub(super) cursor: bool,
    pub(super) size: bool,
}

impl News {
    fn any(self) -> bool {
        self.drawn || self.cursor || self.size
    }
}

pub(super) struct Source {
    pub(super) x: Arc<RustConnection>,
    pub(super) root: Window,
    /// Width and height.
    pub(super) size: (u16, u16),
    damage: u32,
    region: Region,
    /// None of a server elsewhere, whose pixels come through the connection.
    shared: Option<Shared>,
    /// What was last read from it.
    image: Vec<u8>,
    /// Readable when the display has another size.
    wake: Arc<OwnedFd>,
}

impl Source {
    pub(super) fn open(name: Option<&str>) -> Result<Source, Complaint> {
        let (x, number) = x11rb::connect(name)
            .map_err(|error| format!("X: {error}; give its screen with --x :1"))?;
        let x = Arc::new(x);
        let screen = x.setup().roots[number].clone();
        let format = x.setup().pixmap_formats.iter().find(|one| one.depth == screen.root_depth);
        if format.is_none_or(|format| format.bits_per_pixel != 32)
            || x.setup().image_byte_order != ImageOrder::LSB_FIRST
        {
            return Err(Complaint(
                "the X screen has no 32-bit pixels in this machine's order".to_owned(),
            ));
        }
        x.damage_query_version(1, 1)?.reply()?;
        x.xfixes_query_version(5, 0)?.reply()?;
        let root = screen.root;
        // Of the root, X tells its size.
        let sizes = ChangeWindowAttributesAux::new().event_mask(EventMask::STRUCTURE_NOTIFY);
        x.change_window_attributes(root, &sizes)?;
        x.xfixes_select_cursor_input(root, CursorNotifyMask::DISPLAY_CURSOR)?;
        let (damage, region) = (x.generate_id()?, x.generate_id()?);
        x.damage_create(damage, root, ReportLevel::NON_EMPTY)?;
        x.xfixes_create_region(region, &[])?;
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (size, shared, image) = ((0, 0), None, Vec::new());
        let mut source = Source { x, root, size, damage, region, shared, image, wake };
        source.measure()?;
        Ok(source)
    }
    /// The screen's size, and memory for its pixels.
    pub(super) fn measure(&mut self) -> Result<(), Complaint> {
        let found = self.x.get_geometry(self.root)?.reply()?;
        self.size = (found.width, found.height);
        if let Some(old) = self.shared.take() {
            self.x.shm_detach(old.segment)?;
        }
        self.shared = self.share()?;
        Ok(())
    }
    /// Memory shared with the X server, if it is on this host.
    fn share(&self) -> Result<Option<Shared>, Complaint> {
        if self.x.extension_information(shm::X11_EXTENSION_NAME)?.is_none() {
            return Ok(None);
        }
        let version = self.x.shm_query_version()?.reply()?;
        if (version.major_version, version.minor_version) < (1, 2) {
            return Ok(None);
        }
        let memory = File::from(memfd_create("x-screen", MemfdFlags::CLOEXEC)?);
        memory.set_len(4 * u64::from(self.size.0) * u64::from(self.size.1))?;
        let segment = self.x.generate_id()?;
        let theirs = OwnedFd::from(memory.try_clone()?);
        // A server behind a network refuses: it gets no descriptors.
        let Ok(attached) = self.x.shm_attach_fd(segment, theirs, false) else { return Ok(None) };
        Ok(attached.check().is_ok().then_some(Shared { segment, memory }))
    }
    /// Whether pixels come through shared memory.
    pub(super) fn shares(&self) -> bool {
        self.shared.is_some()
    }
    /// Waits until something has happened; `None` if the time is over.
    pub(super) fn wait(&self, until: Option<Instant>) -> Result<Option<News>, Complaint> {
        self.x.flush()?;
        loop {
            let mut news = News::default();
            while let Some(event) = self.x.poll_for_event()? {
                match event {
                    Event::DamageNotify(_) => news.drawn = true,
                    Event::XfixesCursorNotify(_) => news.cursor = true,
                    Event::ConfigureNotify(now) if now.window == self.root => {
                        news.size |= (now.width, now.height) != self.size;
                    }
                    _ => {}
                }
            }
            if news.any() {
                return Ok(Some(news));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let timeout = left.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
            let (socket, wake) = (self.x.stream().as_fd(), self.wake.as_fd());
            let [x, wake] = [socket, wake].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            poll(&mut [x, wake], timeout.as_ref())?;
            if rustix::io::read(&self.wake, &mut [0; 8]).is_ok() {
                return Ok(Some(News { size: true, ..News::default() }));
            }
        }
    }
    /// Where something was drawn since the last call.
    pub(super) fn drawn(&self) -> Result<Vec<Rect>, Complaint> {
        self.x.damage_subtract(self.damage, x11rb::NONE, self.region)?;
        let drawn = self.x.xfixes_fetch_region(self.region)?.reply()?;
        let side = |at: i16| u16::try_from(at).unwrap_or(0);
        let rect =
            |one: &Rectangle| Rect { x: side(one.x), y: side(one.y), w: one.width, h: one.height };
        Ok(match drawn.rectangles.len() {
            ..=RECTANGLES_MAX => drawn.rectangles.iter().map(rect).collect(),
            _ => vec![rect(&drawn.extents)],
        })
    }
    /// Whether it has shown that the display has another size.
    pub(super) fn waker(&self) -> Arc<OwnedFd> {
        self.wake.clone()
    }
    /// Reads the pixels of a part of the screen; false if the screen has another size by now. X leaves its cursor out.
    pub(super) fn pixels(&mut self, part: Rect, pixels: &mut Vec<u32>) -> Result<bool, Complaint> {
        let (x, y, all) = (part.x as i16, part.y as i16, !0);
        let format = ImageFormat::Z_PIXMAP;
        let root = self.root;
        let found = match &self.shared {
            Some(Shared { segment, memory }) => {
                let format = format.into();
                let got =
                    self.x.shm_get_image(root, x, y, part.w, part.h, all, format, *segment, 0);
                got?.reply().map(|_| {
                    self.image.resize(4 * usize::from(part.w) * usize::from(part.h), 0);
                    memory.read_exact_at(&mut self.image, 0)
                })
            }
            None => {
                let got = self.x.get_image(format, root, x, y, part.w, part.h, all);
                got?.reply().map(|image| {
                    self.image = image.data;
                    Ok(())
                })
            }
        };
        match found {
            Ok(read) => read?,
            Err(ReplyError::X11Error(error)) => {
                let now = self.x.get_geometry(root)?.reply()?;
                if (now.width, now.height) != self.size {
                    return Ok(false);
                }
                return Err(ReplyError::X11Error(error).into());
            }
            Err(error) => return Err(error.into()),
        }
        pixels.clear();
        let words = lastmeter_wire::framebuffer::pixels(&self.image);
        pixels.extend(words.map(|pixel| pixel & 0x00ff_ffff));
        Ok(true)
    }
    /// The cursor as the command that sets it: its size with the place that points, and its pixels.
    pub(super) fn cursor(&self) -> Result<(Rect, Vec<u8>), Complaint> {
        let image = self.x.xfixes_get_cursor_image()?.reply()?;
        let size = (image.width, image.height);
        Ok(cursor(size, (image.xhot, image.yhot), &image.cursor_image))
    }
}

/// A cursor of X, whose colours are multiplied by their opacity, as the command that sets it. Of a larger one, the part
/// around the place that points.
fn cursor(size: (u16, u16), hot: (u16, u16), words: &[u32]) -> (Rect, Vec<u8>) {
    let ((w, h), width) = (size, usize::from(size.0));
    let nothing = (Rect::default(), Vec::new());
    if hot.0 >= w || hot.1 >= h || words.len() != width * usize::from(h) {
        return nothing;
    }
    let cut = |side: u16, at: u16| {
        let from = at.saturating_sub(CURSOR_MAX / 2).min(side.saturating_sub(CURSOR_MAX));
        (from, side.min(CURSOR_MAX))
    };
    let ((left, wide), (top, high)) = (cut(w, hot.0), cut(h, hot.1));
    let plain = |word: u32| {
        let opacity = word >> 24;
        let full = |at: u32| ((word >> at & 0xff) * 255 / opacity.max(1)).min(255) << at;
        opacity << 24 | full(16) | full(8) | full(0)
    };
    let rows = words.chunks_exact(width).skip(top.into()).take(high.into());
    let row = |row: &[u32]| row[left.into()..usize::from(left) + usize::from(wide)].to_vec();
    let pixels: Vec<u32> = rows.flat_map(row).map(plain).collect();
    if pixels.iter().all(|pixel| pixel >> 31 == 0) {
        return nothing;
    }
    let at = Rect { x: hot.0 - left, y: hot.1 - top, w: wide, h: high };
    (at, pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Vec<u32> {
        lastmeter_wire::framebuffer::pixels(bytes).collect()
    }

    #[test]
    fn a_cursors_colours_are_those_behind_its_opacity() {
        let given = [0xffff_8000, 0x8040_2000, 0x0000_0000, 0x80ff_ffff];
        let (at, pixels) = cursor((2, 2), (1, 0), &given);
        assert_eq!(at, Rect { x: 1, y: 0, w: 2, h: 2 });
        assert_eq!(words(&pixels), [0xffff_8000, 0x807f_3f00, 0, 0x80ff_ffff]);
        assert_eq!(cursor((2, 1), (0, 0), &[0, 0x7f00_0000]), (Rect::default(), vec![]), "unseen");
        assert_eq!(cursor((2, 1), (2, 0), &given[..2]), (Rect::default(), vec![]), "points beside");
        assert_eq!(cursor((2, 1), (0, 0), &given), (Rect::default(), vec![]), "pixels missing");
    }

    #[test]
    fn of_a_large_cursor_the_part_that_points_is_kept() {
        let given: Vec<u32> = (0..300 * 300).map(|at| 0xff00_0000 | at).collect();
        for hot in [(0, 0), (299, 10), (150, 299)] {
            let (at, pixels) = cursor((300, 300), hot, &given);
            assert_eq!((at.w, at.h), (CURSOR_MAX, CURSOR_MAX));
            let place = usize::from(at.y) * usize::from(CURSOR_MAX) + usize::from(at.x);
            let expected = 0xff00_0000 | (u32::from(hot.1) * 300 + u32::from(hot.0));
            assert_eq!(words(&pixels)[place], expected);
        }
    }
}
