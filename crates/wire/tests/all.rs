//! Formats against their standards and other programs.

mod atm;
mod capture;
mod internet;
mod reassembly;
mod tshark;
