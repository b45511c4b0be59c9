//! zlib streams that continue from rectangle to rectangle.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Limit on the inflated bytes of a rectangle.
pub const INFLATED_MAX: usize = 64 << 20;

/// A compressor, whose history spans rectangles.
pub(super) struct Deflate(Compress);

impl Default for Deflate {
    fn default() -> Deflate {
        Deflate(Compress::new(Compression::fast(), true))
    }
}

impl Deflate {
    /// Appends `input`, compressed.
    pub(super) fn deflate(&mut self, input: &[u8], bytes: &mut Vec<u8>) {
        let began = self.0.total_in();
        loop {
            let done = (self.0.total_in() - began) as usize;
            bytes.reserve((input.len() - done) / 2 + 256);
            // The only error is a stream that has ended, which never happens here.
            let status = self.0.compress_vec(&input[done..], bytes, FlushCompress::Sync);
            let done = (self.0.total_in() - began) as usize;
            // Space left means that the flush is complete.
            if status.is_err() || done == input.len() && bytes.len() < bytes.capacity() {
                return;
            }
        }
    }
}

/// A decompressor.
pub(super) struct Inflate(Decompress);

impl Default for Inflate {
    fn default() -> Inflate {
        Inflate(Decompress::new(true))
    }
}

impl Inflate {
    /// What `input` inflates to.
    pub(super) fn inflate(&mut self, input: &[u8]) -> Result<Vec<u8>, String> {
        let (mut bytes, mut rest) = (Vec::new(), input);
        loop {
            bytes.reserve(rest.len().max(1 << 12));
            let (before, room) = (self.0.total_in(), bytes.capacity());
            let status = self.0.decompress_vec(rest, &mut bytes, FlushDecompress::Sync);
            let status = status.map_err(|error| format!("zlib: {error}"))?;
            rest = &rest[(self.0.total_in() - before) as usize..];
            if bytes.len() > INFLATED_MAX {
                return Err(format!("zlib: more than {INFLATED_MAX} bytes"));
            }
            if matches!(status, Status::StreamEnd) || rest.is_empty() && bytes.len() < room {
                return Ok(bytes);
            }
            if matches!(status, Status::BufError) && bytes.len() < room {
                return Err("zlib: the stream stops".to_owned());
            }
        }
    }
}
