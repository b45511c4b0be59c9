//! The interface of plugins, lastmeter:request/1, for Rust without its standard library (docs/plugin-interface.md).
//!
//! ```text
//! mod lastmeter;
//! lastmeter::plugin!(kinds: lastmeter::PACKET, wanted: 64, decide);
//! fn decide(request: &mut lastmeter::Request, data: &mut [u8]) { request.verdict = lastmeter::ALLOW; }
//! ```

#![allow(dead_code)]

pub const PACKET: u16 = 1;
pub const BLOCK: u16 = 2;
pub const FRAMEBUFFER: u16 = 4;
pub const FRAME: u16 = 8;

pub const ALLOW: u8 = 1;
pub const DENY: u8 = 2;
pub const CHANGED: u8 = 3;
pub const TO_INTERFACE: u8 = 4;
pub const TO_FLOW: u8 = 5;
pub const CLONE: u8 = 6;
pub const REMAP: u8 = 7;
pub const READ_ONLY: u8 = 8;
pub const CLIP: u8 = 9;
pub const MOVE: u8 = 10;
pub const CROP: u8 = 11;
pub const SCALE: u8 = 12;
pub const QUALITY: u8 = 13;

/// A descriptor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Request {
    pub kind: u8,
    pub verdict: u8,
    pub operation: u16,
    pub code: u32,
    pub length: u32,
    offset: u32,
    pub captured: u32,
    pub room: u32,
    pub flow: u64,
    pub arrival: u64,
    pub mark: u64,
    /// What is particular to the kind.
    pub particular: [u8; 16],
}

impl Request {
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.particular[at], self.particular[at + 1]])
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }
    /// Of a packet.
    pub fn interface(&self) -> u16 {
        self.u16(0)
    }
    /// Of a block command.
    pub fn lba(&self) -> u64 {
        u64::from(self.u32(0)) | u64::from(self.u32(4)) << 32
    }
    /// Of a block command.
    pub fn blocks(&self) -> u32 {
        self.u32(8)
    }
    /// Of a block command.
    pub fn initiator(&self) -> u32 {
        self.u32(12)
    }
    /// Of a framebuffer command or a frame: x, y, width, height.
    pub fn rectangle(&self) -> [u16; 4] {
        [self.u16(0), self.u16(2), self.u16(4), self.u16(6)]
    }
    /// For the verdicts that name a rectangle.
    pub fn set_rectangle(&mut self, rectangle: [u16; 4]) {
        for (at, side) in rectangle.into_iter().enumerate() {
            self.particular[2 * at..2 * at + 2].copy_from_slice(&side.to_le_bytes());
        }
    }
    /// Of a frame.
    pub fn number(&self) -> u32 {
        self.u32(12)
    }
}

#[link(wasm_import_module = "lastmeter:request/1")]
unsafe extern "C" {
    fn lm_now() -> u64;
    fn lm_random() -> u64;
    fn lm_log(text: *const u8, length: usize);
}

/// Nanoseconds; the same throughout a batch.
pub fn now() -> u64 {
    // SAFETY: it takes nothing and returns a number.
    unsafe { lm_now() }
}

/// From the instance's own generator.
pub fn random() -> u64 {
    // SAFETY: as above.
    unsafe { lm_random() }
}

/// Writes a line to the instance's log.
pub fn log(text: &str) {
    // SAFETY: the host reads the text before it returns.
    unsafe { lm_log(text.as_ptr(), text.len()) }
}

/// Requests for which there is room, as in `lastmeter.h`.
pub const fn batch(wanted: usize) -> usize {
    let fit = 1_048_576 / (64 + wanted.next_multiple_of(8));
    if fit < 1 {
        1
    } else if fit > 64 {
        64
    } else {
        fit
    }
}

#[repr(C, align(8))]
pub struct Room<const LEN: usize>(pub [u8; LEN]);

#[repr(C)]
pub struct Description<const LEN: usize> {
    pub magic: [u8; 4],
    pub version: u16,
    pub kinds: u16,
    pub room: *mut Room<LEN>,
    pub length: u32,
    pub wanted: u32,
    pub reserved: [u32; 3],
}

// SAFETY: a plugin has one thread.
unsafe impl<const LEN: usize> Sync for Description<LEN> {}

/// Decides about each request of the batch at this address.
///
/// # Safety
///
/// The host has put a batch there.
pub unsafe fn each(batch: *mut u8, decide: fn(&mut Request, &mut [u8])) -> i32 {
    // SAFETY: the host has written the header, as many descriptors, and data with room for each.
    unsafe {
        let count = batch.cast::<u32>().read() as usize;
        let requests = core::slice::from_raw_parts_mut(batch.add(16).cast::<Request>(), count);
        for request in requests {
            let data = request.offset as *mut u8;
            decide(request, core::slice::from_raw_parts_mut(data, request.room as usize));
        }
    }
    0
}

/// Defines the plugin.
#[macro_export]
macro_rules! plugin {
    (kinds: $kinds:expr, wanted: $wanted:expr, $decide:path) => {
        const ROOM_LEN: usize =
            16 + $crate::lastmeter::batch($wanted) * (64 + ($wanted as usize).next_multiple_of(8));
        static mut ROOM: $crate::lastmeter::Room<ROOM_LEN> = $crate::lastmeter::Room([0; ROOM_LEN]);
        #[unsafe(no_mangle)]
        static lm_plugin: $crate::lastmeter::Description<ROOM_LEN> = $crate::lastmeter::Description {
            magic: *b"LMRQ",
            version: 1,
            kinds: $kinds,
            room: &raw mut ROOM,
            length: ROOM_LEN as u32,
            wanted: $wanted,
            reserved: [0; 3],
        };
        #[unsafe(no_mangle)]
        extern "C" fn lm_process(batch: *mut u8) -> i32 {
            // SAFETY: the host calls it with the address of a batch.
            unsafe { $crate::lastmeter::each(batch, $decide) }
        }
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            core::arch::wasm32::unreachable()
        }
    };
}

pub use plugin;
