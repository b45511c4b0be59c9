//! Records as the kernel writes them, for tests of what reads them.

/// A pass of a tracepoint: time, CPU, process, and what it recorded.
pub fn pass(at: u64, cpu: u32, process: u32, data: &[u8]) -> Vec<u8> {
    let mut body = [process.to_ne_bytes(), process.to_ne_bytes()].concat();
    body.extend(at.to_ne_bytes());
    body.extend([cpu.to_ne_bytes(), [0; 4], (data.len() as u32).to_ne_bytes()].concat());
    body.extend(data);
    with_header(9, &body)
}

/// So many losses, noted at this time.
pub fn lost(count: u64, at: u64) -> Vec<u8> {
    with_header(2, &[[0; 8], count.to_ne_bytes(), [0; 8], at.to_ne_bytes(), [0; 8]].concat())
}

fn with_header(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = 8 + body.len() as u16;
    [&kind.to_ne_bytes()[..], &[0; 2], &size.to_ne_bytes(), body].concat()
}
