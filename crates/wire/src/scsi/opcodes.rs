//! The commands of a disk and which bits of each are used, as REPORT SUPPORTED OPERATION CODES reports them.

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// Its first byte.
    pub code: u8,
    /// Its service action, if it has one.
    pub action: Option<u16>,
    /// Its name.
    pub name: &'static str,
    /// For each of its bytes, the bits that are used.
    pub usage: &'static [u8],
}

const fn row(code: u8, action: Option<u16>, name: &'static str, usage: &'static [u8]) -> Opcode {
    Opcode { code, action, name, usage }
}

const F: u8 = 0xff;

/// All of them. The first byte of `usage` is the code itself; that of the service action is its number.
pub const OPCODES: &[Opcode] = &[
    row(0x00, None, "TEST UNIT READY", &[0x00, 0, 0, 0, 0, 7]),
    row(0x03, None, "REQUEST SENSE", &[0x03, 1, 0, 0, F, 7]),
    row(0x08, None, "READ(6)", &[0x08, 0x1f, F, F, F, 7]),
    row(0x0a, None, "WRITE(6)", &[0x0a, 0x1f, F, F, F, 7]),
    row(0x12, None, "INQUIRY", &[0x12, 1, F, F, F, 7]),
    row(0x15, None, "MODE SELECT(6)", &[0x15, 0x11, 0, 0, F, 7]),
    row(0x16, None, "RESERVE(6)", &[0x16, 0, 0, 0, 0, 7]),
    row(0x17, None, "RELEASE(6)", &[0x17, 0, 0, 0, 0, 7]),
    row(0x1a, None, "MODE SENSE(6)", &[0x1a, 8, F, F, F, 7]),
    row(0x1b, None, "START STOP UNIT", &[0x1b, 1, 0, 0x0f, 0xf7, 7]),
    row(0x1e, None, "PREVENT ALLOW MEDIUM REMOVAL", &[0x1e, 0, 0, 0, 3, 7]),
    row(0x25, None, "READ CAPACITY(10)", &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 7]),
    row(0x28, None, "READ(10)", &[0x28, 0xf8, F, F, F, F, 0x3f, F, F, 7]),
    row(0x2a, None, "WRITE(10)", &[0x2a, 0xf8, F, F, F, F, 0x3f, F, F, 7]),
    row(0x2e, None, "WRITE AND VERIFY(10)", &[0x2e, 0xf6, F, F, F, F, 0x3f, F, F, 7]),
    row(0x2f, None, "VERIFY(10)", &[0x2f, 0xf6, F, F, F, F, 0x3f, F, F, 7]),
    row(0x34, None, "PRE-FETCH(10)", &[0x34, 2, F, F, F, F, 0x3f, F, F, 7]),
    row(0x35, None, "SYNCHRONIZE CACHE(10)", &[0x35, 2, F, F, F, F, 0x3f, F, F, 7]),
    row(0x37, None, "READ DEFECT DATA(10)", &[0x37, 0, 0x1f, 0, 0, 0, 0, F, F, 7]),
    row(0x41, None, "WRITE SAME(10)", &[0x41, 0xf8, F, F, F, F, 0x3f, F, F, 7]),
    row(0x42, None, "UNMAP", &[0x42, 1, 0, 0, 0, 0, 0x3f, F, F, 7]),
    row(0x55, None, "MODE SELECT(10)", &[0x55, 0x11, 0, 0, 0, 0, 0, F, F, 7]),
    row(0x5a, None, "MODE SENSE(10)", &[0x5a, 0x18, F, F, 0, 0, 0, F, F, 7]),
    row(0x5e, Some(0), "READ KEYS", &[0x5e, 0, 0, 0, 0, 0, 0, F, F, 7]),
    row(0x5e, Some(1), "READ RESERVATION", &[0x5e, 1, 0, 0, 0, 0, 0, F, F, 7]),
    row(0x5e, Some(2), "REPORT CAPABILITIES", &[0x5e, 2, 0, 0, 0, 0, 0, F, F, 7]),
    row(0x5e, Some(3), "READ FULL STATUS", &[0x5e, 3, 0, 0, 0, 0, 0, F, F, 7]),
    row(0x5f, Some(0), "REGISTER", &[0x5f, 0, F, 0, 0, F, F, F, F, 7]),
    row(0x5f, Some(1), "RESERVE", &[0x5f, 1, F, 0, 0, F, F, F, F, 7]),
    row(0x5f, Some(2), "RELEASE", &[0x5f, 2, F, 0, 0, F, F, F, F, 7]),
    row(0x5f, Some(3), "CLEAR", &[0x5f, 3, F, 0, 0, F, F, F, F, 7]),
    row(0x5f, Some(4), "PREEMPT", &[0x5f, 4, F, 0, 0, F, F, F, F, 7]),
    row(0x5f, Some(5), "PREEMPT AND ABORT", &[0x5f, 5, F, 0, 0, F, F, F, F, 7]),
    row(0x5f, Some(6), "REGISTER AND IGNORE KEY", &[0x5f, 6, F, 0, 0, F, F, F, F, 7]),
    row(0x83, Some(0), "EXTENDED COPY", &[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 7]),
    row(0x84, Some(0), "COPY STATUS", &[0x84, 0, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 7]),
    row(0x84, Some(3), "COPY PARAMETERS", &[0x84, 3, F, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 7]),
    row(0x88, None, "READ(16)", &[0x88, 0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(
        0x89,
        None,
        "COMPARE AND WRITE",
        &[0x89, 0xf8, F, F, F, F, F, F, F, F, 0, 0, 0, F, 0x3f, 7],
    ),
    row(0x8a, None, "WRITE(16)", &[0x8a, 0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(0x8b, None, "ORWRITE", &[0x8b, 0xf8, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(
        0x8e,
        None,
        "WRITE AND VERIFY(16)",
        &[0x8e, 0xf6, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7],
    ),
    row(0x8f, None, "VERIFY(16)", &[0x8f, 0xf6, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(0x90, None, "PRE-FETCH(16)", &[0x90, 2, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(
        0x91,
        None,
        "SYNCHRONIZE CACHE(16)",
        &[0x91, 2, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7],
    ),
    row(0x93, None, "WRITE SAME(16)", &[0x93, 0xf9, F, F, F, F, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(
        0x9e,
        Some(0x10),
        "READ CAPACITY(16)",
        &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 7],
    ),
    row(
        0x9e,
        Some(0x12),
        "GET LBA STATUS",
        &[0x9e, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0, 7],
    ),
    row(0xa0, None, "REPORT LUNS", &[0xa0, 0, F, 0, 0, 0, F, F, F, F, 0, 7]),
    row(0xa3, Some(0x0a), "REPORT TARGET PORT GROUPS", &[0xa3, 0xea, 0, 0, 0, 0, F, F, F, F, 0, 7]),
    row(
        0xa3,
        Some(0x0c),
        "REPORT SUPPORTED OPERATION CODES",
        &[0xa3, 0x0c, 0x87, F, F, F, F, F, F, F, 0, 7],
    ),
    row(
        0xa3,
        Some(0x0d),
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        &[0xa3, 0x0d, 0, 0, 0, 0, F, F, F, F, 0, 7],
    ),
    row(0xa8, None, "READ(12)", &[0xa8, 0xf8, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(0xaa, None, "WRITE(12)", &[0xaa, 0xf8, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(0xae, None, "WRITE AND VERIFY(12)", &[0xae, 0xf6, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(0xaf, None, "VERIFY(12)", &[0xaf, 0xf6, F, F, F, F, F, F, F, F, 0x3f, 7]),
    row(0xb7, None, "READ DEFECT DATA(12)", &[0xb7, 0x1f, 0, 0, 0, 0, F, F, F, F, 0, 7]),
];
