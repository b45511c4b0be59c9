//! Replaying captures: the only place that reads them.

use lastmeter_base::kind::{PACKET_MAX, TIME_MAX};
use lastmeter_base::{Bytes, Duration};
use lastmeter_engine::site::Records;
use lastmeter_wire::capture::{LinkType, Reader, Record};
use lastmeter_wire::internet::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Frame};
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

/// Records how a capture broke while it was replayed.
///
/// A source cannot fail a run, so it just ends there, and the run's caller checks this afterwards.
#[derive(Clone, Debug, Default)]
pub struct Slot(Arc<Mutex<Option<String>>>);

impl Slot {
    /// How the capture broke, if it did.
    pub fn failure(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn fail(&self, message: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
    }
}

/// The IP packet in a record, without the header of its link.
fn packet(link_type: LinkType, data: &[u8]) -> Option<&[u8]> {
    let packet = match link_type {
        LinkType::RAW => data,
        LinkType::ETHERNET => {
            let Frame { header, payload } = Frame::parse(data).ok()?;
            let is_ip = matches!(header.ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6);
            is_ip.then_some(payload)?
        }
        _ => return None,
    };
    matches!(packet.first()? >> 4, 4 | 6).then_some(packet)
}

/// The records of a capture, and where an error in it will be reported. With `bytes`, only its IP packets.
///
/// # Errors
/// If it does not start like a capture.
pub fn open(
    reader: Box<dyn Read + Send>,
    name: &str,
    bytes: bool,
) -> Result<(Records, Slot), String> {
    let mut reader = Reader::open(reader).map_err(|error| error.to_string())?;
    let slot = Slot::default();
    let (told, name) = (slot.clone(), name.to_owned());
    let mut record = Record::default();
    let mut next = move || -> Result<Option<(Duration, Bytes, Vec<u8>)>, String> {
        let more = reader.read(&mut record).map_err(|error| error.to_string())?;
        // No run is longer than this, so the rest of the capture comes after its end.
        if !more || record.since_first > TIME_MAX {
            return Ok(None);
        }
        if record.len_on_wire > PACKET_MAX {
            let (number, len) = (reader.records(), record.len_on_wire);
            return Err(format!("record {number} is {len} long, more than {PACKET_MAX}"));
        }
        let (at, len) = (record.since_first, record.len_on_wire);
        if !bytes {
            return Ok(Some((at, len, Vec::new())));
        }
        let link_type = reader.interfaces()[record.interface as usize].link_type;
        let packet = packet(link_type, &record.data).unwrap_or_default();
        let header = record.data.len() - packet.len();
        Ok(Some((at, Bytes(len.0 - header as u64), packet.to_vec())))
    };
    let records = std::iter::from_fn(move || {
        next().unwrap_or_else(|error| {
            told.fail(format!("the capture `{name}` broke: {error}"));
            None
        })
    });
    let records = records.filter(move |(_, _, packet)| !bytes || !packet.is_empty());
    Ok((Box::new(records), slot))
}
