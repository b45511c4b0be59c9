//! ATM adaptation layers: packets into cells and back.
//!
//! | layer    | module       | adds                                  | loss is found by    |
//! |----------|--------------|---------------------------------------|---------------------|
//! | AAL0     | [`aal0`]     | nothing: a cell's payload is the data | -                   |
//! | AAL5     | [`aal5`]     | padding and 8 bytes of trailer        | CRC-32 and length   |
//! | AAL3/4   | [`aal34`]    | 4 bytes per cell and 8 per packet     | sequence and CRC-10 |
//! | Vidboard | [`vidboard`] | as AAL5                               | a sum instead       |
//!
//! [`reassembly`] reassembles the packets of AAL5 and the Vidboard over many circuits,
//! [`encapsulation`] says which protocol a packet holds.

pub mod aal0;
pub mod aal34;
pub mod aal5;
pub mod encapsulation;
pub mod reassembly;
pub mod vidboard;
