//! The constants of the pcapng format.

/// Starts a section; the same in both byte orders.
pub(super) const BLOCK_SECTION: u32 = 0x0a0d_0d0a;
/// Describes an interface.
pub(super) const BLOCK_INTERFACE: u32 = 1;
/// A packet, in the form that preceded [`BLOCK_ENHANCED_PACKET`].
pub(super) const BLOCK_OLD_PACKET: u32 = 2;
/// A packet of interface 0 without a timestamp.
pub(super) const BLOCK_SIMPLE_PACKET: u32 = 3;
/// A packet with its interface and timestamp.
pub(super) const BLOCK_ENHANCED_PACKET: u32 = 6;
/// Indicates the byte order of a section.
pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Type, length, length again.
pub(super) const BLOCK_OVERHEAD: u32 = 12;
/// Byte-order magic, version, section length.
pub(super) const SECTION_FIXED_LEN: usize = 16;
/// Link type, reserved, snap length.
pub(super) const INTERFACE_FIXED_LEN: usize = 8;
/// Interface, two halves of the timestamp, captured length, length on the wire.
pub(super) const PACKET_FIXED_LEN: usize = 20;
/// The length of a section if it was not known when written.
pub(super) const SECTION_LEN_UNKNOWN: u64 = u64::MAX;
/// Major version.
pub(super) const VERSION_MAJOR: u16 = 1;

/// Ends a list of options.
pub(super) const OPTION_END: u16 = 0;
/// In a section: the program that wrote it.
pub(super) const OPTION_USER_APPLICATION: u16 = 4;
/// In an interface: its name.
pub(super) const OPTION_NAME: u16 = 2;
/// In an interface: its clock's resolution, a negative power of 10, or of 2 with the top bit set.
pub(super) const OPTION_RESOLUTION: u16 = 9;
/// In an interface: seconds to add to every timestamp.
pub(super) const OPTION_OFFSET: u16 = 14;
/// Resolution of an interface that does not state one: microseconds.
pub(super) const TICKS_DEFAULT: u64 = 1_000_000;
