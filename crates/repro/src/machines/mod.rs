//! Machines that only papers need: no experiment file names them, but published tables and figures are computed
//! from them.
//!
//! * Aurora's hosts: [`coprocessor`] moves cells word by word, [`turbochannel`] is their bus,
//!   [`vudboard`] and [`vupboard`] are boards simulated by buses and registers, [`virtual_buffer`]
//!   absorbs cells while an interface is deaf, [`vidboard`] sends frames on request, [`florb`] moves a
//!   word per instruction, [`forward`] saturates forwarders made of such parts.
//! * Cost of software: [`instructions`] counts a packet's processor time, [`dependency`] bounds it from below,
//!   [`process`] counts context switches of a message's processes.
//! * Afterburner: [`card_memory`].
//! * Jetstream: [`ring`] has timed-token budgets and slotted rings; [`switch`] has frame and cell switches;
//!   [`crc_generator`] and [`circuits`] are parts of its card.
//! * ATOMIC-2: [`admission`], [`shares`] and [`failover`] of wormhole networks.
//! * HARTS: [`channels`] and floods on links, simulated to check that guarantees hold.
//! * The router of Washington University: [`set_up`] of flows, with and without a round trip.
//! * Pre-emptive links: framing of interrupted units ([`lastmeter_wire::framing`]), [`clumping`] of acknowledgements.

pub mod admission;
pub mod card_memory;
pub mod channels;
pub mod circuits;
pub mod clumping;
pub mod coprocessor;
pub mod crc_generator;
pub mod dependency;
pub mod failover;
pub mod florb;
pub mod forward;
pub mod instructions;
pub mod process;
pub mod ring;
pub mod set_up;
pub mod shares;
pub mod switch;
pub mod turbochannel;
pub mod vidboard;
pub mod virtual_buffer;
pub mod vudboard;
pub mod vupboard;
