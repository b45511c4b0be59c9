//! ATM adaptation layers: segmentation of packets into cells, and reassembly.
//!
//! | layer    | module       | adds                                  | losses detected by  |
//! |----------|--------------|---------------------------------------|---------------------|
//! | AAL0     | [`aal0`]     | nothing: a cell's payload is the data | -                   |
//! | AAL5     | [`aal5`]     | padding and 8 bytes of trailer        | CRC-32 and length   |
//! | AAL3/4   | [`aal34`]    | 4 bytes per cell and 8 per packet     | sequence and CRC-10 |
//! | Vidboard | [`vidboard`] | as AAL5                               | checksum and length |
//!
//! [`reassembly`] reassembles the packets of AAL5 and the Vidboard over many circuits, [`encapsulation`]
//! identifies the protocol of a packet.

pub mod aal0;
pub mod aal34;
pub mod aal5;
pub mod encapsulation;
pub mod reassembly;
pub mod vidboard;
