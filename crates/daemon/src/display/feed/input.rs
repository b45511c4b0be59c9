//! Keys and the pointer of viewers, acted out on an X screen, and its size.

use super::{Feed, Source, Told, size};
use crate::Complaint;
use crate::device::tell;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::framebuffer::{ANSWERED, Operation, status};
use std::sync::Arc;
use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::ConnectionExt as _;
use x11rb::protocol::xtest::ConnectionExt as _;

/// X's numbers of events that it is told to act out.
const KEY_PRESS: u8 = 2;
const KEY_RELEASE: u8 = 3;
const BUTTON_PRESS: u8 = 4;
const BUTTON_RELEASE: u8 = 5;
const MOTION: u8 = 6;

/// Acts out viewers' keys and pointers, on a connection and a thread of its own, if the display lets this program have
/// them. Another size of the display becomes that of the X screen, where that is possible.
pub(super) fn listen(source: &Source, arguments: &Feed, told: Arc<Told>) -> Result<(), Complaint> {
    let x = &source.x;
    let mut events = arguments.place.program()?;
    let (state, _) = events.ask(Operation::LISTEN, Rect::default(), &[])?;
    if state != status::DONE || x.xtest_get_version(2, 2)?.reply().is_err() {
        return Ok(());
    }
    let (low, high) = (x.setup().min_keycode, x.setup().max_keycode);
    let mapping = x.get_keyboard_mapping(low, high - low + 1)?.reply()?;
    let per = usize::from(mapping.keysyms_per_keycode).max(1);
    let code = move |key: u32| {
        let at = mapping.keysyms.iter().position(|symbol| *symbol == key)?;
        u8::try_from(usize::from(low) + at / per).ok()
    };
    let (x, root, wake, keeps) = (x.clone(), source.root, source.waker(), arguments.keep_size);
    std::thread::spawn(move || {
        let mut buttons = 0u8;
        while let Ok((header, data)) = events.receive() {
            let kind = Operation(header.operation.0 & !ANSWERED);
            let acted = match kind {
                Operation::KEY if data.len() >= 8 => {
                    let key = u32::from_be_bytes([data[4], data[5], data[6], data[7]]);
                    let kind = if data[0] != 0 { KEY_PRESS } else { KEY_RELEASE };
                    let Some(code) = code(key) else { continue };
                    x.xtest_fake_input(kind, code, 0, root, 0, 0, 0).map(drop)
                }
                Operation::POINTER if !data.is_empty() => {
                    let (to_x, to_y) = (header.area.x as i16, header.area.y as i16);
                    let moved = x.xtest_fake_input(MOTION, 0, 0, root, to_x, to_y, 0);
                    let changed = std::mem::replace(&mut buttons, data[0]) ^ data[0];
                    let pressed = (0..8).filter(|at| changed >> at & 1 != 0).try_for_each(|at| {
                        let down = data[0] >> at & 1 != 0;
                        let kind = if down { BUTTON_PRESS } else { BUTTON_RELEASE };
                        x.xtest_fake_input(kind, at + 1, 0, root, 0, 0, 0).map(drop)
                    });
                    moved.map(drop).and(pressed)
                }
                Operation::SIZE => {
                    let wanted = (header.area.w, header.area.h);
                    told.set(wanted);
                    if !told.is_own(wanted) {
                        // If the X screen cannot have it, the display gets that of the X screen.
                        if !keeps && let Err(Complaint(why)) = size::change(&x, root, wanted) {
                            tell(&format!("the X screen keeps its size: {why}"));
                        }
                        let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
                    }
                    continue;
                }
                _ => continue,
            };
            if acted.is_err() || x.flush().is_err() {
                return;
            }
        }
    });
    Ok(())
}
