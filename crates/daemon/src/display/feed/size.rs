//! The size of an X screen, changed as a viewer wishes (RandR).

use crate::Complaint;
use x11rb::connection::Connection as _;
use x11rb::protocol::randr::{ConnectionExt as _, Mode, ModeInfo, Output, Rotation};
use x11rb::protocol::xproto::{ConnectionExt as _, Window};
use x11rb::rust_connection::RustConnection;

/// Pixels of a millimetre, nearly: 96 an inch.
const PIXELS_PER_MM: f64 = 96.0 / 25.4;

/// Gives the screen this size, or the nearest that its server allows.
pub(super) fn change(
    x: &RustConnection,
    root: Window,
    (w, h): (u16, u16),
) -> Result<(), Complaint> {
    x.randr_query_version(1, 3)?.reply()?;
    let range = x.randr_get_screen_size_range(root)?.reply()?;
    let size = (
        w.min(range.max_width).max(range.min_width),
        h.min(range.max_height).max(range.min_height),
    );
    let now = x.get_geometry(root)?.reply()?;
    if (now.width, now.height) == size {
        return Ok(());
    }
    // Others see the screen before or after, not in between.
    x.grab_server()?;
    let changed = replace(x, root, size);
    x.ungrab_server()?;
    x.flush()?;
    changed
}

/// Turns all outputs off, as none may reach beyond the screen, changes that, and shows it on the outputs of the first.
fn replace(x: &RustConnection, root: Window, (w, h): (u16, u16)) -> Result<(), Complaint> {
    let resources = x.randr_get_screen_resources(root)?.reply()?;
    let (now, configured) = (x11rb::CURRENT_TIME, resources.config_timestamp);
    let set = |crtc, (x_at, y_at), mode, rotation, outputs: &[Output]| {
        let set =
            x.randr_set_crtc_config(crtc, now, configured, x_at, y_at, mode, rotation, outputs);
        set?.reply().map(drop).map_err(Complaint::from)
    };
    let mut used = Vec::new();
    for crtc in &resources.crtcs {
        let info = x.randr_get_crtc_info(*crtc, configured)?.reply()?;
        if info.mode != x11rb::NONE {
            set(*crtc, (0, 0), x11rb::NONE, Rotation::ROTATE0, &[])?;
            used.push((*crtc, info));
        }
    }
    let mm = |pixels: u16| (f64::from(pixels) / PIXELS_PER_MM).round().max(1.0) as u32;
    let sized = x.randr_set_screen_size(root, w, h, mm(w), mm(h))?.check();
    if let Err(why) = sized {
        for (crtc, info) in &used {
            set(*crtc, (info.x, info.y), info.mode, info.rotation, &info.outputs)?;
        }
        return Err(why.into());
    }
    let Some((crtc, info)) = used.first() else { return Ok(()) };
    let known = resources.modes.iter().find(|mode| (mode.width, mode.height) == (w, h));
    let mode = match known {
        Some(mode) => Ok(mode.id),
        None => new_mode(x, root, (w, h), &info.outputs),
    };
    // A screen that no output shows is one all the same.
    if let Ok(mode) = mode {
        let _ = set(*crtc, (0, 0), mode, Rotation::ROTATE0, &info.outputs);
    }
    Ok(())
}

/// A mode of this size for these outputs.
fn new_mode(
    x: &RustConnection,
    root: Window,
    (w, h): (u16, u16),
    outputs: &[Output],
) -> Result<Mode, Complaint> {
    /// Pictures a second, which nobody sees.
    const RATE: u32 = 60;
    let name = format!("{w}x{h}");
    let info = ModeInfo {
        id: 0,
        width: w,
        height: h,
        dot_clock: u32::from(w) * u32::from(h) * RATE,
        hsync_start: w,
        hsync_end: w,
        htotal: w,
        hskew: 0,
        vsync_start: h,
        vsync_end: h,
        vtotal: h,
        name_len: name.len() as u16,
        mode_flags: 0u32.into(),
    };
    let mode = x.randr_create_mode(root, info, name.as_bytes())?.reply()?.mode;
    for output in outputs {
        x.randr_add_output_mode(*output, mode)?.check()?;
    }
    Ok(mode)
}
