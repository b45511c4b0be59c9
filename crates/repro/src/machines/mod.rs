//! Machines that only papers need: no experiment names them, but their tables and figures are
//! computed from them.
//!
//! * Aurora's hosts: [`coprocessor`] moves cells word by word, [`turbochannel`] is their bus,
//!   [`vudboard`] and [`vupboard`] are boards stepped by buses and registers, [`virtual_buffer`]
//!   absorbs cells while an interface is deaf, [`vidboard`] sends frames on request, [`florb`] moves a
//!   word with an instruction, [`forward`] saturates forwarders of such parts.
//! * What software costs: [`instructions`] counts what a packet costs a processor, [`dependency`]
//!   what it costs at least, [`process`] what a message's processes cost.
//! * Afterburner: [`card_memory`].
//! * Jetstream: [`ring`] has the budgets of a timed token and rings of slots; [`switch`] has switches of
//!   frames and of cells; [`crc_generator`] and [`circuits`] are parts of its card.
//! * ATOMIC-2: [`admission`], [`shares`] and [`failover`] of wormhole networks.
//! * HARTS: [`channels`] and floods on links, run together to check that guarantees hold.
//! * Pre-emptive links: [`framing`] of interrupted units, [`clumping`] of acknowledgements.

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
pub mod framing;
pub mod instructions;
pub mod process;
pub mod ring;
pub mod shares;
pub mod switch;
pub mod turbochannel;
pub mod vidboard;
pub mod virtual_buffer;
pub mod vudboard;
pub mod vupboard;
