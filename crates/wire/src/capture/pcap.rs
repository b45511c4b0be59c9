//! The constants of the classic pcap format.
//!
//! ```text
//! magic 4 | major 2 | minor 2 | zone 4 | sigfigs 4 | snap length 4 | link type 4     file
//! seconds 4 | fraction 4 | captured length 4 | length on the wire 4 | data           record
//! ```

/// Fractions are microseconds.
pub(super) const MAGIC_US: u32 = 0xa1b2_c3d4;
/// Fractions are nanoseconds.
pub(super) const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// The only version in use.
pub(super) const VERSION: (u16, u16) = (2, 4);
/// Bytes of the file header after the magic number.
pub(super) const FILE_HEADER_REST_LEN: usize = 20;
/// Bytes before each record's data.
pub(super) const RECORD_HEADER_LEN: usize = 16;
